//! Functions of the kernel need kernel code in the trace, and the bytes of that code: what is missing, and
//! how to get it.

use anyhow::Result;
use image::{FindError, Image, Query};
use model::{FunctionId, FunctionLookup as _, Recording};

use crate::config::CallsConfig;
use crate::exit::{Exit, failure};

/// How kernel code gets into a recording.
pub(crate) const RECORD: &str = "Record with kernel code, and keep that: perf record --kcore -e intel_pt// -p PID (or -- CMD), \
                                 as root; then func_latency report -i perf.data -f k:NAME";

/// How the code of a traced kernel is given.
const GIVE: &str = "Give it: --kcore DIR (of perf record --kcore, or a copy of /proc/kcore with kallsyms and modules, of the same \
                    start of the kernel), --vmlinux FILE (as it was linked), or a bundle, made on the recorded machine before it is \
                    started again: func_latency bundle perf.data -o DIR, as root";

/// Refuses functions of the kernel that the recording can tell nothing of.
///
/// # Errors
/// There is no kernel code in the trace, or its bytes are not here.
pub(crate) fn check(config: &CallsConfig, recording: &Recording<'_>, image: &Image) -> Result<()> {
    if image.has_kernel_text() {
        return Ok(());
    }
    let is_of_kernel = |text: &&String| text.starts_with("k:") || config.object.as_deref() == Some("k");
    let ancestor = config.ancestor.iter().map(|ancestor| &ancestor.function);
    for text in config.functions.iter().chain(ancestor).filter(is_of_kernel) {
        let query = Query { text: text.clone(), object: config.object.clone() };
        let Err(error @ FindError::NoKernelCode { .. }) = image.find(&query) else { continue };
        let message = match recording.pt.kernel {
            true => format!("{error}, though the kernel was traced.  {GIVE}"),
            false => format!("{error}: user code alone was traced.  {RECORD}"),
        };
        return Err(failure(Exit::BadInput, message));
    }
    Ok(())
}

/// What limits the report on functions of the kernel.
pub(crate) fn limit(
    recording: &Recording<'_>,
    image: &Image,
    mut wanted: impl Iterator<Item = FunctionId>,
) -> Option<String> {
    if !wanted.any(|id| image.is_of_kernel(id)) {
        return None;
    }
    if !recording.pt.kernel {
        return Some(format!("the kernel was not traced: its functions have no calls here.  {RECORD}"));
    }
    recording.coverage.is_whole.then(|| {
        "CPUs were traced as a whole: kernel calls in which their thread left the CPU are cut, as other threads' code \
         comes before its own again (perf record -p PID has them whole)"
            .to_owned()
    })
}
