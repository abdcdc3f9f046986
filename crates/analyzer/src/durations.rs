//! Many durations in little memory: each once, with how often it was met.
//!
//! So exact figures do not take memory by the number of calls: a million *different* durations add up to 500
//! seconds at least, and a billion calls of the same few take no more than these. Where there are more
//! different ones, all are rounded down to 11 bits, by less than 1/1024; which set is rounded, and to what,
//! follows from its durations alone, in whatever order and parts they come.
//!
//! ```text
//!   add --> recent: a hash of the last ones --(it is full)--> packed: sorted, 3 to 8 bytes a duration
//! ```

mod packed;

use std::borrow::Cow;
use std::fmt::Formatter;

use rustc_hash::FxHashMap;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::sorted_pairs;
use packed::{Packed, merged};

/// More calls than all machines make.
pub(crate) const COUNT_MAX: u64 = 1 << 53;

/// The number of different durations that are kept as they are.
const DIFFERENT_MAX: usize = 1 << 20;

/// Bits of a duration that are kept where there are more.
const BITS: u32 = 11;

/// Recent durations that are not packed yet: so many, or one for so many packed ones, whichever is more. Then
/// packing handles each duration some ten times at most.
const RECENT_MIN: usize = 1 << 12;
const PACKED_FOR_RECENT: usize = 8;

/// Durations in ns, as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    /// Those since `packed` was made: each, and how often it was met.
    recent: FxHashMap<u64, u64>,
    packed: Packed,
    /// What is known exactly of durations that are rounded; `None`: they are not, or not yet
    /// ([`Durations::settled`]).
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
        let settled = self.settled();
        let met: Vec<(u64, u64)> = settled.pairs().collect();
        match settled.rounded {
            exact if !serializer.is_human_readable() => (met, exact).serialize(serializer),
            None => met.serialize(serializer),
            Some(exact) => {
                let mut object = serializer.serialize_struct("Rounded", 2)?;
                object.serialize_field("met", &met)?;
                object.serialize_field("exact", &exact)?;
                object.end()
            }
        }
    }
}

/// Durations of a file, of which none is there twice.
#[derive(Deserialize)]
#[serde(transparent)]
struct Met(#[serde(with = "sorted_pairs")] FxHashMap<u64, u64>);

impl Met {
    fn rounded_to(self, rounded: Option<Exact>) -> Durations {
        let mut durations = Durations { recent: self.0, packed: Packed::default(), rounded };
        durations.pack_beyond_room();
        durations
    }
}

impl<'de> Deserialize<'de> for Durations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            let (met, rounded) = <(Met, _)>::deserialize(deserializer)?;
            return Ok(met.rounded_to(rounded));
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
        Met::deserialize(SeqAccessDeserializer::new(list)).map(|met| met.rounded_to(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Durations, A::Error> {
        #[derive(Deserialize)]
        struct Rounded {
            met: Met,
            exact: Exact,
        }
        let Rounded { met, exact } = Rounded::deserialize(MapAccessDeserializer::new(object))?;
        Ok(met.rounded_to(Some(exact)))
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

    /// Whether durations with this sum and these ends can have been rounded down to those of `met`.
    fn can_be_of(self, met: &[(u64, u64)]) -> bool {
        let rounded = Self::of(met.iter().copied());
        let most = Self::of(met.iter().map(|(ns, times)| (step_end(*ns), *times)));
        let is_round = met.iter().all(|(ns, _)| rounded_down(*ns) == *ns);
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
    }

    #[inline]
    fn add_key(&mut self, key: u64, times: u64) {
        let known = self.recent.entry(key).or_default();
        *known = known.saturating_add(times);
        self.pack_beyond_room();
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if let Some(more) = other.rounded {
            self.round();
            self.rounded = Some(self.rounded.map_or(more, |exact| exact.with(more)));
            other.each(|key, times| self.add_key(key, times));
        } else {
            other.each(|ns, times| self.add_times(ns, times));
        }
    }

    /// All pairs, in any order; a duration may be in two of them.
    fn each(&self, mut add: impl FnMut(u64, u64)) {
        let recent = self.recent.iter().map(|(ns, times)| (*ns, *times));
        recent.chain(self.packed.iter()).for_each(|(ns, times)| add(ns, times));
    }

    /// Each duration once, with how often it was met, by duration.
    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut recent: Vec<(u64, u64)> = self.recent.iter().map(|(ns, times)| (*ns, *times)).collect();
        recent.sort_unstable();
        merged(self.packed.iter(), recent.into_iter())
    }

    #[inline]
    fn pack_beyond_room(&mut self) {
        if self.recent.len() > RECENT_MIN.max(self.packed.different() / PACKED_FOR_RECENT) {
            self.pack();
        }
    }

    /// Packs all, and rounds them where too many are different.
    #[cold]
    fn pack(&mut self) {
        self.packed = Packed::of(self.pairs());
        self.recent = FxHashMap::default();
        if self.packed.different() > DIFFERENT_MAX {
            self.round();
        }
    }

    /// Rounded where too many are different: that was last looked at when they were packed.
    fn settled(&self) -> Cow<'_, Self> {
        let mut settled = Cow::Borrowed(self);
        if self.rounded.is_none() && self.recent.len() + self.packed.different() > DIFFERENT_MAX {
            settled.to_mut().pack();
        }
        settled
    }

    /// Rounds those that are not rounded.
    fn round(&mut self) {
        if self.rounded.is_none() {
            let exact = std::mem::take(self);
            self.rounded = Exact::of(exact.pairs());
            exact.pairs().for_each(|(ns, times)| self.add_key(rounded_down(ns), times));
        }
    }

    /// How many there are; `None`: more than all machines make, one was met 0 times, or they are rounded to
    /// durations that cannot occur.
    pub(crate) fn plausible_count(&self) -> Option<u64> {
        let met: Vec<(u64, u64)> = self.pairs().collect();
        let add = |sum: u64, (_, times): &(u64, u64)| {
            sum.checked_add(*times).filter(|sum| *times > 0 && *sum < COUNT_MAX)
        };
        let count = met.iter().try_fold(0, add);
        count.filter(|_| self.rounded.is_none_or(|exact| exact.can_be_of(&met)))
    }

    /// How many were added.
    pub(crate) fn count(&self) -> u64 {
        let mut count = 0;
        self.each(|_, times| count += times);
        count
    }

    pub(crate) fn sorted(&self) -> SortedDurations {
        self.sorted_as(|_, ns| ns)
    }

    /// The longest durations that there can have been: rounded ones are shorter in [`Self::sorted`].
    pub(crate) fn sorted_at_most(&self) -> SortedDurations {
        self.sorted_as(|rounded, ns| rounded.map_or(ns, |exact| step_end(ns).min(exact.max_ns)))
    }

    /// `length`: of a duration, with what is known of rounded ones.
    fn sorted_as(&self, length: impl Fn(Option<Exact>, u64) -> u64) -> SortedDurations {
        let settled = self.settled();
        let rounded = settled.rounded;
        let all = settled.pairs().map(|(ns, times)| (length(rounded, ns), times)).collect();
        SortedDurations { all, rounded }
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
        let text = bytes(&some);
        assert_eq!(text, b"[[0,1],[7,2],[18446744073709551615,1]]");
        let read: Durations = serde_json::from_slice(&text).unwrap();
        assert_eq!(read.sorted(), some.sorted());
    }

    #[test]
    fn counts_are_such_as_there_can_be() {
        let durations = |pairs: &[(u64, u64)]| Met(pairs.iter().copied().collect()).rounded_to(None);
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
        let is_rounded = |all: &[u64]| of(all).sorted().is_rounded();
        assert!(is_rounded(&all[..=DIFFERENT_MAX]) && !is_rounded(&all[..DIFFERENT_MAX]));
        let different = whole.pairs().count();
        assert!(different < 10_000, "{different} different ones");
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
