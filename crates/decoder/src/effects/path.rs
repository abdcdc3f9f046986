//! Working out one effect: from a block on, by direct branches and what the packet says.

use std::num::NonZeroU8;

use model::{Avma, BranchKind, GapCause, NoCode, Site, SpaceId, Target, Transfer};
use packet::Tnt;

use super::{Edge, EdgeId, Effect, Effects, End, Failure, Prunable, Reached, ReturnSite, Role};
use crate::Context;
use crate::block::{Block, BlockId};
use crate::graph::BlockGraph;
use crate::return_stack::DEPTH;
use crate::terminator::Terminator;
use crate::work::Work;

/// Direct branches between two packets; more is an endless loop that a wrong address led into.
pub(crate) const MAX_DIRECT: u32 = 1 << 12;

/// Why the walk cannot go on.
pub(crate) fn no_code(why: NoCode, ip: Avma) -> GapCause {
    match why {
        NoCode::MissingObject(object) => GapCause::MissingCode { object },
        NoCode::Unmapped | NoCode::Kernel => GapCause::UnmappedCode { ip },
    }
}

/// Why a block's end cannot be passed.
pub(crate) fn stopped_at(block: &Block) -> GapCause {
    match block.terminator {
        Terminator::Undecodable(why) => no_code(why, block.last.next_ip()),
        Terminator::Unknown => GapCause::UnknownInstruction { ip: block.last.next_ip() },
        _ => GapCause::Desync { ip: block.last.ip },
    }
}

/// The number of these branches, if the sink asks about none of their functions and they come down to one of
/// these:
///
/// - the frame that runs returns to a call before the effect, which the stack knows, and all calls after
///   that have returned;
/// - a call, or none, and jumps after it.
///
/// Else none.
pub(crate) fn prunable(edges: &[Edge<impl Work>]) -> Prunable {
    let forward = match edges {
        [Edge { role: Role::Call, .. }, jumps @ ..] => jumps,
        jumps => jumps,
    };
    let returns = edges.last().is_some_and(|last| last.role == Role::ReturnToStack);
    let is_unasked = |edge: &Edge<_>| !edge.from_asked && !edge.to_asked && edge.role != Role::Landing;
    let comes_down = returns || forward.iter().all(|edge| edge.role == Role::Jump);
    let count = if comes_down && edges.iter().all(is_unasked) { edges.len() } else { 0 };
    u8::try_from(count).ok().and_then(NonZeroU8::new)
}

/// An effect that is being worked out.
pub(super) struct Path<'a, W> {
    context: &'a Context<'a>,
    graph: &'a mut BlockGraph,
    effects: &'a mut Effects<W>,
    space: SpaceId,
    block: BlockId,
    /// Those that are left of the bits.
    rest: Tnt,
    returns: bool,
    work: W,
    /// Instructions up to the branch of the first bit.
    first_work: Option<u32>,
    first_edge: usize,
    /// The calls that have not returned, oldest first.
    calls: Vec<BlockId>,
}

/// A failure is rare, and large.
type PathResult<T> = Result<T, Box<Failure>>;

impl From<GapCause> for Failure {
    fn from(cause: GapCause) -> Self {
        Self { cause, branch: None, endless: false, edges: EdgeId::NONE, calls: vec![] }
    }
}

impl From<GapCause> for Box<Failure> {
    fn from(cause: GapCause) -> Self {
        Self::new(cause.into())
    }
}

impl<'a, W: Work> Path<'a, W> {
    pub(super) fn new(
        context: &'a Context<'a>,
        graph: &'a mut BlockGraph,
        effects: &'a mut Effects<W>,
        space: SpaceId,
        block: BlockId,
    ) -> Self {
        let first_edge = effects.edges.len();
        let calls = std::mem::take(&mut effects.open);
        Self {
            context,
            graph,
            effects,
            space,
            block,
            rest: Tnt::default(),
            returns: false,
            work: W::NONE,
            first_work: None,
            first_edge,
            calls,
        }
    }

    pub(super) fn finish(self, end: PathResult<End>) -> Effect<W> {
        let Self {
            effects, block: next, rest, returns, work, first_work, first_edge, calls: mut open, ..
        } = self;
        let has_edges = effects.edges.len() > first_edge;
        if let Some(last) = effects.edges.last_mut().filter(|_| has_edges) {
            last.is_last = true;
        }
        let edges = if has_edges { EdgeId(first_edge as u32) } else { EdgeId::NONE };
        let prunable = prunable(&effects.edges[first_edge..]);
        let (end, edges, calls) = match end {
            Ok(end) => {
                // Each of them is an edge.
                let youngest = open.get(open.len().saturating_sub(DEPTH)..).unwrap_or_default();
                effects.calls.truncate(first_edge);
                effects.calls.extend(youngest);
                effects.calls.resize(effects.edges.len(), BlockId::NONE);
                (end, edges, youngest.len() as i8)
            }
            Err(failure) => {
                effects.failures.push(Failure { edges, calls: open.clone(), ..*failure });
                effects.calls.resize(effects.edges.len(), BlockId::NONE);
                (End::Lost, EdgeId(effects.failures.len() as u32 - 1), 0)
            }
        };
        open.clear();
        effects.open = open;
        let first_work = first_work.unwrap_or(work.timed_instructions());
        // It is a part of the bits that were asked for, which fit.
        let rest = NonZeroU8::new(rest.number() as u8).unwrap_or(NonZeroU8::MIN);
        // A return to a call before the effect leaves no call of the effect's own.
        let calls = if returns { -1 } else { calls };
        Effect { next, work, first_work, edges, rest, end, prunable, calls }
    }

    fn here(&self) -> &Block {
        self.graph.block(self.block)
    }

    /// What the packet says cannot be.
    fn desync(&self) -> GapCause {
        GapCause::Desync { ip: self.here().last.ip }
    }

    /// Takes a branch to `to`.
    fn edge(&mut self, to: BlockId) {
        let (from, to_block) = (self.graph.block(self.block), self.graph.block(to));
        let target = to_block.start;
        if let Some(kind) = from.branch_kind()
            && (to_block.is_marked || self.context.is_transfer(kind, from.last.function, target.function))
        {
            let (role, address) = match from.terminator {
                Terminator::Call { push: true, .. } | Terminator::IndirectCall => {
                    (Role::Call, from.last.next_ip())
                }
                Terminator::Return => (Role::Return, target.ip),
                _ if from.last.function == target.function || target.at_entry => (Role::Jump, target.ip),
                _ => (Role::Landing, target.ip),
            };
            let is_asked = self.context.is_asked(target.function);
            self.transfer(kind, from.last, target, role, Reached { address, is_asked });
        }
        self.block = to;
    }

    /// A compressed return to a call that the stack knows.
    fn return_to_stack(&mut self) {
        let ReturnSite { to, .. } = ReturnSite::UNKNOWN;
        let reached = ReturnSite::UNKNOWN.reached();
        self.transfer(BranchKind::Return, self.here().last, to, Role::ReturnToStack, reached);
    }

    fn transfer(&mut self, kind: BranchKind, from: Site, to: Target, role: Role, reached: Reached) {
        self.effects.transfers.push(Transfer::Branch { kind, from, to });
        self.effects.edges.push(Edge {
            work: self.work,
            role,
            to: reached.address,
            from: self.block,
            from_asked: self.context.is_asked(from.function),
            to_asked: reached.is_asked,
            is_after_first: self.first_work.is_some(),
            is_last: false,
        });
    }

    /// Takes the branch at the end of the block, to `ip`.
    fn branch(&mut self, to: Result<BlockId, NoCode>, ip: Avma) -> PathResult<()> {
        match to {
            Ok(to) => {
                self.edge(to);
                Ok(())
            }
            Err(why) => {
                let target = self.context.target(self.space, ip);
                let kind = self.here().branch_kind();
                let failure = Failure::from(no_code(why, ip));
                Err(Failure { branch: kind.map(|kind| (kind, target)), ..failure }.into())
            }
        }
    }

    /// Goes on to a block that is known, if control stays in the function and nothing of that is an event: as
    /// most branches do that a block can end with, and all that run on.
    #[inline(always)]
    fn stays(&mut self, known: impl FnOnce(&Block) -> BlockId) -> bool {
        let block = self.here();
        let to = known(block);
        let may_stay = matches!(
            block.terminator,
            Terminator::Conditional { .. } | Terminator::Jump { .. } | Terminator::Continue
        );
        if to == BlockId::NONE || !may_stay || self.context.takes_jumps() {
            return false;
        }
        let next = self.graph.block(to);
        let stays = next.start.function == block.last.function && !next.is_marked;
        if stays {
            self.block = to;
        }
        stays
    }

    #[inline(always)]
    fn taken(&mut self, ip: Avma) -> PathResult<()> {
        if self.stays(|block| block.taken) { Ok(()) } else { self.branch_taken(ip) }
    }

    #[inline(never)]
    fn branch_taken(&mut self, ip: Avma) -> PathResult<()> {
        let to = self.graph.taken(self.context, self.space, self.block, ip);
        self.branch(to, ip)
    }

    #[inline(always)]
    fn not_taken(&mut self) -> PathResult<()> {
        if self.stays(|block| block.next) { Ok(()) } else { self.runs_on() }
    }

    #[inline(never)]
    fn runs_on(&mut self) -> PathResult<()> {
        match self.graph.next(self.context, self.space, self.block) {
            Ok(next) => {
                self.run_on(next);
                self.block = next;
            }
            Err(why) => return Err(no_code(why, self.here().last.next_ip()).into()),
        }
        Ok(())
    }

    /// Control runs on into the next block: an event where a region begins or ends.
    #[inline]
    fn run_on(&mut self, next: BlockId) {
        let (from, to) = (self.here().last, self.graph.block(next));
        if to.is_marked {
            let target = to.start;
            let is_asked = self.context.is_asked(target.function);
            let reached = Reached { address: target.ip, is_asked };
            self.transfer(BranchKind::RunsOn, from, target, Role::Jump, reached);
        }
    }

    /// The branch that is taken next is a call that returns.
    fn call(&mut self) {
        self.calls.push(self.block);
    }

    /// Passes the instructions of the block at hand.
    fn pass(&mut self) {
        self.work = self.work.plus(W::of_block(self.here()));
    }

    /// Passes the instructions of the block at hand, with which tracing ends.
    fn pass_last(&mut self) {
        self.work = self.work.plus(W::of_last_block(self.here()));
    }

    /// Goes on to the block that needs a packet at its end: to this end.
    #[inline]
    fn advance(&mut self) -> PathResult<Terminator> {
        for _ in 0..MAX_DIRECT {
            match self.here().terminator {
                Terminator::Jump { to } => {
                    self.pass();
                    self.taken(to)?;
                }
                Terminator::Call { to, push } => {
                    self.pass();
                    if push {
                        self.call();
                    }
                    self.taken(to)?;
                }
                Terminator::Continue => {
                    self.pass();
                    self.not_taken()?;
                }
                needs_packet => return Ok(needs_packet),
            }
        }
        Err(Failure { endless: true, ..self.desync().into() }.into())
    }

    /// The branch at hand has the next bit.
    fn bit(&mut self, branch: impl FnOnce(&mut Self, bool) -> PathResult<()>) -> PathResult<()> {
        let is_taken = self.rest.pop() == Some(true);
        let work = self.work.timed_instructions();
        let walked = branch(self, is_taken);
        self.first_work.get_or_insert(work);
        walked
    }

    pub(super) fn follow(&mut self, bits: Tnt) -> PathResult<End> {
        self.rest = bits;
        while !self.rest.is_empty() {
            match self.advance()? {
                Terminator::Conditional { taken } => {
                    self.pass();
                    self.bit(|path, is_taken| if is_taken { path.taken(taken) } else { path.not_taken() })?;
                }
                Terminator::Return if self.context.recording.pt.return_compression => {
                    let call = self.calls.pop();
                    self.pass();
                    self.bit(|path, is_taken| match call {
                        _ if !is_taken => Err(path.desync().into()),
                        Some(call) => path.return_to(call),
                        None => {
                            path.return_to_stack();
                            Ok(())
                        }
                    })?;
                    if call.is_none() {
                        let is_kernel = self.here().last.ip.is_kernel();
                        return Ok(if is_kernel { End::KernelReturn } else { End::Return });
                    }
                }
                // Deferred TIP: the bits belong to branches after its target.
                Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return => {
                    return Ok(End::Indirect);
                }
                _ => return Err(stopped_at(self.here()).into()),
            }
        }
        Ok(End::Used)
    }

    /// A compressed return after `call`.
    fn return_to(&mut self, call: BlockId) -> PathResult<()> {
        let ip = self.graph.return_address(call);
        if self.here().last.ip.is_kernel() != ip.is_kernel() {
            return Err(self.desync().into()); // no near return leads into the kernel or out of it
        }
        let to = self.graph.return_site(self.context, self.space, call);
        self.branch(to, ip)
    }

    /// Tracing starts at `ip`.
    pub(super) fn start_trace(&mut self, ip: Avma) -> PathResult<End> {
        self.block = self.graph.at(self.context, self.space, ip).map_err(|why| no_code(why, ip))?;
        let to = self.here().start;
        self.border(Transfer::Start { to, after_gap: false });
        Ok(End::Used)
    }

    /// Tracing ends with the block at hand; its branch goes to `ip`.
    pub(super) fn end_trace(&mut self, ip: Avma) -> PathResult<End> {
        let block = *self.here();
        let kind = block.leaves_for(ip).ok_or(stopped_at(&block))?;
        self.pass_last();
        self.border(Transfer::End { kind, from: block.last, to: Some(ip) });
        self.returns = block.terminator == Terminator::Return;
        Ok(End::Used)
    }

    /// Where tracing starts or ends, open calls stay, as they do where control lands.
    fn border(&mut self, transfer: Transfer) {
        self.effects.transfers.push(transfer);
        self.effects.edges.push(Edge {
            work: self.work,
            role: Role::Landing,
            to: Avma(0),
            from: self.block,
            from_asked: false,
            to_asked: false,
            is_after_first: false,
            is_last: false,
        });
    }

    /// An indirect branch to `ip`.
    pub(super) fn jump(&mut self, ip: Avma) -> PathResult<End> {
        let branch = self.advance()?;
        match branch {
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return => (),
            Terminator::Far => {
                self.pass_last();
                return Ok(End::Far);
            }
            _ => return Err(stopped_at(self.here()).into()),
        }
        if self.here().last.ip.is_kernel() && !ip.is_kernel() {
            return Err(self.desync().into()); // no near branch leads out of the kernel
        }
        self.pass();
        let to = self.graph.at(self.context, self.space, ip);
        let is_vsyscall = ip.is_kernel() && to.is_err();
        match branch {
            Terminator::IndirectCall if !is_vsyscall => self.call(),
            Terminator::Return => self.returns = self.calls.pop().is_none(),
            _ => (),
        }
        if is_vsyscall {
            // A user's address in the kernel's half: the kernel carries out calls of it.
            return Ok(End::Vsyscall);
        }
        self.branch(to, ip)?;
        Ok(End::Used)
    }
}
