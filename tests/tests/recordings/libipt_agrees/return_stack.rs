//! libipt's stack for compressed returns, and where it leads to the wrong place.

use std::collections::VecDeque;

use model::{AuxOffset, Avma, BranchKind, Transfer};
use packet::Packet;

use super::stream::Stream;

/// How many return addresses it keeps.
const DEPTH: usize = 64;

/// The stack as libipt keeps it: a return that has a packet of its own takes nothing off it.
///
/// The trace unit's own stack forgets an entry with every return (and so do perf's and ours), which is why
/// libipt's has stale entries where calls were left otherwise than by their return: by an exception or a
/// `longjmp`, or because another thread came to the CPU.
pub(crate) struct LibiptStack<'a> {
    stream: &'a Stream,
    stack: VecDeque<Avma>,
    /// The last TIP, which a branch has used.
    used: Option<AuxOffset>,
}

impl<'a> LibiptStack<'a> {
    pub(crate) fn new(stream: &'a Stream) -> Self {
        Self { stream, stack: VecDeque::new(), used: None }
    }

    /// It starts anew, at a PSB.
    pub(crate) fn clear(&mut self) {
        self.stack.clear();
    }

    /// Follows a transfer that really was, by the packet at `at`.  False if libipt cannot have followed it.
    pub(crate) fn follows(&mut self, transfer: &Transfer, at: AuxOffset) -> bool {
        let Transfer::Branch { kind, from, to } = transfer else { return true };
        let after = from.ip.plus(from.len.into());
        match kind {
            BranchKind::Call if to.ip == after => true, // pushes nothing
            BranchKind::Call => self.push(after),
            BranchKind::IndirectCall => {
                self.uses_tip(at);
                self.push(after)
            }
            BranchKind::IndirectJump => {
                self.uses_tip(at);
                true
            }
            BranchKind::Return => self.uses_tip(at) || self.stack.pop_back() == Some(to.ip),
            BranchKind::Jump | BranchKind::ConditionalJump | BranchKind::Abort | BranchKind::RunsOn => true,
        }
    }

    fn push(&mut self, after: Avma) -> bool {
        if self.stack.len() == DEPTH {
            self.stack.pop_front();
        }
        self.stack.push_back(after);
        true
    }

    /// The branch is the one that the TIP there is for; those after it may be of TNT bits that the TIP came
    /// late for.
    fn uses_tip(&mut self, at: AuxOffset) -> bool {
        let is_tip = self.used != Some(at) && matches!(self.stream.packet(at), Some(Packet::Tip(_)));
        if is_tip {
            self.used = Some(at);
        }
        is_tip
    }
}
