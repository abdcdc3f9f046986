//! Spans of time in TSC ticks with a fraction, as whole numbers: any time fits 128 bits.

use model::Tsc;

/// Time spans are in TSC ticks with this many fractional bits.
pub(super) const FRACTION: u32 = 16;

/// A whole tick.
pub(super) const ONE: u128 = 1 << FRACTION;

/// The ticks of `cycles` cycles of this length.
#[inline]
pub(super) fn of(cycles: u64, length: u64) -> u128 {
    u128::from(cycles) * u128::from(length)
}

/// `ticks * share / all`, roughly if that is too much for 128 bits; `share` is at most `all`, which is not 0.
pub(super) fn part(ticks: u128, share: u64, all: u64) -> u128 {
    let (share, all) = (u128::from(share), u128::from(all));
    ticks.checked_mul(share).map_or(ticks / all * share, |product| product / all)
}

#[inline]
pub(super) fn floor(ticks: u128) -> Tsc {
    Tsc(u64::try_from(ticks >> FRACTION).unwrap_or(u64::MAX))
}

#[inline]
pub(super) fn ceil(ticks: u128) -> Tsc {
    floor(ticks + (ONE - 1))
}
