//! What executing code adds up to: instructions, and in a decode with counters the branches, too.
//!
//! Instructions share out the time between two packets, so every decode has them. All else costs room in each
//! record and effect, so the decoder is compiled for both.

use std::fmt::Debug;

use model::{Avma, CodeSource, ExecutedSince};

use crate::block::Block;
use crate::terminator::Terminator;

/// A sum over executed code, from the start of a segment or of an effect. Sums wrap: only differences within
/// a segment are asked for.
pub(crate) trait Work: Copy + Debug + Send + Sync + 'static {
    /// The sum has all that [`ExecutedSince`] has.
    const COUNTS: bool;

    /// No work.
    const NONE: Self;

    /// The work of a block that runs from its first instruction to its last.
    fn of_block(block: &Block) -> Self;

    /// The work of a block with which tracing ends: counted, but no share of the time before its end is its
    /// own, as a packet says when that was.
    fn of_last_block(block: &Block) -> Self;

    /// The work of the instructions of a block before `ip`, where it is interrupted: counted as
    /// [`Self::of_last_block`].
    fn of_interrupted_block(block: &Block, code: &dyn CodeSource, ip: Avma) -> Self;

    /// Work that is not known: a gap, or a stay in the kernel that is not followed.
    fn unknown(in_kernel: bool) -> Self;

    /// The sum of both.
    fn plus(self, other: Self) -> Self;

    /// Instructions that share out the time.
    fn timed_instructions(self) -> u32;

    /// The counts from `earlier` on.
    fn since(self, earlier: Self) -> ExecutedSince;
}

/// Instructions only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstructionCount(pub(crate) u32);

impl Work for InstructionCount {
    const COUNTS: bool = false;
    const NONE: Self = Self(0);

    #[inline]
    fn of_block(block: &Block) -> Self {
        Self(block.instructions)
    }

    #[inline]
    fn of_last_block(_: &Block) -> Self {
        Self::NONE
    }

    #[inline]
    fn of_interrupted_block(_: &Block, _: &dyn CodeSource, _: Avma) -> Self {
        Self::NONE
    }

    #[inline]
    fn unknown(_: bool) -> Self {
        Self::NONE
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    #[inline]
    fn timed_instructions(self) -> u32 {
        self.0
    }

    fn since(self, earlier: Self) -> ExecutedSince {
        ExecutedSince { instructions: self.0.wrapping_sub(earlier.0), ..ExecutedSince::default() }
    }
}

/// Instructions and branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    executed: ExecutedSince,
    /// What shares out the time: of user and kernel code.
    timed_instructions: u32,
}

impl Work for Tally {
    const COUNTS: bool = true;
    const NONE: Self = Self::of(ExecutedSince::NONE);

    fn of_block(block: &Block) -> Self {
        Self { timed_instructions: block.instructions, ..Self::of_last_block(block) }
    }

    fn of_last_block(block: &Block) -> Self {
        let straight = straight(block, block.instructions);
        if block.start.ip.is_kernel() {
            return Self::of(straight);
        }
        let is = |yes: bool| u32::from(yes);
        let end = block.terminator;
        Self::of(ExecutedSince {
            conditional_branches: is(matches!(end, Terminator::Conditional { .. })),
            indirect_branches: is(matches!(end, Terminator::IndirectJump | Terminator::IndirectCall)),
            calls: is(matches!(end, Terminator::Call { .. } | Terminator::IndirectCall)),
            ..straight
        })
    }

    fn of_interrupted_block(block: &Block, code: &dyn CodeSource, ip: Avma) -> Self {
        Self::of(straight(block, block.instructions_before(code, ip)))
    }

    fn unknown(in_kernel: bool) -> Self {
        Self::of(match in_kernel {
            true => ExecutedSince { kernel_gaps: 1, ..ExecutedSince::NONE },
            false => ExecutedSince { gaps: 1, ..ExecutedSince::NONE },
        })
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        Self {
            executed: self.executed.plus(&other.executed),
            timed_instructions: self.timed_instructions.wrapping_add(other.timed_instructions),
        }
    }

    #[inline]
    fn timed_instructions(self) -> u32 {
        self.timed_instructions
    }

    #[inline]
    fn since(self, earlier: Self) -> ExecutedSince {
        self.executed.since(&earlier.executed)
    }
}

impl Tally {
    /// Of code that is not timed: its instructions share out no time between packets.
    const fn of(executed: ExecutedSince) -> Self {
        Self { executed, timed_instructions: 0 }
    }
}

/// Instructions of a block without the branch at its end.
fn straight(block: &Block, instructions: u32) -> ExecutedSince {
    match block.start.ip.is_kernel() {
        true => ExecutedSince { kernel_instructions: instructions, ..ExecutedSince::NONE },
        false => ExecutedSince { instructions, ..ExecutedSince::NONE },
    }
}
