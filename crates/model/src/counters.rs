//! What a thread has executed up to an event.

use std::ops::Sub;

/// Counts of executed code: sums since the first event of a thread, so the difference of two events' counts is
/// that of the code between them.
///
/// Instructions are those that retired: a repeated string instruction is one, and one that faults is one,
/// however often it is begun. Code that the trace does not show (outside of an IP filter, the kernel where it
/// is not traced, a gap) adds nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

impl Sub for Executed {
    type Output = Self;

    /// What was executed from `earlier` on. Counts never fall within a thread.
    fn sub(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            conditional_branches: self.conditional_branches.saturating_sub(earlier.conditional_branches),
            indirect_branches: self.indirect_branches.saturating_sub(earlier.indirect_branches),
            calls: self.calls.saturating_sub(earlier.calls),
            kernel_instructions: self.kernel_instructions.saturating_sub(earlier.kernel_instructions),
        }
    }
}

/// Core cycles that passed while user code of a thread was traced, since its first event: an interval
/// `[lo, hi]` that the true number lies in, with an estimate inside.
///
/// They come from CYC packets. The processor counts on while tracing is off (SDM, "Cycle Counter"); cycles
/// from a TIP.PGD to the next TIP.PGE are left out, as are those of kernel code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// Lower bound.
    pub lo: u64,
    /// Estimate.
    pub point: u64,
    /// Upper bound.
    pub hi: u64,
}

impl Cycles {
    /// Cycles from `earlier` to here: the estimate, and how far it may be off at most.
    #[must_use]
    pub fn since(self, earlier: Self) -> (u64, u64) {
        let count = self.point.saturating_sub(earlier.point);
        let (least, most) = (self.lo.saturating_sub(earlier.hi), self.hi.saturating_sub(earlier.lo));
        (count, (count.saturating_sub(least)).max(most.saturating_sub(count)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_difference_has_both_ends() {
        let (from, to) = (Cycles { lo: 90, point: 100, hi: 102 }, Cycles { lo: 190, point: 200, hi: 230 });
        assert_eq!(to.since(from), (100, 40));
        assert_eq!(from.since(from), (0, 12));
    }
}
