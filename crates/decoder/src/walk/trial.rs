//! Follows code without making events, to hold packets against a hypothesis of where execution is.

use model::{Avma, GapCause};
use packet::Tnt;

use super::{Walk, Walked};
use crate::block::{Block, BlockId};
use crate::effects::{MAX_DIRECT, no_code, stopped_at};
use crate::return_stack::ReturnStack;
use crate::terminator::Terminator;
use crate::work::Work;

/// A hypothetical position of execution: what it follows makes no event.
pub(crate) struct Trial<'w, 'a, W> {
    walk: &'w mut Walk<'a, W>,
    block: BlockId,
    stack: ReturnStack,
    /// Bits that wait for a deferred TIP.
    tnt: Tnt,
    choices: Choices,
}

/// The blocks where a packet decided, and where it led: the address of a TIP, or the next block of a bit.
pub(crate) type Choices = Vec<(BlockId, Option<Avma>, BlockId)>;

/// Where a trial is after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialState {
    /// In code that is there.
    Goes,
    /// Code and packet fit up to where the trial cannot follow: missing code, the kernel, a caller that is
    /// not known.
    Fits,
    /// They contradict each other.
    Fails,
}

impl<'w, 'a, W: Work> Trial<'w, 'a, W> {
    /// A trial from where `walk` is, with the calls that it knows.
    pub(crate) fn of(walk: &'w mut Walk<'a, W>) -> Self {
        Self { block: walk.here.block, stack: walk.stack.clone(), tnt: Tnt::default(), choices: vec![], walk }
    }

    /// A trial from `ip` on, where `bits` come first and no call is known; none where there is no code.
    pub(crate) fn at(walk: &'w mut Walk<'a, W>, ip: Avma, bits: Tnt) -> Option<Self> {
        let block = walk.block_at(ip).ok()?;
        Some(Self { walk, block, stack: ReturnStack::new(), tnt: bits, choices: vec![] })
    }

    fn here(&self) -> Block {
        *self.walk.graph.block(self.block)
    }

    fn go_to(&mut self, ip: Avma) -> Walked<()> {
        self.block = self.walk.block_at(ip)?;
        Ok(())
    }

    fn go_on(&mut self) -> Walked<()> {
        let ip = self.here().last.next_ip();
        let Walk { graph, context, space, .. } = &mut *self.walk;
        self.block = graph.next(context, *space, self.block).map_err(|why| no_code(why, ip))?;
        Ok(())
    }

    /// Passes one branch that needs no packet; false if the block ends otherwise.
    fn direct(&mut self) -> Walked<bool> {
        let to = match self.here().terminator {
            Terminator::Jump { to } => to,
            Terminator::Call { to, push } => {
                if push {
                    self.stack.push(self.block);
                }
                to
            }
            Terminator::Continue => return self.go_on().map(|()| true),
            _ => return Ok(false),
        };
        let Walk { graph, context, space, .. } = &mut *self.walk;
        self.block = graph.taken(context, *space, self.block, to).map_err(|why| no_code(why, to))?;
        Ok(true)
    }

    /// Goes on to the block that needs a packet at its end.
    pub(crate) fn advance(&mut self) -> Walked<Block> {
        for _ in 0..MAX_DIRECT {
            if !self.direct()? {
                return Ok(self.here());
            }
        }
        Err(self.walk.desync(&self.here()))
    }

    /// Execution comes to `ip` without a packet.
    pub(crate) fn reaches(&mut self, ip: Avma) -> bool {
        for _ in 0..MAX_DIRECT {
            if self.here().contains(ip) {
                return true;
            }
            if self.direct() != Ok(true) {
                return false;
            }
        }
        false
    }

    /// The next packet's branch is a return, and to go to `ip` it leaves out a call that was seen.
    pub(crate) fn next_returns_past_a_call(&mut self, ip: Avma) -> bool {
        let is_return = self.advance().is_ok_and(|block| block.terminator == Terminator::Return);
        is_return && self.returns_past_a_call(ip)
    }

    /// A return to `ip` leaves out the last call. To a function's first address a return is a jump (`push;
    /// ret`, a retpoline).
    fn returns_past_a_call(&mut self, ip: Avma) -> bool {
        let call = self.stack.pop();
        let returns_elsewhere = |call| self.walk.graph.return_address(call) != ip;
        call.is_some_and(returns_elsewhere) && !self.walk.target(ip).at_entry
    }

    fn has_bits(&self) -> bool {
        !self.tnt.is_empty()
    }

    /// Where packets have led, the first first.
    pub(crate) fn into_choices(self) -> Choices {
        self.choices
    }

    /// Something came for which no bit waits.
    pub(crate) fn ends(&self) -> TrialState {
        if self.has_bits() { TrialState::Fails } else { TrialState::Fits }
    }

    /// A FUP: execution has come to `ip` without a packet.
    pub(crate) fn fup(&mut self, ip: Option<Avma>) -> TrialState {
        let is_here = ip.is_some_and(|ip| self.reaches(ip)) || self.here().terminator == Terminator::Far;
        if is_here { self.ends() } else { TrialState::Fails }
    }

    pub(crate) fn tnt(&mut self, tnt: Tnt) -> TrialState {
        if self.has_bits() {
            return TrialState::Fails;
        }
        self.tnt = tnt;
        self.bits()
    }

    /// Follows the bits at hand, up to a TIP's branch.
    pub(crate) fn bits(&mut self) -> TrialState {
        while self.has_bits() {
            let is_compressed = self.walk.context.recording.pt.return_compression;
            let advanced = self.advance();
            let from = self.block;
            let walked = match advanced {
                Ok(block) => match block.terminator {
                    Terminator::Conditional { taken } => match self.tnt.pop() {
                        Some(true) => self.go_to(taken),
                        _ => self.go_on(),
                    },
                    Terminator::Return if is_compressed => match (self.tnt.pop(), self.stack.pop()) {
                        (Some(true), Some(call)) => self.go_to(self.walk.graph.return_address(call)),
                        (Some(true), None) => {
                            self.choices.push((self.block, None, BlockId::NONE));
                            return TrialState::Fits;
                        }
                        _ => return TrialState::Fails,
                    },
                    Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return => break,
                    _ => Err(stopped_at(&block)),
                },
                Err(cause) => Err(cause),
            };
            if let Err(cause) = walked {
                return TrialState::of(cause);
            }
            self.choices.push((from, None, self.block));
        }
        TrialState::Goes
    }

    pub(crate) fn tip(&mut self, ip: Avma) -> TrialState {
        match self.advance() {
            Ok(block) => match block.terminator {
                Terminator::IndirectJump => (),
                Terminator::IndirectCall => self.stack.push(self.block),
                Terminator::Return if self.returns_past_a_call(ip) => return TrialState::Fails,
                Terminator::Return => (),
                Terminator::Far => return TrialState::Fits,
                _ => return TrialState::of(stopped_at(&block)),
            },
            Err(cause) => return TrialState::of(cause),
        }
        self.choices.push((self.block, Some(ip), BlockId::NONE));
        match self.go_to(ip) {
            Ok(()) => self.bits(),
            Err(cause) => TrialState::of(cause),
        }
    }
}

impl TrialState {
    /// Why it cannot go on.
    const fn of(cause: GapCause) -> Self {
        if let GapCause::Desync { .. } = cause { Self::Fails } else { Self::Fits }
    }
}
