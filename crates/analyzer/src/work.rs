//! What a node of a tree executed, in few bytes: what tells more work from slower work.

use crate::counted::{Counted, CycleCount};

/// Instructions of user code, and the cycles that they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Instructions.
    pub instructions: u64,
    /// Cycles; `None`: the recording has no CYC packets.
    pub cycles: Option<CycleCount>,
}

impl From<Counted> for Work {
    fn from(counted: Counted) -> Self {
        Self { instructions: counted.executed.instructions, cycles: counted.cycles }
    }
}

impl Work {
    /// What was executed, if nothing of it is missing.
    pub(crate) fn of(counted: Counted) -> Option<Self> {
        counted.is_known().then(|| counted.into())
    }

    /// None.
    pub const NONE: Self = Self { instructions: 0, cycles: Some(CycleCount { count: 0, error: 0 }) };

    /// Adds work, and its error.
    pub fn add(&mut self, more: Self) {
        self.instructions = self.instructions.saturating_add(more.instructions);
        self.cycles = self.cycles.zip(more.cycles).map(|(sum, more)| CycleCount {
            count: sum.count.saturating_add(more.count),
            error: sum.error.saturating_add(more.error),
        });
    }

    /// The rest, without a part; both errors count.
    #[must_use]
    pub fn without(self, part: Self) -> Self {
        let cycles = self.cycles.zip(part.cycles).map(|(all, part)| CycleCount {
            count: all.count.saturating_sub(part.count),
            error: all.error.saturating_add(part.error),
        });
        Self { instructions: self.instructions.saturating_sub(part.instructions), cycles }
    }
}

/// Adds work to a sum of which all is known, or nothing.
pub(crate) fn add_known(sum: &mut Option<Work>, more: Option<Work>) {
    *sum = sum.zip(more).map(|(mut sum, more)| {
        sum.add(more);
        sum
    });
}
