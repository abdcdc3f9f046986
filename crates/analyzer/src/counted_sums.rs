//! Counters of calls to figures: of each caller's calls, and of a function's.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::children::{ChildKey, ChildRow, ChildSums};
use crate::counted::{Counted, CycleCount};
use crate::durations::Durations;
use crate::metric::{Distribution, Metric};
use crate::place::ChildKind;
use crate::request::CountersAsked;

/// What a set of calls executed.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterReport {
    /// All of it, with calls that have gaps.
    pub sum: Counted,
    /// The calls without gaps, and what they executed.
    pub known: (u64, Counted),
    /// The calls with gaps: code is missing, and what ran there is not known.
    pub with_gaps: u64,
    /// What of the recording's counters is known.
    pub asked: CountersAsked,
    /// The numbers that are known, in the order of [`Metric::ALL`].
    metrics: Vec<(Metric, Distribution)>,
}

impl CounterReport {
    /// Of calls that executed this.
    #[must_use]
    pub fn of_calls<'c>(calls: impl IntoIterator<Item = &'c Counted>, asked: CountersAsked) -> Self {
        let mut sums: CountedSums<ChildKey> = CountedSums::default();
        calls.into_iter().for_each(|call| sums.add(call, asked, std::iter::empty()));
        sums.report(asked)
    }

    /// How a number is spread over the calls; `None`: it is not known of any, as the recording has no CYC
    /// packets or no kernel code, say.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<&Distribution> {
        self.metrics.iter().find(|(known, _)| *known == metric).map(|(_, distribution)| distribution)
    }
}

/// The counters of calls so far.
#[derive(Clone)]
pub(crate) struct CountedSums<C> {
    sum: Counted,
    known: (u64, Counted),
    with_gaps: u64,
    values: [MetricSums; Metric::ALL.len()],
    children: ChildSums<C, Counted>,
}

/// One number of calls so far.
#[derive(Clone, Default)]
struct MetricSums {
    values: Durations,
    /// The least and the most that each may be; empty where numbers are exact.
    bounds: (Durations, Durations),
    error_sum: u64,
}

impl<C> Default for CountedSums<C> {
    fn default() -> Self {
        Self {
            sum: Counted::default(),
            known: (0, Counted::default()),
            with_gaps: 0,
            values: Default::default(),
            children: ChildSums::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> CountedSums<C> {
    /// A call has executed this, and its children that.
    pub(crate) fn add(
        &mut self,
        call: &Counted,
        asked: CountersAsked,
        children: impl Iterator<Item = (C, Counted)>,
    ) {
        self.sum.add(call);
        if call.is_known() {
            self.known.0 += 1;
            self.known.1.add(call);
        } else {
            self.with_gaps += 1;
        }
        for (sums, metric) in self.values.iter_mut().zip(Metric::ALL) {
            if let Some(within) = metric.of(call, asked) {
                let error = (within.value - within.low.min(within.value)).max(within.high - within.value);
                sums.values.add(within.value);
                if !metric.is_exact() {
                    sums.bounds.0.add(within.low);
                    sums.bounds.1.add(within.high);
                }
                sums.error_sum = sums.error_sum.saturating_add(error);
            }
        }
        children.for_each(|(child, counted)| self.children.add(child, counted));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.sum.add(&other.sum);
        self.known.0 += other.known.0;
        self.known.1.add(&other.known.1);
        self.with_gaps += other.with_gaps;
        for (sums, more) in self.values.iter_mut().zip(&other.values) {
            sums.values.merge(&more.values);
            sums.bounds.0.merge(&more.bounds.0);
            sums.bounds.1.merge(&more.bounds.1);
            sums.error_sum = sums.error_sum.saturating_add(more.error_sum);
        }
        other.children.iter().for_each(|(child, counted)| self.children.add(child, counted));
    }

    /// Names the children.
    pub(crate) fn named(self, name: &mut impl FnMut(C) -> ChildKey) -> CountedSums<ChildKey> {
        let Self { sum, known, with_gaps, values, children } = self;
        CountedSums { sum, known, with_gaps, values, children: children.named(name) }
    }

    pub(crate) fn report(&self, asked: CountersAsked) -> CounterReport {
        let is_known = |metric: Metric, sums: &MetricSums| match metric {
            // Of no call, or of none that could have it.
            Metric::Cycles | Metric::MilliIpc => self.sum.cycles.is_some() && !self.sum.is_of_kernel(),
            Metric::Frequency => sums.values.count() > 0,
            Metric::KernelInstructions => asked.kernel,
            _ => !self.sum.is_of_kernel(),
        };
        let metrics = Metric::ALL.into_iter().zip(&self.values);
        let metrics = metrics.filter(|(metric, sums)| is_known(*metric, sums));
        let distribution = |metric: Metric, sums: &MetricSums| {
            let (values, bounds) = (sums.values.sorted(), &sums.bounds);
            let bounds = match metric.is_exact() {
                false => Some((bounds.0.sorted(), bounds.1.sorted_at_most())),
                true if values.is_rounded() => Some((values.clone(), sums.values.sorted_at_most())),
                true => None,
            };
            Distribution::of(&values, bounds.as_ref(), sums.error_sum)
        };
        let metrics = metrics.map(|(metric, sums)| (metric, distribution(metric, sums)));
        CounterReport {
            sum: self.sum,
            known: self.known,
            with_gaps: self.with_gaps,
            asked,
            metrics: metrics.collect(),
        }
    }

    /// Adds to the rows of these calls' children what each executed; `*self` has the rest of the whole.
    pub(crate) fn add_to(&self, rows: &mut [ChildRow], name: &mut impl FnMut(C) -> ChildKey) {
        let mut named: FxHashMap<ChildKey, Counted> = FxHashMap::default();
        let mut inside = Counted::default();
        let nothing = Counted {
            cycles: self.sum.cycles.map(|_| CycleCount::default()),
            bus: self.sum.bus.map(|_| 0),
            ..inside
        };
        for (child, counted) in self.children.iter() {
            named.entry(name(child)).or_default().add(&counted);
            inside.add(&counted);
        }
        for row in rows {
            let key = ChildKey { kind: row.kind, function: row.function, site: row.site };
            row.counted = Some(match row.kind {
                ChildKind::Own => self.sum.without(&inside),
                _ => named.get(&key).copied().unwrap_or(nothing),
            });
        }
    }
}
