//! Clocks.  The trace counts [`Tsc`] ticks; perf, its sideband and all that we print use [`Ns`] of perf's
//! clock.  [`TscClock`] is the one place that converts.

use serde::{Deserialize, Serialize};

/// Ticks of the invariant time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsc(pub u64);

impl Tsc {
    /// Completes the low 56 bits that a TSC packet has (SDM, "TSC Packet") to the value nearest to `near`.
    #[must_use]
    pub const fn of_packet(low_56: u64, near: Self) -> Self {
        const WRAP: u64 = 1 << 56;
        let tsc = near.0 & !(WRAP - 1) | low_56 & (WRAP - 1);
        if tsc.saturating_add(WRAP / 2) < near.0 {
            Self(tsc.saturating_add(WRAP))
        } else if tsc >= WRAP && tsc > near.0.saturating_add(WRAP / 2) {
            Self(tsc - WRAP)
        } else {
            Self(tsc)
        }
    }
}

/// Nanoseconds of perf's clock (`perf_clock`, what `perf script` prints and `--ti` takes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ns(pub u64);

impl Ns {
    /// The end of time: sorts after every other time.
    pub const MAX: Self = Self(u64::MAX);

    /// Nanoseconds from `earlier` to here; 0 if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// When something happened: the truth lies in `[lo, hi]`, the best guess is `point`.
///
/// `lo <= point <= hi`, and neither `lo` nor `point` runs backwards within a thread. `hi` may: a bound from
/// another stretch of the trace says nothing about earlier events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTime {
    /// The earliest that it can have been.
    pub lo: Ns,
    /// The estimate; all durations are differences of estimates.
    pub point: Ns,
    /// The latest that it can have been.
    pub hi: Ns,
}

impl EventTime {
    /// A time that is known exactly.
    #[must_use]
    pub const fn exact(at: Ns) -> Self {
        Self { lo: at, point: at, hi: at }
    }

    /// By how much the truth may be earlier than `point`.
    #[inline]
    const fn earlier_ns(&self) -> u64 {
        self.point.since(self.lo)
    }

    /// By how much the truth may be later than `point`.
    #[inline]
    const fn later_ns(&self) -> u64 {
        self.hi.since(self.point)
    }

    /// The largest distance of the truth from `point`.
    #[must_use]
    pub fn error_ns(&self) -> u64 {
        self.earlier_ns().max(self.later_ns())
    }

    /// By how much the true time between `start` and here may be more and less than that of the estimates,
    /// which is `point - start.point`: the truth lies in `[lo - start.hi, hi - start.lo]`.
    #[inline]
    const fn errors_since_ns(&self, start: &Self) -> (u64, u64) {
        let more = self.later_ns().saturating_add(start.earlier_ns());
        let less = self.earlier_ns().saturating_add(start.later_ns());
        (more, less)
    }

    /// The largest distance of the true time between `start` and here from that of the estimates; the true
    /// time is never below 0.
    #[inline]
    #[must_use]
    pub fn error_since_ns(&self, start: &Self) -> u64 {
        let (more, less) = self.errors_since_ns(start);
        more.max(less.min(self.point.since(start.point)))
    }

    /// The error that a row has: [`Self::error_since_ns`] without the rule that no time is below 0.
    #[inline]
    #[must_use]
    pub fn row_error_since_ns(&self, start: &Self) -> u64 {
        let (more, less) = self.errors_since_ns(start);
        more.max(less)
    }
}

/// The recording's conversion from TSC to perf's clock (`PERF_RECORD_TIME_CONV`, `perf_event_mmap_page`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscClock {
    /// `time_shift`.
    pub shift: u16,
    /// `time_mult`.
    pub mult: u32,
    /// `time_zero`, ns.
    pub zero: u64,
}

impl TscClock {
    /// perf's time of a TSC value, rounded down: `zero + (quot * mult) + ((rem * mult) >> shift)`, as
    /// `tsc_to_perf_time` in tools/perf/util/tsc.c has it; but it does not wrap: a later TSC is never
    /// earlier.
    #[must_use]
    #[inline]
    pub fn to_ns(self, tsc: Tsc) -> Ns {
        let scaled = (u128::from(tsc.0) * u128::from(self.mult)) >> self.shift.min(127);
        // `zero` is negative (wrapped) where the TSC ran before the kernel's clock started.
        let zero = self.zero as i64;
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        Ns(if zero < 0 {
            scaled.saturating_sub(zero.unsigned_abs())
        } else {
            scaled.saturating_add(self.zero)
        })
    }

    /// TSC ticks in a millisecond; `None`: the conversion is no clock's.
    #[must_use]
    pub fn khz(self) -> Option<u64> {
        let ticks = 1_000_000u128.checked_shl(self.shift.into())?;
        u64::try_from(ticks.checked_div(self.mult.into())?).ok()
    }

    /// This conversion for TSC values from `origin` to `span` ticks after it; `None` if that does not
    /// fit 64 bits.
    #[must_use]
    pub fn behind(self, origin: Tsc, span: u64) -> Option<ClockBehind> {
        let fraction = 1_u128.checked_shl(self.shift.into())? - 1;
        let rest = u64::try_from((u128::from(origin.0) * u128::from(self.mult)) & fraction).ok()?;
        let (mult, shift) = (u64::from(self.mult), u32::from(self.shift));
        let behind = ClockBehind { ns: self.to_ns(origin).0, rest, mult, shift };
        span.checked_mul(mult)?.checked_add(rest)?;
        // Where the conversion stops at the ends of time, this would go on.
        let last = Tsc(origin.0.checked_add(span)?);
        let fits = shift < u64::BITS && self.is_exact(origin) && self.is_exact(last);
        fits.then_some(behind)
    }

    /// The time of `tsc` fits 64 bits.
    fn is_exact(self, tsc: Tsc) -> bool {
        let scaled = (u128::from(tsc.0) * u128::from(self.mult)) >> self.shift.min(127);
        let scaled = u64::try_from(scaled).ok();
        let zero = self.zero as i64;
        scaled.is_some_and(|scaled| {
            if zero < 0 { scaled >= zero.unsigned_abs() } else { scaled <= u64::MAX - self.zero }
        })
    }

    /// The largest TSC value with [`Self::to_ns`] of at most `ns` (0 before the clock's zero).
    #[must_use]
    pub fn to_tsc(self, ns: Ns) -> Tsc {
        // `zero` is negative (wrapped) where the TSC ran before the kernel's clock started.
        let elapsed = u128::try_from(ns.0.wrapping_sub(self.zero) as i64).unwrap_or(0);
        let mult = u128::from(self.mult.max(1));
        let scaled = (((elapsed + 1) << self.shift.min(64)) - 1) / mult;
        Tsc(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// [`TscClock`] from some TSC on: the same times for less.
#[derive(Clone, Copy, Debug)]
pub struct ClockBehind {
    /// The origin's time, and what rounding took from it.
    ns: u64,
    rest: u64,
    mult: u64,
    shift: u32,
}

impl ClockBehind {
    /// [`TscClock::to_ns`] of the TSC `ticks` after the origin; `ticks` is not more than the span.
    #[must_use]
    #[inline]
    pub fn to_ns(&self, ticks: u64) -> Ns {
        Ns(self
            .ns
            .wrapping_add(self.rest.wrapping_add(ticks.wrapping_mul(self.mult)) >> (self.shift % u64::BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_as_wrong_as_its_ends_allow() {
        let time = |lo, point, hi| EventTime { lo: Ns(lo), point: Ns(point), hi: Ns(hi) };
        // 5 us within [4970, 5020].
        assert_eq!(time(5_990, 6_000, 6_015).error_since_ns(&time(995, 1_000, 1_020)), 30);
        // 10 within [0, 12]: nothing takes less than no time.
        assert_eq!(time(85, 110, 111).error_since_ns(&time(99, 100, 120)), 10);
        // 100 within [0, 103]: the start may have been after the end.
        assert_eq!(time(0, 110, 112).error_since_ns(&time(9, 10, 11)), 100);
        assert_eq!(time(0, 110, 112).row_error_since_ns(&time(9, 10, 11)), 111);
        assert_eq!(EventTime::exact(Ns(7)).error_since_ns(&EventTime::exact(Ns(3))), 0);
    }

    #[test]
    fn errors_above_what_32_bits_hold_are_whole() {
        let second = 1_000_000_000;
        let start = EventTime { lo: Ns(0), point: Ns(10 * second), hi: Ns(10 * second) };
        let end = EventTime { hi: Ns(13 * second), ..EventTime::exact(Ns(11 * second)) };
        assert_eq!(end.error_since_ns(&start), 12 * second);
        assert_eq!((start.error_ns(), end.error_ns()), (10 * second, 2 * second));
        let never = EventTime { lo: Ns(0), point: Ns::MAX, hi: Ns::MAX };
        assert_eq!(EventTime { hi: Ns::MAX, ..EventTime::exact(Ns(1)) }.error_since_ns(&never), u64::MAX);
    }

    #[test]
    fn after_an_origin_times_are_the_same() {
        let clocks = [
            TscClock { shift: 31, mult: 715_827_883, zero: 18_446_744_041_015_200_657 },
            TscClock { shift: 10, mult: 341, zero: 17 },
            TscClock { shift: 0, mult: 1, zero: 0 },
        ];
        for clock in clocks {
            for origin in [100_000_000_001, 3_000_000_000_000] {
                let behind = clock.behind(Tsc(origin), 1 << 32).unwrap();
                for ticks in [0, 1, 2, 3, 1000, 12_345_678, (1 << 32) - 1, 1 << 32] {
                    assert_eq!(
                        behind.to_ns(ticks),
                        clock.to_ns(Tsc(origin + ticks)),
                        "{clock:?} {origin} {ticks}"
                    );
                }
            }
        }
    }

    #[test]
    fn after_an_origin_times_have_no_ends() {
        let negative = TscClock { shift: 31, mult: 715_827_883, zero: 1 << 63 };
        assert!(negative.behind(Tsc(5), 1).is_none());
        let large = TscClock { shift: 0, mult: u32::MAX, zero: 17 };
        assert!(large.behind(Tsc(1 << 60), 1).is_none());
        assert!(large.behind(Tsc(5), 1 << 40).is_none());
        let shift = TscClock { shift: 64, mult: u32::MAX, zero: 17 };
        assert!(shift.behind(Tsc(5), 1).is_none());
    }

    #[test]
    fn the_upper_bits_are_those_of_the_nearest() {
        let wrap = 1 << 56;
        for (low, near, expect) in [
            (5, 7, 5),
            (5, 3 * wrap + 7, 3 * wrap + 5),
            (wrap - 5, 3 * wrap + 7, 3 * wrap - 5),
            (5, 3 * wrap - 7, 3 * wrap + 5),
            (wrap - 5, 7, wrap - 5),
        ] {
            assert_eq!(Tsc::of_packet(low, Tsc(near)), Tsc(expect), "{low:#x} near {near:#x}");
        }
    }

    #[test]
    fn a_negative_zero_wraps() {
        let clock = TscClock { shift: 31, mult: 715_827_883, zero: 18_446_744_041_015_200_657 };
        let ns = clock.to_ns(Tsc(3_000_000_000_000));
        assert!(ns.0 < 1 << 63);
        assert_eq!(clock.to_ns(clock.to_tsc(ns)), ns);
    }

    #[test]
    fn a_later_tsc_is_never_earlier() {
        let negative = TscClock { shift: 31, mult: 715_827_883, zero: 1 << 63 };
        assert_eq!(negative.to_ns(Tsc(5)), Ns(0));
        let large = TscClock { shift: 0, mult: u32::MAX, zero: 17 };
        assert_eq!(large.to_ns(Tsc(1 << 60)), Ns::MAX);
    }

    #[test]
    fn tsc_to_ns_and_back() {
        let clock = TscClock { shift: 31, mult: 715_827_883, zero: 17 };
        assert_eq!(clock.to_ns(Tsc(3_000_000_000)), Ns(1_000_000_017));
        for ns in [17, 18, 1_000_000_017, 5_133_313_694_755_869] {
            let tsc = clock.to_tsc(Ns(ns));
            assert_eq!(clock.to_ns(tsc), Ns(ns));
            assert!(clock.to_ns(Tsc(tsc.0 + 1)) > Ns(ns));
        }
    }
}
