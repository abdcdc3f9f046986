//! More work, slower work, or a slower clock: what running time became more by.
//!
//! Per call of the function, on each side, code executes `i` instructions, which take `c` cycles, which take
//! `t` ns. With 1 for the calls that are asked about and 0 for the base:
//!
//! ```text
//!   t1 - t0  =  t0 (i1/i0 - 1)             more instructions, each at the typical cost of one
//!            +  t0 (c1/c0 - i1/i0)         slower ones: more cycles each, at the typical time of a cycle
//!            +  t1 - t0 c1/c0              the rest: each cycle took longer, a lower frequency
//! ```
//! The parts are rounded so that they add up to the row. Without cycles the last two are one.

use crate::work::Work;

/// The parts of the running time that one side has more than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// More instructions, in ns of difference.
    pub more_instructions_ns: i64,
    /// Slower instructions: more cycles each; without cycles, more time each.
    pub slower_instructions_ns: i64,
    /// Slower cycles: a lower frequency, or a core that was not there (hypervisor, SMI). `None`: cycles are
    /// not known.
    pub lower_frequency_ns: Option<i64>,
    /// The most by which each part may be wrong, to first order.
    pub errors_ns: SplitErrors,
    /// What each side executed: these, base.
    pub work: (Work, Work),
}

/// Errors of the parts of a [`Split`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitErrors {
    /// Of more instructions.
    pub more_instructions_ns: u64,
    /// Of slower instructions.
    pub slower_instructions_ns: u64,
    /// Of a lower frequency; `None`: cycles are not known.
    pub lower_frequency_ns: Option<u64>,
}

/// What most of a difference is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MostOf {
    /// More instructions, by this factor.
    MoreInstructions(f64),
    /// Slower instructions: more cycles (`is_cycles`) or time for each.
    SlowerInstructions {
        /// Cycles (or time) of an instruction, as a multiple of those in the base.
        times: f64,
        /// The cycles of both sides are known.
        is_cycles: bool,
    },
    /// Slower cycles: each takes longer, by this factor.
    LowerFrequency(f64),
}

/// One side: calls of the function, running time and its error, and work.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub(super) calls: u64,
    pub(super) sum_ns: u64,
    pub(super) error_ns: u64,
    pub(super) work: Work,
}

impl Split {
    /// The parts of a row that has `difference_ns` of the difference of the means. `None`: the base executed
    /// nothing there, so that there is no typical cost.
    pub(super) fn of(difference_ns: i64, these: Ran, base: Ran) -> Option<Self> {
        let work = (these.work, base.work);
        let [calls1, calls0] = [these, base].map(|ran| ran.calls.max(1) as f64);
        let (i1, i0) = (work.0.instructions as f64 / calls1, work.1.instructions as f64 / calls0);
        if work.1.instructions == 0 {
            return None;
        }
        let t0 = base.sum_ns as f64 / calls0;
        let [e1, e0] = [these.error_ns as f64 / calls1, base.error_ns as f64 / calls0];
        let instructions = i1 / i0;
        let more = (t0 * (instructions - 1.0)).round() as i64; // saturates
        let more_error = bound(e0 * (instructions - 1.0).abs());
        let cycles = work.0.cycles.zip(work.1.cycles).filter(|(_, base)| base.count > 0);
        let Some((of_these, of_base)) = cycles else {
            return Some(Self {
                more_instructions_ns: more,
                slower_instructions_ns: difference_ns.saturating_sub(more),
                lower_frequency_ns: None,
                errors_ns: SplitErrors {
                    more_instructions_ns: more_error,
                    slower_instructions_ns: bound(e1 + e0 * instructions),
                    lower_frequency_ns: None,
                },
                work,
            });
        };
        let (c1, c0) = (of_these.count as f64 / calls1, of_base.count as f64 / calls0);
        let cycles = c1 / c0;
        // How far off the ratio may be, in time of the base.
        let ratio_error = t0 * (of_these.error as f64 / calls1 + cycles * of_base.error as f64 / calls0) / c0;
        let at_base_clock = (t0 * (cycles - 1.0)).round() as i64;
        Some(Self {
            more_instructions_ns: more,
            slower_instructions_ns: at_base_clock.saturating_sub(more),
            lower_frequency_ns: Some(difference_ns.saturating_sub(at_base_clock)),
            errors_ns: SplitErrors {
                more_instructions_ns: more_error,
                slower_instructions_ns: bound(e0 * (cycles - instructions).abs() + ratio_error),
                lower_frequency_ns: Some(bound(e1 + e0 * cycles + ratio_error)),
            },
            work,
        })
    }

    /// What more than half of the difference of a row is, and more than its error.
    #[must_use]
    pub fn most(&self, difference_ns: i64, calls: (u64, u64), sums_ns: (u64, u64)) -> Option<MostOf> {
        let sign = difference_ns.signum();
        let is_most = |part: i64, error: u64| {
            let along = i128::from(sign) * i128::from(part);
            along * 2 > i128::from(difference_ns).abs() && along > i128::from(error)
        };
        let per = |these: u64, base: u64, of: (u64, u64)| {
            let per = |sum: u64, of: u64| sum as f64 / of.max(1) as f64;
            per(these, of.0) / per(base, of.1)
        };
        let (these, base) = self.work;
        let instructions = (these.instructions, base.instructions);
        let errors = self.errors_ns;
        if is_most(self.more_instructions_ns, errors.more_instructions_ns) {
            return Some(MostOf::MoreInstructions(per(instructions.0, instructions.1, calls)));
        }
        let cycles = these.cycles.zip(base.cycles).map(|(these, base)| (these.count, base.count));
        if is_most(self.slower_instructions_ns, errors.slower_instructions_ns) {
            let (taken, is_cycles) = cycles.map_or((sums_ns, false), |cycles| (cycles, true));
            return Some(MostOf::SlowerInstructions {
                times: per(taken.0, taken.1, instructions),
                is_cycles,
            });
        }
        let (lower, error) = self.lower_frequency_ns.zip(errors.lower_frequency_ns)?;
        is_most(lower, error)
            .then(|| MostOf::LowerFrequency(per(sums_ns.0, sums_ns.1, cycles.unwrap_or_default())))
    }

    /// Both sides executed the same number of instructions for a call, but for one in a hundred.
    #[must_use]
    pub fn is_as_many_instructions(&self, calls: (u64, u64)) -> bool {
        let (these, base) = self.work;
        let these = u128::from(these.instructions) * u128::from(calls.1);
        let base = u128::from(base.instructions) * u128::from(calls.0);
        these.abs_diff(base) * 100 <= base
    }
}

fn bound(ns: f64) -> u64 {
    ns.ceil() as u64 // saturates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::CycleCount;

    fn ran(calls: u64, sum_ns: u64, instructions: u64, cycles: Option<u64>) -> Ran {
        let cycles = cycles.map(|count| CycleCount { count, error: 0 });
        Ran { calls, sum_ns, error_ns: 0, work: Work { instructions, cycles } }
    }

    fn parts(these: Ran, base: Ran) -> (i64, i64, Option<i64>, Option<MostOf>) {
        let difference_ns = (these.sum_ns as f64 / these.calls as f64
            - base.sum_ns as f64 / base.calls as f64)
            .round() as i64;
        let split = Split::of(difference_ns, these, base).unwrap();
        let sum =
            split.more_instructions_ns + split.slower_instructions_ns + split.lower_frequency_ns.unwrap_or(0);
        assert_eq!(sum, difference_ns, "the parts are the row");
        let most = split.most(difference_ns, (these.calls, base.calls), (these.sum_ns, base.sum_ns));
        (split.more_instructions_ns, split.slower_instructions_ns, split.lower_frequency_ns, most)
    }

    /// In the base a call has 1,000 instructions, 2,000 cycles and 1,000 ns.
    const BASE: (u64, u64, u64, Option<u64>) = (10, 10_000, 10_000, Some(20_000));

    fn against(
        sum_ns: u64,
        instructions: u64,
        cycles: Option<u64>,
    ) -> (i64, i64, Option<i64>, Option<MostOf>) {
        let (calls, base_ns, base_instructions, base_cycles) = BASE;
        let base_cycles = base_cycles.filter(|_| cycles.is_some());
        parts(ran(1, sum_ns, instructions, cycles), ran(calls, base_ns, base_instructions, base_cycles))
    }

    #[test]
    fn each_part_alone() {
        assert_eq!(against(3000, 3000, Some(6000)), (2000, 0, Some(0), Some(MostOf::MoreInstructions(3.0))));
        let slower = MostOf::SlowerInstructions { times: 2.2, is_cycles: true };
        assert_eq!(against(2200, 1000, Some(4400)), (0, 1200, Some(0), Some(slower)));
        assert_eq!(against(1900, 1000, Some(2000)), (0, 0, Some(900), Some(MostOf::LowerFrequency(1.9))));
    }

    #[test]
    fn parts_of_all_kinds_add_up() {
        // 100 more instructions, 1.5 times the cycles each, and cycles that take 4/3 of the time.
        let (more, slower, frequency, most) = against(2200, 1100, Some(3300));
        assert_eq!((more, slower, frequency, most), (100, 550, Some(550), None));
        assert_eq!(against(2200, 1100, None).1, 1100);
        assert_eq!(against(500, 600, Some(900)), (-400, -150, Some(50), Some(MostOf::MoreInstructions(0.6))));
    }

    #[test]
    fn what_may_be_none_is_not_most() {
        let uncertain = |error| {
            let cycles = Some(CycleCount { count: 4400, error });
            let these = Ran { work: Work { instructions: 1000, cycles }, ..ran(1, 2200, 0, None) };
            let (calls, base_ns, instructions, cycles) = BASE;
            let split = Split::of(1200, these, ran(calls, base_ns, instructions, cycles)).unwrap();
            (split.errors_ns.slower_instructions_ns, split.most(1200, (1, 10), (2200, 10_000)).is_some())
        };
        assert_eq!([uncertain(2000), uncertain(2600)], [(1000, true), (1300, false)]);
    }

    #[test]
    fn without_a_base_there_is_no_typical_cost() {
        assert_eq!(Split::of(50, ran(1, 50, 70, None), ran(1, 0, 0, None)), None);
    }
}
