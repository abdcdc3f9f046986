//! How many TSC ticks a tick of the crystal clock has: perf asks CPUID 15H, which an emulated processor
//! answers with zero, and so the recording does not say what the module's MTC packets mean. The module says
//! it in sysfs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::paths::Vm;

/// PERF_RECORD_AUXTRACE_INFO.
const AUXTRACE_INFO: u32 = 70;

/// `INTEL_PT_TSC_CTC_N` and `_D` of perf's `intel-pt.h`: the fields after the record's header and type.
const RATIO_OFFSET: u64 = 16 + 12 * 8;

/// In the file's header: where its records are, offset and size.
const DATA_SECTION_OFFSET: u64 = 0x28;

/// TSC ticks per tick of the crystal clock: `167:1`.
pub(crate) fn ratio(vm: &Vm) -> Result<u32> {
    let text = fs::read_to_string(vm.of_run("ratio"))?;
    text.split(':').next().and_then(|ticks| ticks.parse().ok()).with_context(|| format!("ratio {text}"))
}

/// Writes the ratio into a file of perf's.
///
/// # Errors
/// The file has no AUXTRACE_INFO.
pub(crate) fn tell(data: &Path, ticks: u32) -> Result<()> {
    let named = || data.display().to_string();
    let file = OpenOptions::new().read(true).write(true).open(data).with_context(named)?;
    let number = |at: u64| -> Result<u64> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).with_context(named)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (mut at, size) = (number(DATA_SECTION_OFFSET)?, number(DATA_SECTION_OFFSET + 8)?);
    let end = at + size;
    while at < end {
        let header = number(at)?; // u32 type, u16 misc, u16 size
        if header as u32 == AUXTRACE_INFO {
            file.write_all_at(&u64::from(ticks).to_le_bytes(), at + RATIO_OFFSET).with_context(named)?;
            return file.write_all_at(&1_u64.to_le_bytes(), at + RATIO_OFFSET + 8).with_context(named);
        }
        at += (header >> 48).max(8);
    }
    bail!("{}: no AUXTRACE_INFO", data.display())
}
