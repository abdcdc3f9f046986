//! Which calls have their tree in the page: those that it draws singly, the slowest, and the typical call of
//! each caller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use analyzer::{CallRow, Caller, FunctionReport, Place};

/// Who called, and where.
pub type CallerKey = (Caller, Option<Place>);

/// So many calls have a tree, the typical ones not counted.
const CALLS_MAX: usize = 1_500;

/// So many nodes are in all trees of a function together.
const NODES_MAX: usize = 600_000;

/// One tree has no more nodes than these: more is not read.
const NODES_OF_ONE_MAX: usize = 2_000;

/// Calls by their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picks {
    rows: BTreeSet<usize>,
    /// The call of the median latency among those of each caller that were seen from entry to end.
    pub typical: BTreeMap<CallerKey, usize>,
}

impl Picks {
    /// Of a function whose report has rows.
    #[must_use]
    pub fn of(function: &FunctionReport) -> Self {
        let rows = &function.rows;
        let typical = typical(rows);
        let p999_ns = function.latency.spread.map_or(u64::MAX, |spread| spread.p999_ns);
        let is_single = |row: &CallRow| !row.status.counted() || row.latency_ns > p999_ns;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let rank = |at: &usize| rows.get(*at).map(|row| (!is_single(row), Reverse(row.latency_ns), *at));
        if order.len() > CALLS_MAX {
            order.select_nth_unstable_by_key(CALLS_MAX, rank);
            order.truncate(CALLS_MAX);
        }
        Self { rows: order.into_iter().chain(typical.values().copied()).collect(), typical }
    }

    /// This one has a tree.
    #[must_use]
    pub fn has(&self, row: usize) -> bool {
        self.rows.contains(&row)
    }

    /// It is the typical one of its caller.
    #[must_use]
    pub fn is_typical(&self, row: usize) -> bool {
        self.has(row) && self.typical.values().any(|at| *at == row)
    }

    /// How many nodes each tree has room for.
    #[must_use]
    pub fn nodes_max(&self) -> usize {
        (NODES_MAX / self.rows.len().max(1)).clamp(1, NODES_OF_ONE_MAX)
    }
}

/// By nearest rank; of equal ones, the first.
fn typical(rows: &[CallRow]) -> BTreeMap<CallerKey, usize> {
    let mut of_callers: BTreeMap<CallerKey, Vec<(u64, usize)>> = BTreeMap::new();
    for (row, at) in rows.iter().zip(0..).filter(|(row, _)| row.status.counted()) {
        of_callers.entry((row.caller, row.site)).or_default().push((row.latency_ns, at));
    }
    let median = |mut calls: Vec<(u64, usize)>| {
        let middle = calls.len().div_ceil(2) - 1;
        let (_, (_, at), _) = calls.select_nth_unstable(middle);
        *at
    };
    of_callers.into_iter().map(|(key, calls)| (key, median(calls))).collect()
}
