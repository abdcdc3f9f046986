//! A thread's counters at the events of one of its stretches, in few bytes: the increase since it began.
//!
//! ```text
//!   before   |---- at_events[0] ---->|
//!            |---- at_events[1] -------------->|        the counters at event 1: `before` + `at_events[1]`
//! ```
//! What lies between two events of a stretch is the difference of two small numbers.

use crate::counters::{Counters, Cycles, Executed};

/// [`Executed`] since a stretch began. Wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutedSince {
    /// See [`Executed::instructions`].
    pub instructions: u32,
    /// See [`Executed::kernel_instructions`].
    pub kernel_instructions: u32,
    /// See [`Executed::conditional_branches`].
    pub conditional_branches: u32,
    /// See [`Executed::indirect_branches`].
    pub indirect_branches: u32,
    /// See [`Executed::calls`].
    pub calls: u32,
    /// See [`Executed::gaps`].
    pub gaps: u32,
    /// See [`Executed::kernel_gaps`].
    pub kernel_gaps: u32,
}

impl ExecutedSince {
    /// Nothing.
    pub const NONE: Self = Self {
        instructions: 0,
        kernel_instructions: 0,
        conditional_branches: 0,
        indirect_branches: 0,
        calls: 0,
        gaps: 0,
        kernel_gaps: 0,
    };

    /// The sum of both.
    #[inline]
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            instructions: self.instructions.wrapping_add(other.instructions),
            kernel_instructions: self.kernel_instructions.wrapping_add(other.kernel_instructions),
            conditional_branches: self.conditional_branches.wrapping_add(other.conditional_branches),
            indirect_branches: self.indirect_branches.wrapping_add(other.indirect_branches),
            calls: self.calls.wrapping_add(other.calls),
            gaps: self.gaps.wrapping_add(other.gaps),
            kernel_gaps: self.kernel_gaps.wrapping_add(other.kernel_gaps),
        }
    }

    /// What was executed since `earlier` in the same stretch.
    #[inline]
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            instructions: self.instructions.wrapping_sub(earlier.instructions),
            kernel_instructions: self.kernel_instructions.wrapping_sub(earlier.kernel_instructions),
            conditional_branches: self.conditional_branches.wrapping_sub(earlier.conditional_branches),
            indirect_branches: self.indirect_branches.wrapping_sub(earlier.indirect_branches),
            calls: self.calls.wrapping_sub(earlier.calls),
            gaps: self.gaps.wrapping_sub(earlier.gaps),
            kernel_gaps: self.kernel_gaps.wrapping_sub(earlier.kernel_gaps),
        }
    }
}

impl From<ExecutedSince> for Executed {
    #[inline]
    fn from(since: ExecutedSince) -> Self {
        Self {
            instructions: since.instructions.into(),
            conditional_branches: since.conditional_branches.into(),
            indirect_branches: since.indirect_branches.into(),
            calls: since.calls.into(),
            kernel_instructions: since.kernel_instructions.into(),
            gaps: since.gaps,
            kernel_gaps: since.kernel_gaps,
        }
    }
}

/// A thread's counters at an event, since the event's stretch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountersSince {
    /// What was executed: exact.
    pub executed: ExecutedSince,
    /// Cycles; all 0 where the stretch has counted none ([`StretchCounters::has_cycles`]).
    pub cycles: Cycles,
}

/// A thread's counters at all events of a stretch.
#[derive(Clone, Copy, Debug)]
pub struct StretchCounters<'a> {
    /// When the stretch began.
    pub before: Counters,
    /// At each event, since then.
    pub at_events: &'a [CountersSince],
    /// The stretch has counted cycles.
    pub has_cycles: bool,
}

impl<'a> StretchCounters<'a> {
    /// The thread's counters at the event with this number.
    #[inline]
    #[must_use]
    pub fn at(&self, number: usize) -> Option<Counters> {
        let since = self.at_events.get(number)?;
        let cycles = self.has_cycles.then_some(since.cycles);
        Some(self.before + Counters { executed: since.executed.into(), cycles })
    }

    /// The thread's counters at each event.
    pub fn iter(&self) -> impl Iterator<Item = Counters> + use<'a> {
        let all = *self;
        (0..all.at_events.len()).filter_map(move |number| all.at(number))
    }

    /// What was executed from one event to a later one, and the cycles at both, counted from the same event;
    /// no cycles: they are not known.
    #[inline]
    #[must_use]
    pub fn between(&self, from: usize, to: usize) -> Option<(Executed, Option<[&'a Cycles; 2]>)> {
        let (from, to) = (self.at_events.get(from)?, self.at_events.get(to)?);
        let knows_cycles = self.has_cycles || self.before.cycles.is_some();
        let cycles = knows_cycles.then_some([&from.cycles, &to.cycles]);
        Some((to.executed.since(&from.executed).into(), cycles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(instructions: u32, point: u64) -> CountersSince {
        let executed = ExecutedSince { instructions, ..ExecutedSince::default() };
        CountersSince { executed, cycles: Cycles { lo: point, point, hi: point, ..Cycles::default() } }
    }

    #[test]
    fn a_difference_within_the_stretch_is_that_of_the_counters() {
        let cycles = Cycles { lo: 500, point: 500, hi: 500, unsure: 3, ..Cycles::default() };
        let executed = Executed { instructions: 1 << 40, calls: 7, ..Executed::default() };
        let before = Counters { executed, cycles: Some(cycles) };
        let at_events = [since(10, 20), since(70, 100)];
        for has_cycles in [true, false] {
            let counters = StretchCounters { before, at_events: &at_events, has_cycles };
            let [from, to] = [0, 1].map(|number| counters.at(number).unwrap());
            assert_eq!(from.executed.instructions, (1 << 40) + 10);
            let (executed, _) = counters.between(0, 1).unwrap();
            assert_eq!((executed, executed.instructions), (to.executed.since(&from.executed), 60));
            assert_eq!(from.cycles.unwrap().point, if has_cycles { 520 } else { 500 });
        }
        let counters = StretchCounters { before, at_events: &at_events, has_cycles: true };
        let [from, to] = counters.between(0, 1).unwrap().1.unwrap();
        assert_eq!(to.since(from), (80, 0));
        assert_eq!(counters.iter().collect::<Vec<_>>(), [0, 1].map(|number| counters.at(number).unwrap()));
    }

    #[test]
    fn cycles_that_nothing_counts_are_not_known() {
        let at_events = [since(1, 0), since(2, 0)];
        let none = StretchCounters { before: Counters::default(), at_events: &at_events, has_cycles: false };
        assert_eq!(none.between(0, 1).map(|(_, cycles)| cycles), Some(None));
        assert_eq!((none.at(1).unwrap().cycles, none.at(2), none.between(1, 2)), (None, None, None));
    }
}
