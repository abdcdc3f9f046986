//! What decoding a segment gives.

use crate::stretch::Stretch;

/// What a segment's decoding gave.
#[derive(Debug, Default)]
pub struct SegmentOutput {
    /// In the order of execution on the buffer.
    pub stretches: Vec<Stretch>,
    /// Overflow packets.
    pub overflows: u64,
    /// Times at which packets contradicted each other.
    pub clock_errors: u64,
    /// Times at which kernel code contradicted the trace.
    pub kernel_desyncs: u64,
}

impl SegmentOutput {
    /// Adds all but the stretches of the next one.
    pub(crate) fn add_counts(&mut self, next: &Self) {
        let Self { overflows, clock_errors, kernel_desyncs, stretches: _ } = next;
        self.overflows += overflows;
        self.clock_errors += clock_errors;
        self.kernel_desyncs += kernel_desyncs;
    }
}
