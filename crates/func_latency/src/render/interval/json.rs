//! One interval as JSON: schema `func_latency.watch/1`, described in `docs/report.schema.json`.

use std::io::{self, Write};

use analyzer::{ErrorBound, FunctionReport, Stats};
use serde::Serialize;

use super::{Interval, SeenBy, TraceSeen};
use crate::render::json::LatencyErrors;

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency.watch/1";

#[derive(Serialize)]
struct IntervalDocument {
    schema: &'static str,
    time_ns: u64,
    interval_ns: u64,
    functions: Vec<IntervalFunction>,
    trace_bytes: u64,
    lost_ns: u64,
    decoded: f64,
    behind_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes: Option<IntervalProbes>,
}

/// What probes cost, where the calls are known by them.
#[derive(Serialize)]
struct IntervalProbes {
    cost_percent: f64,
}

#[derive(Serialize)]
struct IntervalFunction {
    name: String,
    object: String,
    calls: u64,
    not_counted: u64,
    latency_ns: IntervalLatency,
    off_cpu_ns: Option<u64>,
}

/// Figures of the calls; all but count and sum are null where there is none.
#[derive(Serialize)]
struct IntervalLatency {
    count: u64,
    sum: u64,
    min: Option<u64>,
    mean: Option<f64>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    p999: Option<u64>,
    max: Option<u64>,
    #[serde(flatten)]
    errors: LatencyErrors,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rounded: bool,
}

impl IntervalLatency {
    fn of(stats: &Stats, error: &ErrorBound) -> Self {
        let spread = stats.spread.as_ref();
        Self {
            count: stats.count,
            sum: stats.sum_ns,
            min: spread.map(|of| of.min_ns),
            mean: spread.map(|of| of.mean_ns),
            p50: spread.map(|of| of.p50_ns),
            p90: spread.map(|of| of.p90_ns),
            p99: spread.map(|of| of.p99_ns),
            p999: spread.map(|of| of.p999_ns),
            max: spread.map(|of| of.max_ns),
            errors: LatencyErrors::of(stats, error),
            rounded: stats.rounded,
        }
    }
}

/// Calls that have no part in the figures: their begin or end was not seen.
fn not_counted(function: &FunctionReport) -> u64 {
    let calls = &function.calls;
    calls.open_start + calls.open_end + calls.cut
}

/// Writes the interval as one line.
///
/// # Errors
/// What `out` says.
pub(crate) fn write(out: &mut dyn Write, interval: &Interval<'_>) -> io::Result<()> {
    let function = |(figures, (name, object)): (&FunctionReport, &(String, String))| IntervalFunction {
        name: name.clone(),
        object: object.clone(),
        calls: figures.counted_calls(),
        not_counted: not_counted(figures),
        latency_ns: IntervalLatency::of(&figures.figures.latency, &figures.figures.error),
        off_cpu_ns: figures.figures.off_cpu.as_ref().map(|stats| stats.sum_ns),
    };
    let functions = interval.figures.iter().zip(interval.names).map(function);
    let (trace, probes) = match interval.seen_by {
        SeenBy::Trace(trace) => (trace, None),
        SeenBy::Probes { cost_percent } => (TraceSeen::default(), Some(IntervalProbes { cost_percent })),
    };
    let document = IntervalDocument {
        schema: SCHEMA,
        time_ns: interval.time_ns,
        interval_ns: interval.interval_ns,
        functions: functions.collect(),
        trace_bytes: trace.recorded_bytes,
        lost_ns: interval.lost_ns,
        decoded: trace.decoded(),
        behind_ns: trace.behind_ns,
        probes,
    };
    serde_json::to_writer(&mut *out, &document)?;
    out.write_all(b"\n")
}
