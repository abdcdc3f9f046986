//! Calls to figures.  Of each call its numbers are kept, as often as they were met, and a row if asked.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::children::{ChildKey, ChildSums};
use crate::durations::Durations;
use crate::histogram::histogram;
use crate::open_calls::OpenSums;
use crate::report::{
    CallCounts, CallRow, Caller, CallerReport, ErrorBound, FunctionReport, Place, SliceKind, Sliced, Status,
    Tails,
};
use crate::request::{LatencyRange, Request};
use crate::row_children::{Gathered, RowChildren};
use crate::row_reasons::RowReasons;
use crate::stats::{Quantiles, Stats};
use crate::total::{OffCpuKnown, RunningTotal, Total};

/// The calls of all wanted functions so far.  `C`: what their children are known by until the end, when they get their names.
pub(crate) struct Aggregate<C> {
    request: Request,
    off_cpu: OffCpuKnown,
    functions: Vec<FunctionSums<C>>,
}

struct FunctionSums<C> {
    calls: CallCounts,
    ended_by_jump: u64,
    hidden: u64,
    undecided: u64,
    /// Of calls that began where only wanted functions were probed, and of all that were traced.
    alone: FigureSums<C>,
    /// Of calls that began where their children were probed.
    with_children: FigureSums<C>,
    overfull: Option<CallRow>,
    longest_open: Vec<CallRow>,
    open: OpenSums<C>,
    rows: Vec<CallRow>,
    /// In the order of `rows`.
    row_children: Gathered,
}

/// What figures are made of.
struct FigureSums<C> {
    outermost: RunningTotal,
    /// The least that each call not seen from entry to end can have taken, being one of those asked for.
    open_ns: Durations,
    callers: FxHashMap<(Caller, Option<Place>), CallerSums<C>>,
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
    /// The most by which a latency may be shorter than its least, where a probe took what one of 100 takes.
    rare_ns: u64,
    children: ChildSums<C>,
    /// Of the calls, what was seen with children.
    with_children: RunningTotal,
}

impl<C: Copy + Eq + Hash> Aggregate<C> {
    pub(crate) fn new(request: &Request, off_cpu: OffCpuKnown) -> Self {
        let functions = request.functions.iter().map(|_| FunctionSums::default()).collect();
        Self { request: request.clone(), off_cpu, functions }
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
        let Some(sums) = self.functions.get_mut(wanted as usize) else { return false };
        sums.calls.add(row.status);
        if row.status.counted() {
            sums.count(row, children);
        } else {
            // One that is too short to be asked for has no part in the figures.
            let at_least_ns = row.at_least_ns().max(self.request.latency.min_ns);
            sums.figures(row).into_iter().for_each(|figures| figures.open_ns.add(at_least_ns));
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
        if let Some(sums) = self.functions.get_mut(wanted as usize).filter(|_| takes_all) {
            sums.open.resume(row, children);
        }
    }

    /// What was asked.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// What was added so far, which is then forgotten.
    pub(crate) fn take(&mut self) -> Self {
        let anew = Self::new(&self.request, self.off_cpu);
        std::mem::replace(self, anew)
    }

    /// The children of some call took longer than it.
    pub(crate) fn is_overfull(&self) -> bool {
        self.functions.iter().any(|sums| sums.overfull.is_some())
    }

    /// Adds calls that were added up elsewhere: all were seen from entry to end, and none is kept as a row.
    pub(crate) fn merge_whole_calls(&mut self, other: &Self) {
        for (sums, other) in self.functions.iter_mut().zip(&other.functions) {
            sums.merge_whole_calls(other);
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
        spans: Option<SliceSpans>,
    ) -> Vec<FunctionReport> {
        let Self { request, off_cpu, functions } = self;
        let pairs = request.functions.iter().zip(functions);
        pairs.map(|(&id, sums)| sums.finish(id, off_cpu, &mut name, &percent, spans)).collect()
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
            alone: FigureSums::default(),
            with_children: FigureSums::default(),
            overfull: None,
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
        let Some(figures) = self.figures(row) else { return };
        if row.depth == 0 {
            let off_cpu_ns = row.off_cpu_ns.unwrap_or_default();
            figures.outermost.add(RunningTotal { count: 1, sum_ns: row.latency_ns, off_cpu_ns });
        }
        let sums = figures.callers.entry((row.caller, row.site)).or_default();
        let inside = sums.count(row, children);
        if inside.known(OffCpuKnown(true)).exceeds(row) {
            self.overfull.get_or_insert(*row);
        }
    }

    /// The figures that a call may enter.
    fn figures(&mut self, row: &CallRow) -> Option<&mut FigureSums<C>> {
        match row.began() {
            SliceKind::Alone => Some(&mut self.alone),
            SliceKind::WithChildren => Some(&mut self.with_children),
            SliceKind::Between => None,
        }
    }

    fn merge_whole_calls(&mut self, other: &Self) {
        self.calls.complete += other.calls.complete;
        self.calls.unwound += other.calls.unwound;
        self.ended_by_jump += other.ended_by_jump;
        self.hidden += other.hidden;
        self.undecided += other.undecided;
        self.alone.outermost.add(other.alone.outermost);
        for (caller, sums) in &other.alone.callers {
            self.alone.callers.entry(*caller).or_default().merge(sums);
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
        spans: Option<SliceSpans>,
    ) -> FunctionReport {
        // Where no call has ended, the figures are those of calls that are open.
        let is_alone = match (self.alone.callers.is_empty(), self.with_children.callers.is_empty()) {
            (true, true) => self.alone.open_ns.count() > 0 || self.with_children.open_ns.count() == 0,
            (true, false) => false,
            (false, _) => true,
        };
        let (main, others) = match is_alone {
            true => (self.alone, self.with_children),
            false => (self.with_children, FigureSums::default()),
        };
        let all = main.all();
        let others_all = others.all();
        let children_of = if is_alone { others_all.with_children } else { all.with_children };
        let sliced = spans.map(|spans| spans.sliced(is_alone, children_of));
        let stretch = spans.map_or(1.0, |spans| spans.stretch(is_alone));
        let percent_of_slices = |on_cpu_ns| percent(on_cpu_ns) * stretch;
        // Calls that began where no child was probed say nothing of children, if others do.
        let mut children = |own: &CallerSums<C>, others: Option<&CallerSums<C>>, total: Total| match sliced {
            Some(Sliced { figures_of: SliceKind::Alone, .. }) => others
                .map(|others| others.scaled_children(name, total).rows(total, percent_of_slices))
                .unwrap_or_default(),
            _ => own.children.named(name).rows(total, percent_of_slices),
        };
        let mut callers = Vec::with_capacity(main.callers.len());
        for ((caller, site), sums) in &main.callers {
            let figures = Figures::of(sums, off_cpu);
            callers.push(CallerReport {
                caller: *caller,
                site: *site,
                latency: figures.latency,
                off_cpu: figures.off_cpu,
                error: figures.error,
                children: children(sums, others.callers.get(&(*caller, *site)), figures.total()),
                histogram: figures.histogram,
            });
        }
        let order = |c: &CallerReport| (std::cmp::Reverse(c.latency.sum_ns), c.caller, c.site);
        callers.sort_by_key(order);
        let figures = Figures::of(&all, off_cpu);
        let others_all = Some(&others_all).filter(|others| others.with_children.count > 0);
        let children = children(&all, others_all, figures.total());
        let (rows, row_children) = in_order(self.rows, self.row_children);
        let outermost = main.outermost.known(off_cpu);
        FunctionReport {
            id,
            calls: self.calls,
            ended_by_jump: self.ended_by_jump,
            hidden: self.hidden,
            undecided: self.undecided,
            latency: figures.latency,
            off_cpu: figures.off_cpu,
            error: figures.error,
            tails: Tails::of(&all, &main.open_ns),
            outermost,
            cpu_percent: outermost.on_cpu_ns().map(percent_of_slices),
            children,
            histogram: figures.histogram,
            callers,
            off_cpu_causes: None,
            longest_open: self.longest_open,
            open: self.open.finish(off_cpu, name, percent),
            rows,
            row_children,
            row_reasons: RowReasons::default(),
            overfull: self.overfull,
            sliced,
        }
    }
}

/// Time of the slices of each kind, of a window that has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceSpans {
    pub(crate) window_ns: u64,
    pub(crate) alone_ns: u64,
    pub(crate) with_children_ns: u64,
}

impl SliceSpans {
    const fn figures_ns(self, is_alone: bool) -> u64 {
        if is_alone { self.alone_ns } else { self.with_children_ns }
    }

    /// A share of these slices is that much of one of the window.
    fn stretch(self, is_alone: bool) -> f64 {
        match self.figures_ns(is_alone) {
            0 => 0.0,
            figures_ns => self.window_ns as f64 / figures_ns as f64,
        }
    }

    fn sliced(self, is_alone: bool, children_of: RunningTotal) -> Sliced {
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
    fn all(&self) -> CallerSums<C> {
        let mut all = CallerSums::default();
        self.callers.values().for_each(|sums| all.merge(sums));
        all
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
            rare_ns: 0,
            children: ChildSums::default(),
            with_children: RunningTotal::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> CallerSums<C> {
    /// Returns what its children took.
    fn count(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) -> RunningTotal {
        let latency_ns = row.latency_ns;
        let (least_ns, most_ns) = row.bounds_ns();
        self.latency_ns.add(latency_ns);
        row.off_cpu_ns.into_iter().for_each(|ns| self.off_cpu_ns.add(ns));
        self.least_ns.add(least_ns);
        self.most_ns.add(most_ns);
        let error_ns = match row.probed {
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

    fn merge(&mut self, other: &Self) {
        self.latency_ns.merge(&other.latency_ns);
        self.off_cpu_ns.merge(&other.off_cpu_ns);
        self.least_ns.merge(&other.least_ns);
        self.most_ns.merge(&other.most_ns);
        self.error_sum_ns = self.error_sum_ns.saturating_add(other.error_sum_ns);
        self.error_max_ns = self.error_max_ns.max(other.error_max_ns);
        self.shorter += other.shorter;
        self.rare_ns = self.rare_ns.max(other.rare_ns);
        self.children.merge(other.children.iter());
        self.with_children.add(other.with_children);
    }

    /// The children, as if they were those of other calls, which took `total`.
    fn scaled_children(&self, name: &mut impl FnMut(C) -> ChildKey, total: Total) -> ChildSums<ChildKey> {
        self.children.named(name).scaled(self.with_children, total)
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
                low: Quantiles::of(&sums.least_ns.sorted(), 0).with_tail_below(sums.rare_ns),
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
