//! Calls to figures.  Per counted call three numbers are kept (exact percentiles need them), and a row if asked.

use rustc_hash::FxHashMap;

use crate::children::ChildSums;
use crate::histogram::histogram;
use crate::report::{
    CallCounts, CallRow, Caller, CallerReport, ErrorBound, FunctionReport, Place, Status, Tails, Total,
};
use crate::request::Request;
use crate::row_children::{Gathered, RowChildren};
use crate::row_reasons::RowReasons;
use crate::stats::{Quantiles, Stats};

/// The calls of all wanted functions so far.
pub(crate) struct Aggregate {
    request: Request,
    functions: Vec<FunctionSums>,
}

#[derive(Default)]
struct FunctionSums {
    calls: CallCounts,
    ended_by_jump: u64,
    undecided: u64,
    outermost: Total,
    /// The least that each call not seen from entry to end can have taken, being one of those asked for.
    open_ns: Vec<u64>,
    overfull: Option<CallRow>,
    callers: FxHashMap<(Caller, Option<Place>), CallerSums>,
    longest_open: Vec<CallRow>,
    rows: Vec<CallRow>,
    /// In the order of `rows`.
    row_children: Gathered,
}

#[derive(Default)]
struct CallerSums {
    latency_ns: Vec<u64>,
    off_cpu_ns: Vec<u64>,
    error_ns: Vec<u64>,
    children: ChildSums,
}

impl Aggregate {
    pub(crate) fn new(request: &Request) -> Self {
        let functions = request.functions.iter().map(|_| FunctionSums::default()).collect();
        Self { request: request.clone(), functions }
    }

    /// A call of the wanted function number `wanted` has ended, or will not be seen to end.  True if it is one of those
    /// that were asked for.
    pub(crate) fn add(&mut self, wanted: u32, row: &CallRow, children: &ChildSums) -> bool {
        if !self.is_asked_for(row) {
            return false;
        }
        let Some(sums) = self.functions.get_mut(wanted as usize) else { return false };
        sums.calls.add(row.status);
        if row.status.counted() {
            sums.count(row, children);
        } else {
            // One that is too short to be asked for has no part in the figures.
            sums.open_ns.push(row.at_least_ns().max(self.request.latency.min_ns));
            sums.list_open(row);
        }
        if self.request.rows {
            sums.rows.push(*row);
            if self.request.row_children {
                sums.row_children.add(children);
            }
        }
        true
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

impl FunctionSums {
    fn count(&mut self, row: &CallRow, children: &ChildSums) {
        self.ended_by_jump += u64::from(row.ended_by_jump);
        self.undecided += u64::from(row.undecided);
        if row.depth == 0 {
            self.outermost.add(Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns });
        }
        let sums = self.callers.entry((row.caller, row.site)).or_default();
        sums.latency_ns.push(row.latency_ns);
        sums.off_cpu_ns.push(row.off_cpu_ns);
        sums.error_ns.push(row.error_ns);
        let inside = sums.children.merge(children);
        if inside.sum_ns > row.latency_ns || inside.off_cpu_ns > row.off_cpu_ns {
            self.overfull.get_or_insert(*row);
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

    fn finish(self, id: model::FunctionId, percent: &impl Fn(u64) -> f64) -> FunctionReport {
        let mut all = CallerSums::default();
        let mut callers = Vec::with_capacity(self.callers.len());
        for ((caller, site), mut sums) in self.callers {
            all.latency_ns.extend_from_slice(&sums.latency_ns);
            all.off_cpu_ns.extend_from_slice(&sums.off_cpu_ns);
            all.error_ns.extend_from_slice(&sums.error_ns);
            all.children.merge(&sums.children);
            let figures = Figures::of(&mut sums);
            callers.push(CallerReport {
                caller,
                site,
                latency: figures.latency,
                off_cpu: figures.off_cpu,
                error: figures.error,
                children: sums.children.rows(figures.total(), percent),
                histogram: figures.histogram,
            });
        }
        let order = |c: &CallerReport| (std::cmp::Reverse(c.latency.sum_ns), c.caller, c.site);
        callers.sort_by_key(order);
        let (rows, row_children) = in_order(self.rows, self.row_children);
        let tails = Tails::of(&all.latency_ns, &all.error_ns, &self.open_ns);
        let figures = Figures::of(&mut all);
        FunctionReport {
            id,
            calls: self.calls,
            ended_by_jump: self.ended_by_jump,
            undecided: self.undecided,
            latency: figures.latency,
            off_cpu: figures.off_cpu,
            error: figures.error,
            tails,
            outermost: self.outermost,
            cpu_percent: percent(self.outermost.on_cpu_ns()),
            children: all.children.rows(figures.total(), percent),
            histogram: figures.histogram,
            callers,
            off_cpu_causes: None,
            longest_open: self.longest_open,
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

impl Tails {
    /// What the figures may be if the calls that were open or cut, of `open_ns` or longer, are counted, too.
    fn of(latency_ns: &[u64], error_ns: &[u64], open_ns: &[u64]) -> Self {
        let mut most = bounds(latency_ns, error_ns, u64::saturating_add);
        let mut least = bounds(latency_ns, error_ns, u64::saturating_sub);
        least.extend_from_slice(open_ns);
        Self {
            calls: open_ns.len() as u64,
            at_least: Quantiles::of(&mut least, 0),
            at_most: Quantiles::of(&mut most, open_ns.len()),
        }
    }
}

/// Each latency, off by its error.
fn bounds(latency_ns: &[u64], error_ns: &[u64], off: fn(u64, u64) -> u64) -> Vec<u64> {
    latency_ns.iter().zip(error_ns).map(|(ns, error)| off(*ns, *error)).collect()
}

impl ErrorBound {
    /// Of calls with these latencies, each of which may be off by its error.
    fn of(latency_ns: &[u64], error_ns: &[u64]) -> Self {
        Self {
            sum_ns: error_ns.iter().copied().fold(0, u64::saturating_add),
            max_ns: error_ns.iter().copied().max().unwrap_or(0),
            shorter: latency_ns.iter().zip(error_ns).filter(|(ns, error)| ns < error).count() as u64,
            low: Quantiles::of(&mut bounds(latency_ns, error_ns, u64::saturating_sub), 0),
            high: Quantiles::of(&mut bounds(latency_ns, error_ns, u64::saturating_add), 0),
        }
    }
}

/// The figures of a set of calls.
struct Figures {
    latency: Stats,
    off_cpu: Stats,
    error: ErrorBound,
    histogram: Vec<crate::histogram::Bucket>,
}

impl Figures {
    /// Sorts what it is the figures of.
    fn of(CallerSums { latency_ns, off_cpu_ns, error_ns, .. }: &mut CallerSums) -> Self {
        let error = ErrorBound::of(latency_ns, error_ns);
        latency_ns.sort_unstable();
        off_cpu_ns.sort_unstable();
        Self {
            error,
            latency: Stats::of_sorted(latency_ns),
            off_cpu: Stats::of_sorted(off_cpu_ns),
            histogram: histogram(latency_ns, off_cpu_ns),
        }
    }

    fn total(&self) -> Total {
        Total { count: self.latency.count, sum_ns: self.latency.sum_ns, off_cpu_ns: self.off_cpu.sum_ns }
    }
}
