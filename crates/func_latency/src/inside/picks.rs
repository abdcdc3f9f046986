//! Which calls have their tree in the page: those that it draws singly, the slowest, and a typical call of
//! each caller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use analyzer::{CallRow, CalledFrom, FunctionReport};

/// By caller: the row of its typical call.
pub type TypicalCalls = BTreeMap<CalledFrom, usize>;

/// Calls that have a tree, the typical ones not counted.
pub(super) const CALLS_MAX: usize = 1_500;

/// Nodes of all trees of a function together.
const NODES_MAX: usize = 600_000;

/// Nodes of one tree: more is not read.
const NODES_OF_ONE_MAX: usize = 2_000;

/// Nodes that each of `trees` trees has room for.
pub(super) fn nodes_of_each(trees: usize) -> usize {
    (NODES_MAX / trees.max(1)).clamp(1, NODES_OF_ONE_MAX)
}

/// Calls by their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picks {
    rows: BTreeSet<usize>,
    typical: TypicalCalls,
}

impl Picks {
    /// Of a function with rows in its report; `has_tree` says of which rows there is a tree to pick.
    #[must_use]
    pub fn of(function: &FunctionReport, has_tree: impl Fn(usize) -> bool) -> Self {
        let rows = &function.rows;
        let typical = typical(rows, &has_tree);
        let p999_ns = function.figures.latency.spread.map_or(u64::MAX, |spread| spread.p999_ns);
        let is_single = |row: &CallRow| !row.end.status.counted() || row.latency_ns > p999_ns;
        let mut order: Vec<usize> = (0..rows.len()).filter(|at| has_tree(*at)).collect();
        let rank = |at: &usize| rows.get(*at).map(|row| (!is_single(row), Reverse(row.latency_ns), *at));
        if order.len() > CALLS_MAX {
            order.select_nth_unstable_by_key(CALLS_MAX, rank);
            order.truncate(CALLS_MAX);
        }
        Self { rows: order.into_iter().chain(typical.values().copied()).collect(), typical }
    }

    /// The rows that have a tree.
    #[must_use]
    pub fn rows(&self) -> &BTreeSet<usize> {
        &self.rows
    }

    /// The typical call of each caller.
    #[must_use]
    pub fn typical(&self) -> &TypicalCalls {
        &self.typical
    }

    /// Nodes that each tree has room for.
    #[must_use]
    pub fn nodes_max(&self) -> usize {
        nodes_of_each(self.rows.len())
    }
}

/// The call of the median latency of each caller, by nearest rank; of equal ones, the first. Where that call
/// has no tree: the nearest by rank that has one.
#[must_use]
pub fn typical(rows: &[CallRow], has_tree: &impl Fn(usize) -> bool) -> TypicalCalls {
    let mut of_callers: BTreeMap<CalledFrom, Vec<(u64, usize)>> = BTreeMap::new();
    for (row, at) in rows.iter().zip(0..).filter(|(row, _)| row.end.status.counted()) {
        of_callers.entry(row.from).or_default().push((row.latency_ns, at));
    }
    let nearest = |mut calls: Vec<(u64, usize)>| {
        calls.sort_unstable();
        let middle = calls.len().div_ceil(2) - 1;
        let known = calls.iter().enumerate().filter(|(_, (_, at))| has_tree(*at));
        known.min_by_key(|(rank, _)| rank.abs_diff(middle)).map(|(_, (_, at))| *at)
    };
    of_callers.into_iter().filter_map(|(key, calls)| Some((key, nearest(calls)?))).collect()
}
