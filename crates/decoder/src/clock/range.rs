//! How long a core cycle may be.

/// CBR counts multiples of the bus clock. Its frequency is not exactly the nominal one, and spread: the
/// true ratio may be off by this part (1/128).
const CBR_TOLERANCE_SHIFT: u32 = 7;

/// The length of a core cycle in TSC ticks, with [`FRACTION`]: from shortest to longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) low: u64,
    pub(super) high: u64,
}

impl Range {
    #[inline]
    pub(super) fn middle(self) -> u64 {
        self.low + (self.high - self.low) / 2
    }

    pub(super) fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// What both say; `None` if they contradict each other.
    pub(super) fn intersection(self, other: Self) -> Option<Self> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(Self { low, high })
    }

    /// The core may also run at half of the frequency.
    pub(super) fn or_twice_as_long(self) -> Self {
        Self { high: self.high.saturating_mul(2), ..self }
    }

    /// The core may also run at twice the frequency.
    pub(super) fn or_half_as_long(self) -> Self {
        Self { low: self.low / 2, ..self }
    }

    /// With what CBR's bus clock may be off.
    pub(super) fn with_tolerance(self) -> Self {
        Self {
            low: self.low - (self.low >> CBR_TOLERANCE_SHIFT),
            high: self.high.saturating_add(self.high >> CBR_TOLERANCE_SHIFT),
        }
    }
}
