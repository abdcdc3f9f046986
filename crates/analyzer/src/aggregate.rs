//! Calls to figures.  Of each call its numbers are kept, as often as they were met, and a row if asked.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::children::{ChildKey, ChildSums};
use crate::durations::Durations;
use crate::histogram::histogram;
use crate::open_calls::OpenSums;
use crate::report::{
    CallCounts, CallRow, Caller, CallerReport, ErrorBound, FunctionReport, Place, Status, Tails,
};
use crate::request::{LatencyRange, Request};
use crate::row_children::{Gathered, RowChildren};
use crate::row_reasons::RowReasons;
use crate::sparse::Sparse;
use crate::stats::{Quantiles, Stats};
use crate::total::{OffCpuKnown, RunningTotal, Total};

/// The calls of all wanted functions so far.  `C`: what their children are known by until the end, when they get their names.
pub(crate) struct Aggregate<C> {
    request: Arc<Request>,
    off_cpu: OffCpuKnown,
    /// By wanted function.
    functions: Sparse<FunctionSums<C>>,
}

struct FunctionSums<C> {
    calls: CallCounts,
    ended_by_jump: u64,
    hidden: u64,
    undecided: u64,
    outermost: RunningTotal,
    /// The least that each call not seen from entry to end can have taken, being one of those asked for.
    open_ns: Durations,
    overfull: Option<CallRow>,
    callers: FxHashMap<(Caller, Option<Place>), CallerSums<C>>,
    longest_open: Vec<CallRow>,
    open: OpenSums<C>,
    rows: Vec<CallRow>,
    /// In the order of `rows`.
    row_children: Gathered,
}

struct CallerSums<C> {
    latency_ns: Durations,
    off_cpu_ns: Durations,
    /// The least and the most that each latency can be.
    least_ns: Durations,
    most_ns: Durations,
    error_sum_ns: u64,
    error_max_ns: u64,
    /// Calls whose latency is shorter than its error.
    shorter: u64,
    children: ChildSums<C>,
}

impl<C: Copy + Eq + Hash> Aggregate<C> {
    pub(crate) fn new(request: Arc<Request>, off_cpu: OffCpuKnown) -> Self {
        Self { request, off_cpu, functions: Sparse::default() }
    }

    /// A call of the wanted function number `wanted` has ended, or will not be seen to end.  True if it is one of those
    /// that were asked for.
    pub(crate) fn add(
        &mut self,
        wanted: u32,
        row: &CallRow,
        children: &[(C, RunningTotal)],
        mut name: impl FnMut(C) -> ChildKey,
    ) -> bool {
        if !self.is_asked_for(row) {
            return false;
        }
        let Some(sums) = self.functions.meet(wanted) else { return false };
        sums.calls.add(row.status);
        if row.status.counted() {
            sums.count(row, children);
        } else {
            // One that is too short to be asked for has no part in the figures.
            sums.open_ns.add(row.at_least_ns().max(self.request.latency.min_ns));
            sums.list_open(row);
            sums.open.add(row, children);
        }
        if self.request.rows {
            sums.rows.push(*row);
            if self.request.row_children {
                let children = children.iter().map(|(child, total)| (name(*child), *total)).collect();
                sums.row_children.add(children, self.off_cpu);
            }
        }
        true
    }

    /// A call that was added as cut was found running after a gap: `row` is what was seen of it since.
    pub(crate) fn resume(&mut self, wanted: u32, row: &CallRow, children: &[(C, RunningTotal)]) {
        // Whether the call as a whole fits is decided by its first row, and not known here.
        let takes_all = self.request.latency == LatencyRange::ALL && self.request.starts.is_none();
        if let Some(sums) = self.functions.meet(wanted).filter(|_| takes_all) {
            sums.open.resume(row, children);
        }
    }

    /// What was asked.
    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// What was added so far, which is then forgotten.
    pub(crate) fn take(&mut self) -> Self {
        let anew = Self::new(Arc::clone(&self.request), self.off_cpu);
        std::mem::replace(self, anew)
    }

    /// The children of some call took longer than it.
    pub(crate) fn is_overfull(&self) -> bool {
        self.functions.iter().any(|(_, sums)| sums.overfull.is_some())
    }

    /// Adds calls that were added up elsewhere: all were seen from entry to end, and none is kept as a row.
    pub(crate) fn merge_whole_calls(&mut self, other: &Self) {
        for (wanted, other) in other.functions.iter() {
            self.functions.meet(wanted).into_iter().for_each(|sums| sums.merge_whole_calls(other));
        }
    }

    fn is_asked_for(&self, row: &CallRow) -> bool {
        let latency = self.request.latency;
        let fits = if row.status.counted() {
            latency.contains(row.latency_ns)
        } else {
            row.latency_ns <= latency.max_ns
        };
        fits && self.request.starts.is_none_or(|window| window.contains(row.start_ns))
    }

    /// The reports; `percent` turns on-CPU ns into a share of one core.
    pub(crate) fn finish(
        self,
        mut name: impl FnMut(C) -> ChildKey,
        percent: impl Fn(u64) -> f64,
    ) -> Vec<FunctionReport> {
        let Self { request, off_cpu, functions } = self;
        let pairs = request.functions.iter().zip(functions.into_all(request.functions.len()));
        pairs.map(|(&id, sums)| sums.finish(id, off_cpu, &mut name, &percent)).collect()
    }
}

impl CallCounts {
    pub(crate) fn add(&mut self, status: Status) {
        *match status {
            Status::OpenStart => &mut self.open_start,
            Status::Cut => &mut self.cut,
            Status::OpenEnd => &mut self.open_end,
            Status::Unwound => &mut self.unwound,
            Status::Complete => &mut self.complete,
        } += 1;
    }
}

impl<C> Default for FunctionSums<C> {
    fn default() -> Self {
        Self {
            calls: CallCounts::default(),
            ended_by_jump: 0,
            hidden: 0,
            undecided: 0,
            outermost: RunningTotal::default(),
            open_ns: Durations::default(),
            overfull: None,
            callers: FxHashMap::default(),
            longest_open: Vec::new(),
            open: OpenSums::default(),
            rows: Vec::new(),
            row_children: Gathered::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> FunctionSums<C> {
    fn count(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) {
        self.ended_by_jump += u64::from(row.ended_by_jump);
        self.hidden += u64::from(row.hidden);
        self.undecided += u64::from(row.undecided);
        if row.depth == 0 {
            let off_cpu_ns = row.off_cpu_ns.unwrap_or_default();
            self.outermost.add(RunningTotal {
                count: 1,
                sum_ns: row.latency_ns,
                off_cpu_ns,
                error_ns: row.error_ns,
            });
        }
        let sums = self.callers.entry((row.caller, row.site)).or_default();
        let inside = sums.count(row, children);
        if inside.known(OffCpuKnown(true)).exceeds(row) {
            self.overfull.get_or_insert(*row);
        }
    }

    fn merge_whole_calls(&mut self, other: &Self) {
        self.calls.complete += other.calls.complete;
        self.calls.unwound += other.calls.unwound;
        self.ended_by_jump += other.ended_by_jump;
        self.hidden += other.hidden;
        self.undecided += other.undecided;
        self.outermost.add(other.outermost);
        for (caller, sums) in &other.callers {
            self.callers.entry(*caller).or_default().merge(sums);
        }
    }

    /// Keeps the longest few of the calls that had not ended.
    fn list_open(&mut self, row: &CallRow) {
        let order = |r: &CallRow| (std::cmp::Reverse(r.at_least_ns()), r.start_ns, r.id);
        let at = self.longest_open.partition_point(|r| order(r) < order(row));
        if at < FunctionReport::LONGEST_OPEN {
            self.longest_open.insert(at, *row);
            self.longest_open.truncate(FunctionReport::LONGEST_OPEN);
        }
    }

    fn finish(
        self,
        id: model::FunctionId,
        off_cpu: OffCpuKnown,
        name: &mut impl FnMut(C) -> ChildKey,
        percent: &impl Fn(u64) -> f64,
    ) -> FunctionReport {
        let mut all = CallerSums::default();
        let mut callers = Vec::with_capacity(self.callers.len());
        for ((caller, site), sums) in self.callers {
            all.merge(&sums);
            let figures = Figures::of(&sums, off_cpu);
            callers.push(CallerReport {
                caller,
                site,
                latency: figures.latency,
                off_cpu: figures.off_cpu,
                error: figures.error,
                children: sums.children.named(name).rows(figures.total(), figures.error.sum_ns, percent),
                histogram: figures.histogram,
            });
        }
        let order = |c: &CallerReport| (std::cmp::Reverse(c.latency.sum_ns), c.caller, c.site);
        callers.sort_by_key(order);
        let (rows, row_children) = in_order(self.rows, self.row_children);
        let tails = Tails::of(&all, &self.open_ns);
        let figures = Figures::of(&all, off_cpu);
        let outermost = self.outermost.known(off_cpu);
        FunctionReport {
            id,
            calls: self.calls,
            ended_by_jump: self.ended_by_jump,
            hidden: self.hidden,
            undecided: self.undecided,
            latency: figures.latency,
            off_cpu: figures.off_cpu,
            error: figures.error,
            tails,
            outermost,
            cpu_percent: outermost.on_cpu_ns().map(percent),
            children: all.children.named(name).rows(figures.total(), figures.error.sum_ns, percent),
            histogram: figures.histogram,
            callers,
            off_cpu_causes: None,
            longest_open: self.longest_open,
            open: self.open.finish(off_cpu, name, percent),
            rows,
            row_children,
            row_reasons: RowReasons::default(),
            overfull: self.overfull,
        }
    }
}

/// Rows by start, and their children.
fn in_order(rows: Vec<CallRow>, children: Gathered) -> (Vec<CallRow>, RowChildren) {
    let mut numbered: Vec<(usize, CallRow)> = rows.into_iter().enumerate().collect();
    numbered.sort_unstable_by_key(|(_, r)| (r.start_ns, r.tid, r.depth, r.id));
    let children = children.in_order(numbered.iter().map(|(number, _)| *number));
    (numbered.into_iter().map(|(_, row)| row).collect(), children)
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
            children: ChildSums::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> CallerSums<C> {
    /// Returns what its children took.
    fn count(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) -> RunningTotal {
        let CallRow { latency_ns, error_ns, .. } = *row;
        self.latency_ns.add(latency_ns);
        row.off_cpu_ns.into_iter().for_each(|ns| self.off_cpu_ns.add(ns));
        self.least_ns.add(latency_ns.saturating_sub(error_ns));
        self.most_ns.add(latency_ns.saturating_add(error_ns));
        self.error_sum_ns = self.error_sum_ns.saturating_add(error_ns);
        self.error_max_ns = self.error_max_ns.max(error_ns);
        self.shorter += u64::from(latency_ns < error_ns);
        self.children.merge(children.iter().copied())
    }

    fn merge(&mut self, other: &Self) {
        self.latency_ns.merge(&other.latency_ns);
        self.off_cpu_ns.merge(&other.off_cpu_ns);
        self.least_ns.merge(&other.least_ns);
        self.most_ns.merge(&other.most_ns);
        self.error_sum_ns = self.error_sum_ns.saturating_add(other.error_sum_ns);
        self.error_max_ns = self.error_max_ns.max(other.error_max_ns);
        self.shorter += other.shorter;
        self.children.merge(other.children.iter());
    }
}

impl Tails {
    /// What the figures may be if the calls that were open or cut, of `open_ns` or longer, are counted, too.
    fn of<C>(all: &CallerSums<C>, open_ns: &Durations) -> Self {
        let calls = open_ns.count();
        let mut least = all.least_ns.clone();
        least.merge(open_ns);
        Self {
            calls,
            at_least: Quantiles::of(&least.sorted(), 0),
            at_most: Quantiles::of(&all.most_ns.sorted(), calls),
        }
    }
}

/// The figures of a set of calls.
struct Figures {
    latency: Stats,
    off_cpu: Option<Stats>,
    error: ErrorBound,
    histogram: Vec<crate::histogram::Bucket>,
}

impl Figures {
    fn of<C>(sums: &CallerSums<C>, off_cpu: OffCpuKnown) -> Self {
        let latency = sums.latency_ns.sorted();
        let off_cpu = off_cpu.0.then(|| sums.off_cpu_ns.sorted());
        Self {
            latency: Stats::of(&latency),
            off_cpu: off_cpu.as_ref().map(Stats::of),
            error: ErrorBound {
                sum_ns: sums.error_sum_ns,
                max_ns: sums.error_max_ns,
                shorter: sums.shorter,
                low: Quantiles::of(&sums.least_ns.sorted(), 0),
                high: Quantiles::of(&sums.most_ns.sorted(), 0),
            },
            histogram: histogram(&latency, off_cpu.as_ref()),
        }
    }

    fn total(&self) -> Total {
        let off_cpu_ns = self.off_cpu.as_ref().map(|off_cpu| off_cpu.sum_ns);
        Total { count: self.latency.count, sum_ns: self.latency.sum_ns, off_cpu_ns }
    }
}
