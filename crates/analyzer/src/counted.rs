//! What calls executed, as numbers: the differences of a thread's counters ([`model::Counters`]).

use model::{Counters, Cycles, Executed};
use serde::{Deserialize, Serialize};

/// What ran in one call, or in several: exact counts, and cycles with their error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// What was executed.
    pub executed: Executed,
    /// Core cycles of user code; `None`: the recording has no CYC packets.
    pub cycles: Option<CycleCount>,
    /// These cycles as those of the bus clock, by what CBR packets say, in units of 1/[`Cycles::BUS_UNITS`];
    /// `None`: no packet says, or cycles are not known.
    #[serde(default)]
    pub bus: Option<u64>,
}

/// A number of core cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleCount {
    /// The estimate.
    pub count: u64,
    /// The true number differs by at most this.
    pub error: u64,
}

impl Default for Counted {
    /// Nothing ran.
    fn default() -> Self {
        Self { executed: Executed::default(), cycles: Some(CycleCount::default()), bus: Some(0) }
    }
}

impl Counted {
    /// What ran from one event of a thread to a later one.
    #[inline]
    #[must_use]
    pub fn between(from: &Counters, to: &Counters) -> Self {
        let cycles = from.cycles.as_ref().zip(to.cycles.as_ref());
        Self::of(to.executed.since(&from.executed), cycles.map(|(from, to)| [from, to]))
    }

    /// What ran between two events of a thread, by the counters of execution and the cycles at both.
    #[inline]
    #[must_use]
    pub fn of(executed: Executed, cycles: Option<[&Cycles; 2]>) -> Self {
        let Some([from, to]) = cycles else { return Self { executed, cycles: None, bus: None } };
        let (count, error) = to.since(from);
        Self { executed, cycles: Some(CycleCount { count, error }), bus: to.bus_since(from) }
    }

    /// Adds what ran elsewhere, and its error.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.executed, &other.executed);
        for (sum, more) in [
            (&mut sum.instructions, more.instructions),
            (&mut sum.conditional_branches, more.conditional_branches),
            (&mut sum.indirect_branches, more.indirect_branches),
            (&mut sum.calls, more.calls),
            (&mut sum.kernel_instructions, more.kernel_instructions),
        ] {
            *sum = sum.wrapping_add(more); // sums of what one thread's counters have room for
        }
        sum.gaps = sum.gaps.saturating_add(more.gaps);
        sum.kernel_gaps = sum.kernel_gaps.saturating_add(more.kernel_gaps);
        match (&mut self.cycles, &other.cycles) {
            (Some(sum), Some(more)) => {
                sum.count = sum.count.wrapping_add(more.count);
                sum.error = sum.error.saturating_add(more.error);
            }
            (cycles, _) => *cycles = None,
        }
        match (&mut self.bus, other.bus) {
            (Some(sum), Some(more)) => *sum = sum.wrapping_add(more),
            (bus, _) => *bus = None,
        }
    }

    /// Nothing is missing in what of user code was executed: no gap was in it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.executed.gaps == 0
    }

    /// Nothing is missing in what of kernel code was executed, where that was traced: it was followed.
    #[must_use]
    pub fn is_kernel_known(&self) -> bool {
        self.executed.gaps == 0 && self.executed.kernel_gaps == 0
    }

    /// No user code was executed: it is of kernel code.
    #[must_use]
    pub fn is_of_kernel(&self) -> bool {
        self.executed.instructions == 0 && self.executed.kernel_instructions > 0
    }

    /// Cycles of the core for each of the bus clock: the mean of what CBR packets say. `None`: not known, or
    /// there were no cycles.
    #[must_use]
    pub fn core_to_bus(&self) -> Option<f64> {
        let cycles = self.cycles.filter(|cycles| cycles.count > 0)?;
        let bus = self.bus.filter(|bus| *bus > 0)?;
        Some(cycles.count as f64 * Cycles::BUS_UNITS as f64 / bus as f64)
    }

    /// The rest, without what ran in a part; both errors count.
    #[must_use]
    pub fn without(&self, inside: &Self) -> Self {
        let cycles = self.cycles.zip(inside.cycles).map(|(all, inside)| CycleCount {
            count: all.count.saturating_sub(inside.count),
            error: all.error.saturating_add(inside.error),
        });
        let bus = self.bus.zip(inside.bus).map(|(all, inside)| all.saturating_sub(inside));
        Self { executed: self.executed - inside.executed, cycles, bus }
    }

    /// No part of it is larger than it.
    #[must_use]
    pub fn has_room_for(&self, inside: &Self) -> bool {
        let (all, part) = (&self.executed, &inside.executed);
        let fits = part.instructions <= all.instructions
            && part.conditional_branches <= all.conditional_branches
            && part.indirect_branches <= all.indirect_branches
            && part.calls <= all.calls
            && part.kernel_instructions <= all.kernel_instructions;
        fits && self.cycles.zip(inside.cycles).is_none_or(|(all, part)| part.count <= all.count)
    }

    /// Instructions per cycle, with the most by which that may be wrong; `None`: the cycles are not known, or
    /// may as well be none.
    #[must_use]
    pub fn ipc(&self) -> Option<(f64, f64)> {
        let CycleCount { count, error } = self.cycles.filter(|cycles| cycles.count > cycles.error)?;
        let ipc = |cycles: u64| self.executed.instructions as f64 / cycles as f64;
        Some((ipc(count), ipc(count - error) - ipc(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(instructions: u64, cycles: Option<(u64, u64, u64)>) -> Counters {
        let executed = Executed { instructions, calls: instructions / 10, ..Executed::default() };
        Counters {
            executed,
            cycles: cycles.map(|(lo, point, hi)| Cycles { lo, point, hi, ..Cycles::default() }),
        }
    }

    fn of(instructions: u64, cycles: Option<CycleCount>) -> Counted {
        Counted { executed: at(instructions, None).executed, cycles, bus: None }
    }

    #[test]
    fn a_part_and_the_rest_are_the_whole() {
        let events = [at(10, Some((9, 10, 11))), at(50, Some((18, 20, 22))), at(100, Some((60, 64, 65)))];
        let [first, second, whole] =
            [(0, 1), (1, 2), (0, 2)].map(|(from, to)| Counted::between(&events[from], &events[to]));
        let rest = whole.without(&first);
        assert_eq!(rest.executed, second.executed);
        assert_eq!(rest.cycles.map(|c| c.count), second.cycles.map(|c| c.count));
        let mut sum = first;
        sum.add(&second);
        assert_eq!(sum.executed, whole.executed);
        assert_eq!(sum.cycles, Some(CycleCount { count: 54, error: 3 + 6 }));
        assert!(whole.has_room_for(&first) && !first.has_room_for(&whole));
    }

    #[test]
    fn cycles_that_are_not_known_stay_so() {
        let mut sum = Counted::default();
        sum.add(&Counted::between(&at(0, None), &at(70, None)));
        assert_eq!((sum.executed.instructions, sum.cycles, sum.ipc()), (70, None, None));
    }

    #[test]
    fn a_ratio_is_known_where_there_were_cycles_for_certain() {
        let ipc = |count, error| {
            let cycles = Some(CycleCount { count, error });
            of(60, cycles).ipc()
        };
        assert_eq!(ipc(30, 10), Some((2.0, 1.0)));
        assert_eq!((ipc(30, 30), ipc(0, 0)), (None, None));
    }

    #[test]
    fn the_ratio_of_clocks_is_that_of_all_cycles() {
        let ratio = |cycles, bus| {
            let cycles = Some(CycleCount { count: cycles, error: 3 });
            Counted { bus, ..of(60, cycles) }.core_to_bus()
        };
        // 3,000 cycles at 30 of a bus cycle, then 3,000 at 15.
        let bus = Some((100 + 200) * Cycles::BUS_UNITS);
        assert_eq!([ratio(6000, bus), ratio(6000, None), ratio(0, Some(0))], [Some(20.0), None, None]);
    }

    #[test]
    fn what_a_gap_is_in_is_not_known_and_the_rest_is() {
        let gaps = |gaps| Counted { executed: Executed { gaps, ..at(60, None).executed }, ..of(60, None) };
        let (whole, inside) = (gaps(2), gaps(2));
        assert!(!whole.is_known() && !inside.is_known() && whole.without(&inside).is_known());
    }
}
