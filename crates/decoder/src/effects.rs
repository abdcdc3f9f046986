//! What packets do to where execution is, worked out once for each block and packet.
//!
//! ```text
//! (block, TNT bits)      --> direct branches and the bits' ones: calls pushed, transfers, the next block
//! (block, address)       --> direct branches and the indirect one of a TIP
//! (block, calling block) --> one compressed return
//! ```
//!
//! A compressed return to a call of the same packet is part of the effect; one to a call before it ends the effect with
//! [`End::Return`], as only the stack knows where it goes.
//!
//! The memo never changes what is decoded: an effect follows from code and packet alone.

mod path;

use model::{Avma, BranchKind, GapCause, SpaceId, Target};
use packet::Tnt;

use crate::Context;
use crate::block::BlockId;
use crate::graph::BlockGraph;
use path::Path;
pub(crate) use path::{MAX_DIRECT, no_code, stopped_at};

/// Index in [`Effects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectId(pub(crate) u32);

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
    /// Instructions passed.
    pub(crate) work: u32,
    /// ... up to the branch of its first bit, and how many of its edges are not behind that.
    pub(crate) first_work: u32,
    pub(crate) first_edges: u32,
    edges: (u32, u32),
    calls: (u32, u32),
    failure: u32,
}

impl Effect {
    /// Some of its branches are transfers.
    pub(crate) fn has_edges(&self) -> bool {
        self.edges.0 != self.edges.1
    }

    /// The first of its edges that is behind its first bit.
    pub(crate) fn behind_first(&self) -> EdgeId {
        EdgeId(self.edges.0 + self.first_edges)
    }
}

/// All effects that were met, and the memo that finds them.
pub(crate) struct Effects {
    effects: Vec<Effect>,
    edges: Vec<Edge>,
    calls: Vec<BlockId>,
    failures: Vec<Failure>,
    /// Found by key: what falls on the same place takes it.
    memo: Box<[Entry]>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// What an effect is of: a block, and what a packet says there or what is returned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    detail: u64,
    /// The block's number, and what `detail` is.
    block: u32,
}

impl Key {
    fn bits(block: BlockId, bits: Tnt) -> Self {
        Self { detail: 1 << bits.len() | bits.bits(), block: block.0 }
    }

    fn address(block: BlockId, ip: Avma) -> Self {
        Self { detail: ip.0, block: block.0 | 1 << 30 }
    }

    fn call(block: BlockId, call: Option<BlockId>) -> Self {
        Self { detail: u64::from(call.unwrap_or(BlockId::NONE).0), block: block.0 | 1 << 31 }
    }

    /// Fibonacci hashing.
    #[inline]
    fn place(self) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.detail.rotate_left(32) ^ u64::from(self.block)).wrapping_mul(GOLDEN);
        ((mixed ^ mixed >> 32).wrapping_mul(GOLDEN) >> 32) as usize
    }
}

/// A place of the memo: sixteen bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    detail: u64,
    block: u32,
    effect: EffectId,
}

impl Entry {
    const EMPTY: Self = Self { detail: 0, block: u32::MAX, effect: EffectId(0) };
}

/// Bits of a TNT packet that make one effect: all of a short one.  More would make more effects, fewer more lookups.
const BITS: u8 = 8;
/// So much of them is enough, for each worker.
const MAX_BYTES: usize = 64 << 20;

impl Effects {
    /// A memo of at least `entries` places.
    pub(crate) fn new(entries: usize) -> Self {
        let entries = entries.max(1).next_power_of_two();
        Self {
            effects: vec![],
            edges: vec![],
            calls: vec![],
            failures: vec![],
            memo: vec![Entry::EMPTY; entries].into_boxed_slice(),
            hits: 0,
            misses: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: EffectId) -> &Effect {
        &self.effects[id.0 as usize]
    }

    /// The branches that are transfers, in order.
    #[inline]
    pub(crate) fn edges(&self, effect: &Effect) -> &[Edge] {
        self.edges.get(effect.edges.0 as usize..effect.edges.1 as usize).unwrap_or_default()
    }

    /// The same with their numbers.
    pub(crate) fn numbered(&self, effect: &Effect) -> impl ExactSizeIterator<Item = (EdgeId, &Edge)> {
        self.edges(effect).iter().enumerate().map(|(i, edge)| (EdgeId(effect.edges.0 + i as u32), edge))
    }

    /// The edge with this number.
    #[inline]
    pub(crate) fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.0 as usize]
    }

    /// The calls that have not returned, oldest first.
    #[inline]
    pub(crate) fn calls(&self, effect: &Effect) -> &[BlockId] {
        self.calls.get(effect.calls.0 as usize..effect.calls.1 as usize).unwrap_or_default()
    }

    /// Of one that ends with [`End::Lost`].
    pub(crate) fn failure(&self, effect: &Effect) -> Option<Failure> {
        self.failures.get(effect.failure as usize).copied()
    }

    /// There is too much of it: time to begin anew.
    pub(crate) fn is_full(&self) -> bool {
        size_of_val(&self.effects[..]) + size_of_val(&self.edges[..]) > MAX_BYTES
    }

    /// Forgets all effects, but not how often the memo helped.
    pub(crate) fn clear(&mut self) {
        self.effects = vec![];
        self.edges = vec![];
        self.calls = vec![];
        self.failures = vec![];
        self.memo.fill(Entry::EMPTY);
    }

    /// What is known by `key`, or else what `build` says.
    #[inline]
    fn find(&mut self, key: Key, build: impl FnOnce(&mut Self) -> Effect) -> EffectId {
        let place = key.place() & (self.memo.len() - 1);
        let Entry { detail, block, effect } = self.memo[place];
        if (Key { detail, block }) == key {
            self.hits += 1;
            return effect;
        }
        self.misses += 1;
        let effect = build(self);
        let id = EffectId(self.effects.len() as u32);
        self.effects.push(effect);
        self.memo[place] = Entry { detail: key.detail, block: key.block, effect: id };
        id
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
    pub(crate) fn of_bits(&mut self, block: BlockId, bits: Tnt) -> EffectId {
        let bits = bits.oldest(BITS);
        let key = Key::bits(block, bits);
        let Self { context, graph, effects, space } = self;
        effects.find(key, |effects| {
            let mut path = Path::new(context, graph, effects, *space, block);
            let end = path.follow(bits);
            path.finish(end)
        })
    }

    /// What a TIP with this address does at `block`.
    #[inline]
    pub(crate) fn of_address(&mut self, block: BlockId, ip: Avma) -> EffectId {
        let key = Key::address(block, ip);
        let Self { context, graph, effects, space } = self;
        effects.find(key, |effects| {
            let mut path = Path::new(context, graph, effects, *space, block);
            let end = path.jump(ip);
            path.finish(end)
        })
    }

    /// What a compressed return behind `call` does at the end of `block`; without one it contradicts its bit.
    #[inline]
    pub(crate) fn of_return(&mut self, block: BlockId, call: Option<BlockId>) -> EffectId {
        let key = Key::call(block, call);
        let Self { context, graph, effects, space } = self;
        effects.find(key, |effects| {
            let mut path = Path::new(context, graph, effects, *space, block);
            let end = path.return_to(call);
            path.finish(end)
        })
    }
}
