//! The lines that a call's tree is printed as: one for each call in it, or for calls that are alike.
//!
//! ```text
//!   f              f
//!     g              g   2 calls     alike: the same callee at the same site, below callers that are alike
//!       h              h   3 calls
//!     g
//!       h
//!       h
//! ```

use std::cmp::Reverse;
use std::collections::HashMap;

use analyzer::{ChildKey, Node, Status, Step, Total};

/// A call of the tree, or several that are alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct TreeLine<'t> {
    /// Calls above it.
    pub(super) depth: usize,
    /// The first of the calls.
    pub(super) first: &'t Node,
    /// How they ended; `None`: not all alike.
    pub(super) status: Option<Status>,
    pub(super) total: Total,
    pub(super) error_ns: u64,
    /// Its total without its callees'.
    pub(super) own: Total,
    pub(super) own_error_ns: u64,
}

impl<'t> TreeLine<'t> {
    /// Of one call.
    pub(super) fn of(Step { node, depth, own, own_error_ns, .. }: Step<'t>) -> Self {
        Self {
            depth,
            first: node,
            status: Some(node.status),
            total: node.total,
            error_ns: node.error_ns,
            own,
            own_error_ns,
        }
    }

    fn add(&mut self, other: &Self) {
        self.status = self.status.filter(|status| Some(*status) == other.status);
        self.total.add(other.total);
        self.own.add(other.own);
        self.error_ns = self.error_ns.saturating_add(other.error_ns);
        self.own_error_ns = self.own_error_ns.saturating_add(other.own_error_ns);
    }
}

/// The heaviest lines of a tree.
pub(super) struct Heaviest<'t> {
    /// In the order in which they were entered first.
    pub(super) lines: Vec<TreeLine<'t>>,
    /// The others; `None`: there are none.
    pub(super) left_out: Option<LinesLeftOut<'t>>,
}

/// Lines that are not printed.
pub(super) struct LinesLeftOut<'t> {
    /// The calls on them.
    pub(super) calls: u64,
    /// The one that took most.
    pub(super) heaviest: TreeLine<'t>,
}

impl<'t> Heaviest<'t> {
    /// Of the calls of a tree in their order: those that are alike in one line, and `most` lines.
    pub(super) fn of(calls: &[TreeLine<'t>], most: usize) -> Self {
        let paths = Paths::of(calls);
        let weight = |&at: &usize| Reverse(paths.line(at).map_or(0, |line| line.total.sum_ns));
        let mut order: Vec<usize> = (0..paths.lines.len()).collect();
        // A caller takes as long as its callees, and stands before them: it is in, if one of these is.
        order.sort_by_key(weight);
        let (printed, rest) = order.split_at(most.min(order.len()));
        let mut is_printed = vec![false; order.len()];
        printed.iter().filter_map(|at| is_printed.get_mut(*at).map(|is| *is = true)).for_each(drop);
        let lines = paths.in_order(&is_printed);
        let count = |lines: &[TreeLine<'_>]| lines.iter().map(|line| line.total.count).sum::<u64>();
        let calls = count(&paths.lines).saturating_sub(count(&lines));
        let heaviest = rest.first().and_then(|at| paths.line(*at)).copied();
        Self { lines, left_out: heaviest.map(|heaviest| LinesLeftOut { calls, heaviest }) }
    }
}

/// Calls that are alike, in one.
struct Paths<'t> {
    lines: Vec<TreeLine<'t>>,
    /// The callees of each.
    callees: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

impl<'t> Paths<'t> {
    fn of(calls: &[TreeLine<'t>]) -> Self {
        let mut paths = Self { lines: Vec::new(), callees: Vec::new(), roots: Vec::new() };
        let mut known: HashMap<(Option<usize>, ChildKey), usize> = HashMap::new();
        let mut above: Vec<usize> = Vec::new();
        for call in calls {
            above.truncate(call.depth);
            let caller = above.last().copied();
            let next = paths.lines.len();
            let at = *known.entry((caller, call.first.key())).or_insert(next);
            if at == next {
                paths.push(caller, *call);
            } else if let Some(line) = paths.lines.get_mut(at) {
                line.add(call);
            }
            above.push(at);
        }
        paths
    }

    fn push(&mut self, caller: Option<usize>, line: TreeLine<'t>) {
        let siblings = caller.map_or(Some(&mut self.roots), |caller| self.callees.get_mut(caller));
        siblings.into_iter().for_each(|siblings| siblings.push(self.lines.len()));
        self.lines.push(line);
        self.callees.push(Vec::new());
    }

    fn line(&self, at: usize) -> Option<&TreeLine<'t>> {
        self.lines.get(at)
    }

    /// The lines that are printed, each caller before its callees.
    fn in_order(&self, is_printed: &[bool]) -> Vec<TreeLine<'t>> {
        let mut next: Vec<usize> = self.roots.iter().rev().copied().collect();
        let mut lines = Vec::new();
        while let Some(at) = next.pop() {
            if is_printed.get(at) == Some(&true) {
                lines.extend(self.line(at));
                next.extend(self.callees.get(at).into_iter().flatten().rev());
            }
        }
        lines
    }
}
