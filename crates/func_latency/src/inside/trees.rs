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

use analyzer::{CallTree, ChildKey, Node, Status, Total};
use model::Ns;
use model::schedule::OffCpu;

/// So many times off the CPU are known one by one, the longest.
const SPANS_MAX: usize = 100;

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
    /// The most by which that time may differ from the true one: [`Node::error_ns`].
    pub error_ns: u64,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Calls, or the kernel's part.
    Calls(ChildKey, Status),
    /// So many nodes that were left out.
    More(usize),
}

/// When a call was off its CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Each one's begin after the call's, how long it was, and whether the CPU was taken away.
    pub longest: Vec<(u64, u64, bool)>,
    /// How many others there are.
    pub more: usize,
    /// ... and how long these are together.
    pub more_ns: u64,
}

/// A tree, and when the call was off its CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunedTree {
    /// In the order of entry; what was left out of a node is its last.
    pub nodes: Vec<PrunedNode>,
    /// Times off the CPU.
    pub off_cpu: Spans,
}

impl PrunedTree {
    /// The tree with at most `nodes_max` nodes, those of what was left out not counted.
    #[must_use]
    pub fn of(tree: &CallTree, nodes_max: usize, off_cpu: Spans) -> Self {
        let merged = tree.merged();
        let begin = merged.roots().next().map_or(Ns(0), |root| root.start);
        let mut pruned = Self { nodes: Vec::new(), off_cpu };
        pruned.add(merged.nodes(), begin, &is_long(merged.nodes(), nodes_max));
        pruned
    }

    fn add(&mut self, nodes: &[Node], begin: Ns, is_long: &[bool]) {
        // Nodes that are open: where their subtrees end, and what was left out of them.
        let mut open: Vec<(usize, LeftOut)> = Vec::new();
        let mut at = 0;
        while let Some(node) = nodes.get(at) {
            while let Some(&(_, left_out)) = open.last().filter(|(end, ..)| *end <= at) {
                open.pop();
                self.leave_out(open.len() + 1, left_out);
            }
            let size = node.size.max(1);
            if is_long.get(at).copied().unwrap_or(false) {
                self.nodes.push(PrunedNode {
                    depth: open.len(),
                    what: What::Calls(node.key(), node.status),
                    since_ns: node.start.since(begin),
                    total: node.total,
                    error_ns: node.error_ns,
                });
                open.push((at + size, LeftOut::default()));
                at += 1;
            } else {
                if let Some((_, left_out)) = open.last_mut() {
                    left_out.add(node);
                }
                at += size;
            }
        }
        while let Some((_, left_out)) = open.pop() {
            self.leave_out(open.len() + 1, left_out);
        }
    }

    fn leave_out(&mut self, depth: usize, LeftOut { nodes, total, error_ns }: LeftOut) {
        if nodes > 0 {
            self.nodes.push(PrunedNode { depth, what: What::More(nodes), since_ns: 0, total, error_ns });
        }
    }
}

/// What was left out of a node.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    nodes: usize,
    /// Sums of the topmost ones.
    total: Total,
    error_ns: u64,
}

impl LeftOut {
    fn add(&mut self, top: &Node) {
        self.nodes += top.size.max(1);
        self.total.add(top.total);
        self.error_ns = self.error_ns.saturating_add(top.error_ns);
    }
}

/// Which nodes are among the longest.  No node is longer than the one that it is in, which comes first.
fn is_long(nodes: &[Node], nodes_max: usize) -> Vec<bool> {
    let mut is_long = vec![nodes.len() <= nodes_max; nodes.len()];
    if nodes.len() > nodes_max {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_unstable_by_key(|at| (Reverse(nodes.get(*at).map(|node| node.total.sum_ns)), *at));
        for at in order.into_iter().take(nodes_max) {
            if let Some(is) = is_long.get_mut(at) {
                *is = true;
            }
        }
    }
    is_long
}

impl Spans {
    /// Of a call that began then.
    pub fn of(begin: Ns, spans: impl Iterator<Item = OffCpu>) -> Self {
        let mut all: Vec<(u64, u64, bool)> = spans
            .map(|span| {
                let ns = span.to.map_or(0, |to| to.since(span.from));
                (span.from.since(begin), ns, span.preempted)
            })
            .collect();
        all.sort_by_key(|(_, ns, _)| Reverse(*ns));
        let rest = all.split_off(all.len().min(SPANS_MAX));
        all.sort_unstable();
        Self { longest: all, more: rest.len(), more_ns: rest.iter().map(|(_, ns, _)| ns).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analyzer::ChildKind;
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
        let pruned = PrunedTree::of(&tree, 100, Spans::default());
        assert_eq!(text(&pruned), [&whole[..], &["  6 +1810: x1 4 +- 6"]].concat());
        let pruned = PrunedTree::of(&tree, 3, Spans::default());
        let more = ["    ... 1 more: x1 5 +- 4", "  ... 2 more: x2 10 +- 11"];
        assert_eq!(text(&pruned), [&whole[..3], &more].concat());
    }

    #[test]
    fn a_whole_subtree_is_left_out_as_one() {
        let tree = tree(&[(1, 0, 100, 4), (2, 10, 8, 3), (3, 11, 6, 2), (4, 12, 3, 1)]);
        let pruned = PrunedTree::of(&tree, 1, Spans::default());
        assert_eq!(text(&pruned), ["1 +0: x1 100 +- 1", "  ... 3 more: x1 8 +- 2"]);
    }

    #[test]
    fn the_longest_times_off_the_cpu_are_known_one_by_one() {
        let off = |at: u64, ns: u64| OffCpu {
            from: Ns(1000 + at),
            to: Some(Ns(1000 + at + ns)),
            preempted: at == 0,
            woken: None,
        };
        let spans = Spans::of(Ns(1000), (0..102).map(|i| off(i * 10, i % 5 + 1)));
        assert_eq!((spans.longest.len(), spans.more, spans.more_ns), (SPANS_MAX, 2, 2));
        let all: u64 = spans.longest.iter().map(|(_, ns, _)| ns).sum();
        assert_eq!(all + 2, (0..102).map(|i| i % 5 + 1).sum::<u64>());
        assert_eq!(spans.longest[0], (0, 1, true));
    }
}
