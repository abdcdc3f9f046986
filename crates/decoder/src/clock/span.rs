//! Core cycles between two packets, as far as they were counted.

/// Counts of cycles saturate here, so that sums of them, as ticks, cannot overflow.
const MAX_CYCLES: u64 = 1 << 62;

/// What passed since the last anchor, as far as it was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// At most this many core cycles, breaks apart (without CYC: branches).
    pub(super) most: u64,
    pub(super) doubt: Doubt,
}

/// What is not certain of a [`Span`].  It seldom changes from one packet to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    /// The number of cycles that may have passed before the anchor.
    pub(super) cycles: u64,
    /// How often an unknown time passed in between: tracing was off, or packets were lost.
    pub(super) breaks: u32,
}

impl Doubt {
    /// An unknown number of these cycles lie before the anchor.
    pub(super) fn add_cycles(&mut self, cycles: u64) {
        self.cycles = self.cycles.saturating_add(cycles).min(MAX_CYCLES);
    }
}

impl Span {
    #[inline]
    pub(super) fn of(most: u64, doubt: Doubt) -> Self {
        Self { most: most.min(MAX_CYCLES), doubt }
    }

    /// At least this many core cycles.
    #[inline]
    pub(super) fn least(&self) -> u64 {
        self.most.saturating_sub(self.doubt.cycles)
    }
}
