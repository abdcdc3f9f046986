//! Spans of time in TSC ticks with a fraction, as whole numbers.
//!
//! Any time fits 128 bits.  What lies between two anchors nearly always fits 64, counted from a little before the first, and
//! then its times cost a third.

use std::ops::{Add, Sub};

use model::Tsc;

/// Time spans are in TSC ticks with this many fractional bits.
pub(super) const FRACTION: u32 = 16;

/// Ticks with fraction.
pub(super) trait Ticks: Copy + Ord + Add<Output = Self> + Sub<Output = Self> {
    /// A whole tick.
    const ONE: Self;

    /// Those of so many cycles.
    fn of(cycles: u64, length: u64) -> Self;

    fn saturating_sub(self, other: Self) -> Self;

    fn half(self) -> Self;

    /// `self * share / all`, roughly if that is too much for 128 bits; `share` is at most `all`, which is not 0.
    fn part(self, share: u64, all: u64) -> Self;
}

impl Ticks for u64 {
    const ONE: Self = 1 << FRACTION;

    #[inline]
    fn of(cycles: u64, length: u64) -> Self {
        cycles.saturating_mul(length)
    }

    #[inline]
    fn saturating_sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    #[inline]
    fn half(self) -> Self {
        self / 2
    }

    #[inline]
    fn part(self, share: u64, all: u64) -> Self {
        match self.checked_mul(share) {
            Some(product) => product / all,
            None => (u128::from(self) * u128::from(share) / u128::from(all)) as u64, // no more than the whole
        }
    }
}

impl Ticks for u128 {
    const ONE: Self = 1 << FRACTION;

    #[inline]
    fn of(cycles: u64, length: u64) -> Self {
        u128::from(cycles) * u128::from(length)
    }

    #[inline]
    fn saturating_sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }

    #[inline]
    fn half(self) -> Self {
        self / 2
    }

    fn part(self, share: u64, all: u64) -> Self {
        let (share, all) = (u128::from(share), u128::from(all));
        self.checked_mul(share).map_or(self / all * share, |product| product / all)
    }
}

#[inline]
pub(super) fn floor(ticks: u128) -> Tsc {
    Tsc(u64::try_from(ticks >> FRACTION).unwrap_or(u64::MAX))
}

#[inline]
pub(super) fn ceil(ticks: u128) -> Tsc {
    floor(ticks + ((1 << FRACTION) - 1))
}
