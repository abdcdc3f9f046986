//! Following code from one flow packet to the next: the packets' answers at branches that need one, and the
//! direct branches in between, which have no packet.

mod ends;
mod trial;

use model::{AuxOffset, Avma, BranchKind, EndKind, GapCause, IpFilter, Ns, Site, SpaceId, Target, Transfer};
use packet::Tnt;

use crate::Context;
use crate::block::{Block, BlockId};
use crate::effects::{
    Asked, Effect, Effects, End, MAX_DIRECT, Program, Remembered, ReturnSite, Side, no_code, stopped_at,
};
use crate::graph::BlockGraph;
use crate::output::{Moment, Output};
use crate::owner::Running;
use crate::record::Edges;
use crate::return_stack::ReturnStack;
use crate::step::Step;
use crate::terminator::Terminator;
use crate::work::Work;
use crate::worker_cache::WorkerCache;
pub(crate) use trial::{Choices, Trial, TrialState};

/// Where execution is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<W> {
    /// The block that begins with the next instruction.
    pub(crate) block: BlockId,
    /// Work done so far: its instructions share out the time between two packets.
    pub(crate) work: W,
}

/// Execution, and all that moving it takes.
pub(crate) struct Walk<'a, W> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) graph: &'a mut BlockGraph,
    pub(crate) effects: &'a mut Effects<W>,
    pub(crate) space: SpaceId,
    pub(crate) here: Here<W>,
    pub(crate) stack: ReturnStack,
    /// Kernel code was skipped: the stack has what the running thread called, and not what the trace unit
    /// has.
    pub(crate) own_calls: bool,
    /// Code was missing since the trace unit forgot all calls: why.  It knows calls that the stack has not.
    pub(crate) unknown_callers: Option<GapCause>,
    /// The ranges that are traced.
    pub(crate) filter: IpFilter,
    /// Bits that wait for a deferred TIP.
    pub(crate) tnt: Tnt,
    /// Instructions passed at the first branch of the TNT that is being followed, once it is reached.
    pub(crate) first_bit: Option<u32>,
    /// Branches that were passed and not emitted yet, each with the work done at it.
    pub(crate) passed: Vec<(W, Transfer)>,
    pub(crate) output: &'a mut Output<W>,
}

/// A walk by remembered effects alone.
pub(crate) struct Known<'w, W> {
    remembered: Remembered<'w, W>,
    effects: &'w Effects<W>,
    stack: &'w mut ReturnStack,
    output: &'w mut Output<W>,
    /// Where calls return from.
    side: Side,
}

impl<'w, W: Work> Known<'w, W> {
    /// Goes on from `here` by the remembered effect of what a packet says. None if nothing is remembered, or
    /// if more than that has to be asked. `has_first_bit`: with the first bit of the TNT that is being
    /// followed.
    ///
    /// `here` is the caller's own: so it stays in registers from one packet to the next.
    #[inline(always)]
    pub(crate) fn follow(
        &mut self,
        here: &mut Here<W>,
        asked: Asked,
        has_first_bit: bool,
        step: impl FnOnce() -> Step,
    ) -> Option<&'w Effect<W>> {
        let Self { remembered, effects, stack, output, side } = self;
        let effect = remembered.find(here.block, asked)?;
        let (next, call) = match effect.end {
            End::Used if effect.returns() => {
                if !effects.returns_to(stack.top(), effect.next) {
                    return None; // perhaps past calls that were unwound
                }
                stack.pop();
                (effect.next, BlockId::NONE)
            }
            End::Used => (effect.next, BlockId::NONE),
            End::Return => {
                let call = stack.top();
                let next = effects.return_site_from(*side, call)?.block;
                stack.pop();
                (next, call)
            }
            _ => return None,
        };
        if let Some(first) = effect.edges() {
            let edges = Edges { first, has_first_bit, prunable: effect.prunable, call };
            output.effect(&step(), here.work, edges, effects);
        }
        effects.push_calls(effect, stack);
        *here = Here { block: next, work: here.work.plus(effect.work) };
        Some(effect)
    }
}

type Walked<T> = Result<T, GapCause>;

impl<'a, W: Work> Walk<'a, W> {
    /// A walk that is nowhere yet, with what a worker knows.
    pub(crate) fn new(context: &'a Context<'a>, known: &'a mut WorkerCache<W>) -> Self {
        Self {
            context,
            graph: &mut known.graph,
            effects: &mut known.effects,
            space: SpaceId::default(),
            here: Here { block: BlockId::NONE, work: W::NONE },
            stack: ReturnStack::new(),
            own_calls: false,
            unknown_callers: None,
            filter: IpFilter::parse(&context.recording.ip_filter),
            tnt: Tnt::default(),
            first_bit: None,
            passed: vec![],
            output: &mut known.output,
        }
    }
}

impl<W: Work> Walk<'_, W> {
    /// Sets the position; nothing is emitted.
    pub(crate) fn jump_to(&mut self, ip: Avma) -> Walked<()> {
        self.here.block = self.block_at(ip)?;
        Ok(())
    }

    /// The events that follow are `running`'s, in this address space.
    pub(crate) fn thread(&mut self, running: Running, space: SpaceId, start: Ns) {
        self.output.thread(running, space, start, self.here.work, self.effects);
    }

    /// Instructions passed so far, wrapping.
    #[inline(always)]
    pub(crate) fn work(&self) -> u32 {
        self.here.work.timed_instructions()
    }

    /// The instruction that comes next.
    pub(crate) fn position(&self) -> Target {
        self.graph.block(self.here.block).start
    }

    /// Where the innermost call returns to, if it is known.
    pub(crate) fn innermost_return(&self) -> Option<Avma> {
        let mut calls = self.stack.clone();
        calls.drop_ended();
        calls.pop().map(|call| self.graph.return_address(call))
    }

    /// A block of kernel code.
    pub(crate) fn is_kernel(&self, block: BlockId) -> bool {
        self.graph.block(block).start.ip.is_kernel()
    }

    /// There is code at `ip`, and an instruction.
    pub(crate) fn is_code(&mut self, ip: Avma) -> bool {
        self.block_at(ip).is_ok()
    }

    fn block_at(&mut self, ip: Avma) -> Walked<BlockId> {
        self.graph.at(self.context, self.space, ip).map_err(|why| no_code(why, ip))
    }

    fn desync(&self, block: &Block) -> GapCause {
        GapCause::Desync { ip: block.last.ip }
    }

    /// Direct branches without end: a wrong address led here, and none of them happened.
    #[cold]
    fn endless(&mut self) -> GapCause {
        self.passed.clear();
        self.desync(self.graph.block(self.here.block))
    }

    pub(crate) fn target(&self, ip: Avma) -> Target {
        self.context.target(self.space, ip)
    }

    fn site(&self, ip: Avma) -> Site {
        Site { ip, function: self.target(ip).function, len: 0 }
    }

    /// Emits a transfer of the present time.
    pub(crate) fn emit(&mut self, step: Step, transfer: Transfer) {
        self.output.transfer(&step, self.here.work, transfer, self.effects);
    }

    /// Emits a gap.
    pub(crate) fn gap(&mut self, from: Moment, to: Moment, bytes: u64, at: AuxOffset, cause: GapCause) {
        self.here.work = self.here.work.plus(W::unknown(false));
        self.output.gap(from, to, bytes, (at, self.here.work), cause, self.effects);
    }

    /// Passes a branch, which is still to be emitted; `is_marked`: a region begins or ends at `to`.
    fn pass(&mut self, kind: BranchKind, from: Site, to: Target, is_marked: bool) {
        if is_marked || self.context.is_transfer(kind, from.function, to.function) {
            self.passed.push((self.here.work, Transfer::Branch { kind, from, to }));
        }
    }

    /// Passes a branch to a block.
    fn pass_to_block(&mut self, kind: BranchKind, from: Site, to: BlockId) {
        let (start, is_marked) = (self.graph.block(to).start, self.graph.block(to).is_marked);
        self.pass(kind, from, start, is_marked);
    }

    /// Emits the branches that were passed.
    fn emit_passed(&mut self, step: Step) {
        for (work, transfer) in self.passed.drain(..) {
            self.output.transfer(&step, work, transfer, self.effects);
        }
    }

    /// Passes a branch to `ip` and goes there.
    fn branch_to(&mut self, kind: BranchKind, from: Site, ip: Avma) -> Walked<()> {
        match self.block_at(ip) {
            Ok(id) => {
                self.pass_to_block(kind, from, id);
                self.here.block = id;
                Ok(())
            }
            Err(cause) => {
                self.pass_lost(kind, from, self.target(ip), cause);
                Err(cause)
            }
        }
    }

    /// Passes a branch to code that is not there, because of `cause`.
    fn pass_lost(&mut self, kind: BranchKind, from: Site, to: Target, cause: GapCause) {
        if self.context.shows_way_back(cause) {
            let end = Transfer::End { kind: EndKind::Branch(kind), from, to: Some(to.ip) };
            self.passed.push((self.here.work, end));
        } else {
            self.pass(kind, from, to, false);
        }
    }

    /// Emits a branch to `ip` and goes there.
    fn emit_branch_to(&mut self, step: Step, kind: BranchKind, from: Site, ip: Avma) -> Walked<()> {
        let walked = self.branch_to(kind, from, ip);
        self.emit_passed(step);
        walked
    }

    /// Passes one branch that needs no packet; false if the block ends otherwise.
    #[inline]
    fn direct(&mut self) -> Walked<bool> {
        let block = self.graph.block(self.here.block);
        let (kind, to, last) = match block.terminator {
            Terminator::Jump { to } => (BranchKind::Jump, to, block.last),
            Terminator::Call { to, push } => {
                let last = block.last;
                if push {
                    self.stack.push(self.here.block);
                }
                (BranchKind::Call, to, last)
            }
            Terminator::Continue => {
                let last = block.last;
                self.here.work = self.here.work.plus(W::of_block(block));
                let next = self.graph.next(self.context, self.space, self.here.block);
                let next = next.map_err(|why| no_code(why, last.next_ip()))?;
                if self.graph.block(next).is_marked {
                    self.pass_to_block(BranchKind::RunsOn, last, next);
                }
                self.here.block = next;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.here.work = self.here.work.plus(W::of_block(block));
        match self.graph.taken(self.context, self.space, self.here.block, to) {
            Ok(id) => {
                self.pass_to_block(kind, last, id);
                self.here.block = id;
            }
            Err(_) => self.branch_to(kind, last, to)?,
        }
        Ok(true)
    }

    /// Goes on, without a packet, until `ip` is the next instruction.
    pub(crate) fn walk_to(&mut self, step: Step, ip: Avma) -> Walked<()> {
        let walked = self.pass_to(ip);
        self.emit_passed(step);
        walked
    }

    /// [`Self::walk_to`] without emitting the branches.
    fn pass_to(&mut self, ip: Avma) -> Walked<()> {
        for _ in 0..MAX_DIRECT {
            let block = *self.graph.block(self.here.block);
            if block.contains(ip) {
                self.pass_up_to(&block, ip);
                return if block.start.ip == ip { Ok(()) } else { self.jump_to(ip) };
            }
            if !self.direct()? {
                return Err(stopped_at(&block));
            }
        }
        Err(self.endless())
    }

    /// Passes the instructions of a block that are before `ip`.
    fn pass_up_to(&mut self, block: &Block, ip: Avma) {
        self.here.work = self.here.work.plus(W::of_interrupted_block(block, self.context.code, ip));
    }

    /// The effect of `asked` at `block`.
    #[inline]
    fn effect(&mut self, block: BlockId, asked: Asked) -> Effect<W> {
        if let Some(effect) = self.effects.find(block, asked) {
            return *effect;
        }
        self.work_out(block, asked)
    }

    /// Works out an effect that is not remembered.
    #[cold]
    fn work_out(&mut self, block: BlockId, asked: Asked) -> Effect<W> {
        let Self { context, graph, effects, space, .. } = self;
        *Program { context, graph, effects, space: *space }.work_out(block, asked)
    }

    /// What it takes to go by remembered effects from one packet to the next; none if there are none.
    pub(crate) fn known(&mut self) -> Option<Known<'_, W>> {
        let Self { effects, stack, output, space, .. } = self;
        let effects: &Effects<W> = effects;
        Some(Known { remembered: effects.remembered()?, effects, stack, output, side: Side::User(*space) })
    }

    /// Goes on by any effect that is not lost.
    fn follow_effect(&mut self, step: &Step, effect: Effect<W>, has_first_bit: bool) -> Walked<()> {
        let side = match effect.end {
            End::Return => Side::User(self.space),
            End::KernelReturn => Side::Kernel,
            _ => {
                self.pass_effect(&effect, effect.next, BlockId::NONE, has_first_bit, step);
                return Ok(());
            }
        };
        let call = self.stack.pop();
        if let Some((call, site)) = call.and_then(|call| Some((call, self.return_site(side, call)?))) {
            self.pass_effect(&effect, site.block, call, has_first_bit, step);
            return Ok(());
        }
        // An effect that ends in no return is not prunable.
        let mut effect = effect;
        effect.prunable = None;
        self.pass_effect(&effect, effect.next, BlockId::NONE, has_first_bit, step);
        let is_after_first = has_first_bit && !effect.ends_with_first_bit();
        let slot = if is_after_first { step.slot.next() } else { step.slot };
        self.return_astray(Step { slot, ..*step }, side, call)
    }

    /// Emits an effect's branches and goes to `next`. `call`: what its last branch returned to, if only the
    /// stack knows that.
    fn pass_effect(
        &mut self,
        effect: &Effect<W>,
        next: BlockId,
        call: BlockId,
        has_first_bit: bool,
        step: &Step,
    ) {
        if let Some(first) = effect.edges() {
            let edges = Edges { first, has_first_bit, prunable: effect.prunable, call };
            self.output.effect(step, self.here.work, edges, self.effects);
        }
        if effect.returns() {
            self.returned(next);
        }
        self.effects.push_calls(effect, &mut self.stack);
        self.here = Here { block: next, work: self.here.work.plus(effect.work) };
    }

    /// A return that is not compressed has led to `next`. It takes the youngest of the trace unit's calls,
    /// wherever it leads.
    fn returned(&mut self, next: BlockId) {
        let Target { ip, at_entry, .. } = self.graph.block(next).start;
        if at_entry {
            // A jump (`push; ret`, a retpoline), or a handler's return: the thread has returned from nothing.
            if !self.own_calls {
                self.stack.pop();
            }
            return;
        }
        self.stack.end(|call| self.graph.return_address(call) == ip);
        if let Some(call) = self.stack.pop().filter(|call| self.graph.return_address(*call) == ip) {
            // From now on the fast way knows it, where returns are not compressed, too.
            let side = if ip.is_kernel() { Side::Kernel } else { Side::User(self.space) };
            _ = self.return_site(side, call);
        }
        if self.own_calls {
            self.stack.drop_ended();
        }
    }

    /// Where `call`, from the stack, returns to, if it was made on `side`, which returns.
    fn return_site(&mut self, side: Side, call: BlockId) -> Option<ReturnSite> {
        if let Some(site) = self.effects.return_site_from(side, call) {
            return Some(*site);
        }
        let block = self.graph.block(call);
        let made_on = if block.last.next_ip().is_kernel() { Side::Kernel } else { Side::User(block.space) };
        if made_on != side {
            return None;
        }
        let Self { context, graph, effects, space, .. } = self;
        Program { context, graph, effects, space: *space }.return_site(call, side).ok()
    }

    /// A compressed return for which its side has no call, or no code to return to.
    #[cold]
    fn return_astray(&mut self, step: Step, side: Side, call: Option<BlockId>) -> Walked<()> {
        let from = self.graph.block(self.here.block).last;
        let ip = call.map(|call| self.graph.return_address(call));
        match ip.filter(|ip| ip.is_kernel() == (side == Side::Kernel)) {
            Some(ip) => self.emit_branch_to(step, BranchKind::Return, from, ip),
            None => Err(GapCause::Desync { ip: from.ip }),
        }
    }

    /// Goes as far as an effect goes that ends where code and packet contradict each other, having used so
    /// many bits.
    #[cold]
    fn lost(&mut self, mut step: Step, effect: Effect<W>, bits: u8) -> GapCause {
        self.tnt.drop_oldest(bits);
        let is_first = self.first_bit.is_none() && bits > 0;
        let begin = self.here.work;
        self.here.work = begin.plus(effect.work);
        self.here.block = effect.next;
        if is_first {
            self.first_bit = Some(begin.timed_instructions().wrapping_add(effect.first_work));
        }
        if effect.returns() {
            self.stack.pop();
        }
        let Some(failure) = self.effects.failure(&effect) else {
            return self.desync(self.graph.block(self.here.block));
        };
        failure.calls.iter().for_each(|&call| self.stack.push(call));
        if failure.endless {
            return failure.cause; // a wrong address led here, and none of its branches happened
        }
        if let Some(edges) = failure.edges.some() {
            let edges = Edges { first: edges, has_first_bit: is_first, prunable: None, call: BlockId::NONE };
            self.output.effect(&step, begin, edges, self.effects);
        }
        let (cause, branch) = (failure.cause, failure.branch);
        if let Some((kind, to)) = branch {
            let has_bit = !matches!(kind, BranchKind::Call | BranchKind::Jump);
            if is_first && bits > u8::from(has_bit) {
                step.slot = step.slot.next();
            }
            self.pass_lost(kind, self.graph.block(self.here.block).last, to, cause);
            self.emit_passed(step);
        }
        cause
    }

    /// Follows the pending TNT bits; those left over wait for a TIP.
    ///
    /// A TNT packet's time is that of its first branch (SDM, "Cycle Packet Semantics"); simulators write the
    /// time of its last. By either, no branch is earlier than the flow packet before or later than the one
    /// after, and the first not later than the packet's time.
    pub(crate) fn follow_bits(&mut self, mut step: Step) -> Walked<()> {
        while !self.tnt.is_empty() {
            let effect = self.effect(self.here.block, Asked::bits(self.tnt));
            let bits = effect.used(self.tnt);
            if effect.end == End::Lost {
                return Err(self.lost(step, effect, bits));
            }
            let has_first = bits > 0 && self.first_bit.is_none();
            if has_first {
                self.first_bit = Some(self.here.work.timed_instructions().wrapping_add(effect.first_work));
            }
            self.tnt.drop_oldest(bits);
            self.follow_effect(&step, effect, has_first)?;
            if has_first {
                step.slot = step.slot.next();
            }
            if effect.end == End::Indirect {
                return Ok(()); // a TIP comes first
            }
        }
        Ok(())
    }

    /// Follows a TIP; true if it was a far transfer, which only ends the trace of the present code.
    pub(crate) fn follow_tip(&mut self, step: Step, ip: Avma) -> Walked<bool> {
        let effect = self.effect(self.here.block, Asked::Address(ip));
        if effect.end == End::Lost {
            return Err(self.lost(step, effect, 0));
        }
        self.follow_effect(&step, effect, false)?;
        match effect.end {
            end @ (End::Far | End::Vsyscall) => {
                self.end_far(step, end, ip);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Emits the end of the present code by a TIP to `ip`.
    #[cold]
    fn end_far(&mut self, step: Step, end: End, ip: Avma) {
        let block = self.graph.block(self.here.block);
        if end == End::Vsyscall && block.terminator == Terminator::IndirectCall {
            self.stack.push(self.here.block);
        }
        let kind = match (end, block.branch_kind()) {
            (End::Vsyscall, Some(kind)) => EndKind::Branch(kind),
            _ => EndKind::Syscall,
        };
        let from = block.last;
        self.end(step, kind, from, Some(ip));
    }
}
