//! Where code is left otherwise than by a branch that goes on in it: interruptions, aborts, and the end of
//! tracing.

use model::{AsyncCause, Avma, BranchKind, EndKind, Site, Transfer};

use super::{Here, Walk, Walked};
use crate::block::{Block, BlockId};
use crate::effects::{Asked, End, MAX_DIRECT, Program, stopped_at};
use crate::step::Step;
use crate::terminator::Terminator;
use crate::work::Work;

impl<W: Work> Walk<'_, W> {
    /// An event interrupted execution before the instruction at `ip`.
    pub(crate) fn follow_async(
        &mut self,
        step: Step,
        cause: AsyncCause,
        ip: Avma,
        to: Option<Avma>,
    ) -> Walked<()> {
        match self.walk_to(step, ip) {
            Ok(()) => self.end(step, EndKind::Async(cause), self.site(ip), to),
            Err(_) if self.is_after_far(ip) => {
                let block = *self.graph.block(self.here.block);
                self.pass_block(&block);
                self.end(step, EndKind::Syscall, block.last, to);
            }
            Err(cause) => return Err(cause),
        }
        Ok(())
    }

    /// Nothing runs on past a far transfer, so a FUP with the address after one is the transfer's own: of a
    /// software interrupt (SDM, "Packet Generation under Different Enable Conditions": FUP(CLIP), FUP(NLIP),
    /// TIP), and of any on Goldmont.
    fn is_after_far(&self, ip: Avma) -> bool {
        let block = self.graph.block(self.here.block);
        block.terminator == Terminator::Far && block.last.next_ip() == ip
    }

    /// A transaction was aborted before the instruction at `ip`, and goes on at `handler`.
    ///
    /// `jumps`: the target of a branch right before it may have been wrong (BDM64).
    pub(crate) fn follow_abort(&mut self, step: Step, ip: Avma, handler: Avma, jumps: bool) -> Walked<()> {
        match self.pass_to(ip) {
            Err(_) if jumps => {
                self.passed.clear();
                self.jump_to(ip)?;
            }
            walked => {
                self.emit_passed(step);
                walked?;
            }
        }
        self.emit_branch_to(step, BranchKind::Abort, self.site(ip), handler)
    }

    /// The instruction at `ip` enters a virtual machine.
    pub(crate) fn is_vm_entry(&self, ip: Avma) -> bool {
        let bytes = self.context.code.code(self.space, ip).unwrap_or_default();
        matches!(bytes, [0x0f, 0x01, 0xc2 | 0xc3, ..]) // VMLAUNCH, VMRESUME
    }

    /// Follows a TIP.PGD that is not the end of an asynchronous event: a branch left the traced code.
    ///
    /// Without IP filter that is a far transfer. With one, it may be any branch, also a direct one or a
    /// conditional one (which then has no TNT bit, and may have no address), or running on past the end of
    /// the range; the address tells.
    pub(crate) fn follow_end(&mut self, step: Step, ip: Option<Avma>) -> Walked<()> {
        if ip.is_some_and(|ip| self.follow_end_of_block(step, ip)) {
            return Ok(());
        }
        let walked = self.pass_to_end(ip);
        self.emit_passed(step);
        let (kind, from, to) = walked?;
        self.end(step, kind, from, to);
        Ok(())
    }

    /// [`Self::follow_end`] where the block's last branch goes to `ip`; false if more is between.
    #[inline(always)]
    pub(crate) fn follow_end_of_block(&mut self, step: Step, ip: Avma) -> bool {
        self.follow_border(step, self.here.block, Asked::End(ip))
    }

    /// Passes all instructions of a block that ends where the trace does.
    fn pass_block(&mut self, block: &Block) {
        self.here.work = self.here.work.plus(W::of_last_block(block));
    }

    /// How, from where and where to tracing ends, once direct branches to there were passed.
    fn pass_to_end(&mut self, ip: Option<Avma>) -> Walked<(EndKind, Site, Option<Avma>)> {
        for steps in 0..MAX_DIRECT {
            let block = *self.graph.block(self.here.block);
            if let Some(ip) = ip.filter(|&ip| block.contains(ip) && (ip != block.start.ip || steps > 0)) {
                let from = block.before(self.context.code, self.space, ip);
                self.pass_up_to(&block, ip);
                return Ok((EndKind::FallThrough, from.unwrap_or(block.last), Some(ip)));
            }
            if let Some(kind) = ip.and_then(|ip| block.leaves_for(ip)) {
                if block.terminator == Terminator::Return {
                    self.stack.pop();
                }
                self.pass_block(&block);
                return Ok((kind, block.last, ip));
            }
            let to = match block.terminator {
                Terminator::Jump { to } | Terminator::Call { to, .. }
                    if ip.is_none() && self.is_filtered_out(to) =>
                {
                    Some(to) // SKL014
                }
                Terminator::Jump { .. } | Terminator::Call { .. } | Terminator::Continue => {
                    self.direct()?;
                    continue;
                }
                Terminator::Undecodable(_) | Terminator::Unknown if ip == Some(block.last.next_ip()) => {
                    self.pass_block(&block);
                    return Ok((EndKind::FallThrough, block.last, ip));
                }
                Terminator::Undecodable(_) | Terminator::Unknown => return Err(stopped_at(&block)),
                Terminator::Far => None,
                _ if ip.is_some() || !self.context.recording.pt.has_ip_filter => {
                    return Err(self.desync(&block));
                }
                Terminator::Conditional { taken } => self.hidden_target(&block, taken),
                // A compressed one has no address (SDM, "Packet Generation under Different Enable
                // Conditions").
                Terminator::Return => self.stack.pop().map(|call| self.graph.return_address(call)),
                Terminator::IndirectJump | Terminator::IndirectCall => None,
            };
            let kind = block.branch_kind().map_or(EndKind::Syscall, EndKind::Branch);
            self.pass_block(&block);
            return Ok((kind, block.last, to));
        }
        Err(self.endless())
    }

    /// Tracing starts at `ip`, in code that there is; false if there is none.
    #[inline(always)]
    pub(crate) fn follow_start(&mut self, step: Step, ip: Avma) -> bool {
        self.follow_border(step, BlockId(self.space.0), Asked::Start(ip))
    }

    /// Follows the effect of a start or an end of tracing, at the packet's own time; false if there is
    /// none.
    #[inline(always)]
    fn follow_border(&mut self, step: Step, block: BlockId, asked: Asked) -> bool {
        let Self { context, graph, effects, space, stack, output, here, .. } = self;
        let effect = match effects.find(block, asked) {
            Some(effect) => *effect,
            None => *Program { context, graph, effects, space: *space }.work_out(block, asked),
        };
        let Some(first) = effect.edges().filter(|_| effect.end != End::Lost) else { return false };
        if effect.returns() {
            stack.pop();
        }
        output.border(first, step.slot, here.work, step.at, effects);
        *here = Here { block: effect.next, work: here.work.plus(effect.work) };
        true
    }

    /// The IP filter is known to have no range at `ip`.
    fn is_filtered_out(&self, ip: Avma) -> bool {
        let place = self.context.code.file_place(self.space, ip);
        place.and_then(|(path, offset)| self.filter.covers(path, offset)) == Some(false)
    }

    /// Where a conditional jump out of the IP filter went if its TIP.PGD does not say (SDM, "TIP.PGD"): one
    /// way stays inside. Where the ranges do not tell which, they cover functions: it is the way on unless
    /// the function ends there.
    fn hidden_target(&self, block: &Block, taken: Avma) -> Option<Avma> {
        match (self.is_filtered_out(taken), self.is_filtered_out(block.last.next_ip())) {
            (true, false) => return Some(taken),
            (false, true) => return Some(block.last.next_ip()),
            _ => (),
        }
        let next = self.target(block.last.next_ip());
        (next.function == block.last.function && !next.at_entry).then_some(taken)
    }

    /// Emits an end, at the packet's own time.
    pub(super) fn end(&mut self, step: Step, kind: EndKind, from: Site, to: Option<Avma>) {
        self.emit(Step { lo: step.own, ..step }, Transfer::End { kind, from, to });
    }
}
