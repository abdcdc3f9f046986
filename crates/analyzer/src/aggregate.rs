//! Calls to figures.  Per counted call two numbers are kept (exact percentiles need them), and a row if asked.

use rustc_hash::FxHashMap;

use crate::children::ChildSums;
use crate::histogram::histogram;
use crate::report::{
    CallCounts, CallRow, Caller, CallerReport, ErrorBound, FunctionReport, Place, Status, Total,
};
use crate::request::Request;
use crate::stats::Stats;

/// The calls of all wanted functions so far.
pub(crate) struct Aggregate {
    request: Request,
    functions: Vec<FunctionSums>,
}

#[derive(Default)]
struct FunctionSums {
    calls: CallCounts,
    ended_by_jump: u64,
    error: ErrorBound,
    outermost: Total,
    callers: FxHashMap<(Caller, Option<Place>), CallerSums>,
    longest_open: Vec<CallRow>,
    rows: Vec<CallRow>,
}

#[derive(Default)]
struct CallerSums {
    latency_ns: Vec<u64>,
    off_cpu_ns: Vec<u64>,
    children: ChildSums,
}

impl Aggregate {
    pub(crate) fn new(request: &Request) -> Self {
        let functions = request.functions.iter().map(|_| FunctionSums::default()).collect();
        Self { request: request.clone(), functions }
    }

    /// A call of the wanted function number `wanted` has ended, or will not be seen to end.
    pub(crate) fn add(&mut self, wanted: u32, row: &CallRow, children: &ChildSums) {
        if !self.is_asked_for(row) {
            return;
        }
        let Some(sums) = self.functions.get_mut(wanted as usize) else { return };
        sums.calls.add(row.status);
        if row.status.counted() {
            sums.count(row, children);
        } else {
            sums.list_open(row);
        }
        if self.request.rows {
            sums.rows.push(*row);
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
    pub(crate) fn finish(self, percent: impl Fn(u64) -> f64) -> Vec<FunctionReport> {
        let Self { request, functions } = self;
        let pairs = request.functions.iter().zip(functions);
        pairs.map(|(&id, sums)| sums.finish(id, &percent)).collect()
    }
}

impl CallCounts {
    fn add(&mut self, status: Status) {
        *match status {
            Status::OpenStart => &mut self.open_start,
            Status::Cut => &mut self.cut,
            Status::OpenEnd => &mut self.open_end,
            Status::Unwound => &mut self.unwound,
            Status::Complete => &mut self.complete,
        } += 1;
    }
}

impl FunctionSums {
    fn count(&mut self, row: &CallRow, children: &ChildSums) {
        self.ended_by_jump += u64::from(row.ended_by_jump);
        self.error.sum_ns = self.error.sum_ns.saturating_add(row.error_ns);
        self.error.max_ns = self.error.max_ns.max(row.error_ns);
        if row.depth == 0 {
            self.outermost.add(Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns });
        }
        let sums = self.callers.entry((row.caller, row.site)).or_default();
        sums.latency_ns.push(row.latency_ns);
        sums.off_cpu_ns.push(row.off_cpu_ns);
        sums.children.merge(children);
    }

    /// Keeps the longest few of the calls that had not ended.
    fn list_open(&mut self, row: &CallRow) {
        let order = |r: &CallRow| (std::cmp::Reverse(r.latency_ns), r.start_ns, r.id);
        let at = self.longest_open.partition_point(|r| order(r) < order(row));
        if at < FunctionReport::LONGEST_OPEN {
            self.longest_open.insert(at, *row);
            self.longest_open.truncate(FunctionReport::LONGEST_OPEN);
        }
    }

    fn finish(mut self, id: model::FunctionId, percent: &impl Fn(u64) -> f64) -> FunctionReport {
        let (mut latency_ns, mut off_cpu_ns, mut children) = (Vec::new(), Vec::new(), ChildSums::default());
        let mut callers = Vec::with_capacity(self.callers.len());
        for ((caller, site), mut sums) in self.callers {
            latency_ns.extend_from_slice(&sums.latency_ns);
            off_cpu_ns.extend_from_slice(&sums.off_cpu_ns);
            children.merge(&sums.children);
            let figures = Figures::of(&mut sums.latency_ns, &mut sums.off_cpu_ns);
            callers.push(CallerReport {
                caller,
                site,
                latency: figures.latency,
                off_cpu: figures.off_cpu,
                children: sums.children.rows(figures.total(), percent),
                histogram: figures.histogram,
            });
        }
        let order = |c: &CallerReport| (std::cmp::Reverse(c.latency.sum_ns), c.caller, c.site);
        callers.sort_by_key(order);
        self.rows.sort_unstable_by_key(|r| (r.start_ns, r.tid, r.depth, r.id));
        let figures = Figures::of(&mut latency_ns, &mut off_cpu_ns);
        FunctionReport {
            id,
            calls: self.calls,
            ended_by_jump: self.ended_by_jump,
            latency: figures.latency,
            off_cpu: figures.off_cpu,
            error: self.error,
            outermost: self.outermost,
            cpu_percent: percent(self.outermost.on_cpu_ns()),
            children: children.rows(figures.total(), percent),
            histogram: figures.histogram,
            callers,
            longest_open: self.longest_open,
            rows: self.rows,
        }
    }
}

/// The figures of a set of calls.
struct Figures {
    latency: Stats,
    off_cpu: Stats,
    histogram: Vec<crate::histogram::Bucket>,
}

impl Figures {
    fn of(latency_ns: &mut [u64], off_cpu_ns: &mut [u64]) -> Self {
        latency_ns.sort_unstable();
        off_cpu_ns.sort_unstable();
        Self {
            latency: Stats::of_sorted(latency_ns),
            off_cpu: Stats::of_sorted(off_cpu_ns),
            histogram: histogram(latency_ns, off_cpu_ns),
        }
    }

    fn total(&self) -> Total {
        Total { count: self.latency.count, sum_ns: self.latency.sum_ns, off_cpu_ns: self.off_cpu.sum_ns }
    }
}
