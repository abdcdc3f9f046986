//! Many durations in little memory: each once, with how often it was met.
//!
//! So exact figures do not take memory by the number of calls: a million *different* durations add up to 500
//! seconds at least, and a billion calls of the same few take no more than these.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::sorted_pairs;

/// More calls than all machines make.
pub(crate) const COUNT_MAX: u64 = 1 << 53;

/// Durations in ns, as they come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Durations(#[serde(with = "sorted_pairs")] FxHashMap<u64, u64>);

impl Durations {
    pub(crate) fn add(&mut self, ns: u64) {
        *self.0.entry(ns).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (ns, times) in &other.0 {
            let known = self.0.entry(*ns).or_default();
            *known = known.saturating_add(*times);
        }
    }

    /// How many there are; `None`: more than all machines make, or one was met 0 times.
    pub(crate) fn plausible_count(&self) -> Option<u64> {
        let add =
            |sum: u64, times: &u64| sum.checked_add(*times).filter(|sum| *times > 0 && *sum < COUNT_MAX);
        self.0.values().try_fold(0, add)
    }

    /// How many were added.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn sorted(&self) -> SortedDurations {
        let mut all: Vec<(u64, u64)> = self.0.iter().map(|(ns, times)| (*ns, *times)).collect();
        all.sort_unstable();
        SortedDurations(all)
    }
}

/// Durations in ns, the shortest first, each once with how often it was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortedDurations(Vec<(u64, u64)>);

impl SortedDurations {
    /// Each once, and how often it was met.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iter().map(|(_, times)| times).sum()
    }

    /// Those of these ranks, which begin with 0 and are in ascending order; `None` where there are not so
    /// many.
    pub(crate) fn of_ranks<const N: usize>(&self, ranks: [u64; N]) -> [Option<u64>; N] {
        let mut all = self.iter();
        let (mut ns, mut passed) = (None, 0);
        ranks.map(|rank| {
            while passed <= rank {
                let (next, times) = all.next()?;
                (ns, passed) = (Some(next), passed + times);
            }
            ns
        })
    }
}

impl FromIterator<u64> for SortedDurations {
    fn from_iter<T: IntoIterator<Item = u64>>(all: T) -> Self {
        let mut durations = Durations::default();
        all.into_iter().for_each(|ns| durations.add(ns));
        durations.sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Stats;

    #[test]
    fn each_is_there_once_in_order() {
        let mut some = Durations::default();
        [7, 0, 7, u64::MAX].into_iter().for_each(|ns| some.add(ns));
        let mut all = some.clone();
        all.merge(&some);
        assert_eq!((all.count(), all.sorted().count()), (8, 8));
        assert_eq!(all.sorted().iter().collect::<Vec<_>>(), [(0, 2), (7, 4), (u64::MAX, 2)]);
        assert_eq!(some.sorted(), [u64::MAX, 7, 0, 7].into_iter().collect());
    }

    #[test]
    fn counts_are_such_as_there_can_be() {
        let count = |pairs: &[(u64, u64)]| Durations(pairs.iter().copied().collect()).plausible_count();
        assert_eq!(count(&[]), Some(0));
        assert_eq!(count(&[(7, COUNT_MAX - 2), (8, 1)]), Some(COUNT_MAX - 1));
        assert_eq!(count(&[(7, COUNT_MAX - 1), (8, 1)]), None);
        assert_eq!(count(&[(7, u64::MAX), (8, u64::MAX)]), None);
        assert_eq!(count(&[(7, 0)]), None);
    }

    /// The deviation was added up call by call: for years.
    #[test]
    fn figures_take_no_longer_for_more_calls() {
        let half = COUNT_MAX / 2 - 1;
        let stats = Stats::of(&SortedDurations(vec![(10, half), (20, half)]));
        let spread = stats.spread.unwrap();
        assert_eq!((spread.mean_ns, spread.stddev_ns, spread.p50_ns, spread.p90_ns), (15.0, 5.0, 10, 20));
    }

    #[test]
    fn ranks_are_those_of_the_list() {
        let list = [3, 3, 3, 5, 8, 8];
        let sorted: SortedDurations = list.into_iter().collect();
        assert_eq!(sorted.of_ranks([0, 1, 2, 3, 4, 5]), list.map(Some));
        assert_eq!(sorted.of_ranks([2, 2, 3, 5, 6, 7]), [Some(3), Some(3), Some(5), Some(8), None, None]);
        assert_eq!(SortedDurations::default().of_ranks([0]), [None]);
    }
}
