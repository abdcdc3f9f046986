//! Working out one effect: from a block on, by direct branches and what the packet says.

use model::{Avma, BranchKind, GapCause, NoCode, Site, SpaceId, Target, Transfer};
use packet::Tnt;

use super::{Behind, Edge, EdgeId, Effect, Effects, End, Failure, Reached, Role};
use crate::Context;
use crate::block::{Block, BlockId, Terminator};
use crate::graph::BlockGraph;

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
        _ => GapCause::Desync { ip: block.last.ip },
    }
}

/// An effect that is being worked out.
pub(super) struct Path<'a> {
    context: &'a Context<'a>,
    graph: &'a mut BlockGraph,
    effects: &'a mut Effects,
    space: SpaceId,
    block: BlockId,
    /// Those that are left of the bits.
    rest: Tnt,
    returns: bool,
    work: u32,
    /// Instructions up to the branch of the first bit.
    first_work: Option<u32>,
    first_edge: usize,
    /// The calls that have not returned, oldest first.
    calls: Vec<Call>,
}

/// A call, and the edge that it is if it is one.
#[derive(Clone, Copy)]
struct Call {
    block: BlockId,
    edge: usize,
}

type Walked<T> = Result<T, Failure>;

impl From<GapCause> for Failure {
    fn from(cause: GapCause) -> Self {
        Self { cause, branch: None, endless: false, edges: EdgeId::NONE, calls: vec![] }
    }
}

impl<'a> Path<'a> {
    pub(super) fn new(
        context: &'a Context<'a>,
        graph: &'a mut BlockGraph,
        effects: &'a mut Effects,
        space: SpaceId,
        block: BlockId,
    ) -> Self {
        let first_edge = effects.edges.len();
        Self {
            context,
            graph,
            effects,
            space,
            block,
            rest: Tnt::default(),
            returns: false,
            work: 0,
            first_work: None,
            first_edge,
            calls: vec![],
        }
    }

    pub(super) fn finish(self, end: Walked<End>) -> Effect {
        let Self { effects, block: next, rest, returns, work, first_work, first_edge, calls, .. } = self;
        let has_edges = effects.edges.len() > first_edge;
        if let Some(last) = effects.edges.last_mut().filter(|_| has_edges) {
            last.is_last = true;
        }
        let edges = if has_edges { EdgeId(first_edge as u32) } else { EdgeId::NONE };
        let (end, edges, calls) = match end {
            Ok(end) => {
                for call in &calls {
                    if let Some(edge) = effects.edges.get_mut(call.edge) {
                        edge.is_open = true;
                    }
                }
                (end, edges, !calls.is_empty())
            }
            Err(failure) => {
                let calls = calls.iter().map(|call| call.block).collect();
                effects.failures.push(Failure { edges, calls, ..failure });
                (End::Lost, EdgeId(effects.failures.len() as u32 - 1), false)
            }
        };
        let first_work = first_work.unwrap_or(work);
        // Of what was asked it is a part, which fits.
        let rest = rest.number() as u8;
        Effect { next, work, first_work, edges, rest, end, returns, calls }
    }

    fn here(&self) -> Block {
        *self.graph.block(self.block)
    }

    /// Takes a branch to `to`.
    fn edge(&mut self, to: BlockId) {
        let (from, target) = (self.graph.block(self.block), self.graph.block(to).start);
        let (role, address) = match from.terminator {
            Terminator::Call { push: true, .. } | Terminator::IndirectCall => {
                (Role::Call, from.last.next_ip())
            }
            Terminator::Return => (Role::Return, target.ip),
            _ if from.last.function == target.function || target.at_entry => (Role::Jump, target.ip),
            _ => (Role::Landing, target.ip),
        };
        if let Some(kind) = from.branch_kind()
            && self.context.is_transfer(kind, from.last.function, target.function)
        {
            let is_asked = self.context.is_asked(target.function);
            self.transfer(kind, from.last, target, role, Reached { address, is_asked });
        }
        self.block = to;
    }

    /// A compressed return to a call that the stack knows.
    fn return_to_stack(&mut self) {
        let Behind { to, .. } = Behind::UNKNOWN;
        let reached = Behind::UNKNOWN.reached();
        self.transfer(BranchKind::Return, self.here().last, to, Role::ReturnToStack, reached);
    }

    fn transfer(&mut self, kind: BranchKind, from: Site, to: Target, role: Role, reached: Reached) {
        self.effects.transfers.push(Transfer::Branch { kind, from, to });
        self.effects.edges.push(Edge {
            from: self.block,
            work: self.work,
            role,
            to: reached.address,
            from_asked: self.context.is_asked(from.function),
            to_asked: reached.is_asked,
            is_behind_first: self.first_work.is_some(),
            is_open: false,
            is_last: false,
        });
    }

    /// Takes the branch at the end of the block, to `ip`.
    fn branch(&mut self, to: Result<BlockId, NoCode>, ip: Avma) -> Walked<()> {
        match to {
            Ok(to) => {
                self.edge(to);
                Ok(())
            }
            Err(why) => {
                let target = self.context.target(self.space, ip);
                let kind = self.here().branch_kind();
                Err(Failure { branch: kind.map(|kind| (kind, target)), ..no_code(why, ip).into() })
            }
        }
    }

    fn taken(&mut self, ip: Avma) -> Walked<()> {
        let to = self.graph.taken(self.context, self.space, self.block, ip);
        self.branch(to, ip)
    }

    fn not_taken(&mut self) -> Walked<()> {
        let ip = self.here().last.next_ip();
        let next = self.graph.next(self.context, self.space, self.block);
        self.block = next.map_err(|why| no_code(why, ip))?;
        Ok(())
    }

    /// The branch that is taken next is a call that returns.
    fn call(&mut self) {
        self.calls.push(Call { block: self.block, edge: self.effects.edges.len() });
    }

    /// Passes the instructions of the block at hand.
    fn pass(&mut self, block: &Block) {
        self.work = self.work.wrapping_add(block.instructions);
    }

    /// Goes on to the block whose end needs a packet.
    fn advance(&mut self) -> Walked<Block> {
        for _ in 0..MAX_DIRECT {
            let block = self.here();
            match block.terminator {
                Terminator::Jump { to } => {
                    self.pass(&block);
                    self.taken(to)?;
                }
                Terminator::Call { to, push } => {
                    self.pass(&block);
                    if push {
                        self.call();
                    }
                    self.taken(to)?;
                }
                Terminator::Continue => {
                    self.pass(&block);
                    self.not_taken()?;
                }
                _ => return Ok(block),
            }
        }
        let block = self.here();
        Err(Failure { endless: true, ..GapCause::Desync { ip: block.last.ip }.into() })
    }

    /// The branch at hand has the next bit.
    fn bit(&mut self, branch: impl FnOnce(&mut Self, bool) -> Walked<()>) -> Walked<()> {
        let is_taken = self.rest.pop() == Some(true);
        let work = self.work;
        let walked = branch(self, is_taken);
        self.first_work.get_or_insert(work);
        walked
    }

    pub(super) fn follow(&mut self, bits: Tnt) -> Walked<End> {
        self.rest = bits;
        while !self.rest.is_empty() {
            let block = self.advance()?;
            match block.terminator {
                Terminator::Conditional { taken } => {
                    self.pass(&block);
                    self.bit(|path, is_taken| if is_taken { path.taken(taken) } else { path.not_taken() })?;
                }
                Terminator::Return if self.context.recording.pt.return_compression => {
                    let call = self.calls.pop();
                    self.pass(&block);
                    self.bit(|path, is_taken| match call {
                        _ if !is_taken => Err(GapCause::Desync { ip: block.last.ip }.into()),
                        Some(call) => path.return_to(call.block),
                        None => {
                            path.return_to_stack();
                            Ok(())
                        }
                    })?;
                    if call.is_none() {
                        return Ok(if block.last.ip.is_kernel() { End::KernelReturn } else { End::Return });
                    }
                }
                // Deferred TIP: the bits belong to branches behind its target.
                Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return => {
                    return Ok(End::Indirect);
                }
                _ => return Err(stopped_at(&block).into()),
            }
        }
        Ok(End::Used)
    }

    /// A compressed return behind `call`.
    fn return_to(&mut self, call: BlockId) -> Walked<()> {
        let from = self.here().last.ip;
        let ip = self.graph.return_address(call);
        if from.is_kernel() != ip.is_kernel() {
            return Err(GapCause::Desync { ip: from }.into()); // no near return leads into the kernel or out of it
        }
        let to = self.graph.behind_call(self.context, self.space, call);
        self.branch(to, ip)
    }

    /// An indirect branch to `ip`.
    pub(super) fn jump(&mut self, ip: Avma) -> Walked<End> {
        let block = self.advance()?;
        match block.terminator {
            Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return => (),
            Terminator::Far => return Ok(End::Far),
            _ => return Err(stopped_at(&block).into()),
        }
        if block.last.ip.is_kernel() && !ip.is_kernel() {
            return Err(GapCause::Desync { ip: block.last.ip }.into()); // no near branch leads out of the kernel
        }
        self.pass(&block);
        let to = self.graph.at(self.context, self.space, ip);
        let is_vsyscall = ip.is_kernel() && to.is_err();
        match block.terminator {
            Terminator::IndirectCall if !is_vsyscall => self.call(),
            Terminator::Return => self.returns = self.calls.pop().is_none(),
            _ => (),
        }
        if is_vsyscall {
            // A user's address in the kernel's half, whose calls the kernel carries out.
            return Ok(End::Vsyscall);
        }
        self.branch(to, ip)?;
        Ok(End::Used)
    }
}
