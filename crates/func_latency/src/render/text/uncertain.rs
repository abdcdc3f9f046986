//! What is said where the errors of the calls are as large as what stands in a table.

use std::io::{self, Write};

use crate::render::units::{counted, percent, share};

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
