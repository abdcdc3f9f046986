//! Simulated time, finer than the TSC so that single instructions add up.

use model::{Tsc, TscClock};

const FRACTION_BITS: u32 = 10;
const TSC_GHZ: f64 = 3.0;

/// TSC ticks per tick of the crystal clock (24 MHz): numerator, denominator, as CPUID 15H has them.
pub(crate) const TSC_CTC_RATIO: (u32, u32) = (250, 2);
/// A tick of the crystal clock, in 1/1024 TSC ticks.
const CRYSTAL_TICK: u128 = 125 << FRACTION_BITS;
const MILLION: u128 = 1_000_000;
/// Core:bus ratio at which the core runs at the TSC's frequency.
pub(crate) const MAX_NONTURBO_RATIO: u32 = 30;
/// The conversion that the recording states.  `zero` is not 0, so that a reader that leaves it out is wrong.
pub(crate) const CLOCK: TscClock = TscClock { shift: 31, mult: 715_827_883, zero: 7_000_000_019 };

/// A length of simulated time: 1/1024 TSC ticks.
pub(crate) const fn ticks(us: f64) -> u64 {
    (us * 1000.0 * TSC_GHZ * (1u64 << FRACTION_BITS) as f64) as u64
}

/// A point in simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) u64);

impl Time {
    /// After everything.
    pub(crate) const NEVER: Self = Self(u64::MAX);
    /// When the simulated program starts.
    pub(crate) const START: Self = Self((0x123_4567_89ab << FRACTION_BITS) + ticks(1000.0));

    #[cfg(test)]
    pub(crate) const fn from_tsc(tsc: u64) -> Self {
        Self(tsc << FRACTION_BITS)
    }

    pub(crate) const fn tsc(self) -> Tsc {
        Tsc(self.0 >> FRACTION_BITS)
    }

    /// perf's time.
    pub(crate) fn ns(self) -> u64 {
        CLOCK.to_ns(self.tsc()).0
    }

    pub(crate) const fn plus(self, ticks: u64) -> Self {
        Self(self.0.saturating_add(ticks))
    }

    pub(crate) const fn plus_us(self, us: f64) -> Self {
        self.plus(ticks(us))
    }

    /// 1/1024 ticks from `earlier` to here; 0 if it is later.
    pub(crate) const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time that the trace unit counts as passed when tracing is switched on: a few cycles.
    pub(crate) const fn just_before(self) -> Self {
        Self(self.0 - (24 << FRACTION_BITS))
    }

    /// That many core cycles earlier, at a core:bus ratio.
    pub(crate) const fn before(self, cycles: u64, cbr: u64) -> Self {
        Self(self.0.saturating_sub(((cycles * MAX_NONTURBO_RATIO as u64) << FRACTION_BITS) / cbr))
    }

    /// Core cycles in a length of time at a core:bus ratio.
    pub(crate) const fn cycles(ticks: u64, cbr: u64) -> u64 {
        (ticks * cbr / MAX_NONTURBO_RATIO as u64) >> FRACTION_BITS
    }
}

/// The crystal clock: how it really runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crystal {
    /// Length of 10^6 of its ticks, in 1/1024 TSC ticks.
    million_ticks: u128,
}

impl Crystal {
    /// The TSC runs faster than [`TSC_CTC_RATIO`] says by this part.
    pub(crate) fn new(tsc_skew: f64) -> Self {
        let part_per_million = (tsc_skew * 1e6).round() as i128;
        Self { million_ticks: CRYSTAL_TICK * MILLION.saturating_add_signed(part_per_million) }
    }

    /// Its counter.
    pub(crate) fn counter(self, now: Time) -> u64 {
        (u128::from(now.0) * MILLION / self.million_ticks) as u64
    }

    /// When its counter becomes this.
    pub(crate) fn time(self, counter: u64) -> Time {
        Time((u128::from(counter) * self.million_ticks).div_ceil(MILLION) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_crystal_counts_its_own_ticks() {
        for skew in [0.0, 0.003, -0.003] {
            let crystal = Crystal::new(skew);
            for counter in [1, 7_999, 1_000_000_007] {
                let at = crystal.time(counter);
                assert_eq!((crystal.counter(at), crystal.counter(Time(at.0 - 1))), (counter, counter - 1));
            }
        }
        assert_eq!(Crystal::new(0.004).time(1000).tsc().0, 125_500);
    }
}
