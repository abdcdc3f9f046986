//! A call's tree as a page has it: calls that are alike in one node, the shortest left out but counted.
//!
//! ```text
//!   f                       f
//!     g   900                 g        x2  1,700
//!       h 200                   h      x2    350
//!     g   800          ->       ... 1 more     5
//!       h 150                 ... 2 more      10
//!       k   5
//!     m     6
//!     n     4
//! ```

use std::cmp::Reverse;

use analyzer::{CallTree, ChildKey, Node, Status, Total, Wait, Work};
use model::Ns;

/// Times off the CPU that are known one by one, the longest.
const WAITS_MAX: usize = 100;

/// A node of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrunedNode {
    /// Nodes above it.
    pub depth: usize,
    /// What it is.
    pub what: What,
    /// When it was entered for the first time, after the call's begin; of what was left out, 0.
    pub since_ns: u64,
    /// How often, how long, and of that off the CPU.  Of what was left out, that of the topmost nodes.
    pub total: Total,
    /// The most by which that time may differ from the true one: [`analyzer::Node::error_ns`].
    pub error_ns: u64,
    /// What was executed, that of callees included; `None`: counters were not asked for, or a call was not
    /// seen from entry to end.
    pub work: Option<Work>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Calls, or the kernel's part.
    Calls(ChildKey, Status),
    /// A number of nodes that were left out.
    More(usize),
}

impl What {
    /// Nodes that it stands for.
    fn nodes(self) -> usize {
        match self {
            Self::Calls(..) => 1,
            Self::More(nodes) => nodes,
        }
    }
}

/// When and why a call was off its CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LongestWaits {
    /// In their order.
    pub longest: Vec<Wait>,
    /// How many others there are.
    pub more: usize,
    /// How long the others are together.
    pub more_ns: u64,
}

/// A tree, and when the call was off its CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunedTree {
    /// When the call began.
    pub begin: Ns,
    /// In the order of entry; the last child of a node stands for those left out.
    pub nodes: Vec<PrunedNode>,
    /// Times off the CPU.
    pub waits: LongestWaits,
}

impl PrunedTree {
    /// The tree with at most `nodes_max` nodes, those of what was left out not counted; without its waits.
    #[must_use]
    pub fn of(tree: &CallTree, nodes_max: usize) -> Self {
        let merged = with_known_work(tree).merged();
        let begin = merged.roots().next().map_or(Ns(0), |root| root.start);
        let nodes = merged.walk().map(|step| PrunedNode {
            depth: step.depth,
            what: What::Calls(step.node.key(), step.node.status),
            since_ns: step.node.start.since(begin),
            total: step.node.total,
            error_ns: step.node.error_ns,
            work: step.node.work,
        });
        let whole = Self { begin, nodes: nodes.collect(), waits: LongestWaits::default() };
        whole.pruned(nodes_max)
    }

    /// Leaves out all but the longest nodes. Pruned in steps, a tree is the same as pruned at once.
    #[must_use]
    pub fn pruned(mut self, nodes_max: usize) -> Self {
        if let Some(is_long) = is_long(&self.nodes, nodes_max) {
            self.nodes = pruned(&self.nodes, &is_long);
        }
        self
    }
}

/// The nodes without those that are not long.
fn pruned(nodes: &[PrunedNode], is_long: &[bool]) -> Vec<PrunedNode> {
    let mut pruned = Pruned::default();
    // The depth of a node that was left out, while the nodes below it come.
    let mut left_out = None;
    for (node, is_long) in nodes.iter().zip(is_long) {
        if left_out.is_some_and(|depth| node.depth > depth) {
            pruned.leave_out(NodesLeftOut { nodes: node.what.nodes(), ..NodesLeftOut::NOTHING });
            continue;
        }
        pruned.close(node.depth);
        left_out = (!is_long).then_some(node.depth);
        if *is_long {
            pruned.nodes.push(*node);
            pruned.open.push(NodesLeftOut::NOTHING);
        } else {
            let PrunedNode { total, error_ns, work, .. } = *node;
            pruned.leave_out(NodesLeftOut { nodes: node.what.nodes(), total, error_ns, work });
        }
    }
    pruned.close(0);
    pruned.nodes
}

/// What is left of a tree so far.
#[derive(Default)]
struct Pruned {
    nodes: Vec<PrunedNode>,
    /// By depth of the nodes that are open: the nodes left out of each.
    open: Vec<NodesLeftOut>,
}

impl Pruned {
    /// Ends the nodes of this depth and below.
    fn close(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some(NodesLeftOut { nodes, total, error_ns, work }) = self.open.pop() else { return };
            if nodes > 0 {
                let depth = self.open.len() + 1;
                let what = What::More(nodes);
                self.nodes.push(PrunedNode { depth, what, since_ns: 0, total, error_ns, work });
            }
        }
    }

    fn leave_out(&mut self, part: NodesLeftOut) {
        if let Some(all) = self.open.last_mut() {
            all.nodes += part.nodes;
            all.total.add(part.total);
            all.error_ns = all.error_ns.saturating_add(part.error_ns);
            all.work = all.work.zip(part.work).map(|(mut sum, more)| {
                sum.add(more);
                sum
            });
        }
    }
}

/// The tree, in which nothing is known of what ran in calls that were not seen from entry to end.
fn with_known_work(tree: &CallTree) -> CallTree {
    let node = |node: &Node| Node { work: node.work.filter(|_| node.status.counted()), ..*node };
    CallTree::new(tree.nodes().iter().map(node).collect())
}

/// What was left out of a node.
#[derive(Clone, Copy, Debug)]
struct NodesLeftOut {
    nodes: usize,
    /// Sums of the topmost ones.
    total: Total,
    error_ns: u64,
    work: Option<Work>,
}

impl NodesLeftOut {
    const NOTHING: Self = Self {
        nodes: 0,
        total: Total { count: 0, sum_ns: 0, off_cpu_ns: Some(0) },
        error_ns: 0,
        work: Some(Work::NONE),
    };
}

/// Which nodes are among the longest; `None`: all. No node is longer than the one that it is in, which comes
/// first.
fn is_long(nodes: &[PrunedNode], nodes_max: usize) -> Option<Vec<bool>> {
    let mut order: Vec<(Reverse<u64>, usize)> = (nodes.iter().enumerate())
        .filter(|(_, node)| matches!(node.what, What::Calls(..)))
        .map(|(at, node)| (Reverse(node.total.sum_ns), at))
        .collect();
    if order.len() <= nodes_max {
        return None;
    }
    order.sort_unstable();
    let mut is_long = vec![false; nodes.len()];
    for (_, at) in order.into_iter().take(nodes_max) {
        if let Some(is) = is_long.get_mut(at) {
            *is = true;
        }
    }
    Some(is_long)
}

impl LongestWaits {
    /// Of all waits of a call.
    #[must_use]
    pub fn of(mut all: Vec<Wait>) -> Self {
        let ns = |wait: &Wait| wait.to.since(wait.from);
        all.sort_by_key(|wait| Reverse(ns(wait)));
        let rest = all.split_off(all.len().min(WAITS_MAX));
        all.sort_by_key(|wait| wait.from);
        Self { longest: all, more: rest.len(), more_ns: rest.iter().map(ns).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyzer::{ChildKind, Reason};
    use model::FunctionId;

    /// `(function, start, total, size)`.
    fn tree(nodes: &[(u32, u64, u64, usize)]) -> CallTree {
        let node = |&(function, start, sum_ns, size): &(u32, u64, u64, usize)| Node {
            kind: ChildKind::Call,
            status: Status::Complete,
            function: FunctionId(function),
            site: None,
            start: Ns(start),
            total: Total { count: 1, sum_ns, off_cpu_ns: Some(0) },
            error_ns: u64::from(function),
            work: None,
            size,
        };
        CallTree::new(nodes.iter().map(node).collect())
    }

    fn text(tree: &PrunedTree) -> Vec<String> {
        let line = |node: &PrunedNode| {
            let what = match node.what {
                What::Calls(key, _) => format!("{} +{}", key.function.0, node.since_ns),
                What::More(more) => format!("... {more} more"),
            };
            let Total { count, sum_ns, .. } = node.total;
            format!("{:1$}{what}: x{count} {sum_ns} +- {2}", "", 2 * node.depth, node.error_ns)
        };
        tree.nodes.iter().map(line).collect()
    }

    #[test]
    fn what_is_left_out_is_counted_where_it_was() {
        let tree = tree(&[
            (1, 100, 2000, 8),
            (2, 110, 900, 2),
            (3, 120, 200, 1),
            (2, 1010, 800, 3),
            (3, 1020, 150, 1),
            (4, 1200, 5, 1),
            (5, 1900, 6, 1),
            (6, 1910, 4, 1),
        ]);
        let whole = [
            "1 +0: x1 2000 +- 1",
            "  2 +10: x2 1700 +- 4",
            "    3 +20: x2 350 +- 6",
            "    4 +1100: x1 5 +- 4",
            "  5 +1800: x1 6 +- 5",
        ];
        let pruned = PrunedTree::of(&tree, 100);
        assert_eq!(text(&pruned), [&whole[..], &["  6 +1810: x1 4 +- 6"]].concat());
        let pruned = PrunedTree::of(&tree, 3);
        let more = ["    ... 1 more: x1 5 +- 4", "  ... 2 more: x2 10 +- 11"];
        assert_eq!(text(&pruned), [&whole[..3], &more].concat());
    }

    /// A gap may be in it: fewer instructions were counted than ran.
    #[test]
    fn what_ran_in_a_cut_call_is_not_known() {
        let all = tree(&[(1, 0, 90, 4), (2, 10, 20, 1), (2, 40, 20, 1), (3, 70, 15, 1)]);
        let statuses = [Status::Cut, Status::Complete, Status::Cut, Status::Complete];
        let work = Some(Work { instructions: 40, cycles: None });
        let nodes = all.nodes().iter().zip(statuses).map(|(node, status)| Node { status, work, ..*node });
        let of = |nodes_max| {
            let tree = PrunedTree::of(&CallTree::new(nodes.clone().collect()), nodes_max);
            tree.nodes.iter().map(|node| node.work.map(|work| work.instructions)).collect::<Vec<_>>()
        };
        assert_eq!(of(100), [None, None, Some(40)]);
        assert_eq!(of(1), [None, None], "the rest has one that is not known");
    }

    #[test]
    fn a_whole_subtree_is_left_out_as_one() {
        let tree = tree(&[(1, 0, 100, 4), (2, 10, 8, 3), (3, 11, 6, 2), (4, 12, 3, 1)]);
        let pruned = PrunedTree::of(&tree, 1);
        assert_eq!(text(&pruned), ["1 +0: x1 100 +- 1", "  ... 3 more: x1 8 +- 2"]);
    }

    /// Trees are pruned while calls are met, and again when it is known how many have one.
    #[test]
    fn pruning_in_steps_is_pruning_at_once() {
        // `(depth, total)`: two levels of four below the root, with equal times.
        let mut nodes = vec![(1, 0, 1_000, 21)];
        for outer in 0..4 {
            nodes.push((2 + outer, 10 * u64::from(outer), 200, 5));
            nodes.extend(
                (0..4).map(|inner| (10 + inner, 10 * u64::from(outer) + 1, 40 + u64::from(inner % 2), 1)),
            );
        }
        let tree = tree(&nodes);
        for first in 1..=21 {
            for second in 1..=first {
                let steps = PrunedTree::of(&tree, first).pruned(second);
                assert_eq!(steps, PrunedTree::of(&tree, second), "{first}, {second}");
            }
        }
    }

    #[test]
    fn the_longest_waits_are_known_one_by_one() {
        let wait = |at: u64, ns: u64| Wait {
            from: Ns(1000 + at),
            to: Ns(1000 + at + ns),
            is_preempted: at == 0,
            reason: Reason::Unknown,
            waker: None,
        };
        let waits = LongestWaits::of((0..102).map(|i| wait(i * 10, i % 5 + 1)).collect());
        assert_eq!((waits.longest.len(), waits.more, waits.more_ns), (WAITS_MAX, 2, 2));
        let all: u64 = waits.longest.iter().map(|wait| wait.to.since(wait.from)).sum();
        assert_eq!(all + 2, (0..102).map(|i| i % 5 + 1).sum::<u64>());
        assert_eq!(waits.longest[0], wait(0, 1));
        assert!(waits.longest.is_sorted_by_key(|wait| wait.from));
    }
}
