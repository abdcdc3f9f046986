//! Many durations in little memory: each once, with how often it was met.
//!
//! So exact figures do not take memory by the number of calls: a million *different* durations add up to 500
//! seconds at least, and a billion calls of the same few take no more than these. Where there are more
//! different ones, all are rounded down to 11 bits, by less than 1/1024; which set is rounded, and to what,
//! follows from its durations alone, in whatever order and parts they come.

use std::fmt::Formatter;

use rustc_hash::FxHashMap;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sorted_pairs;

/// More calls than all machines make.
pub(crate) const COUNT_MAX: u64 = 1 << 53;

/// The number of different durations that are kept as they are.
const DIFFERENT_MAX: usize = 1 << 20;

/// Bits of a duration that are kept where there are more.
const BITS: u32 = 11;

/// Durations in ns, as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    /// Each, and how often it was met.
    met: FxHashMap<u64, u64>,
    /// What is known exactly of durations that are rounded; `None`: they are not.
    rounded: Option<Exact>,
}

/// What rounding leaves as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Exact {
    /// At most [`u64::MAX`].
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// In a text file durations are a list of pairs; rounded ones are an object with that list, `met`, and
/// `exact`. As bytes they are both.
impl Serialize for Durations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Met<'d>(&'d FxHashMap<u64, u64>);
        impl Serialize for Met<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                sorted_pairs::serialize(self.0, serializer)
            }
        }
        if !serializer.is_human_readable() {
            return (Met(&self.met), self.rounded).serialize(serializer);
        }
        let Some(exact) = self.rounded else { return Met(&self.met).serialize(serializer) };
        let mut object = serializer.serialize_struct("Rounded", 2)?;
        object.serialize_field("met", &Met(&self.met))?;
        object.serialize_field("exact", &exact)?;
        object.end()
    }
}

impl<'de> Deserialize<'de> for Durations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Met(#[serde(with = "sorted_pairs")] FxHashMap<u64, u64>);
        if !deserializer.is_human_readable() {
            let (Met(met), rounded) = Deserialize::deserialize(deserializer)?;
            return Ok(Self { met, rounded });
        }
        deserializer.deserialize_any(InFile)
    }
}

struct InFile;

impl<'de> Visitor<'de> for InFile {
    type Value = Durations;

    fn expecting(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        to.write_str("a list of durations, or rounded ones")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Durations, A::Error> {
        let met = sorted_pairs::deserialize(SeqAccessDeserializer::new(list))?;
        let mut durations = Durations { met, rounded: None };
        durations.round_beyond(DIFFERENT_MAX);
        Ok(durations)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Durations, A::Error> {
        #[derive(Deserialize)]
        struct Rounded {
            #[serde(with = "sorted_pairs")]
            met: FxHashMap<u64, u64>,
            exact: Exact,
        }
        let Rounded { met, exact } = Rounded::deserialize(MapAccessDeserializer::new(object))?;
        Ok(Durations { met, rounded: Some(exact) })
    }
}

/// How many low bits of a duration rounding clears.
const fn cleared_bits(ns: u64) -> u32 {
    (u64::BITS - ns.leading_zeros()).saturating_sub(BITS)
}

const fn rounded_down(ns: u64) -> u64 {
    let bits = cleared_bits(ns);
    ns >> bits << bits
}

/// The longest duration that is rounded down to this one.
const fn step_end(ns: u64) -> u64 {
    ns | ((1 << cleared_bits(ns)) - 1)
}

impl Exact {
    /// Sum and ends of durations, each with its count; `None`: there are none.
    fn of(all: impl Iterator<Item = (u64, u64)>) -> Option<Self> {
        all.map(Self::of_one).reduce(Self::with)
    }

    fn of_one((ns, times): (u64, u64)) -> Self {
        Self { sum_ns: ns.saturating_mul(times), min_ns: ns, max_ns: ns }
    }

    fn with(self, more: Self) -> Self {
        Self {
            sum_ns: self.sum_ns.saturating_add(more.sum_ns),
            min_ns: self.min_ns.min(more.min_ns),
            max_ns: self.max_ns.max(more.max_ns),
        }
    }

    /// Whether durations with this sum and these ends can have been rounded down to `met`.
    fn can_be_of(self, met: &FxHashMap<u64, u64>) -> bool {
        let rounded = Self::of(met.iter().map(|(ns, times)| (*ns, *times)));
        let most = Self::of(met.iter().map(|(ns, times)| (step_end(*ns), *times)));
        let is_round = met.keys().all(|ns| rounded_down(*ns) == *ns);
        let ends = |of: Self| (rounded_down(of.min_ns), rounded_down(of.max_ns));
        is_round
            && rounded.zip(most).is_some_and(|(least, most)| {
                ends(self) == ends(least) && (least.sum_ns..=most.sum_ns).contains(&self.sum_ns)
            })
    }
}

impl Durations {
    pub(crate) fn add(&mut self, ns: u64) {
        self.add_times(ns, 1);
    }

    #[inline]
    fn add_times(&mut self, ns: u64, times: u64) {
        let key = match &mut self.rounded {
            Some(exact) => {
                *exact = exact.with(Exact::of_one((ns, times)));
                rounded_down(ns)
            }
            None => ns,
        };
        self.add_key(key, times);
        self.round_beyond(DIFFERENT_MAX);
    }

    fn add_key(&mut self, key: u64, times: u64) {
        let known = self.met.entry(key).or_default();
        *known = known.saturating_add(times);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let Some(more) = other.rounded else {
            other.pairs().for_each(|(ns, times)| self.add_times(ns, times));
            return;
        };
        self.round_beyond(0);
        self.rounded = Some(self.rounded.map_or(more, |exact| exact.with(more)));
        other.pairs().for_each(|(key, times)| self.add_key(key, times));
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.met.iter().map(|(ns, times)| (*ns, *times))
    }

    /// Rounds where more are different than these.
    #[inline]
    fn round_beyond(&mut self, different: usize) {
        if self.rounded.is_none() && self.met.len() > different {
            self.rounded = Exact::of(self.pairs());
            for (ns, times) in std::mem::take(&mut self.met) {
                self.add_key(rounded_down(ns), times);
            }
        }
    }

    /// How many there are; `None`: more than all machines make, one was met 0 times, or they are rounded to
    /// durations that cannot occur.
    pub(crate) fn plausible_count(&self) -> Option<u64> {
        let add =
            |sum: u64, times: &u64| sum.checked_add(*times).filter(|sum| *times > 0 && *sum < COUNT_MAX);
        let count = self.met.values().try_fold(0, add);
        count.filter(|_| self.rounded.is_none_or(|exact| exact.can_be_of(&self.met)))
    }

    /// How many were added.
    pub(crate) fn count(&self) -> u64 {
        self.met.values().sum()
    }

    pub(crate) fn sorted(&self) -> SortedDurations {
        self.sorted_as(|ns| ns)
    }

    /// The longest durations that there can have been: rounded ones are shorter in [`Self::sorted`].
    pub(crate) fn sorted_at_most(&self) -> SortedDurations {
        match self.rounded {
            Some(Exact { max_ns, .. }) => self.sorted_as(|ns| step_end(ns).min(max_ns)),
            None => self.sorted(),
        }
    }

    fn sorted_as(&self, length: impl Fn(u64) -> u64) -> SortedDurations {
        let mut all: Vec<(u64, u64)> = self.pairs().map(|(ns, times)| (length(ns), times)).collect();
        all.sort_unstable();
        SortedDurations { all, rounded: self.rounded }
    }
}

/// Durations in ns, the shortest first, each once with how often it was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortedDurations {
    all: Vec<(u64, u64)>,
    /// What is known exactly of durations that are rounded; `None`: they are not.
    rounded: Option<Exact>,
}

impl SortedDurations {
    /// Each once, and how often it was met.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.all.iter().copied()
    }

    /// They are rounded down, by less than 1/1024, as too many are different.
    #[must_use]
    pub fn is_rounded(&self) -> bool {
        self.rounded.is_some()
    }

    /// Shortest and longest, exactly; `None`: there are none.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        let ends = |exact: Exact| (exact.min_ns, exact.max_ns);
        self.rounded.map(ends).or_else(|| Some((self.all.first()?.0, self.all.last()?.0)))
    }

    /// Their sum, exactly.
    pub(crate) fn sum(&self) -> u128 {
        let sum = || self.iter().map(|(ns, times)| u128::from(ns) * u128::from(times)).sum();
        self.rounded.map_or_else(sum, |exact| exact.sum_ns.into())
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
        let (shortest, _) = self.ends().unwrap_or_default();
        let (mut ns, mut passed) = (None, 0);
        ranks.map(|rank| {
            while passed <= rank {
                let (next, times) = all.next()?;
                // The shortest one is known, and may be longer than what it is rounded to.
                (ns, passed) = (Some(next.max(shortest)), passed + times);
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
        let durations =
            |pairs: &[(u64, u64)]| Durations { met: pairs.iter().copied().collect(), rounded: None };
        let count = |pairs: &[(u64, u64)]| durations(pairs).plausible_count();
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
        let stats = Stats::of(&SortedDurations { all: vec![(10, half), (20, half)], rounded: None });
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

    /// Three times as many different durations as are kept, and some more of each thousandth.
    fn many() -> Vec<u64> {
        let step = |n: u64| 1_000_003 + n * 7;
        (0..3 * DIFFERENT_MAX as u64).map(step).chain((0..3_000).map(|n| step(n * 1_000))).collect()
    }

    fn of(all: &[u64]) -> Durations {
        let mut durations = Durations::default();
        all.iter().for_each(|ns| durations.add(*ns));
        durations
    }

    fn bytes(durations: &Durations) -> Vec<u8> {
        serde_json::to_vec(durations).unwrap()
    }

    #[test]
    fn too_many_different_ones_are_rounded_whatever_their_order_and_parts() {
        let all = many();
        let whole = of(&all);
        assert!(whole.rounded.is_some() && of(&all[..DIFFERENT_MAX]).rounded.is_none());
        assert!(whole.met.len() < 10_000, "{} different ones", whole.met.len());
        let backward: Vec<u64> = all.iter().rev().copied().collect();
        assert_eq!(bytes(&of(&backward)), bytes(&whole));
        // A part alone is rounded or not, and in any bracketing the sum is the whole.
        for cut in [1, 1_000, DIFFERENT_MAX, 2 * DIFFERENT_MAX, all.len()] {
            let (left, right) = (of(&all[..cut]), of(&all[cut..]));
            for (one, other) in [(&left, &right), (&right, &left)] {
                let mut sum = Durations::default();
                sum.merge(one);
                sum.merge(other);
                assert_eq!(bytes(&sum), bytes(&whole), "cut at {cut}");
            }
        }
        let read: Durations = serde_json::from_slice(&bytes(&whole)).unwrap();
        assert_eq!(bytes(&read), bytes(&whole));
        assert_eq!(read.plausible_count(), Some(all.len() as u64));
    }

    #[test]
    fn sum_and_ends_of_rounded_ones_are_exact_and_ranks_less_than_a_thousandth_short() {
        let mut all = many();
        let durations = of(&all);
        all.sort_unstable();
        let (rounded, exact) = (durations.sorted(), of(&all[..1]).sorted());
        assert!(rounded.is_rounded() && !exact.is_rounded());
        assert_eq!(rounded.sum(), all.iter().map(|ns| u128::from(*ns)).sum());
        assert_eq!(rounded.ends(), Some((all[0], all[all.len() - 1])));
        let ranks = [0, 10, 1_000_000, 3_000_000, all.len() as u64 - 1];
        let [low, high] = [&rounded, &durations.sorted_at_most()].map(|sorted| sorted.of_ranks(ranks));
        for ((rank, low), high) in ranks.into_iter().zip(low).zip(high) {
            let (truth, low, high) = (all[rank as usize], low.unwrap(), high.unwrap());
            assert!(low <= truth && truth <= high, "{low} {truth} {high}");
            assert!((truth - low) * 1024 < truth && (high - truth) * 1024 < truth, "{low} {truth} {high}");
        }
    }

    #[test]
    fn a_file_cannot_say_of_rounded_ones_what_they_were_not() {
        let count = |text: &str| serde_json::from_str::<Durations>(text).unwrap().plausible_count();
        let file = |met: &str, sum: u64, max: u64| {
            format!("{{\"met\":{met},\"exact\":{{\"sum_ns\":{sum},\"min_ns\":5,\"max_ns\":{max}}}}}")
        };
        assert_eq!(count(&file("[[5,2],[4096,1]]", 4107, 4097)), Some(3));
        assert_eq!(count(&file("[[5,2],[4096,1]]", 4105, 4097)), None, "a sum of less");
        assert_eq!(count(&file("[[5,2],[4096,1]]", 4110, 4097)), None, "a sum of more");
        assert_eq!(count(&file("[[5,2],[4096,1]]", 4107, 4100)), None, "a longest one of the next step");
        assert_eq!(count(&file("[[5,2],[4097,1]]", 4107, 4097)), None, "not rounded");
        assert_eq!(count(&file("[]", 0, 5)), None, "of none");
    }
}
