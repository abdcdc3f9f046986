//! What a thread has executed up to an event.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// Counts of executed code: sums since the first event of a thread, so the difference of two events' counts
/// is that of the code between them.
///
/// Instructions are those that retired: a repeated string instruction is one, and one that faults is one,
/// however often it is begun. Code that the trace does not show (outside of an IP filter, the kernel where it
/// is not traced, a gap) adds nothing; where code should be and is not, that is counted, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// Instructions of user code.
    pub instructions: u64,
    /// Conditional jumps of user code, taken or not.
    pub conditional_branches: u64,
    /// Indirect jumps and indirect calls of user code; returns are none.
    pub indirect_branches: u64,
    /// Calls of user code, direct and indirect; a jump to another function is none.
    pub calls: u64,
    /// Instructions of kernel code, which is traced on request only.
    pub kernel_instructions: u64,
    /// Gaps, in which more may have been executed. Wraps.
    #[serde(default)]
    pub gaps: u32,
    /// Stays in the kernel that were not followed to the end: code is missing, or is not what ran. Wraps.
    #[serde(default)]
    pub kernel_gaps: u32,
}

impl Executed {
    /// The sum of both; `None`: it does not fit, as of numbers in a file that is wrong.
    #[must_use]
    pub fn checked_add(self, more: Self) -> Option<Self> {
        Some(Self {
            instructions: self.instructions.checked_add(more.instructions)?,
            conditional_branches: self.conditional_branches.checked_add(more.conditional_branches)?,
            indirect_branches: self.indirect_branches.checked_add(more.indirect_branches)?,
            calls: self.calls.checked_add(more.calls)?,
            kernel_instructions: self.kernel_instructions.checked_add(more.kernel_instructions)?,
            gaps: self.gaps.saturating_add(more.gaps),
            kernel_gaps: self.kernel_gaps.saturating_add(more.kernel_gaps),
        })
    }

    /// What was executed since `earlier` in the same thread; its counts never fall.
    #[inline]
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            instructions: self.instructions.wrapping_sub(earlier.instructions),
            conditional_branches: self.conditional_branches.wrapping_sub(earlier.conditional_branches),
            indirect_branches: self.indirect_branches.wrapping_sub(earlier.indirect_branches),
            calls: self.calls.wrapping_sub(earlier.calls),
            kernel_instructions: self.kernel_instructions.wrapping_sub(earlier.kernel_instructions),
            gaps: self.gaps.wrapping_sub(earlier.gaps),
            kernel_gaps: self.kernel_gaps.wrapping_sub(earlier.kernel_gaps),
        }
    }
}

impl Add for Executed {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            instructions: self.instructions + more.instructions,
            conditional_branches: self.conditional_branches + more.conditional_branches,
            indirect_branches: self.indirect_branches + more.indirect_branches,
            calls: self.calls + more.calls,
            kernel_instructions: self.kernel_instructions + more.kernel_instructions,
            gaps: self.gaps.wrapping_add(more.gaps),
            kernel_gaps: self.kernel_gaps.wrapping_add(more.kernel_gaps),
        }
    }
}

impl Sub for Executed {
    type Output = Self;

    /// The rest, without a part.
    fn sub(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            conditional_branches: self.conditional_branches.saturating_sub(earlier.conditional_branches),
            indirect_branches: self.indirect_branches.saturating_sub(earlier.indirect_branches),
            calls: self.calls.saturating_sub(earlier.calls),
            kernel_instructions: self.kernel_instructions.saturating_sub(earlier.kernel_instructions),
            gaps: self.gaps.saturating_sub(earlier.gaps),
            kernel_gaps: self.kernel_gaps.saturating_sub(earlier.kernel_gaps),
        }
    }
}

/// Core cycles that passed while user code of a thread was traced, since its first event.
///
/// They come from CYC packets. The processor counts on while tracing is off (SDM, "Cycle Counter"); cycles
/// from a TIP.PGD to the next TIP.PGE are left out, as are those of kernel code.
///
/// Two uncertainties are kept apart. An event lies between two packets: `[lo, hi]`. And with a threshold for
/// CYC packets, how many cycles passed before tracing was switched off is known up to the threshold only: a
/// sum of all that since the first event, which a difference of two events has the difference of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// Cycles up to the packet before the event.
    pub lo: u64,
    /// Estimate.
    pub point: u64,
    /// Cycles up to the packet after the event.
    pub hi: u64,
    /// How far the number of counted cycles may be off.
    pub unsure: u64,
    /// The cycles of the estimate as cycles of the bus clock, by the ratio that CBR packets say, in units of
    /// 1/[`Self::BUS_UNITS`].
    pub bus: u64,
    /// Grows where no CBR packet has said the ratio. Wraps.
    pub unrated: u32,
}

impl Cycles {
    /// Units of [`Self::bus`] in a cycle of the bus clock.
    pub const BUS_UNITS: u64 = 1 << 16;

    /// Units of the bus clock from `earlier` to here; `None`: of some cycles no CBR packet says the ratio.
    #[inline]
    #[must_use]
    pub fn bus_since(&self, earlier: &Self) -> Option<u64> {
        (self.unrated == earlier.unrated).then(|| self.bus.wrapping_sub(earlier.bus))
    }

    /// Cycles from `earlier` to here: the estimate, and how far it may be off at most.
    #[inline]
    #[must_use]
    pub fn since(&self, earlier: &Self) -> (u64, u64) {
        let count = self.point.saturating_sub(earlier.point);
        let (least, most) = (self.lo.saturating_sub(earlier.hi), self.hi.saturating_sub(earlier.lo));
        let between = count.saturating_sub(least).max(most.saturating_sub(count));
        (count, between + self.unsure.saturating_sub(earlier.unsure))
    }
}

impl Add for Cycles {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            lo: self.lo + more.lo,
            point: self.point + more.point,
            hi: self.hi + more.hi,
            unsure: self.unsure + more.unsure,
            bus: self.bus.wrapping_add(more.bus),
            unrated: self.unrated.wrapping_add(more.unrated),
        }
    }
}

/// A thread's counters at an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What was executed: exact.
    pub executed: Executed,
    /// Cycles; `None`: the recording has no CYC packets.
    pub cycles: Option<Cycles>,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        let cycles = match (self.cycles, more.cycles) {
            (Some(cycles), Some(more)) => Some(cycles + more),
            (known, None) | (None, known) => known,
        };
        Self { executed: self.executed + more.executed, cycles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_difference_has_both_ends() {
        let from = Cycles { lo: 90, point: 100, hi: 102, unsure: 7, ..Cycles::default() };
        let to = Cycles { lo: 190, point: 200, hi: 230, unsure: 10, ..Cycles::default() };
        assert_eq!(to.since(&from), (100, 43));
        assert_eq!(from.since(&from), (0, 12));
        let later = |bus, unrated| Cycles { bus, unrated, ..to };
        assert_eq!([later(5, 0), later(5, 1)].map(|to| to.bus_since(&from)), [Some(5), None]);
    }
}
