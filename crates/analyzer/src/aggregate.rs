//! Calls to figures.  Of each call its numbers are kept, as often as they were met, and a row if asked.

use std::hash::Hash;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::call_row::{CallRow, SliceKind};
use crate::children::ChildKey;
use crate::counted::Counted;
use crate::counted_sums::CountedSums;
use crate::durations::COUNT_MAX;
use crate::figures::{CallerSums, FigureSums, SliceSpans};
use crate::open_calls::{OpenCalls, OpenSums};
use crate::place::CalledFrom;
use crate::report::{
    CallCounts, CallFigures, CallerReport, FunctionReport, OutermostCalls, RowDetails, Sliced, Tails,
};
use crate::request::{CountersAsked, LatencyRange, Request};
use crate::row_children::{CountedByKey, Gathered, RowChildren};
use crate::row_reasons::RowReasons;
use crate::sparse::Sparse;
use crate::status::Status;
use crate::total::{OffCpuKnown, RunningTotal};

/// The calls of all wanted functions so far. `C`: what their children are known by until the end, when they
/// get their names.
#[derive(Clone)]
pub(crate) struct Aggregate<C> {
    request: Arc<Request>,
    off_cpu: OffCpuKnown,
    /// By wanted function.
    functions: Sparse<FunctionSums<C>>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(bound(
    serialize = "C: Copy + Ord + Hash + Serialize",
    deserialize = "C: Copy + Eq + Hash + Deserialize<'de>"
))]
pub(crate) struct FunctionSums<C> {
    calls: CallCounts,
    /// Of calls that began where only wanted functions were probed, and of all that were traced.
    pub(crate) alone: FigureSums<C>,
    /// Of calls that began where their children were probed.
    pub(crate) with_children: FigureSums<C>,
    pub(crate) overfull: Option<CallRow>,
    pub(crate) open: OpenSums<C>,
    #[serde(skip)]
    rows: Vec<CallRow>,
    /// In the order of `rows`.
    #[serde(skip)]
    row_children: Gathered,
    /// What the counted calls of each caller executed; empty if counters were not asked for.
    #[serde(skip)]
    pub(crate) counted: FxHashMap<CalledFrom, CountedSums<C>>,
}

impl<C: Copy + Eq + Hash> Aggregate<C> {
    pub(crate) fn new(request: Arc<Request>, off_cpu: OffCpuKnown) -> Self {
        Self { request, off_cpu, functions: Sparse::default() }
    }

    /// A call of the wanted function number `wanted` has ended, or will not be seen to end. True if it is one
    /// of those that were asked for.
    pub(crate) fn add(
        &mut self,
        wanted: u32,
        row: &CallRow,
        children: &[(C, RunningTotal)],
        counted: &[Counted],
        mut name: impl FnMut(C) -> ChildKey,
    ) -> bool {
        if !self.is_asked_for(row) {
            return false;
        }
        let Some(sums) = self.functions.meet(wanted) else { return false };
        sums.calls.add(row);
        if row.end.status.counted() {
            sums.count(row, children);
        } else {
            // One that is too short to be asked for has no part in the figures.
            let at_least_ns = row.at_least_ns().max(self.request.latency.min_ns);
            sums.figures(row).into_iter().for_each(|figures| figures.open_ns.add(at_least_ns));
            sums.open.add(row, children);
        }
        if self.request.rows {
            sums.rows.push(*row);
            if self.request.row_children {
                let named: Vec<_> = children.iter().map(|(child, total)| (name(*child), *total)).collect();
                let counted = row.counted().filter(|call| call.is_known()).map(|call| {
                    let by_name = named.iter().zip(counted).map(|((key, _), counted)| (*key, *counted));
                    CountedByKey::new(call, by_name)
                });
                sums.row_children.add(named, counted.as_ref(), self.off_cpu);
            }
        }
        true
    }

    /// Adds what a call that was [added](Self::add) executed, if that is known, and its children.
    pub(crate) fn count(
        &mut self,
        wanted: u32,
        row: &CallRow,
        children: &[(C, RunningTotal)],
        counted: &[Counted],
    ) {
        if let Some(call) = row.counted()
            && let Some(asked) = self.request.counters
            && let Some(sums) = self.functions.meet(wanted)
        {
            let children = children.iter().zip(counted).map(|((child, _), counted)| (*child, *counted));
            sums.counted.entry(row.from).or_default().add(call, asked, children);
        }
    }

    /// A call that was added as cut was found running after a gap: `row` is the part seen since.
    pub(crate) fn resume(&mut self, wanted: u32, row: &CallRow, children: &[(C, RunningTotal)]) {
        // Whether the call as a whole fits is decided by its first row, and not known here.
        let takes_all = self.request.latency == LatencyRange::ALL && self.request.starts.is_none();
        if let Some(sums) = self.functions.meet(wanted).filter(|_| takes_all) {
            sums.open.resume(row, children);
        }
    }

    /// The records tell of times off the CPU.
    pub(crate) fn off_cpu(&self) -> OffCpuKnown {
        self.off_cpu
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

    /// Adds the calls of another part of the same window; rows and counters are not kept.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (wanted, other) in other.functions.iter() {
            self.functions.meet(wanted).into_iter().for_each(|sums| sums.merge(other));
        }
    }

    /// The sums of each function that was met.
    pub(crate) fn into_functions(self) -> Sparse<FunctionSums<C>> {
        self.functions
    }

    /// Adds calls that were added up elsewhere, but for their figures by caller: all were seen from entry to
    /// end, and none is kept as a row. `is_open`: all calls of the function are within another one.
    pub(crate) fn merge_whole_calls(
        &mut self,
        others: &Sparse<FunctionSums<C>>,
        is_open: impl Fn(u32) -> bool,
    ) {
        for (wanted, other) in others.iter() {
            let Some(sums) = self.functions.meet(wanted) else { continue };
            sums.calls.merge(other.calls);
            if !is_open(wanted) {
                sums.alone.outermost.add(other.alone.outermost);
            }
        }
    }

    /// Adds the figures by caller of such calls.
    pub(crate) fn merge_callers(&mut self, others: &Sparse<FunctionSums<C>>) {
        for (wanted, other) in others.iter() {
            self.functions.meet(wanted).into_iter().for_each(|sums| sums.alone.merge_callers(&other.alone));
        }
    }

    /// Adds the figures by caller of very many calls, which were added up elsewhere.
    pub(crate) fn add_callers(&mut self, others: Sparse<FigureSums<C>>) {
        for (wanted, mut other) in others.into_met() {
            let Some(sums) = self.functions.meet(wanted) else { continue };
            // Fewer are added to more.
            std::mem::swap(&mut sums.alone.callers, &mut other.callers);
            sums.alone.merge_callers(&other);
        }
    }

    fn is_asked_for(&self, row: &CallRow) -> bool {
        let latency = self.request.latency;
        let fits = if row.end.status.counted() {
            latency.contains(row.latency_ns)
        } else {
            row.latency_ns <= latency.max_ns
        };
        fits && self.request.starts.is_none_or(|window| window.contains(row.start_ns))
    }

    /// The sums of each wanted function, in the order of the request.
    pub(crate) fn named(self, mut name: impl FnMut(C) -> ChildKey) -> Vec<FunctionSums<ChildKey>> {
        let len = self.request.functions.len();
        self.functions.into_all(len).map(|sums| sums.named(&mut name)).collect()
    }

    /// The reports; `percent` turns on-CPU ns into a share of one core.
    pub(crate) fn finish(
        self,
        mut name: impl FnMut(C) -> ChildKey,
        percent: impl Fn(u64) -> f64,
        spans: Option<SliceSpans>,
    ) -> Vec<FunctionReport> {
        let Self { request, off_cpu, functions } = self;
        let pairs = request.functions.iter().zip(functions.into_all(request.functions.len()));
        let report = |(&id, mut sums): (&model::FunctionId, FunctionSums<C>)| {
            let counted = std::mem::take(&mut sums.counted);
            let mut report = sums.finish(id, off_cpu, &mut name, &percent, spans);
            if let Some(asked) = request.counters {
                count(&mut report, &counted, asked, &mut name);
            }
            report
        };
        pairs.map(report).collect()
    }
}

impl CallCounts {
    fn merge(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.complete, other.complete),
            (&mut self.unwound, other.unwound),
            (&mut self.open_start, other.open_start),
            (&mut self.open_end, other.open_end),
            (&mut self.cut, other.cut),
            (&mut self.ended_by_jump, other.ended_by_jump),
            (&mut self.hidden, other.hidden),
            (&mut self.undecided, other.undecided),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    pub(crate) fn add(&mut self, row: &CallRow) {
        *match row.end.status {
            Status::OpenStart => &mut self.open_start,
            Status::Cut => &mut self.cut,
            Status::OpenEnd => &mut self.open_end,
            Status::Unwound => &mut self.unwound,
            Status::Complete => &mut self.complete,
        } += 1;
        if row.end.status.counted() {
            self.ended_by_jump += u64::from(row.end.by_jump);
            self.hidden += u64::from(row.is_hidden());
            self.undecided += u64::from(row.end.undecided);
        }
    }
}

impl<C> Default for FunctionSums<C> {
    fn default() -> Self {
        Self {
            calls: CallCounts::default(),
            alone: FigureSums::default(),
            with_children: FigureSums::default(),
            overfull: None,
            open: OpenSums::default(),
            rows: Vec::new(),
            row_children: Gathered::default(),
            counted: FxHashMap::default(),
        }
    }
}

impl<C: Copy + Eq + Hash> FunctionSums<C> {
    fn count(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) {
        let Some(figures) = self.figures(row) else { return };
        if row.depth == 0 {
            let off_cpu_ns = row.off_cpu_ns.unwrap_or_default();
            let (sum_ns, error_ns) = (row.latency_ns, row.error_ns);
            figures.outermost.add(RunningTotal { count: 1, sum_ns, off_cpu_ns, error_ns });
        }
        let sums = figures.callers.entry(row.from).or_default();
        let inside = sums.count(row, children);
        if !row.has_room_for(&inside.known(OffCpuKnown(true))) {
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

    /// Adds the calls of another recording; rows and counters are not kept.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.calls.merge(other.calls);
        self.alone.merge(&other.alone);
        self.with_children.merge(&other.with_children);
        self.overfull = CallRow::first_of(self.overfull, other.overfull);
        self.open.merge(&other.open);
    }

    /// Names the children.
    fn named(self, name: &mut impl FnMut(C) -> ChildKey) -> FunctionSums<ChildKey> {
        FunctionSums {
            alone: self.alone.named(name),
            with_children: self.with_children.named(name),
            open: self.open.named(name),
            counted: self.counted.into_iter().map(|(caller, sums)| (caller, sums.named(name))).collect(),
            calls: self.calls,
            overfull: self.overfull,
            rows: self.rows,
            row_children: self.row_children,
        }
    }

    /// They can be of whole calls, and no more than so many.
    pub(crate) fn is_of_at_most(&self, most: u64) -> bool {
        let CallCounts { complete, unwound, open_start, open_end, cut, ended_by_jump, hidden, undecided } =
            self.calls;
        let counts = [complete, unwound, ended_by_jump, hidden, undecided];
        open_start == 0
            && open_end == 0
            && cut == 0
            && counts.into_iter().all(|count| count <= most)
            && self.alone.is_of_at_most(most)
    }

    /// No sum of counts overflows.
    pub(crate) fn is_plausible(&self) -> bool {
        let CallCounts { complete, unwound, open_start, open_end, cut, .. } = self.calls;
        let counts = [complete, unwound, open_start, open_end, cut];
        counts.into_iter().all(|count| count < COUNT_MAX)
            && self.open.longest.len() <= OpenCalls::LONGEST
            && self.alone.is_plausible()
            && self.with_children.is_plausible()
    }

    /// The figures are those of slices in which no child was probed. Where no call has ended, they are those
    /// of calls that are open.
    fn has_figures_alone(&self) -> bool {
        match (self.alone.callers.is_empty(), self.with_children.callers.is_empty()) {
            (true, true) => self.alone.open_ns.count() > 0 || self.with_children.open_ns.count() == 0,
            (true, false) => false,
            (false, _) => true,
        }
    }

    pub(crate) fn finish(
        self,
        id: model::FunctionId,
        off_cpu: OffCpuKnown,
        name: &mut impl FnMut(C) -> ChildKey,
        percent: &impl Fn(u64) -> f64,
        spans: Option<SliceSpans>,
    ) -> FunctionReport {
        let is_alone = self.has_figures_alone();
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
        let mut children = |own: &CallerSums<C>, others: Option<&CallerSums<C>>, figures: &CallFigures| {
            let total = figures.total();
            let sums = match sliced {
                Some(Sliced { figures_of: SliceKind::Alone, .. }) => others?.scaled_children(name, total),
                _ => own.children.named(name),
            };
            Some(sums.rows(total, figures.error.sum_ns, percent_of_slices))
        };
        let mut callers = Vec::with_capacity(main.callers.len());
        for (from, sums) in &main.callers {
            let mut figures = CallFigures::of(sums, off_cpu);
            figures.children = children(sums, others.callers.get(from), &figures).unwrap_or_default();
            callers.push(CallerReport { from: *from, figures });
        }
        let order = |c: &CallerReport| (std::cmp::Reverse(c.figures.latency.sum_ns), c.from);
        callers.sort_by_key(order);
        let mut figures = CallFigures::of(&all, off_cpu);
        let others_all = Some(&others_all).filter(|others| others.with_children.count > 0);
        figures.children = children(&all, others_all, &figures).unwrap_or_default();
        let (rows, children) = in_order(self.rows, self.row_children);
        let total = main.outermost.known(off_cpu);
        FunctionReport {
            id,
            calls: self.calls,
            figures,
            tails: Tails::of(&all, &main.open_ns),
            outermost: OutermostCalls {
                total,
                error_ns: main.outermost.error_ns,
                cpu_percent: total.on_cpu_ns().map(percent_of_slices),
            },
            callers,
            off_cpu_causes: None,
            open: self.open.finish(off_cpu, name, percent),
            rows,
            row_details: RowDetails { children, reasons: RowReasons::default() },
            overfull: self.overfull,
            sliced,
        }
    }
}

/// Adds to a report, its callers and its children what the calls executed.
pub(crate) fn count<C: Copy + Eq + Hash>(
    report: &mut FunctionReport,
    counted: &FxHashMap<CalledFrom, CountedSums<C>>,
    asked: CountersAsked,
    name: &mut impl FnMut(C) -> ChildKey,
) {
    let mut all = CountedSums::default();
    for caller in &mut report.callers {
        let Some(sums) = counted.get(&caller.from) else { continue };
        sums.add_to(&mut caller.figures.children, name);
        caller.figures.counters = Some(sums.report(asked));
        all.merge(sums);
    }
    all.add_to(&mut report.figures.children, name);
    report.figures.counters = Some(all.report(asked));
}

/// Rows by start, and their children.
fn in_order(rows: Vec<CallRow>, children: Gathered) -> (Vec<CallRow>, RowChildren) {
    let mut numbered: Vec<(usize, CallRow)> = rows.into_iter().enumerate().collect();
    numbered.sort_unstable_by_key(|(_, r)| (r.start_ns, r.id.tid, r.depth, r.id));
    let children = children.in_order(numbered.iter().map(|(number, _)| *number));
    (numbered.into_iter().map(|(_, row)| row).collect(), children)
}
