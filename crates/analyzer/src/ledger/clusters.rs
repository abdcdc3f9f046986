//! Slow calls, sorted by what made each of them slow.
//!
//! The mean of calls that are slow for different reasons is true of none of them: of ten that call `g` 25
//! times and ten that sleep it says that `g` is called 13 times. So each slow call is held against the
//! typical ones alone, by the rules of the whole ledger, and calls with the same answer are a cluster:
//!
//! ```text
//!   call   row with most of its excess    where that arises              cluster
//!   17     [blocked]                      f > backoff > usleep           a
//!   40     inner                          f > inner, more often          b
//!   61     [blocked]                      f > backoff > usleep           a
//!   83     (no farther above than chance takes one call)                 others
//! ```
//! No distance and no number of clusters has to be chosen, and each cluster has its cause in its name. A
//! cluster counts if it is outlying by itself ([`Outlying`]); calls of the rest are others.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hash;

use super::{End, Groups, Ledger, Outlying, Parts, Side, Spent, Sums};
use crate::call_row::{CallId, CallRow};
use crate::tree::{CallTree, Node, Step};

/// Slow calls that are sorted, the slowest first.
const SORTED_MAX: usize = 1000;
/// Paths of all calls that are sorted.
const PATHS_MAX: usize = 1 << 20;

/// Slow calls that are slow for the same reason.
#[derive(Clone, Debug)]
pub struct Cluster<K> {
    /// The slowest first.
    pub calls: Vec<CallRow>,
    /// Whether these are slow.
    pub outlying: Outlying,
    /// These calls against the typical ones of all.
    pub ledger: Ledger<K>,
}

/// All slow calls, sorted.
#[derive(Clone, Debug)]
pub struct Clusters<K> {
    /// That of most calls first.
    pub clusters: Vec<Cluster<K>>,
    /// Slow calls in no cluster, the slowest first: chance takes calls as far, or there were too many.
    pub others: Vec<CallRow>,
}

/// What a call is sorted by: row, its kind of time, the last path on the way down, and why there.
type ClusterKey = (usize, Spent, usize, End);

/// What one call spent, by path.
type SpentByPath = BTreeMap<usize, Sums>;

/// What each slow call spent.
#[derive(Debug)]
pub(super) struct SpentByCall {
    /// In the order of their ids; `None`: nothing was added, or there was no room for it.
    calls: BTreeMap<CallId, Option<SpentByPath>>,
    paths: usize,
}

impl SpentByCall {
    /// For the slow calls of these groups.
    pub(super) fn new(groups: &Groups) -> Self {
        Self { calls: groups.slow.iter().take(SORTED_MAX).map(|row| (row.id, None)).collect(), paths: 0 }
    }

    /// Adds a call to a ledger, and keeps what it spent if it is a slow one.
    pub(super) fn add<K: Copy + Eq + Hash>(
        &mut self,
        ledger: &mut Ledger<K>,
        (call, side): (CallId, Option<Side>),
        tree: &CallTree,
        spent: impl Fn(&Step<'_>) -> Parts,
        key: impl FnMut(&Node) -> K,
    ) {
        let Some(kept) = self.calls.get_mut(&call) else { return ledger.add(side, tree, spent, key) };
        let mut by_path = SpentByPath::new();
        ledger.add_each(side, tree, spent, key, |path, sums| by_path.entry(path).or_default().add(sums));
        if self.paths + by_path.len() <= PATHS_MAX {
            self.paths += by_path.len();
            *kept = Some(by_path);
        }
    }

    fn of(&self, row: &CallRow) -> Option<&SpentByPath> {
        self.calls.get(&row.id)?.as_ref()
    }
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    /// Sorts the slow calls.
    pub(super) fn clusters(&self, groups: &Groups, spent: &SpentByCall) -> Clusters<K> {
        let mut alone = self.clone();
        let mut by_reason: BTreeMap<ClusterKey, Vec<&CallRow>> = BTreeMap::new();
        for row in groups.slow.iter().take(SORTED_MAX).filter(|row| groups.spread.is_far(row)) {
            let Some(spent) = spent.of(row) else { continue };
            alone.set_these(std::iter::once(spent));
            if let Some(reason) = alone.reason() {
                by_reason.entry(reason).or_default().push(row);
            }
        }
        let mut clusters: Vec<Cluster<K>> = Vec::new();
        for rows in by_reason.into_values() {
            let outlying = Outlying::of(&groups.spread, &rows);
            if outlying.is_so() {
                let mut ledger = self.clone();
                ledger.set_these(rows.iter().filter_map(|row| spent.of(row)));
                clusters.push(Cluster { calls: rows.into_iter().copied().collect(), outlying, ledger });
            }
        }
        let slowest =
            |cluster: &Cluster<K>| cluster.calls.first().map(|row| (Reverse(row.latency_ns), row.id));
        clusters.sort_by_key(|cluster| (Reverse(cluster.calls.len()), slowest(cluster)));
        let mut others = groups.slow.clone();
        others.retain(|row| !clusters.iter().any(|cluster| cluster.calls.contains(row)));
        Clusters { clusters, others }
    }

    /// Makes these calls all that there is of the group that is asked about.
    fn set_these<'s>(&mut self, calls: impl Iterator<Item = &'s SpentByPath>) {
        self.paths.iter_mut().for_each(|path| path.these = Sums::default());
        for (path, sums) in calls.flatten() {
            if let Some(path) = self.paths.get_mut(*path) {
                path.these.add(*sums);
            }
        }
    }

    /// Why the calls that are asked about take longer.
    fn reason(&self) -> Option<ClusterKey> {
        let comparison = self.compare()?;
        let leading = comparison.leading()?;
        let descent = self.descend(leading);
        Some((leading.path, leading.spent, descent.levels.last()?.path, descent.end))
    }
}
