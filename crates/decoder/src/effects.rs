//! What packets do to where execution is, worked out once for each block and packet.
//!
//! ```text
//! (block, TNT bits)       --> direct branches and the bits' ones: calls pushed, transfers, the next block
//! (block, address)        --> direct branches and the indirect one of a TIP
//! (block, call, TNT bits) --> a compressed return to behind the call, and what the bits behind its own do
//! ```
//!
//! A compressed return to a call of the same effect is part of it; one to a call before it ends the effect with
//! [`End::Return`], as only the stack knows where it goes.
//!
//! The memo never changes what is decoded: an effect follows from code and packet alone.

mod memo;
mod path;

use model::{Avma, BranchKind, GapCause, SpaceId, Target};
use packet::Tnt;

use crate::Context;
use crate::block::BlockId;
use crate::graph::BlockGraph;
use crate::return_stack::ReturnStack;
pub(crate) use memo::Place;
use memo::{Key, Memo};
use path::Path;
pub(crate) use path::{MAX_DIRECT, no_code, stopped_at};

/// Index of an [`Edge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EdgeId(pub(crate) u32);

/// A branch between two blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The block whose last instruction branched.
    pub(crate) from: BlockId,
    /// The block that it went to.
    pub(crate) to: BlockId,
    /// Instructions passed, since the effect's beginning.
    pub(crate) work: u32,
    pub(crate) role: Role,
    /// Where a call returns to, and where a return goes.
    pub(crate) address: u64,
    /// The function that it left is asked about, and the one that it reached.
    pub(crate) from_asked: bool,
    pub(crate) to_asked: bool,
    /// It is behind the effect's first bit.
    pub(crate) is_behind_first: bool,
    /// No other one of the same effect follows.
    pub(crate) is_last: bool,
}

/// What a branch is to the calls that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// One that returns.
    Call,
    Return,
    /// Inside of a function, or to one: what is open stays open.
    Jump,
    /// Into the middle of another function: what is open may have ended.
    Landing,
}

/// How an effect ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The packet is used up.
    Used,
    /// At an indirect branch: the bits that are left belong to what is behind its TIP.
    Indirect,
    /// At a compressed return, whose bit is next, to a call before this effect.
    Return,
    /// At a far transfer, which the TIP was of.
    Far,
    /// At an address in the kernel's half that has no code, which the TIP was of: the vsyscall page.
    Vsyscall,
    /// Code and packet contradict each other, or there is no code.
    Lost,
}

/// Why it is lost, and the branch that led to where there is no code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) cause: GapCause,
    pub(crate) branch: Option<(BranchKind, Target)>,
    /// An endless loop without packets: nothing of it is true.
    pub(crate) endless: bool,
}

/// What a packet does at a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    /// Where execution is behind it.
    pub(crate) next: BlockId,
    pub(crate) end: End,
    /// Bits used.
    pub(crate) bits: u8,
    /// It returned to a call before it.
    pub(crate) returns: bool,
    /// The next block's end is a return that may be compressed: a bit that follows is of that.
    pub(crate) is_at_return: bool,
    /// Instructions passed.
    pub(crate) work: u32,
    /// ... up to the branch of its first bit.
    pub(crate) first_work: u32,
    /// The first of its branches that are transfers.
    pub(crate) edges: Option<EdgeId>,
    calls: Calls,
    failure: u32,
}

/// The calls that have not returned, oldest first.
#[derive(Clone, Copy, Debug)]
enum Calls {
    None,
    One(BlockId),
    /// From and to, in [`Effects::calls`].
    More(u32, u32),
}

/// The effects that the memo remembers, and all edges that were met.
pub(crate) struct Effects {
    edges: Vec<Edge>,
    /// Of effects that have many.
    calls: Vec<BlockId>,
    failures: Vec<Failure>,
    memo: Memo,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// Bits of a TNT packet that make one effect: all of a short one.  More would make more effects, fewer more lookups.
const BITS: u8 = 8;
/// So much of them is enough, for each worker.
const MAX_BYTES: usize = 64 << 20;

impl Effects {
    /// With a memo of at most so many places, and at least one.
    pub(crate) fn new(entries: usize) -> Self {
        Self { edges: vec![], calls: vec![], failures: vec![], memo: Memo::new(entries), hits: 0, misses: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, place: Place) -> &Effect {
        self.memo.get(place)
    }

    /// The edges of an effect, of which this is the first, with their numbers.
    #[inline]
    pub(crate) fn edges(&self, first: EdgeId) -> impl Iterator<Item = (EdgeId, &Edge)> {
        let mut is_more = true;
        let edges = self.edges.get(first.0 as usize..).unwrap_or_default();
        (first.0..)
            .map(EdgeId)
            .zip(edges)
            .take_while(move |(_, edge)| std::mem::replace(&mut is_more, !edge.is_last))
    }

    /// The edge with this number.
    #[inline]
    pub(crate) fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.0 as usize]
    }

    /// Pushes the calls that have not returned.
    #[inline]
    pub(crate) fn push_calls(&self, effect: &Effect, stack: &mut ReturnStack) {
        match effect.calls {
            Calls::None => (),
            Calls::One(call) => stack.push(call),
            Calls::More(from, to) => {
                let calls = self.calls.get(from as usize..to as usize).unwrap_or_default();
                calls.iter().for_each(|&call| stack.push(call));
            }
        }
    }

    /// Of one that ends with [`End::Lost`].
    pub(crate) fn failure(&self, effect: &Effect) -> Option<Failure> {
        self.failures.get(effect.failure as usize).copied()
    }

    /// There is too much of it: time to begin anew.
    pub(crate) fn is_full(&self) -> bool {
        size_of_val(&self.edges[..]) > MAX_BYTES
    }

    /// Forgets all effects, but not how often the memo helped.
    pub(crate) fn clear(&mut self) {
        self.edges = vec![];
        self.calls = vec![];
        self.failures = vec![];
        self.memo.clear();
    }
}

/// Code, and what packets do in it.
pub(crate) struct Program<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) graph: &'a mut BlockGraph,
    pub(crate) effects: &'a mut Effects,
    pub(crate) space: SpaceId,
}

impl Program<'_> {
    /// What the oldest of these bits do at `block`: up to [`BITS`] of them.
    #[inline]
    pub(crate) fn of_bits(&mut self, block: BlockId, bits: Tnt) -> Place {
        let bits = bits.oldest::<BITS>();
        self.effect(Key::bits(block, bits), block, |path| path.follow(bits))
    }

    /// What a TIP with this address does at `block`.
    #[inline]
    pub(crate) fn of_address(&mut self, block: BlockId, ip: Avma) -> Place {
        self.effect(Key::address(block, ip), block, |path| path.jump(ip))
    }

    /// What a compressed return at the end of `block`, whose bit is the first of these, to behind `call` does, and what the
    /// bits behind its own do.  Without a call it contradicts its bit.
    #[inline]
    pub(crate) fn of_return(&mut self, block: BlockId, call: Option<BlockId>, bits: Tnt) -> Place {
        let bits = bits.oldest::<BITS>();
        let key = Key::returns(block, call.unwrap_or(BlockId::NONE), bits);
        self.effect(key, block, |path| path.follow_return(call, bits))
    }

    /// What is known by `key`; else `walk` works it out, from `block` on.
    #[inline]
    fn effect(
        &mut self,
        key: Key,
        block: BlockId,
        walk: impl FnOnce(&mut Path<'_>) -> Result<End, Failure>,
    ) -> Place {
        match self.effects.memo.find(key) {
            Some(place) => {
                self.effects.hits += 1;
                place
            }
            None => self.work_out(key, block, walk),
        }
    }

    #[cold]
    #[inline(never)]
    fn work_out(
        &mut self,
        key: Key,
        block: BlockId,
        walk: impl FnOnce(&mut Path<'_>) -> Result<End, Failure>,
    ) -> Place {
        let mut path = Path::new(self.context, self.graph, self.effects, self.space, block);
        let end = walk(&mut path);
        let effect = path.finish(end);
        self.effects.misses += 1;
        self.effects.memo.add(key, effect)
    }
}
