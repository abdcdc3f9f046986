//! What the figures of a set of calls are made of, and which calls that are where a window has slices of
//! several kinds.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::call_row::{CallRow, SliceKind};
use crate::children::{ChildKey, ChildSums};
use crate::durations::{COUNT_MAX, Durations};
use crate::histogram::histogram;
use crate::place::CalledFrom;
use crate::report::{CallFigures, ErrorBound, Sliced, Tails};
use crate::sorted_pairs;
use crate::stats::{Quantiles, Stats};
use crate::total::{OffCpuKnown, RunningTotal, Total};

/// What figures are made of.
#[derive(Clone, Serialize, Deserialize)]
#[serde(bound(
    serialize = "C: Copy + Ord + Hash + Serialize",
    deserialize = "C: Copy + Eq + Hash + Deserialize<'de>"
))]
pub(crate) struct FigureSums<C> {
    pub(crate) outermost: RunningTotal,
    /// The least that each call not seen from entry to end can have taken, being one of those asked for.
    pub(crate) open_ns: Durations,
    #[serde(with = "sorted_pairs")]
    pub(crate) callers: FxHashMap<CalledFrom, CallerSums<C>>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(bound(
    serialize = "C: Copy + Ord + Hash + Serialize",
    deserialize = "C: Copy + Eq + Hash + Deserialize<'de>"
))]
pub(crate) struct CallerSums<C> {
    pub(crate) latency_ns: Durations,
    pub(crate) off_cpu_ns: Durations,
    /// The least and the most that each latency can be.
    pub(crate) least_ns: Durations,
    pub(crate) most_ns: Durations,
    pub(crate) error_sum_ns: u64,
    pub(crate) error_max_ns: u64,
    /// Calls with a latency below its error.
    pub(crate) shorter: u64,
    /// The most by which a latency may be shorter than its least, where a probe took what one of 100 takes.
    pub(crate) rare_ns: u64,
    pub(crate) children: ChildSums<C>,
    /// The parts of the calls in which their children were probed.
    pub(crate) with_children: RunningTotal,
}

/// Time of the slices of each kind, of a window that has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceSpans {
    pub(crate) window_ns: u64,
    pub(crate) alone_ns: u64,
    pub(crate) with_children_ns: u64,
}

impl SliceSpans {
    pub(crate) const fn figures_ns(self, is_alone: bool) -> u64 {
        if is_alone { self.alone_ns } else { self.with_children_ns }
    }

    /// A share of these slices is that much of one of the window.
    pub(crate) fn stretch(self, is_alone: bool) -> f64 {
        match self.figures_ns(is_alone) {
            0 => 0.0,
            figures_ns => self.window_ns as f64 / figures_ns as f64,
        }
    }

    pub(crate) fn sliced(self, is_alone: bool, children_of: RunningTotal) -> Sliced {
        let RunningTotal { count, sum_ns, .. } = children_of;
        Sliced {
            figures_of: if is_alone { SliceKind::Alone } else { SliceKind::WithChildren },
            figures_span_ns: self.figures_ns(is_alone),
            children_calls: count,
            children_mean_ns: (count > 0).then(|| sum_ns as f64 / count as f64),
            children_span_ns: self.with_children_ns,
        }
    }
}

impl<C> Default for FigureSums<C> {
    fn default() -> Self {
        Self {
            outermost: RunningTotal::default(),
            open_ns: Durations::default(),
            callers: FxHashMap::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> FigureSums<C> {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.outermost.add(other.outermost);
        self.open_ns.merge(&other.open_ns);
        self.merge_callers(other);
    }

    /// Adds the calls of each caller.
    pub(crate) fn merge_callers(&mut self, other: &Self) {
        for (caller, sums) in &other.callers {
            self.callers.entry(*caller).or_default().merge(sums);
        }
    }

    /// Names the children.
    pub(crate) fn named(self, name: &mut impl FnMut(C) -> ChildKey) -> FigureSums<ChildKey> {
        let Self { outermost, open_ns, callers } = self;
        let callers = callers.into_iter().map(|(caller, sums)| (caller, sums.named(name))).collect();
        FigureSums { outermost, open_ns, callers }
    }

    /// No sum of counts over all callers overflows.
    pub(crate) fn is_plausible(&self) -> bool {
        self.is_of_at_most(COUNT_MAX - 1)
    }

    /// The calls of all callers are no more than so many.
    pub(crate) fn is_of_at_most(&self, most: u64) -> bool {
        let add = |sum: u64, durations: &Durations| {
            durations.plausible_count().map(|count| sum + count).filter(|sum| *sum <= most)
        };
        let is_plausible =
            |of: fn(&CallerSums<C>) -> &Durations| self.callers.values().map(of).try_fold(0, add).is_some();
        self.open_ns.plausible_count().is_some()
            && is_plausible(|sums| &sums.latency_ns)
            && is_plausible(|sums| &sums.off_cpu_ns)
            && is_plausible(|sums| &sums.least_ns)
            && is_plausible(|sums| &sums.most_ns)
    }

    pub(crate) fn all(&self) -> CallerSums<C> {
        let mut all = CallerSums::default();
        self.callers.values().for_each(|sums| all.merge(sums));
        all
    }
}

impl<C> Default for CallerSums<C> {
    fn default() -> Self {
        Self {
            latency_ns: Durations::default(),
            off_cpu_ns: Durations::default(),
            least_ns: Durations::default(),
            most_ns: Durations::default(),
            error_sum_ns: 0,
            error_max_ns: 0,
            shorter: 0,
            rare_ns: 0,
            children: ChildSums::default(),
            with_children: RunningTotal::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> CallerSums<C> {
    /// Names the children.
    fn named(self, name: &mut impl FnMut(C) -> ChildKey) -> CallerSums<ChildKey> {
        CallerSums {
            children: self.children.named(name),
            latency_ns: self.latency_ns,
            off_cpu_ns: self.off_cpu_ns,
            least_ns: self.least_ns,
            most_ns: self.most_ns,
            error_sum_ns: self.error_sum_ns,
            error_max_ns: self.error_max_ns,
            shorter: self.shorter,
            rare_ns: self.rare_ns,
            with_children: self.with_children,
        }
    }

    /// Returns what its children took.
    pub(crate) fn count(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) -> RunningTotal {
        let latency_ns = row.latency_ns;
        let (least_ns, most_ns) = row.bounds_ns();
        self.latency_ns.add(latency_ns);
        row.off_cpu_ns.into_iter().for_each(|ns| self.off_cpu_ns.add(ns));
        self.least_ns.add(least_ns);
        self.most_ns.add(most_ns);
        let error_ns = match row.probed() {
            None => row.error_ns,
            Some(probed) => {
                self.rare_ns = self.rare_ns.max(probed.rare_ns);
                self.with_children.add(probed.with_children);
                row.usual_error_ns()
            }
        };
        self.error_sum_ns = self.error_sum_ns.saturating_add(error_ns);
        self.error_max_ns = self.error_max_ns.max(row.error_ns);
        self.shorter += u64::from(latency_ns < error_ns);
        self.children.merge(children.iter().copied())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.latency_ns.merge(&other.latency_ns);
        self.off_cpu_ns.merge(&other.off_cpu_ns);
        self.least_ns.merge(&other.least_ns);
        self.most_ns.merge(&other.most_ns);
        self.error_sum_ns = self.error_sum_ns.saturating_add(other.error_sum_ns);
        self.error_max_ns = self.error_max_ns.max(other.error_max_ns);
        self.shorter = self.shorter.saturating_add(other.shorter);
        self.rare_ns = self.rare_ns.max(other.rare_ns);
        self.children.merge(other.children.iter());
        self.with_children.add(other.with_children);
    }

    /// The children, as if they were those of other calls, which took `total`.
    pub(crate) fn scaled_children(
        &self,
        name: &mut impl FnMut(C) -> ChildKey,
        total: Total,
    ) -> ChildSums<ChildKey> {
        self.children.named(name).scaled(self.with_children, total)
    }
}

impl Tails {
    /// What the figures may be if the calls that were open or cut, of `open_ns` or longer, are counted, too.
    pub(crate) fn of<C>(all: &CallerSums<C>, open_ns: &Durations) -> Self {
        let calls = open_ns.count();
        let mut least = all.least_ns.clone();
        least.merge(open_ns);
        Self {
            calls,
            at_least: Quantiles::of(&least.sorted(), 0),
            at_most: Quantiles::of(&all.most_ns.sorted_at_most(), calls),
        }
    }
}

impl CallFigures {
    /// Those of some calls, without their children and counters.
    pub(crate) fn of<C>(sums: &CallerSums<C>, off_cpu: OffCpuKnown) -> Self {
        let latency = sums.latency_ns.sorted();
        let off_cpu = off_cpu.0.then(|| sums.off_cpu_ns.sorted());
        Self {
            latency: Stats::of(&latency),
            off_cpu: off_cpu.as_ref().map(Stats::of),
            error: ErrorBound {
                sum_ns: sums.error_sum_ns,
                max_ns: sums.error_max_ns,
                shorter: sums.shorter,
                low: Quantiles::of(&sums.least_ns.sorted(), 0).with_tail_below(sums.rare_ns),
                high: Quantiles::of(&sums.most_ns.sorted_at_most(), 0),
            },
            histogram: histogram(&latency, off_cpu.as_ref()),
            children: Vec::new(),
            counters: None,
        }
    }

    pub(crate) fn total(&self) -> Total {
        let off_cpu_ns = self.off_cpu.as_ref().map(|off_cpu| off_cpu.sum_ns);
        Total { count: self.latency.count, sum_ns: self.latency.sum_ns, off_cpu_ns }
    }
}
