//! The figures of one interval, as the screen keeps them: with names, and without the analysis.

use std::collections::BTreeMap;

use analyzer::{Bucket, FunctionReport, Stats};

use crate::printable::printable;
use crate::render::Names;
use crate::render::interval::SeenBy;
use crate::render::names::{caller_name, child_name, reason_name, waker_name};
use crate::render::units::share;

/// What one interval has.
#[derive(Clone, Debug, Default)]
pub struct IntervalFigures {
    /// Its end, in ns of perf's clock.
    pub time_ns: u64,
    /// How long it was.
    pub interval_ns: u64,
    /// Of the calls that ended in it, as far as it was decoded; by function.
    pub functions: Vec<FunctionFigures>,
    /// Of all calls so far, by function; `None`: they were not counted anew.
    pub total: Option<Vec<FunctionFigures>>,
    /// The slowest calls of the interval.
    pub slowest: Vec<ListedCall>,
    /// Time that was lost in it, of all threads.
    pub lost_ns: u64,
    /// By what the calls are known.
    pub seen_by: SeenBy,
}

/// The calls of one function.
#[derive(Clone, Debug, Default)]
pub struct FunctionFigures {
    /// Demangled.
    pub name: String,
    /// Number of counted calls.
    pub calls: u64,
    /// Their latencies; of calls that are timed by probes, those of some of them.
    pub latency: Option<Stats>,
    /// How far the median may be off, in ns; `None`: it does not matter.
    pub error_ns: Option<u64>,
    /// The part of their time that they were off the CPU, in percent; `None`: not known.
    pub off_cpu: Option<f64>,
    /// Latencies by powers of two.
    pub histogram: Vec<Bucket>,
    /// Where the time went, the longest first.
    pub children: Vec<TimeRow>,
    /// From where the function was called, the longest first.
    pub callers: Vec<TimeRow>,
    /// What the calls waited for off the CPU, the longest first.
    pub waits: Vec<TimeRow>,
    /// What woke them, the longest sleep first.
    pub wakers: Vec<TimeRow>,
}

/// A child's, a caller's or a wait's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRow {
    /// What it is called.
    pub name: String,
    /// Time inside the calls, or of the calls.
    pub sum_ns: u64,
    /// How often.
    pub count: u64,
}

/// A call that was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCall {
    /// Position of its function among those that are watched.
    pub function: usize,
    /// Its id.
    pub id: String,
    /// Thread.
    pub tid: i32,
    /// When it began, in ns of perf's clock.
    pub start_ns: u64,
    /// How long it took.
    pub latency_ns: u64,
}

impl ListedCall {
    /// When it ended, in ns of perf's clock.
    pub(crate) const fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.latency_ns)
    }

    /// Name of the capture that it has or will have.
    pub(super) fn capture(&self) -> String {
        capture_name(self.start_ns, &self.id)
    }
}

/// What the directory of a capture is called: when it begins, in ns of perf's clock, and what was hit.
pub(crate) fn capture_name(start_ns: u64, hit: &str) -> String {
    format!("{start_ns}-{hit}")
}

impl FunctionFigures {
    /// Of a report, with the names of `names`.
    pub(crate) fn of(report: &FunctionReport, name: &str, names: &dyn Names) -> Self {
        let is_any = report.figures.latency.count > 0;
        let off_cpu = report.figures.off_cpu.as_ref().filter(|_| is_any);
        let children = report.figures.children.iter();
        let children =
            children.map(|child| (child_name(names, child), child.total.sum_ns, child.total.count));
        let callers = report.callers.iter();
        let callers = callers.map(|of| {
            (caller_name(names, of.from.caller), of.figures.latency.sum_ns, of.figures.latency.count)
        });
        let waits = report.off_cpu_causes.iter().flat_map(|causes| &causes.reasons);
        let waits = waits.map(|row| (reason_name(&row.reason), row.split.total_ns(), row.count));
        let wakers = report.off_cpu_causes.iter().flat_map(|causes| &causes.wakers);
        let wakers = wakers.map(|row| (waker_name(&row.waker), row.blocked_ns, row.count));
        Self {
            name: printable(name),
            calls: report.counted_calls(),
            latency: is_any.then_some(report.figures.latency),
            error_ns: report
                .figures
                .latency
                .spread
                .as_ref()
                .map(|spread| report.figures.error.of(spread.p50_ns, |q| q.p50_ns)),
            off_cpu: off_cpu.map(|stats| share(stats.sum_ns, report.figures.latency.sum_ns)),
            histogram: report.figures.histogram.clone(),
            children: rows(children),
            callers: rows(callers),
            waits: rows(waits),
            wakers: rows(wakers),
        }
    }
}

/// One row for each name, the longest first.
fn rows(of_sites: impl Iterator<Item = (String, u64, u64)>) -> Vec<TimeRow> {
    let mut by_name: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, sum_ns, count) in of_sites {
        let (known_ns, known) = by_name.entry(name).or_default();
        *known_ns = known_ns.saturating_add(sum_ns);
        *known += count;
    }
    let row =
        |(name, (sum_ns, count)): (String, (u64, u64))| TimeRow { name: printable(&name), sum_ns, count };
    let mut rows: Vec<TimeRow> = by_name.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.sum_ns));
    rows
}
