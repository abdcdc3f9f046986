//! The report as JSON: schema `func_latency/3`, described in `docs/report.schema.json`.
//!
//! Keys stand in the order of these structs. Ids of calls and addresses are strings, because not every
//! reader's numbers hold 64 bits; those of processes, threads and CPUs are numbers. What is not known is null
//! as a whole, never 0. New keys may be added; readers ignore those that they do not know.

use std::io::{self, Write};

use analyzer::{
    Bucket, CallCounts, CallerReport, ChildRow, CounterReport, ErrorBound, FunctionReport, OpenCaller,
    OpenCalls, OwnCode, Place, Quantiles, SliceKind, Sliced, Spread, Stats, Tails, Total,
};
use model::{NoOffCpu, NoTimes};
use serde::Serialize;

use super::by_host::HostReport;
use super::code_blocks::{Block, blocks};
use super::counters::{CountersJson, Numbers};
use super::json_causes::Causes;
use super::json_loss::Loss;
use super::names::{caller_name, child_name};
use super::rows::RowList;
use super::{Names, View};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency/3";

#[derive(Serialize)]
struct ReportDocument<'a> {
    schema: &'static str,
    trace: TraceJson,
    loss: Loss<'a>,
    functions: Vec<FunctionJson>,
    /// Of each host; not there if all is of one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<Host>,
}

/// The figures of one host.
#[derive(Serialize)]
struct Host {
    /// Null: its recordings do not tell.
    host: Option<String>,
    recordings: u64,
    coverage: Option<f64>,
    functions: Vec<HostFunction>,
}

#[derive(Serialize)]
struct HostFunction {
    name: String,
    object: Option<String>,
    calls: CallsJson,
    latency_ns: Option<LatencyJson>,
    off_cpu_ns: Option<FiguresJson>,
}

#[derive(Serialize)]
struct TraceJson {
    span_ns: u64,
    threads: u64,
    aux_bytes: u64,
    /// Always null: output does not depend on the number of workers.
    workers: Option<u64>,
    decoder: String,
    /// Null: perf does not record them.
    monotonic_offset_ns: Option<i64>,
    realtime_offset_ns: Option<i64>,
    /// How far off wake-ups may be, as another clock timed them; not there if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    sched_apart_ns: Option<u64>,
    start_ns: u64,
    end_ns: u64,
    events: u64,
    /// Why no time is known; null: times are known.
    no_times: Option<&'static str>,
    /// Why off-CPU time is not known; null: it is known.
    no_off_cpu: Option<&'static str>,
}

#[derive(Serialize)]
struct FunctionJson {
    name: String,
    object: Option<String>,
    calls: CallsJson,
    latency_ns: Option<LatencyJson>,
    /// Why `latency_ns` is null, and with it all that follows from times.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    off_cpu_ns: Option<FiguresJson>,
    cpu_percent: Option<f64>,
    /// The counted calls that are inside of no other one.
    outermost: Option<Outermost>,
    histogram: Option<Vec<TimeBucket>>,
    children: Vec<ChildJson>,
    /// Not there: not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    code_blocks: Option<Vec<CodeBlock>>,
    callers: Vec<CallerEntry>,
    longest_open: Option<RowList>,
    /// What was seen inside of calls that had not ended.
    open: Open,
    ended_by_jump: u64,
    /// Counted calls that ran outside of the IP filter.
    outside_filter: u64,
    undecided: u64,
    /// Null: not looked for.
    inlined_instances: Option<u64>,
    error_ns: Option<Error>,
    bounds_ns: Option<Bounds>,
    /// Null: figures and children are of all calls.
    slices: Option<Slices>,
    /// Bounds of the figures with the calls that were not seen to end.
    with_open_ns: Option<WithOpen>,
    /// Null: not looked for.
    off_cpu_causes: Option<Causes>,
    /// What the counted calls executed; not there if that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<CountersJson>,
}

/// Calls that are not inside of another call of the function.
#[derive(Serialize)]
struct Outermost {
    count: u64,
    sum: Option<u64>,
    error_sum: Option<u64>,
    off_cpu_sum: Option<u64>,
    /// The other counted calls.
    nested: u64,
}

/// A part of the function's own time, from a call to the next.
#[derive(Serialize)]
struct CodeBlock {
    name: String,
    kind: &'static str,
    site: String,
    line: Option<String>,
    /// Its last instruction; null: not known.
    to: Option<String>,
    to_line: Option<String>,
    count: u64,
    sum: Option<u64>,
    mean: Option<f64>,
    error_sum: Option<u64>,
    off_cpu_sum: Option<u64>,
}

/// Bound of the difference between printed and true latency, over the counted calls.
#[derive(Serialize)]
struct Error {
    mean: Option<f64>,
    max: Option<u64>,
    /// Calls with a latency shorter than its own bound.
    shorter: u64,
}

/// What the figures of `latency_ns` may be, by the errors of the calls.
#[derive(Serialize)]
struct Bounds {
    low: Ranks,
    high: Ranks,
}

/// Between what the figures of all calls that were seen lie.
#[derive(Serialize)]
struct WithOpen {
    /// Calls with only "at least" known.
    calls: u64,
    /// They took that.
    at_least: Ranks,
    /// They were longer than all others: null is unknown, above the longest.
    at_most: Ranks,
}

#[derive(Serialize)]
struct Ranks {
    min: Option<u64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct CallsJson {
    complete: u64,
    unwound: u64,
    open_start: u64,
    open_end: u64,
    cut: u64,
}

impl From<CallCounts> for CallsJson {
    fn from(calls: CallCounts) -> Self {
        let CallCounts { complete, unwound, open_start, open_end, cut, .. } = calls;
        Self { complete, unwound, open_start, open_end, cut }
    }
}

#[derive(Serialize)]
struct FiguresJson {
    count: u64,
    sum: Option<u64>,
    min: Option<u64>,
    mean: Option<f64>,
    stddev: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rounded: bool,
}

/// Figures, and how far off each may be.
#[derive(Serialize)]
struct LatencyJson {
    #[serde(flatten)]
    figures: FiguresJson,
    #[serde(flatten)]
    errors: LatencyErrors,
}

/// How far off figures may be: the larger of the distances from `bounds_ns`; null where there is no figure.
#[derive(Serialize)]
pub(crate) struct LatencyErrors {
    p50_error: Option<u64>,
    p90_error: Option<u64>,
    p99_error: Option<u64>,
    p999_error: Option<u64>,
    mean_error: Option<f64>,
}

/// Which calls figures and children are of, where children were probed in parts of the window.
#[derive(Serialize)]
struct Slices {
    /// Time of the slices in which the calls of the figures began.
    figures_ns: u64,
    /// Children were probed in them, too: there was no call in others.
    figures_with_children: bool,
    /// Calls that the children are of, scaled to the figures.
    children_calls: u64,
    /// Time of the slices in which those began.
    children_ns: u64,
    /// Their mean; null: there was none.
    children_mean: Option<f64>,
}

#[derive(Serialize)]
struct TimeBucket {
    low: u64,
    high: u64,
    count: u64,
    off_cpu_count: Option<u64>,
}

#[derive(Serialize)]
struct ChildJson {
    name: String,
    kind: &'static str,
    site: Option<String>,
    line: Option<String>,
    count: u64,
    sum: Option<u64>,
    mean: Option<f64>,
    error_sum: Option<u64>,
    off_cpu_sum: Option<u64>,
    cpu_percent: Option<f64>,
    /// What it executed; not there if that was not asked for, and not of open calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<Numbers>,
}

#[derive(Serialize)]
struct CallerEntry {
    name: String,
    site: Option<String>,
    line: Option<String>,
    calls: u64,
    latency_ns: Option<LatencyJson>,
    histogram: Option<Vec<TimeBucket>>,
    children: Vec<ChildJson>,
    off_cpu_ns: Option<FiguresJson>,
    error_ns: Option<Error>,
    bounds_ns: Option<Bounds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<CountersJson>,
}

/// Calls that were not seen from entry to end, without those inside of another one.
#[derive(Serialize)]
pub(super) struct Open {
    calls: u64,
    /// What was seen of them: the sum of `children`, and of `callers`.
    observed_ns: Option<u64>,
    /// Of that, after gaps.
    resumed_ns: Option<u64>,
    children: Vec<ChildJson>,
    callers: Vec<OpenCallerEntry>,
}

#[derive(Serialize)]
struct OpenCallerEntry {
    name: String,
    site: Option<String>,
    line: Option<String>,
    calls: u64,
    observed_ns: Option<u64>,
}

/// Writes the document, and a newline behind it.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    write_with_hosts(out, view, &[])
}

/// Writes the report, and the figures of each host.
///
/// # Errors
/// What `out` says.
pub(crate) fn write_with_hosts(out: &mut dyn Write, view: &View<'_>, hosts: &[HostReport]) -> io::Result<()> {
    let functions = view.report.functions.iter().enumerate();
    let document = ReportDocument {
        schema: SCHEMA,
        trace: trace(view),
        loss: Loss::new(view),
        functions: functions.map(|(i, f)| function(view, f, view.inlined_of(i))).collect(),
        hosts: hosts.iter().map(|of| host(view, of)).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn host(view: &View<'_>, HostReport { host, recordings, report }: &HostReport) -> Host {
    let function = |function: &FunctionReport| HostFunction {
        name: view.names.function(function.id),
        object: view.names.object_of(function.id),
        calls: function.calls.into(),
        latency_ns: view.timed(latency(&function.figures.latency, &function.figures.error)),
        off_cpu_ns: function.figures.off_cpu.as_ref().map(figures),
    };
    Host {
        host: host.clone(),
        recordings: *recordings,
        coverage: view.timed(report.loss.coverage),
        functions: report.functions.iter().map(function).collect(),
    }
}

fn trace(view: &View<'_>) -> TraceJson {
    let trace = &view.report.trace;
    TraceJson {
        span_ns: trace.span_ns,
        threads: trace.threads,
        aux_bytes: view.aux_bytes,
        workers: None,
        decoder: view.decoder.to_owned(),
        monotonic_offset_ns: view.clock_offsets.monotonic_ns,
        realtime_offset_ns: view.clock_offsets.realtime_ns,
        sched_apart_ns: view.sched_apart_ns,
        start_ns: trace.window.0.0,
        end_ns: trace.window.1.0,
        events: trace.events,
        no_times: trace.no_times.map(NoTimes::reason),
        no_off_cpu: trace.no_off_cpu.map(NoOffCpu::reason),
    }
}

/// Only rows say what a call waited for: a report without rows does not look at each call.
fn longest_open(view: &View<'_>, report: &FunctionReport) -> RowList {
    RowList::new(view.names, &report.open.longest)
}

fn function(view: &View<'_>, report: &FunctionReport, inlined_instances: Option<u64>) -> FunctionJson {
    FunctionJson {
        name: view.names.function(report.id),
        object: view.names.object_of(report.id),
        calls: report.calls.into(),
        latency_ns: view.timed(latency(&report.figures.latency, &report.figures.error)),
        reason: view.report.trace.no_times.map(NoTimes::reason),
        off_cpu_ns: report.figures.off_cpu.as_ref().map(figures),
        cpu_percent: report.outermost.cpu_percent,
        outermost: report.sliced.is_none().then(|| outermost(view, report)),
        histogram: view.timed(slots(&report.figures.histogram)),
        children: children(view, &report.figures.children, report.figures.counters.as_ref()),
        code_blocks: view.code_blocks_of(report.id).map(|code| code_blocks(view, code)),
        callers: report.callers.iter().map(|c| caller(view, c)).collect(),
        longest_open: view.timed(longest_open(view, report)),
        open: open_calls(view, &report.open),
        ended_by_jump: report.calls.ended_by_jump,
        outside_filter: report.calls.hidden,
        undecided: report.calls.undecided,
        inlined_instances,
        error_ns: view.timed(error(&report.figures.error, report.figures.latency.count)),
        bounds_ns: view.timed(bounds(&report.figures.error)),
        slices: report.sliced.as_ref().map(slices),
        with_open_ns: view.timed(with_open(&report.tails)),
        off_cpu_causes: report.off_cpu_causes.as_ref().map(|causes| Causes::new(causes, view.names)),
        counters: report.figures.counters.as_ref().map(CountersJson::of),
    }
}

pub(super) fn open_calls(view: &View<'_>, open: &OpenCalls) -> Open {
    let names = view.names;
    let caller = |c: &OpenCaller| OpenCallerEntry {
        name: caller_name(names, c.from.caller),
        site: c.from.site.map(|site| names.site(site)),
        line: line(names, c.from.site),
        calls: c.observed.count,
        observed_ns: view.timed(c.observed.sum_ns),
    };
    Open {
        calls: open.observed.count,
        observed_ns: view.timed(open.observed.sum_ns),
        resumed_ns: view.timed(open.resumed.sum_ns),
        children: children(view, &open.children, None),
        callers: open.callers.iter().map(caller).collect(),
    }
}

fn error(error: &ErrorBound, count: u64) -> Error {
    Error {
        mean: (count > 0).then(|| error.sum_ns as f64 / count as f64),
        max: (count > 0).then_some(error.max_ns),
        shorter: error.shorter,
    }
}

fn bounds(error: &ErrorBound) -> Bounds {
    Bounds { low: ranks(&error.low), high: ranks(&error.high) }
}

fn with_open(tails: &Tails) -> WithOpen {
    WithOpen { calls: tails.calls, at_least: ranks(&tails.at_least), at_most: ranks(&tails.at_most) }
}

fn ranks(q: &Quantiles) -> Ranks {
    Ranks { min: q.min_ns, p50: q.p50_ns, p90: q.p90_ns, p99: q.p99_ns, p999: q.p999_ns, max: q.max_ns }
}

fn figures(stats: &Stats) -> FiguresJson {
    let spread = stats.spread.as_ref();
    FiguresJson {
        count: stats.count,
        sum: spread.map(|_| stats.sum_ns),
        min: spread.map(|s| s.min_ns),
        mean: spread.map(|s| s.mean_ns),
        stddev: spread.map(|s| s.stddev_ns),
        p50: spread.map(|s| s.p50_ns),
        p90: spread.map(|s| s.p90_ns),
        p99: spread.map(|s| s.p99_ns),
        p999: spread.map(|s| s.p999_ns),
        max: spread.map(|s| s.max_ns),
        rounded: stats.rounded,
    }
}

fn latency(stats: &Stats, error: &ErrorBound) -> LatencyJson {
    LatencyJson { figures: figures(stats), errors: LatencyErrors::of(stats, error) }
}

impl LatencyErrors {
    pub(crate) fn of(stats: &Stats, error: &ErrorBound) -> Self {
        let error_of = |of: fn(&Quantiles) -> Option<u64>, figure: fn(&Spread) -> u64| {
            stats.spread.as_ref().map(|spread| error.of(figure(spread), of))
        };
        Self {
            p50_error: error_of(|q| q.p50_ns, |s| s.p50_ns),
            p90_error: error_of(|q| q.p90_ns, |s| s.p90_ns),
            p99_error: error_of(|q| q.p99_ns, |s| s.p99_ns),
            p999_error: error_of(|q| q.p999_ns, |s| s.p999_ns),
            mean_error: stats.spread.as_ref().map(|_| error.sum_ns as f64 / stats.count as f64),
        }
    }
}

fn slices(sliced: &Sliced) -> Slices {
    Slices {
        figures_ns: sliced.figures_span_ns,
        figures_with_children: sliced.figures_of == SliceKind::WithChildren,
        children_calls: sliced.children_calls,
        children_ns: sliced.children_span_ns,
        children_mean: sliced.children_mean_ns,
    }
}

fn slots(buckets: &[Bucket]) -> Vec<TimeBucket> {
    let slot = |b: &Bucket| TimeBucket {
        low: b.low_ns,
        high: b.high_ns,
        count: b.count,
        off_cpu_count: b.off_cpu_count,
    };
    buckets.iter().map(slot).collect()
}

fn children(view: &View<'_>, rows: &[ChildRow], counters: Option<&CounterReport>) -> Vec<ChildJson> {
    let numbers = |row: &ChildRow| {
        let of_kernel = counters?.sum.is_of_kernel();
        Some(Numbers::of(row.counted.as_ref()?, counters?.asked, of_kernel))
    };
    let names = view.names;
    let mean = |total: Total| (total.count > 0).then(|| total.sum_ns as f64 / total.count as f64);
    let child = |row: &ChildRow| ChildJson {
        name: child_name(names, row),
        kind: row.kind.name(),
        site: row.site.map(|site| names.site(site)),
        line: line(names, row.site),
        count: row.total.count,
        sum: view.timed(row.total.sum_ns),
        mean: view.timed(row.total).and_then(mean),
        error_sum: view.timed(row.error_ns),
        off_cpu_sum: row.total.off_cpu_ns,
        cpu_percent: row.cpu_percent,
        counters: numbers(row),
    };
    rows.iter().map(child).collect()
}

fn outermost(view: &View<'_>, report: &FunctionReport) -> Outermost {
    let Total { count, sum_ns, off_cpu_ns } = report.outermost.total;
    Outermost {
        count,
        sum: view.timed(sum_ns),
        error_sum: view.timed(report.outermost.error_ns),
        off_cpu_sum: off_cpu_ns,
        nested: report.nested_calls(),
    }
}

fn code_blocks(view: &View<'_>, code: &OwnCode) -> Vec<CodeBlock> {
    let names = view.names;
    let entry = |block: &Block| {
        let Total { count, sum_ns, off_cpu_ns } = block.time.total;
        CodeBlock {
            name: block.name(),
            kind: "code_block",
            site: names.site(block.start),
            line: names.line(block.start),
            to: block.end.map(|end| names.site(end)),
            to_line: line(names, block.end),
            count,
            sum: view.timed(sum_ns),
            mean: view.timed(sum_ns as f64 / count.max(1) as f64),
            error_sum: view.timed(block.time.error_ns),
            off_cpu_sum: off_cpu_ns,
        }
    };
    blocks(names, code).iter().map(entry).collect()
}

fn caller(view: &View<'_>, caller: &CallerReport) -> CallerEntry {
    let names = view.names;
    CallerEntry {
        name: caller_name(names, caller.from.caller),
        site: caller.from.site.map(|site| names.site(site)),
        line: line(names, caller.from.site),
        calls: caller.figures.latency.count,
        latency_ns: view.timed(latency(&caller.figures.latency, &caller.figures.error)),
        histogram: view.timed(slots(&caller.figures.histogram)),
        children: children(view, &caller.figures.children, caller.figures.counters.as_ref()),
        off_cpu_ns: caller.figures.off_cpu.as_ref().map(figures),
        error_ns: view.timed(error(&caller.figures.error, caller.figures.latency.count)),
        bounds_ns: view.timed(bounds(&caller.figures.error)),
        counters: caller.figures.counters.as_ref().map(CountersJson::of),
    }
}

fn line(names: &dyn Names, site: Option<Place>) -> Option<String> {
    site.and_then(|site| names.line(site))
}
