//! The ways that calls of a function go, and how long each takes.
//!
//! Calls go the same way if they make the same calls in the same order, down to some depth; a callee that is
//! called again and again is called, and so is one that calls itself. Interrupts are no way.
//!
//! ```text
//!   f: g g g h      f: g h        the same way
//!   f: g h k        another one
//! ```
//! With the depth the number of ways grows, in the end up to the number of calls. So all depths of
//! [`DEPTHS`] are kept, and the deepest counts at which few ways have nearly all calls.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};

use rustc_hash::FxHashMap;

use crate::call_row::{CallId, CallRow};
use crate::children::ChildKey;
use crate::ledger::LeftOut;
use crate::place::ChildKind;
use crate::stats::Stats;
use crate::tree::{CallTree, Node, TreeSink, Trees};

/// Levels of calls that make a way; the last one: all.
pub const DEPTHS: [usize; 5] = [1, 2, 3, 5, usize::MAX];

/// At a depth that is clear this many ways, the most frequent ones, have nearly all of the calls.
const FEW: usize = 8;
/// Of ten calls this many are nearly all.
const NEARLY_ALL_OF_TEN: usize = 9;

/// Ways that are told apart; calls that go yet another one are counted together.
const WAYS_MAX: usize = 1 << 12;

/// A way that calls go.
#[derive(Clone, Debug, PartialEq)]
pub struct Mode {
    /// The first call that went it.
    pub first: CallId,
    /// What that call called, down to the depth that counts, and the time of each: the longest first.
    pub callees: Vec<(ChildKey, u64)>,
    /// Latencies of the calls, in ascending order.
    pub latencies_ns: Vec<u64>,
}

impl Mode {
    /// Figures of the latencies.
    #[must_use]
    pub fn latency(&self) -> Stats {
        Stats::of(&self.latencies_ns.iter().copied().collect())
    }

    /// Callees that it has and the other has not, the longest first.
    pub fn not_in<'m>(&'m self, other: &'m Self) -> impl Iterator<Item = ChildKey> + 'm {
        let has = |key: ChildKey| other.callees.iter().any(|(its, _)| *its == key);
        self.callees.iter().map(|(key, _)| *key).filter(move |key| !has(*key))
    }
}

/// The ways that calls go.
#[derive(Clone, Debug, PartialEq)]
pub struct Modes {
    /// Levels of calls that count, of [`DEPTHS`].
    pub depth: usize,
    /// All that are told apart, the one that most calls go first.
    pub modes: Vec<Mode>,
    /// Latencies of the calls that go others, in ascending order.
    pub others_ns: Vec<u64>,
    /// Calls that went an unknown way, or that are too deep inside of others.
    pub left_out: LeftOut,
    /// Index of `depth` in [`DEPTHS`].
    level: usize,
    /// Where in `modes` each way is, by its number.
    places: Vec<usize>,
}

/// The ways that one call went, one for each of [`DEPTHS`]: numbers in the order in which ways were met
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways([u32; DEPTHS.len()]);

/// The number of all ways that are not told apart.
const OTHER: u32 = u32::MAX;

/// Sorts the calls of a function by their ways; only those that were seen from entry to end.
#[derive(Debug, Default)]
pub struct ModesOfCalls {
    tables: [Table; DEPTHS.len()],
    scratch: Scratch,
    left_out: LeftOut,
}

#[derive(Debug, Default)]
struct Table {
    places: FxHashMap<u64, usize>,
    modes: Vec<Mode>,
    others_ns: Vec<u64>,
}

#[derive(Debug, Default)]
struct Scratch {
    depths: Vec<usize>,
    ways: Vec<u64>,
}

impl ModesOfCalls {
    /// The ways at the depth that counts.
    #[must_use]
    pub fn finish(self) -> Modes {
        let left_out = self.left_out;
        let tables = self.tables.into_iter().enumerate();
        let mut found: Vec<Modes> = tables.map(|(level, table)| table.finish(level, left_out)).collect();
        let deepest = found.iter().rposition(Modes::is_clear).unwrap_or(0);
        found.swap_remove(deepest)
    }

    /// Sorts one more call in.  `None`: it is not compared ([`LeftOut`]).
    pub fn add(&mut self, call: &CallRow, tree: &CallTree) -> Option<Ways> {
        if !self.left_out.compares(call) {
            return None;
        }
        let Self { tables, scratch, .. } = self;
        scratch.depths.clear();
        scratch.depths.extend(tree.walk().map(|step| step.depth));
        let mut ways = Ways([OTHER; DEPTHS.len()]);
        for ((table, depth), number) in tables.iter_mut().zip(DEPTHS).zip(&mut ways.0) {
            let way = scratch.way(tree.nodes(), depth);
            *number = table.add(way, call, || callees(tree, depth));
        }
        Some(ways)
    }
}

impl Modes {
    /// Calls of all ways.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.modes.iter().map(|mode| mode.latencies_ns.len()).sum::<usize>() + self.others_ns.len()
    }

    /// Which of `modes` a call went; `None`: another one.
    #[must_use]
    pub fn of(&self, ways: &Ways) -> Option<usize> {
        let number = ways.0.get(self.level)?;
        self.places.get(*number as usize).copied()
    }

    fn is_clear(&self) -> bool {
        let few: usize = self.modes.iter().take(FEW).map(|mode| mode.latencies_ns.len()).sum();
        few * 10 >= self.calls() * NEARLY_ALL_OF_TEN
    }
}

impl Table {
    /// The way's number.
    fn add(&mut self, way: u64, call: &CallRow, callees: impl FnOnce() -> Vec<(ChildKey, u64)>) -> u32 {
        let next = self.modes.len();
        let place = self.places.get(&way).copied();
        match place.and_then(|at| self.modes.get_mut(at)) {
            Some(mode) => {
                mode.latencies_ns.push(call.latency_ns);
            }
            None if next < WAYS_MAX => {
                self.places.insert(way, next);
                self.modes.push(Mode {
                    first: call.id,
                    callees: callees(),
                    latencies_ns: vec![call.latency_ns],
                });
            }
            None => {
                self.others_ns.push(call.latency_ns);
                return OTHER;
            }
        }
        place.unwrap_or(next) as u32
    }

    fn finish(mut self, level: usize, left_out: LeftOut) -> Modes {
        self.others_ns.sort_unstable();
        let mut numbered: Vec<(usize, Mode)> = self.modes.into_iter().enumerate().collect();
        numbered.sort_by_key(|(_, mode)| (Reverse(mode.latencies_ns.len()), mode.first));
        let mut places = vec![0; numbered.len()];
        for (place, (number, mode)) in numbered.iter_mut().enumerate() {
            mode.latencies_ns.sort_unstable();
            if let Some(at) = places.get_mut(*number) {
                *at = place;
            }
        }
        let modes = numbered.into_iter().map(|(_, mode)| mode).collect();
        let depth = DEPTHS.get(level).copied().unwrap_or(usize::MAX);
        Modes { depth, modes, others_ns: self.others_ns, left_out, level, places }
    }
}

impl TreeSink for ModesOfCalls {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        self.add(call, tree);
    }

    fn too_deep(&mut self, call: &CallRow) {
        self.left_out.compares(call);
    }
}

impl Scratch {
    /// What a call's way is known by.
    fn way(&mut self, nodes: &[Node], depth: usize) -> u64 {
        self.ways.clear();
        self.ways.resize(nodes.len(), 0);
        // Backwards: callees before their callers.
        for (at, node) in nodes.iter().enumerate().rev() {
            let level = self.depths.get(at).copied().unwrap_or(0);
            if level > depth {
                continue;
            }
            let mut hasher = DefaultHasher::new();
            // The caller makes no difference to the way that a call goes.
            if level > 0 {
                node.key().hash(&mut hasher);
            }
            if level < depth && node.kind != ChildKind::Recursion {
                self.hash_callees(nodes, at, node.size, &mut hasher);
            }
            if let Some(way) = self.ways.get_mut(at) {
                *way = hasher.finish();
            }
        }
        self.ways.first().copied().unwrap_or(0)
    }

    fn hash_callees(&self, nodes: &[Node], caller: usize, size: usize, hasher: &mut DefaultHasher) {
        let mut last = None;
        let mut at = caller + 1;
        while let Some(callee) = nodes.get(at).filter(|_| at < caller + size) {
            let way = self.ways.get(at).copied();
            if callee.kind != ChildKind::Interrupt && way != last {
                way.hash(hasher);
                last = way;
            }
            at += callee.size.max(1);
        }
    }
}

fn callees(tree: &CallTree, depth: usize) -> Vec<(ChildKey, u64)> {
    let mut sums: FxHashMap<ChildKey, u64> = FxHashMap::default();
    for step in tree.walk().filter(|step| (1..=depth).contains(&step.depth)) {
        if step.node.kind != ChildKind::Interrupt {
            *sums.entry(step.node.key()).or_default() += step.node.total.sum_ns;
        }
    }
    let mut callees: Vec<(ChildKey, u64)> = sums.into_iter().collect();
    callees.sort_unstable_by_key(|(key, ns)| (Reverse(*ns), *key));
    callees
}
