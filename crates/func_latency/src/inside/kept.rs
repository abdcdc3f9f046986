//! The trees that are kept while calls are met, before it is known which calls are the slowest and which are
//! typical.
//!
//! ```text
//!   slowest   the slowest that ended, and the slowest that did not: all that may be picked are there
//!   samples   of each caller: all calls while there is room, then one in 2, 4, 8, ...;
//!             the nearest to the median is typical
//! ```
//! What is kept is bounded by nodes, and depends on the order of the calls only.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use analyzer::{CallId, CallRow, CallTree, CalledFrom};
use model::Ns;

use super::picks::{CALLS_MAX, nodes_of_each};
use super::trees::PrunedTree;

/// Nodes of all samples together: while there are fewer, every call is in its caller's sample.
const SAMPLED_NODES_MAX: usize = 200_000;

/// A call by its latency; of equal ones, the first is the slower one.
type Slow = (u64, Reverse<(Ns, CallId)>);

/// Trees by call.
#[derive(Debug)]
pub(super) struct KeptTrees {
    trees: BTreeMap<CallId, KeptTree>,
    /// Calls that were met.
    calls: usize,
    ended: BTreeSet<Slow>,
    not_ended: BTreeSet<Slow>,
    samples: BTreeMap<CalledFrom, CallerSample>,
    /// Of all samples together.
    sampled_nodes: usize,
    /// What every tree is pruned to at least.
    nodes_max: usize,
}

/// A tree, and why it is kept.
#[derive(Debug)]
struct KeptTree {
    tree: PrunedTree,
    is_slow: bool,
    is_sample: bool,
}

/// Calls of one caller.
#[derive(Debug, Default)]
struct CallerSample {
    calls: Vec<CallId>,
    nodes: usize,
    /// How often the sample was halved.
    halved: u32,
}

impl Default for KeptTrees {
    fn default() -> Self {
        Self {
            trees: BTreeMap::new(),
            calls: 0,
            ended: BTreeSet::new(),
            not_ended: BTreeSet::new(),
            samples: BTreeMap::new(),
            sampled_nodes: 0,
            nodes_max: usize::MAX,
        }
    }
}

impl KeptTrees {
    /// One more call.
    pub(super) fn add(&mut self, call: &CallRow, tree: &CallTree) {
        self.calls += 1;
        let is_slow = self.is_slow(call);
        let caller = call.from;
        let is_sample = call.end.status.counted()
            && self.samples.get(&caller).is_none_or(|sample| is_sampled(call.id, sample.halved));
        if !is_slow && !is_sample {
            return;
        }
        self.prune();
        let tree = PrunedTree::of(tree, self.nodes_max);
        if is_sample {
            let sample = self.samples.entry(caller).or_default();
            sample.calls.push(call.id);
            sample.nodes += tree.nodes.len();
            self.sampled_nodes += tree.nodes.len();
        }
        self.trees.insert(call.id, KeptTree { tree, is_slow, is_sample });
        while self.sampled_nodes > SAMPLED_NODES_MAX && self.halve_largest() {}
    }

    /// Whether the call is among the slowest so far. A call that is not any more may be dropped.
    fn is_slow(&mut self, call: &CallRow) -> bool {
        let slowest = if call.end.status.counted() { &mut self.ended } else { &mut self.not_ended };
        let slow = (call.latency_ns, Reverse((call.start_ns, call.id)));
        let is_full = slowest.len() == CALLS_MAX;
        if is_full && slowest.first().is_some_and(|least| slow < *least) {
            return false;
        }
        let least = if is_full { slowest.pop_first() } else { None };
        slowest.insert(slow);
        if let Some((_, Reverse((_, id)))) = least {
            self.drop_reason(id, |kept| kept.is_slow = false);
        }
        true
    }

    fn drop_reason(&mut self, id: CallId, change: impl FnOnce(&mut KeptTree)) {
        let Some(kept) = self.trees.get_mut(&id) else { return };
        change(kept);
        if !kept.is_slow && !kept.is_sample {
            self.trees.remove(&id);
        }
    }

    /// Prunes the trees so that each call may have one, up to [`CALLS_MAX`] calls: the more calls, the
    /// smaller trees.
    fn prune(&mut self) {
        let nodes_max = nodes_of_each(self.calls.min(CALLS_MAX));
        if nodes_max > self.nodes_max / 2 && self.calls != CALLS_MAX {
            return;
        }
        self.nodes_max = nodes_max;
        for kept in self.trees.values_mut() {
            kept.tree = std::mem::take(&mut kept.tree).pruned(nodes_max);
        }
        for sample in self.samples.values_mut() {
            sample.nodes = sample.calls.iter().map(|id| self.trees.get(id).map_or(0, KeptTree::nodes)).sum();
        }
        self.sampled_nodes = self.samples.values().map(|sample| sample.nodes).sum();
    }

    /// Drops about half of the largest sample. False: each caller has one call only.
    fn halve_largest(&mut self) -> bool {
        let several = self.samples.values_mut().filter(|sample| sample.calls.len() > 1);
        let Some(sample) = several.max_by_key(|sample| sample.nodes) else { return false };
        sample.halved += 1;
        let halved = sample.halved;
        let (mut kept, mut dropped): (Vec<_>, Vec<_>) =
            std::mem::take(&mut sample.calls).into_iter().partition(|id| is_sampled(*id, halved));
        if kept.is_empty() {
            kept.extend(dropped.pop());
        }
        sample.calls = kept;
        let nodes = dropped.iter().map(|id| self.trees.get(id).map_or(0, KeptTree::nodes)).sum::<usize>();
        sample.nodes -= nodes;
        self.sampled_nodes -= nodes;
        dropped.into_iter().for_each(|id| self.drop_reason(id, |kept| kept.is_sample = false));
        true
    }

    /// The call has its tree.
    pub(super) fn has(&self, id: CallId) -> bool {
        self.trees.contains_key(&id)
    }

    /// The tree of a call.
    pub(super) fn take(&mut self, id: CallId) -> Option<PrunedTree> {
        self.trees.remove(&id).map(|kept| kept.tree)
    }
}

impl KeptTree {
    fn nodes(&self) -> usize {
        self.tree.nodes.len()
    }
}

/// One call in 2 to the power of `halved`, without a rhythm: calls may have one, too.
fn is_sampled(id: CallId, halved: u32) -> bool {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = id.number.wrapping_mul(GOLDEN_RATIO) ^ u64::from(id.tid.0.unsigned_abs());
    (mixed.wrapping_mul(GOLDEN_RATIO) >> 32).trailing_zeros() >= halved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rows::row;
    use analyzer::{ChildKind, Node, Status, Total};
    use model::FunctionId;

    fn call(number: u64, latency_ns: u64, status: Status) -> CallRow {
        CallRow { start_ns: Ns(1_000 * number), ..row(7, number, latency_ns, status) }
    }

    /// A call of `callees` different functions.
    fn tree(call: &CallRow, callees: u32) -> CallTree {
        let node = |function, sum_ns, size| Node {
            kind: ChildKind::Call,
            status: Status::Complete,
            function: FunctionId(function),
            site: None,
            start: call.start_ns,
            total: Total { count: 1, sum_ns, off_cpu_ns: None },
            error_ns: 0,
            work: None,
            size,
        };
        let callees = (0..callees).map(|callee| node(10 + callee, 1, 1));
        let root = node(1, call.latency_ns, callees.len() + 1);
        CallTree::new(std::iter::once(root).chain(callees).collect())
    }

    /// Latencies without an order: each number below `calls` once.
    fn shuffled(calls: u64) -> impl Iterator<Item = CallRow> {
        (0..calls).map(move |number| call(number, number * 7_919 % calls, Status::Complete))
    }

    #[test]
    fn every_call_is_kept_while_there_is_room() {
        let mut kept = KeptTrees::default();
        for call in shuffled(20_000) {
            kept.add(&call, &tree(&call, 5));
        }
        assert_eq!((kept.trees.len(), kept.sampled_nodes), (20_000, 120_000));
    }

    #[test]
    fn the_slowest_are_kept_and_calls_near_the_median() {
        let mut kept = KeptTrees::default();
        let calls = 20_000;
        for call in shuffled(calls) {
            kept.add(&call, &tree(&call, 99));
            assert!(kept.sampled_nodes <= SAMPLED_NODES_MAX);
        }
        let slow = |call: &CallRow| call.latency_ns >= calls - CALLS_MAX as u64;
        assert!(shuffled(calls).filter(slow).all(|call| kept.has(call.id)));
        let ranks = shuffled(calls).filter(|call| kept.has(call.id)).map(|call| call.latency_ns);
        let off = ranks.map(|rank| rank.abs_diff(calls / 2)).min().unwrap();
        assert!(off < calls / 500, "{off} ranks of {calls}");
        let sample = &kept.samples[&CalledFrom::UNKNOWN];
        assert_eq!(sample.nodes, sample.calls.len() * 100);
        assert!((1_000..=2_000).contains(&sample.calls.len()), "{}", sample.calls.len());
    }

    /// Fast ones that did not end are drawn one by one, however slow the others are.
    #[test]
    fn calls_that_did_not_end_do_not_compete_with_the_others() {
        let mut kept = KeptTrees::default();
        let cut = call(0, 1, Status::OpenEnd);
        kept.add(&cut, &tree(&cut, 1));
        for number in 1..=5_000 {
            let call = call(number, 1_000 + number, Status::Complete);
            kept.add(&call, &tree(&call, 99));
        }
        assert!(kept.has(cut.id));
        assert_eq!(kept.ended.len(), CALLS_MAX);
    }

    /// Early calls have large trees, which give way when there are more.
    #[test]
    fn trees_are_pruned_as_calls_come() {
        let mut kept = KeptTrees::default();
        let mut sizes = Vec::new();
        for number in 0..2_000 {
            let call = call(number, 10_000 + number, Status::OpenEnd);
            kept.add(&call, &tree(&call, 1_500));
            sizes.push(kept.trees.values().map(KeptTree::nodes).max().unwrap());
        }
        // One node more stands for those left out.
        assert_eq!([0, 299, 1_999].map(|at| sizes[at]), [1_501, 1_501, 401]);
        let nodes: usize = kept.trees.values().map(KeptTree::nodes).sum();
        assert_eq!((kept.trees.len(), nodes), (CALLS_MAX, CALLS_MAX * 401));
    }
}
