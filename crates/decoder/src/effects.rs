//! What packets do to where execution is, worked out once for each block and packet.
//!
//! ```text
//! (block, TNT bits) --> direct branches and the bits' ones: calls pushed, transfers, next block, bits left
//! (block, address)  --> direct branches and a TIP's indirect one; the branch out of an IP filter's ranges
//! ```
//!
//! A compressed return to a call of the same effect is part of it, and so is one to a call before it, but
//! that is its last branch, with [`End::Return`], as only the stack knows where it goes: [`ReturnSite`] that
//! call.
//!
//! The memo never changes the decoded events: an effect follows from code and packet alone.

mod memo;
mod path;

use std::num::NonZeroU8;

use model::{Avma, BranchKind, FunctionId, GapCause, NoCode, SpaceId, Target, Transfer};
use packet::Tnt;

use crate::Context;
use crate::block::BlockId;
use crate::graph::{BlockGraph, FIRST_BLOCKS};
use crate::return_stack::ReturnStack;
use crate::work::{InstructionCount, Work};
pub(crate) use memo::Remembered;
use memo::{Key, Memo};
use path::Path;
#[cfg(test)]
pub(crate) use path::prunable;
pub(crate) use path::{MAX_DIRECT, no_code, stopped_at};

/// Index of an [`Edge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EdgeId(pub(crate) u32);

impl EdgeId {
    const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// A branch between two blocks: what every one is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge<W = InstructionCount> {
    /// Work since the effect's beginning.
    pub(crate) work: W,
    pub(crate) role: Role,
    /// [`Reached::address`]; 0 for [`Role::ReturnToStack`]: only the stack knows it.
    pub(crate) to: Avma,
    /// The block that it left.
    pub(crate) from: BlockId,
    /// The function that it left is asked about, and the one that it reached.
    pub(crate) from_asked: bool,
    pub(crate) to_asked: bool,
    /// It is after the effect's first bit.
    pub(crate) is_after_first: bool,
    /// No other one of the same effect follows.
    pub(crate) is_last: bool,
}

impl<W> Edge<W> {
    /// What it leads to, if it is no [`Role::ReturnToStack`].
    #[inline]
    pub(crate) fn to(&self) -> Reached {
        Reached { address: self.to, is_asked: self.to_asked }
    }
}

/// What a branch leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// Where it goes; of a call, where it returns to.
    pub(crate) address: Avma,
    /// Its function is asked about; of a call, the one that is called.
    pub(crate) is_asked: bool,
}

/// What a branch is to the calls that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// One that returns.
    Call,
    Return,
    /// A compressed return to a call before the effect: the stack knows where it goes.
    ReturnToStack,
    /// Inside of a function, or to one: open calls stay open.
    Jump,
    /// Into the middle of another function: open calls may have ended.
    Landing,
}

/// How an effect ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The packet is used up.
    Used,
    /// At an indirect branch: the remaining bits belong to branches after its TIP.
    Indirect,
    /// With a compressed return to a call before this effect, of user code, and of the kernel's.
    Return,
    KernelReturn,
    /// At a far transfer, which the TIP was of.
    Far,
    /// At an address in the kernel's half that has no code, which the TIP was of: the vsyscall page.
    Vsyscall,
    /// Code and packet contradict each other, or there is no code.
    Lost,
}

/// Why it is lost, and what happened before.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) cause: GapCause,
    /// The branch that led to where there is no code.
    pub(crate) branch: Option<(BranchKind, Target)>,
    /// An endless loop without packets: nothing of it is true.
    pub(crate) endless: bool,
    /// The first of the branches before.
    pub(crate) edges: EdgeId,
    /// The calls that have not returned, oldest first.
    pub(crate) calls: Vec<BlockId>,
}

/// The number of branches of an effect that can be pruned as a whole: a return to a call, or without one a
/// call or jumps, none of them of a wanted function. None: each branch has to be looked at.
pub(crate) type Prunable = Option<NonZeroU8>;

/// What a packet does at a block.  It is small, because memory is most of what looking one up costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect<W = InstructionCount> {
    /// Where execution is after it; with a return that the stack knows, the block that returned.
    pub(crate) next: BlockId,
    /// Work.
    pub(crate) work: W,
    /// Instructions up to the branch of its first bit.
    pub(crate) first_work: u32,
    /// The first of its branches that are transfers.  With [`End::Lost`], the number of its failure.
    edges: EdgeId,
    /// The number of the bits that are left ([`Tnt::number`]).
    rest: NonZeroU8,
    pub(crate) end: End,
    /// Its branches that are transfers, if they are [prunable](path::prunable).
    pub(crate) prunable: Prunable,
    /// The number of its calls that have not returned; if the stack has no room for all, of the youngest.
    /// -1: it returned by a TIP to a call before it.
    pub(crate) calls: i8,
}

impl<W: Work> Effect<W> {
    /// The first of its branches that are transfers, if it has any; of one that is not lost.
    #[inline]
    pub(crate) fn edges(&self) -> Option<EdgeId> {
        self.edges.some()
    }

    /// It returned by a TIP to a call before it.
    #[inline]
    pub(crate) fn returns(&self) -> bool {
        self.calls < 0
    }

    /// Its last branch is the one of its first bit, if it has used any.
    #[inline]
    pub(crate) fn ends_with_first_bit(&self) -> bool {
        self.first_work == self.work.timed_instructions()
    }

    /// How many of these bits it has used; it was asked about the oldest of them.
    pub(crate) fn used(&self, bits: Tnt) -> u8 {
        bits.oldest::<BITS>().len().saturating_sub(self.rest().len())
    }

    /// The bits that it was asked about and has not used.
    #[inline]
    pub(crate) fn rest(&self) -> Tnt {
        Tnt::of_number(self.rest.get().into())
    }
}

/// Where a call returns to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReturnSite {
    pub(crate) to: Target,
    pub(crate) block: BlockId,
    side: Side,
    /// The sink asks about its function.
    is_asked: bool,
}

/// An address space, or the kernel. Returns that the stack knows lead from one to another only where
/// something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Of no code.
    Nowhere,
    User(SpaceId),
    Kernel,
}

impl ReturnSite {
    const UNKNOWN: Self = Self {
        to: Target { ip: Avma(0), function: FunctionId::UNKNOWN, at_entry: false },
        block: BlockId::NONE,
        side: Side::Nowhere,
        is_asked: false,
    };

    /// What a return there leads to.
    #[inline]
    pub(crate) fn reached(&self) -> Reached {
        Reached { address: self.to.ip, is_asked: self.is_asked }
    }
}

/// The effects that the memo remembers, and all edges that were met.
pub(crate) struct Effects<W = InstructionCount> {
    edges: Vec<Edge<W>>,
    /// From an effect's first edge on: its calls that have not returned, oldest first. Apart, so that a walk
    /// needs nothing else.
    calls: Vec<BlockId>,
    /// By edge, the transfer that the sink gets; apart, as few are asked for it.
    transfers: Vec<Transfer>,
    failures: Vec<Failure>,
    /// By call.
    return_sites: Vec<ReturnSite>,
    memo: Memo<W>,
    /// Room for the calls of one that is being worked out.
    open: Vec<BlockId>,
    /// At this number of edges it is time to drop those that no effect has any more.
    enough_edges: usize,
    /// Packets that asked for effects.
    pub(crate) packets: u64,
    /// Effects that were not remembered.
    pub(crate) misses: u64,
}

/// Bits of a TNT packet that make one effect: all of a short one. More would make more effects, fewer more
/// lookups.
const BITS: u8 = 7;
/// The size at which a worker forgets all effects.
const MAX_BYTES: usize = 16 << 20;
/// Edges with which [`Effects::tidy`] first drops those that no effect has any more; fewer if the memo has
/// fewer entries.
const EDGES_MIN: usize = 1 << 16;
/// Edges that have room before they are moved: 9 MB; only the used part of it is ever touched.
const FIRST_EDGES: usize = 1 << 17;

impl<W: Work> Effects<W> {
    /// With a memo of at most `entries` entries, and at least a line of them.
    pub(crate) fn new(entries: usize) -> Self {
        let first_edges = entries.min(FIRST_EDGES);
        Self {
            edges: Vec::with_capacity(first_edges),
            calls: Vec::with_capacity(first_edges),
            transfers: Vec::with_capacity(first_edges),
            failures: vec![],
            return_sites: Vec::with_capacity(FIRST_BLOCKS),
            memo: Memo::new(entries),
            open: vec![],
            enough_edges: entries.min(EDGES_MIN),
            packets: 0,
            misses: 0,
        }
    }

    /// With these edges, and what calls return to, by call.
    #[cfg(test)]
    pub(crate) fn of(edges: Vec<Edge<W>>, sites: &[Reached]) -> Self {
        let sites = sites.iter().map(|&Reached { address: ip, is_asked }| {
            let to = Target { ip, ..ReturnSite::UNKNOWN.to };
            ReturnSite { to, block: BlockId(0), is_asked, ..ReturnSite::UNKNOWN }
        });
        Self { edges, return_sites: sites.collect(), ..Self::new(2) }
    }

    /// What is remembered of it.
    pub(crate) fn find(&self, block: BlockId, asked: Asked) -> Option<&Effect<W>> {
        self.remembered()?.find(block, asked)
    }

    /// All that is remembered; there is room for something at least.
    #[inline]
    pub(crate) fn remembered(&self) -> Option<Remembered<'_, W>> {
        self.memo.all()
    }

    /// The edges of an effect from its first one on, and those of others after its last.
    #[inline]
    pub(crate) fn edges(&self, first: EdgeId) -> &[Edge<W>] {
        self.edges.get(first.0 as usize..).unwrap_or_default()
    }

    /// An edge, and the transfer that it is.
    #[inline]
    pub(crate) fn edge(&self, EdgeId(id): EdgeId) -> (&Edge<W>, &Transfer) {
        (&self.edges[id as usize], &self.transfers[id as usize])
    }

    /// Where a call returns to, once it has.
    #[inline]
    pub(crate) fn return_site(&self, call: BlockId) -> Option<&ReturnSite> {
        self.return_sites.get(call.0 as usize).filter(|site| site.block != BlockId::NONE)
    }

    /// Where a call returns to, once it has, if the return is from `side` and stays there.
    #[inline]
    pub(crate) fn return_site_from(&self, side: Side, call: BlockId) -> Option<&ReturnSite> {
        self.return_sites.get(call.0 as usize).filter(|site| site.side == side)
    }

    /// `call` has returned before, to the beginning of this block.
    #[inline]
    pub(crate) fn returns_to(&self, call: BlockId, block: BlockId) -> bool {
        self.return_site(call).is_some_and(|site| site.block == block)
    }

    /// Pushes the calls of an effect that have not returned, mostly one.
    #[inline(always)]
    pub(crate) fn push_calls(&self, effect: &Effect<W>, stack: &mut ReturnStack) {
        let (EdgeId(mut next), mut left) = (effect.edges, effect.calls);
        if left == 1
            && let Some(&call) = self.calls.get(next as usize)
        {
            return stack.push(call);
        }
        while left > 0
            && let Some(&call) = self.calls.get(next as usize)
        {
            stack.push(call);
            (next, left) = (next + 1, left - 1);
        }
    }

    /// Of one that ends with [`End::Lost`].
    pub(crate) fn failure(&self, effect: &Effect<W>) -> Option<&Failure> {
        self.failures.get(effect.edges.0 as usize)
    }

    /// Drops the edges of effects that the memo has lost, once the number of edges has doubled since the
    /// last time. To be called between two segments, when nothing outside has the number of an edge.
    pub(crate) fn tidy(&mut self) {
        if self.edges.len() < self.enough_edges {
            return;
        }
        let Self { edges, calls, transfers, failures, memo, .. } = self;
        let (old_edges, old_calls) = (std::mem::take(edges), std::mem::take(calls));
        let (old_transfers, old_failures) = (std::mem::take(transfers), std::mem::take(failures));
        let mut keep = |edge: EdgeId| {
            let Some(EdgeId(first)) = edge.some() else { return edge };
            let kept = EdgeId(edges.len() as u32);
            let first = first as usize;
            let others = old_edges[first..].iter().position(|edge| edge.is_last).unwrap_or_default();
            edges.extend_from_slice(&old_edges[first..=first + others]);
            calls.extend_from_slice(&old_calls[first..=first + others]);
            transfers.extend_from_slice(&old_transfers[first..=first + others]);
            kept
        };
        for effect in memo.effects() {
            if effect.end != End::Lost {
                effect.edges = keep(effect.edges);
            } else if let Some(failure) = old_failures.get(effect.edges.0 as usize) {
                effect.edges = EdgeId(failures.len() as u32);
                failures.push(Failure { edges: keep(failure.edges), ..failure.clone() });
            }
        }
        self.enough_edges = self.enough_edges.max(2 * self.edges.len());
    }

    /// There is too much of it: time to begin anew.
    pub(crate) fn is_full(&self) -> bool {
        let edges =
            size_of_val(&self.edges[..]) + size_of_val(&self.calls[..]) + size_of_val(&self.transfers[..]);
        edges + size_of_val(&self.failures[..]) + size_of_val(&self.return_sites[..]) > MAX_BYTES
    }

    /// Forgets all effects, but not how often the memo helped.
    pub(crate) fn clear(&mut self) {
        self.edges.clear();
        self.calls.clear();
        self.transfers.clear();
        self.failures.clear();
        self.return_sites.clear();
        self.memo.clear();
    }
}

/// What a packet says at a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// The first of its branches have these bits, up to [`BITS`].
    Bits(Tnt),
    /// The indirect branch of a TIP goes there.
    Address(Avma),
    /// Tracing ends with a branch there.
    End(Avma),
    /// Tracing starts there: the number of the address space stands for the block's.
    Start(Avma),
}

impl Asked {
    /// Asks for the oldest of these bits, up to the number that one effect may have.
    #[inline]
    pub(crate) fn bits(bits: Tnt) -> Self {
        Self::Bits(bits.oldest::<BITS>())
    }
}

/// Code, and what packets do in it.
pub(crate) struct Program<'a, W> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) graph: &'a mut BlockGraph,
    pub(crate) effects: &'a mut Effects<W>,
    pub(crate) space: SpaceId,
}

impl<'a, W: Work> Program<'a, W> {
    /// Works out an effect that the memo does not have, and adds it.
    pub(crate) fn work_out(self, block: BlockId, asked: Asked) -> &'a Effect<W> {
        let mut path = Path::new(self.context, self.graph, self.effects, self.space, block);
        let end = match asked {
            Asked::Bits(bits) => path.follow(bits),
            Asked::Address(ip) => path.jump(ip),
            Asked::End(ip) => path.end_trace(ip),
            Asked::Start(ip) => path.start_trace(ip),
        };
        let effect = path.finish(end);
        self.effects.misses += 1;
        self.effects.memo.add(Key::new(block, asked), effect)
    }

    /// Finds where `call` returns to from its own side, that of the running code.
    pub(crate) fn return_site(self, call: BlockId, side: Side) -> Result<ReturnSite, NoCode> {
        let block = self.graph.return_site(self.context, self.space, call)?;
        let to = self.graph.block(block).start;
        let site = ReturnSite { to, block, side, is_asked: self.context.is_asked(to.function) };
        let all = &mut self.effects.return_sites;
        let index = call.0 as usize;
        all.resize(all.len().max(index + 1), ReturnSite::UNKNOWN);
        all[index] = site;
        Ok(site)
    }
}
