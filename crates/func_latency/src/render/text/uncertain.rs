//! What is said where the errors of the calls are as large as what stands in a table.

use std::io::{self, Write};

use crate::render::units::{counted, duration, percent, share};

/// Above a histogram: most calls may as well be in another bucket.
pub(super) fn histogram(out: &mut dyn Write, shorter: u64, calls: u64) -> io::Result<()> {
    if shorter <= calls / 2 {
        return Ok(());
    }
    let of_all = percent(share(shorter, calls));
    let shorter = counted(shorter, "call");
    writeln!(
        out,
        "  {shorter} ({of_all} %) took less than their own error: which bucket is theirs is not certain"
    )
}

/// Under a table of children, which has no bounds of its own: that of all calls together, if it is as large as they.
pub(super) fn children(out: &mut dyn Write, latency_ns: u64, error_ns: u64) -> io::Result<()> {
    if error_ns == 0 || error_ns < latency_ns {
        return Ok(());
    }
    let (error, latency) = (duration(error_ns), duration(latency_ns));
    writeln!(
        out,
        "  averages and shares of children are uncertain: the errors of the calls add up to {error}, their latencies to \
         {latency}"
    )
}
