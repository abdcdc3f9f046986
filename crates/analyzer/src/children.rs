//! What took time inside a call: sums by child, where a child is a kind, a function and a site.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash};

use model::{FunctionId, SpaceId};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::counted::Counted;
use crate::maybe_ip::MaybeIp;
use crate::place::{ChildKind, Place};
use crate::total::{OffCpuKnown, RunningTotal, Total, error_of_part};

/// What one child took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChildRow {
    /// What it is.
    pub kind: ChildKind,
    /// The function that ran; `UNKNOWN` for system calls and interrupts.
    pub function: FunctionId,
    /// The instruction that called; `None` for signals, interrupts, `*self` and code without an object.
    pub site: Option<Place>,
    /// Time; the mean is `sum_ns / count`.  For `*self`, `count` is the number of calls.
    pub total: Total,
    /// The true time is at most so far from `total.sum_ns`.
    pub error_ns: u64,
    /// On-CPU time as a share of one core; `None`: not known.
    pub cpu_percent: Option<f64>,
    /// What it executed; `None`: counters were not asked for, or it is of calls that were not seen to end.
    pub counted: Option<Counted>,
}

/// Which child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChildKey {
    /// What it is.
    pub kind: ChildKind,
    /// The function; `UNKNOWN` for system calls and interrupts.
    pub function: FunctionId,
    /// The instruction that entered it.
    pub site: Option<Place>,
}

/// A child as calls know it while they run and are added up: there is no need to name the place of its site
/// before all have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) kind: ChildKind,
    pub(crate) function: FunctionId,
    pub(crate) space: SpaceId,
    pub(crate) site: MaybeIp,
}

/// What [`RunningSums`] are of.
pub(crate) trait Keyed: Copy + Ord {
    /// Two numbers that most keys differ in.
    fn spread(&self) -> (u64, u64);
}

impl Keyed for Child {
    #[inline(always)]
    fn spread(&self) -> (u64, u64) {
        (self.site.get().unwrap_or_default().0, self.function.0.into())
    }
}

/// What the children took of a call that is running, as they ended, or its own code as it ran.  One may be
/// there more than once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunningSums<K> {
    sums: Vec<(K, RunningTotal)>,
    /// What each of them executed, in the same order; empty where counters were not asked for.
    #[serde(skip)]
    counted: Vec<Counted>,
}

impl<K> Default for RunningSums<K> {
    fn default() -> Self {
        Self { sums: Vec::new(), counted: Vec::new() }
    }
}

/// Where in [`RunningSums`] a child stands, by a hash. It may be the place in another call's sums: the
/// reader checks that the child is there.
pub(crate) struct ChildPlaces(Box<[u32; Self::LEN]>);

impl Default for ChildPlaces {
    fn default() -> Self {
        Self(Box::new([0; Self::LEN]))
    }
}

impl ChildPlaces {
    const LEN: usize = 1 << 10;

    #[inline(always)]
    fn of(&mut self, key: &impl Keyed) -> &mut u32 {
        let hash = FxBuildHasher.hash_one(key.spread());
        &mut self.0[hash as usize % Self::LEN]
    }
}

impl<K: Keyed> RunningSums<K> {
    /// Adds time of a child; its index among the sums.
    #[inline(always)]
    pub(crate) fn add(&mut self, places: &mut ChildPlaces, child: K, total: RunningTotal) -> usize {
        let place = places.of(&child);
        match self.sums.get_mut(*place as usize) {
            Some((known, sum)) if *known == child => sum.add(total),
            _ => {
                if self.sums.len() == self.sums.capacity() {
                    self.make_room();
                }
                *place = self.sums.len() as u32;
                self.sums.push((child, total));
            }
        }
        *place as usize
    }

    /// [`Self::add`], with what the child executed.
    #[inline(always)]
    pub(crate) fn add_counted(
        &mut self,
        places: &mut ChildPlaces,
        child: K,
        total: RunningTotal,
        counted: &Counted,
    ) {
        let at = self.add(places, child, total);
        match self.counted.get_mut(at) {
            Some(sum) => sum.add(counted),
            None => self.counted.push(*counted),
        }
    }

    /// Merges the sums of each child, once there are twice as many as after the last time.
    #[cold]
    fn make_room(&mut self) {
        if self.counted.is_empty() {
            self.sums.sort_unstable_by_key(|(child, _)| *child);
            merge_same(&mut self.sums);
        } else {
            self.merge_counted();
        }
        self.sums.reserve(self.sums.len());
    }

    /// Makes one sum of those of each child.
    fn merge_counted(&mut self) {
        let mut all: Vec<_> = self.sums.drain(..).zip(self.counted.drain(..)).collect();
        all.sort_unstable_by_key(|((child, _), _)| *child);
        for ((child, total), counted) in all {
            match (self.sums.last_mut(), self.counted.last_mut()) {
                (Some((last, sum)), Some(sum_counted)) if *last == child => {
                    sum.add(total);
                    sum_counted.add(&counted);
                }
                _ => {
                    self.sums.push((child, total));
                    self.counted.push(counted);
                }
            }
        }
    }

    pub(crate) fn all(&self) -> &[(K, RunningTotal)] {
        &self.sums
    }

    /// What each of [`Self::all`] executed; empty where counters were not asked for.
    pub(crate) fn counted(&self) -> &[Counted] {
        &self.counted
    }

    pub(crate) fn clear(&mut self) {
        self.sums.clear();
        self.counted.clear();
    }
}

/// Of those that stand one after the other makes one.
pub(crate) fn merge_same<K: PartialEq>(children: &mut Vec<(K, RunningTotal)>) {
    children.dedup_by(|(key, total), (kept, sum)| {
        let is_same = key == kept;
        if is_same {
            sum.add(*total);
        }
        is_same
    });
}

/// What [`ChildSums`] add up.
pub(crate) trait Summed: Copy {
    fn add_to(self, sum: &mut Self);
}

impl Summed for RunningTotal {
    #[inline(always)]
    fn add_to(self, sum: &mut Self) {
        sum.add(self);
    }
}

impl Summed for Counted {
    #[inline(always)]
    fn add_to(self, sum: &mut Self) {
        sum.add(&self);
    }
}

/// Sums by child, of many calls; `C`: the key of a child, `T`: the sum of its time.
#[derive(Clone, Debug)]
pub(crate) struct ChildSums<C, T = RunningTotal> {
    sums: Vec<ChildSum<C, T>>,
    /// Where in them each child is.
    places: FxHashMap<C, usize>,
    /// The place of the one that was added to last.
    last: usize,
}

#[derive(Clone, Debug)]
struct ChildSum<C, T> {
    child: C,
    total: T,
    /// The place of the child that came next, last time: calls that are alike have theirs in the same order.
    next: usize,
}

impl<C: Copy + Ord + Serialize> Serialize for ChildSums<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all: Vec<(C, RunningTotal)> = self.sums.iter().map(|sum| (sum.child, sum.total)).collect();
        all.sort_unstable_by_key(|(child, _)| *child);
        serializer.collect_seq(all)
    }
}

impl<'de, C: Copy + Eq + Hash + Deserialize<'de>> Deserialize<'de> for ChildSums<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut sums = Self::default();
        sums.merge(Vec::deserialize(deserializer)?.into_iter());
        Ok(sums)
    }
}

impl<C, T> Default for ChildSums<C, T> {
    fn default() -> Self {
        Self { sums: Vec::new(), places: FxHashMap::default(), last: 0 }
    }
}

impl<C: Copy + Eq + Hash, T: Summed> ChildSums<C, T> {
    #[inline]
    pub(crate) fn add(&mut self, child: C, total: T) {
        let next = self.sums.get(self.last).map_or(0, |last| last.next);
        match self.sums.get_mut(next) {
            Some(known) if known.child == child => {
                total.add_to(&mut known.total);
                self.last = next;
            }
            _ => self.add_elsewhere(child, total),
        }
    }

    #[inline(never)]
    fn add_elsewhere(&mut self, child: C, total: T) {
        let place = *self.places.entry(child).or_insert(self.sums.len());
        if let Some(last) = self.sums.get_mut(self.last) {
            last.next = place;
        }
        match self.sums.get_mut(place) {
            Some(known) => total.add_to(&mut known.total),
            None => self.sums.push(ChildSum { child, total, next: 0 }),
        }
        self.last = place;
    }

    /// Each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (C, T)> + '_ {
        self.sums.iter().map(|sum| (sum.child, sum.total))
    }

    /// Names the children.
    pub(crate) fn named(&self, name: &mut impl FnMut(C) -> ChildKey) -> ChildSums<ChildKey, T> {
        let mut named = ChildSums::default();
        self.iter().for_each(|(child, total)| named.add(name(child), total));
        named
    }
}

impl<C: Copy + Eq + Hash> ChildSums<C> {
    /// Returns the sum of `others`.
    pub(crate) fn merge(&mut self, others: impl Iterator<Item = (C, RunningTotal)>) -> RunningTotal {
        let mut sum = RunningTotal::default();
        for (child, total) in others {
            self.add(child, total);
            sum.add(total);
        }
        sum
    }
}

impl ChildSums<ChildKey> {
    /// Of calls that took `of`, what they would be of calls that took `to`.
    pub(crate) fn scaled(&self, of: RunningTotal, to: Total) -> Self {
        let share = |part: u64, of: u64, to: u64| {
            let scaled = u128::from(part) * u128::from(to) / u128::from(of.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let mut scaled = Self::default();
        for (key, child) in self.iter() {
            let total = RunningTotal {
                count: share(child.count, of.count, to.count),
                sum_ns: share(child.sum_ns, of.sum_ns, to.sum_ns),
                off_cpu_ns: share(child.off_cpu_ns, of.off_cpu_ns, to.off_cpu_ns.unwrap_or_default()),
                error_ns: share(child.error_ns, of.sum_ns, to.sum_ns),
            };
            scaled.add(key, total);
        }
        scaled
    }

    /// The rows of calls that took `total`, give or take `error_ns`, with `*self` as the rest: longest first,
    /// then by kind, function, site.
    pub(crate) fn rows(&self, total: Total, error_ns: u64, percent: impl Fn(u64) -> f64) -> Vec<ChildRow> {
        if total.count == 0 {
            return Vec::new();
        }
        let off_cpu = OffCpuKnown(total.off_cpu_ns.is_some());
        let mut inside = RunningTotal::default();
        self.iter().for_each(|(_, total)| inside.add(total));
        let longest_ns = total.sum_ns.saturating_add(error_ns);
        let row = |key: ChildKey, total: Total, error_ns: u64| ChildRow {
            kind: key.kind,
            function: key.function,
            site: key.site,
            total,
            error_ns: error_of_part(error_ns, total.sum_ns, longest_ns),
            cpu_percent: total.on_cpu_ns().map(&percent),
            counted: None,
        };
        let own = ChildKey { kind: ChildKind::Own, function: FunctionId::UNKNOWN, site: None };
        let own_error_ns = error_ns.saturating_add(inside.error_ns);
        let own = row(own, total.without(&inside.known(off_cpu)), own_error_ns);
        let children = self.iter().map(|(key, total)| row(key, total.known(off_cpu), total.error_ns));
        let mut rows: Vec<ChildRow> = children.chain([own]).collect();
        let key = |row: &ChildRow| ChildKey { kind: row.kind, function: row.function, site: row.site };
        rows.sort_unstable_by_key(|row| (Reverse(row.total.sum_ns), key(row)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_self_add_up_to_the_total() {
        let mut sums = ChildSums::default();
        let key = |kind, function| ChildKey { kind, function: FunctionId(function), site: None };
        let time =
            |count, sum_ns, off_cpu_ns| RunningTotal { count, sum_ns, off_cpu_ns, error_ns: 2 * count };
        let known = OffCpuKnown(true);
        sums.add(key(ChildKind::Call, 5), time(1, 30, 10));
        sums.add(key(ChildKind::Syscall, 0), time(1, 40, 40));
        sums.add(key(ChildKind::Call, 5), time(1, 10, 0));
        let rows = sums.rows(time(3, 100, 55).known(known), 15, |ns| ns as f64);
        let text: Vec<_> =
            rows.iter().map(|r| (r.kind.name(), r.total.count, r.total.sum_ns, r.total.off_cpu_ns)).collect();
        assert_eq!(text, [("call", 2, 40, Some(10)), ("syscall", 1, 40, Some(40)), ("self", 3, 20, Some(5))]);
        assert_eq!(rows.iter().map(|row| row.error_ns).collect::<Vec<_>>(), [4, 2, 21]);
        let rows = sums.rows(time(3, 100, 55).known(known), 900, |ns| ns as f64);
        assert_eq!(rows.last().map(|own| own.error_ns), Some(906));
        let rows = sums.rows(time(3, 81, 55).known(known), 0, |ns| ns as f64);
        assert_eq!(rows.last().map(|own| (own.total.sum_ns, own.error_ns)), Some((1, 6)));
        assert!(sums.rows(Total::default(), 0, |_| 0.0).is_empty());
    }

    /// They were said to have been on the CPU all the time.
    #[test]
    fn rows_without_switch_records_say_nothing_of_the_cpu() {
        let mut sums = ChildSums::default();
        let key = ChildKey { kind: ChildKind::Call, function: FunctionId(5), site: None };
        sums.add(key, RunningTotal { count: 1, sum_ns: 30, off_cpu_ns: 0, error_ns: 0 });
        let total = Total { count: 2, sum_ns: 100, off_cpu_ns: None };
        let rows = sums.rows(total, 0, |ns| ns as f64);
        let text: Vec<_> =
            rows.iter().map(|r| (r.kind.name(), r.total.sum_ns, r.total.off_cpu_ns, r.cpu_percent)).collect();
        assert_eq!(text, [("self", 70, None, None), ("call", 30, None, None)]);
    }
}
