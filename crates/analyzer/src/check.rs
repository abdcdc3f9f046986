//! What must hold of every analysis, whatever the recording: a violation is a defect of this program.
//!
//! ```text
//!   events  -> CheckedAnalysis   time is inside its bounds and never runs backwards in a thread
//!                 -> Analysis    with rows, each event in its turn
//!                 -> Analysis    as the report that is not checked: what the workers digest is added up
//!   report  -> check             calls nest; children and *self are the whole; callers are the function;
//!                                histogram, counts and rows agree; open calls likewise; observed + lost is
//!                                the window, and causes add up to the lost time; both reports are the same
//! ```
//! Tests analyse in no other way, and so does `report --check`. Nothing here is on the way of an unchecked
//! analysis.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use model::{AuxOffset, EventTime, FunctionId, Ns, Tid, TraceEvent};

use crate::call_row::CallRow;
use crate::children::ChildKey;
use crate::children::ChildRow;
use crate::counted::Counted;
use crate::histogram::Bucket;
use crate::place::ChildKind;
use crate::report::{
    CallerReport, CauseLoss, ErrorBound, FunctionReport, Loss, Report, RowDetails, ThreadLoss,
};
use crate::stats::{Quantiles, Stats};
use crate::status::{CutCause, Status};
use crate::total::Total;

/// Violations that are kept; one defect may show at every event.
const VIOLATIONS_MAX: usize = 100;

/// Something that must hold and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What is wrong.
    pub what: String,
    /// The function that it is about.
    pub function: Option<FunctionId>,
    /// Where in the recording.
    pub place: Option<ViolationPlace>,
}

/// Where in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViolationPlace {
    /// Thread.
    pub tid: Tid,
    /// Time.
    pub time: Ns,
    /// In the AUX stream, where it is about one event or call.
    pub at: Option<AuxOffset>,
}

impl ViolationPlace {
    fn of(row: &CallRow) -> Self {
        Self { tid: row.id.tid, time: row.start_ns, at: row.aux_offset() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ViolationPlace { tid, time, at }) = self.place {
            write!(f, "thread {} at {} ns", tid.0, time.0)?;
            if let Some(at) = at {
                write!(f, ", AUX offset {at}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}

/// All that does not hold in a report that has its rows and their children.
#[must_use]
pub fn check(report: &Report) -> Vec<Violation> {
    check_with(report, |_| false)
}

/// [`check`] of a report with regions: their calls nest among those of one region only.
#[must_use]
pub fn check_with(report: &Report, is_region: impl Fn(FunctionId) -> bool) -> Vec<Violation> {
    let mut found = Found::default();
    found.loss(&report.loss);
    report.functions.iter().for_each(|function| found.function(function));
    let (regions, functions): (Vec<_>, Vec<_>) = report.functions.iter().partition(|f| is_region(f.id));
    found.nesting(&functions);
    regions.iter().for_each(|region| found.nesting(&[region]));
    found.cut_calls(report);
    found.0
}

/// A sum of calls, and where the first of them is.
#[derive(Clone, Copy)]
struct CheckedSum {
    function: FunctionId,
    first: Option<ViolationPlace>,
}

impl CheckedSum {
    fn of(f: &FunctionReport, is_in: impl Fn(&CallRow) -> bool) -> Self {
        Self { function: f.id, first: f.rows.iter().find(|row| is_in(row)).map(ViolationPlace::of) }
    }
}

#[derive(Default)]
pub(crate) struct Found(pub(crate) Vec<Violation>);

impl Found {
    fn add(&mut self, function: Option<FunctionId>, place: Option<ViolationPlace>, what: String) {
        if self.0.len() < VIOLATIONS_MAX {
            self.0.push(Violation { what, function, place });
        }
    }

    /// The two are the same, or that is a violation.
    fn same<T: PartialEq + fmt::Debug>(&mut self, sum: CheckedSum, what: &str, is: T, must: T) {
        if is != must {
            self.add(Some(sum.function), sum.first, format!("{what}: {is:?}, not {must:?}"));
        }
    }

    pub(crate) fn time_of(&mut self, tid: Tid, last: &mut EventTime, event: &TraceEvent) {
        let (time, at) = match event {
            TraceEvent::Branch(branch) => (branch.time, branch.at),
            TraceEvent::Gap(gap) => (gap.from, gap.at),
        };
        let place = Some(ViolationPlace { tid, time: time.point, at: Some(at) });
        let bounds = |time: EventTime| time.lo <= time.point && time.point <= time.hi;
        if !bounds(time) {
            self.add(None, place, format!("the time is outside of its bounds: {time:?}"));
        }
        if time.point < last.point || time.lo < last.lo {
            self.add(None, place, format!("time runs backwards: {time:?} after {last:?}"));
        }
        if let TraceEvent::Gap(gap) = event
            && (!bounds(gap.to) || gap.to.point < gap.from.point)
        {
            self.add(None, place, format!("the gap ends before it begins: {gap:?}"));
        }
        *last = time;
    }

    /// `unchecked`, a report without rows, has the figures of `report`.
    pub(crate) fn differences(&mut self, unchecked: &Report, report: &Report) {
        self.same_text(None, None, (&unchecked.trace, &unchecked.loss), (&report.trace, &report.loss));
        for (is, function) in unchecked.functions.iter().zip(&report.functions) {
            let must =
                FunctionReport { rows: vec![], row_details: RowDetails::default(), ..function.clone() };
            self.same_text(Some(function.id), function.rows.first().map(ViolationPlace::of), is, &must);
        }
    }

    fn same_text<T: PartialEq + fmt::Debug>(
        &mut self,
        function: Option<FunctionId>,
        place: Option<ViolationPlace>,
        is: T,
        must: T,
    ) {
        if is != must {
            let (is, must) = (format!("{is:#?}"), format!("{must:#?}"));
            let first = is.lines().zip(must.lines()).find(|(is, must)| is != must).unwrap_or_default();
            let (is, must) = (first.0.trim(), first.1.trim());
            self.add(function, place, format!("the report without rows has `{is}`, not `{must}`"));
        }
    }

    fn loss(&mut self, loss: &Loss) {
        loss.threads.iter().for_each(|thread| self.window(thread));
        let mut of_threads = sums(loss.threads.iter().map(|thread| &thread.by_cause));
        add_sums(&mut of_threads, &loss.unowned);
        let whole = sums([&loss.by_cause]);
        let of_cpus = sums(loss.cpus.iter().map(|cpu| &cpu.by_cause));
        let first = first_loss(&loss.by_cause);
        for (what, parts) in [("threads", of_threads), ("CPUs", of_cpus)] {
            if parts != whole {
                let what = format!("losses of all {what} are not the whole: {parts:?}, not {whole:?}");
                self.add(None, first, what);
            }
        }
        let lost_ns = loss.threads.iter().map(|thread| thread.lost_ns).fold(0, u64::saturating_add);
        if lost_ns != loss.lost_ns {
            self.add(None, first, format!("lost time of all threads: {lost_ns}, not {}", loss.lost_ns));
        }
    }

    fn window(&mut self, thread: &ThreadLoss) {
        let place =
            first_loss(&thread.by_cause).or(Some(ViolationPlace { tid: thread.tid, time: Ns(0), at: None }));
        if thread.observed_ns.checked_add(thread.lost_ns) != Some(thread.window_ns) {
            self.add(None, place, format!("observed and lost time are not the window: {thread:?}"));
        }
        let by_cause = thread.by_cause.iter().map(|cause| cause.lost_ns).fold(0, u64::saturating_add);
        if by_cause != thread.lost_ns {
            self.add(None, place, format!("losses by cause are not what was lost: {thread:?}"));
        }
        if thread.outside_ns.is_some_and(|ns| ns > thread.observed_ns) {
            self.add(None, place, format!("more time outside the IP filter than was observed: {thread:?}"));
        }
    }

    fn function(&mut self, f: &FunctionReport) {
        let all = CheckedSum::of(f, |row| row.end.status.counted());
        // Where a window has slices of several kinds, the figures are of some calls.
        let left_out = |is_counted: bool| {
            let is_one = |row: &&CallRow| row.end.status.counted() == is_counted && !f.is_in_figures(row);
            f.rows.iter().filter(is_one).count() as u64
        };
        let calls = &f.calls;
        let counted = (calls.complete + calls.unwound).saturating_sub(left_out(true));
        let open = (calls.open_start + calls.open_end + calls.cut).saturating_sub(left_out(false));
        self.same(all, "counted calls", f.figures.latency.count, counted);
        self.same(
            CheckedSum::of(f, |row| !row.end.status.counted()),
            "calls not seen to end",
            f.tails.calls,
            open,
        );
        self.whole(
            all,
            &f.figures.children,
            &f.figures.histogram,
            (&f.figures.latency, f.figures.off_cpu.as_ref()),
            (&f.figures.error, f.sliced.is_some()),
        );
        self.callers(f, all);
        if let Some(row) = &f.overfull {
            let what = format!("the children of this call took longer than itself: {row:?}");
            self.add(Some(f.id), Some(ViolationPlace::of(row)), what);
        }
        self.counters(f);
        self.open_calls(f);
        self.rows(f);
        self.row_children(f);
    }

    /// The callers' calls are all counted ones, and each caller's figures are those of its rows.
    fn callers(&mut self, f: &FunctionReport, all: CheckedSum) {
        let sum = |of: fn(&CallerReport) -> u64| f.callers.iter().map(of).fold(0, u64::saturating_add);
        self.same(all, "calls of all callers", sum(|c| c.figures.latency.count), f.figures.latency.count);
        self.same(all, "time of all callers", sum(|c| c.figures.latency.sum_ns), f.figures.latency.sum_ns);
        let off_cpu_ns = |off_cpu: &Option<Stats>| off_cpu.as_ref().map(|off_cpu| off_cpu.sum_ns);
        let of_callers = f.callers.iter().map(|c| off_cpu_ns(&c.figures.off_cpu).unwrap_or_default());
        let of_callers = off_cpu_ns(&f.figures.off_cpu).map(|_| of_callers.fold(0, u64::saturating_add));
        self.same(all, "off-CPU time of all callers", of_callers, off_cpu_ns(&f.figures.off_cpu));
        let mut by_caller: BTreeMap<_, (CheckedSum, Total)> = BTreeMap::new();
        for row in f.rows.iter().filter(|row| row.end.status.counted() && f.is_in_figures(row)) {
            let first =
                || (CheckedSum { function: f.id, first: Some(ViolationPlace::of(row)) }, Total::default());
            let (_, total) = by_caller.entry(row.from).or_insert_with(first);
            total.add(Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns });
        }
        self.same(all, "callers", f.callers.len(), by_caller.len());
        for caller in &f.callers {
            let (calls, total) = by_caller.remove(&caller.from).unwrap_or((all, Total::default()));
            let (latency, off_cpu) = (&caller.figures.latency, caller.figures.off_cpu.as_ref());
            let off_cpu_ns = off_cpu.map(|off_cpu| off_cpu.sum_ns);
            let is = Total { count: latency.count, sum_ns: latency.sum_ns, off_cpu_ns };
            self.same(calls, "a caller's calls", is, total);
            self.whole(
                calls,
                &caller.figures.children,
                &caller.figures.histogram,
                (latency, off_cpu),
                (&caller.figures.error, f.sliced.is_some()),
            );
        }
    }

    /// Each counted call has its counters, if one has; those of rows, of callers, and of children with
    /// `*self` are the whole.
    fn counters(&mut self, f: &FunctionReport) {
        let Some(counters) = &f.figures.counters else { return };
        let all = CheckedSum::of(f, |row| row.end.status.counted());
        let sum = |parts: &mut dyn Iterator<Item = Option<Counted>>| {
            let mut sum = Counted::default();
            parts.for_each(|part| sum.add(&part.unwrap_or_default()));
            (sum.executed, sum.cycles.map(|cycles| cycles.count))
        };
        let whole = sum(&mut [Some(counters.sum)].into_iter());
        let mut rows = f.rows.iter().filter(|row| row.end.status.counted());
        let is_known = rows.clone().filter(|row| row.counted().is_some()).count() as u64;
        self.same(all, "calls with counters", is_known, f.figures.latency.count);
        if f.figures.latency.count > 0 {
            self.same(
                all,
                "counters of all rows",
                sum(&mut rows.by_ref().map(|row| row.counted().copied())),
                whole,
            );
        }
        let of_callers = sum(&mut f.callers.iter().map(|c| c.figures.counters.as_ref().map(|c| c.sum)));
        self.same(all, "counters of all callers", of_callers, whole);
        self.same(all, "counters of children", sum(&mut f.figures.children.iter().map(|c| c.counted)), whole);
        let is_open = |row: &CallRow| !row.end.status.counted() && row.counted().is_some();
        self.same(all, "open calls with counters", f.rows.iter().filter(|row| is_open(row)).count(), 0);
    }

    /// What was seen of open calls is that of their rows, and of the same calls after gaps; children and
    /// callers are the whole.
    fn open_calls(&mut self, f: &FunctionReport) {
        let open = &f.open;
        let is_outermost = |row: &CallRow| !row.end.status.counted() && row.depth == 0;
        let all = CheckedSum::of(f, is_outermost);
        let mut of_rows = Total { count: 0, ..open.resumed };
        for row in f.rows.iter().filter(|row| is_outermost(row)) {
            of_rows.add(Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns });
        }
        self.same(all, "open calls", open.observed, of_rows);
        let mut of_callers = Total::default();
        open.callers.iter().for_each(|caller| of_callers.add(caller.observed));
        self.same(all, "callers of open calls", of_callers, open.observed);
        let mut inside = Total { count: open.observed.count, ..Total::default() };
        open.children.iter().for_each(|child| inside.add(Total { count: 0, ..child.total }));
        self.same(all, "children and *self of open calls", inside, open.observed);
        if open.resumed == Total::default() {
            let of_rows = children_of_rows(f, is_outermost);
            self.same(all, "children of all open rows", of_rows, children_of(&open.children));
        }
        if let Some(row) = &open.overfull {
            let what =
                format!("the children of this open call took longer than what was seen of it: {row:?}");
            self.add(Some(f.id), Some(ViolationPlace::of(row)), what);
        }
    }

    /// The histogram has all calls, children and `*self` are the whole, and every figure is between its
    /// bounds.
    fn whole(
        &mut self,
        calls: CheckedSum,
        children: &[ChildRow],
        histogram: &[Bucket],
        (latency, off_cpu): (&Stats, Option<&Stats>),
        (error, is_sliced): (&ErrorBound, bool),
    ) {
        let buckets = histogram.iter().map(|bucket| bucket.count).sum();
        self.same(calls, "calls in the histogram", latency.count, buckets);
        if is_sliced && children.is_empty() {
            // No call was seen while children were probed.
            return self.figures(calls, latency, error);
        }
        let mut whole = Total::default();
        children.iter().for_each(|row| whole.add(row.total));
        let off_cpu_ns = if children.is_empty() { Some(0) } else { off_cpu.map(|off_cpu| off_cpu.sum_ns) };
        self.same(
            calls,
            "children and *self",
            (whole.sum_ns, whole.off_cpu_ns),
            (latency.sum_ns, off_cpu_ns),
        );
        self.figures(calls, latency, error);
    }

    /// Every figure is between its bounds.
    fn figures(&mut self, calls: CheckedSum, latency: &Stats, error: &ErrorBound) {
        let Some(spread) = &latency.spread else { return };
        let figures =
            [spread.min_ns, spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns, spread.max_ns];
        let mut wrong = |what| self.add(Some(calls.function), calls.first, what);
        if !figures.is_sorted() {
            wrong(format!("percentiles are out of order: {figures:?}"));
        }
        for ((figure, low), high) in figures.into_iter().zip(in_order(&error.low)).zip(in_order(&error.high))
        {
            if low.is_none_or(|low| low > figure) || high.is_none_or(|high| high < figure) {
                wrong(format!("a figure is outside of its bounds: {figure} in {low:?}, {high:?}"));
            }
        }
    }

    /// Every call has its row, and every row is a call.
    fn rows(&mut self, f: &FunctionReport) {
        let count = |status| f.rows.iter().filter(|row| row.end.status == status).count() as u64;
        let statuses =
            [Status::Complete, Status::Unwound, Status::OpenStart, Status::OpenEnd, Status::Cut].map(count);
        let calls = &f.calls;
        let counted = [calls.complete, calls.unwound, calls.open_start, calls.open_end, calls.cut];
        self.same(CheckedSum::of(f, |_| true), "rows by status", statuses, counted);
        let sum = f
            .rows
            .iter()
            .filter(|row| row.end.status.counted() && f.is_in_figures(row))
            .map(|row| row.latency_ns);
        let all = CheckedSum::of(f, |row| row.end.status.counted());
        self.same(all, "time of all rows", sum.fold(0, u64::saturating_add), f.figures.latency.sum_ns);
    }

    /// The children of all counted rows are those of the function, and no call is shorter than its own.
    fn row_children(&mut self, f: &FunctionReport) {
        for (number, row) in f.rows.iter().enumerate() {
            let mut inside = Total::default();
            f.row_details.children.of(number).iter().for_each(|child| inside.add(child.total));
            if !row.has_room_for(&inside) {
                let what = format!("the children of this row took longer than itself: {inside:?} in {row:?}");
                self.add(Some(f.id), Some(ViolationPlace::of(row)), what);
            }
        }
        if f.sliced.is_some() {
            return; // what the function has is an estimate from some rows
        }
        let all = CheckedSum::of(f, |row| row.end.status.counted());
        let of_rows = children_of_rows(f, |row| row.end.status.counted());
        self.same(all, "children of all rows", of_rows, children_of(&f.figures.children));
    }

    /// In each thread a call begins and ends inside the one that it began in.
    fn nesting(&mut self, functions: &[&FunctionReport]) {
        let mut rows: Vec<&CallRow> = functions.iter().flat_map(|f| &f.rows).collect();
        let end = CallRow::end_ns;
        rows.sort_by_key(|row| (row.id.tid, row.start_ns, Reverse(end(row))));
        let mut open: Vec<&CallRow> = Vec::new();
        for row in rows {
            while open.last().is_some_and(|top| top.id.tid != row.id.tid || end(top) <= row.start_ns.0) {
                open.pop();
            }
            if let Some(outer) = open.last().filter(|outer| end(outer) < end(row)) {
                let what = format!("this call outlives the one that it began in: {row:?} in {outer:?}");
                self.add(Some(row.function), Some(ViolationPlace::of(row)), what);
            }
            open.push(row);
        }
    }

    /// The calls that gaps cut are those in the rows.
    fn cut_calls(&mut self, report: &Report) {
        let rows = report.functions.iter().flat_map(|f| &f.rows);
        let mut cut: BTreeMap<&str, u64> = BTreeMap::new();
        for row in rows {
            let cause = row.end.cut_by.map(|cut| cut.cause);
            if let Some(cause @ CutCause::Gap(_)) = cause {
                *cut.entry(cause.name()).or_default() += 1;
            }
            if (row.end.status == Status::Cut) != cause.is_some() {
                let what = format!("a call is cut by something, and only a cut one: {row:?}");
                self.add(Some(row.function), Some(ViolationPlace::of(row)), what);
            }
        }
        let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
        for cause in report.loss.by_cause.iter().filter(|cause| cause.calls > 0) {
            *lost.entry(cause.cause.name()).or_default() += cause.calls;
        }
        if cut != lost {
            self.add(
                None,
                first_loss(&report.loss.by_cause),
                format!("calls cut by gaps: {lost:?}, not {cut:?}"),
            );
        }
    }
}

/// The children of these rows, added up.
fn children_of_rows(f: &FunctionReport, is_one: impl Fn(&CallRow) -> bool) -> BTreeMap<ChildKey, Total> {
    let mut sums: BTreeMap<ChildKey, Total> = BTreeMap::new();
    for (number, _) in f.rows.iter().enumerate().filter(|(_, row)| is_one(row)) {
        for child in f.row_details.children.of(number) {
            if let Some(key) = f.row_details.children.keys.get(child.key as usize) {
                sums.entry(*key).or_default().add(child.total);
            }
        }
    }
    sums
}

/// The rows of a table without `*self`.
fn children_of(rows: &[ChildRow]) -> BTreeMap<ChildKey, Total> {
    let key = |c: &ChildRow| ChildKey { kind: c.kind, function: c.function, site: c.site };
    rows.iter().filter(|child| child.kind != ChildKind::Own).map(|child| (key(child), child.total)).collect()
}

fn first_loss(by_cause: &[CauseLoss]) -> Option<ViolationPlace> {
    let first = by_cause.iter().map(|cause| cause.first).min()?;
    Some(ViolationPlace { tid: first.tid, time: first.time, at: Some(first.at) })
}

fn in_order(q: &Quantiles) -> [Option<u64>; 6] {
    [q.min_ns, q.p50_ns, q.p90_ns, q.p99_ns, q.p999_ns, q.max_ns]
}

/// Gaps, bytes, time and calls by cause.
type CheckedCauseSums = BTreeMap<(&'static str, Option<model::ObjectId>), [u64; 4]>;

fn sums<'r>(tables: impl IntoIterator<Item = &'r Vec<CauseLoss>>) -> CheckedCauseSums {
    let mut sums = CheckedCauseSums::new();
    tables.into_iter().for_each(|table| add_sums(&mut sums, table));
    sums
}

fn add_sums(sums: &mut CheckedCauseSums, table: &[CauseLoss]) {
    for loss in table {
        let sum = sums.entry((loss.cause.name(), loss.object())).or_default();
        for (sum, more) in sum.iter_mut().zip([loss.count, loss.bytes, loss.lost_ns, loss.calls]) {
            *sum = sum.saturating_add(more);
        }
    }
}
