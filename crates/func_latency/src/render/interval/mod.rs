//! The figures of one interval of `watch`, as a line, as JSON and as metrics.

pub mod json;
pub(crate) mod openmetrics;

use std::io::{self, Write};

use analyzer::FunctionReport;

use crate::render::units::{duration, mean_duration, percent, share, size};

/// What one interval has.
pub struct Interval<'a> {
    /// Its end, in perf's clock.
    pub(crate) time_ns: u64,
    /// How long it was.
    pub(crate) interval_ns: u64,
    /// Figures of the calls with ends decoded in it, by function.
    pub(crate) figures: &'a [FunctionReport],
    /// Name and object of each function.
    pub(crate) names: &'a [(String, String)],
    /// Bytes of trace that were recorded in it.
    pub(crate) trace_bytes: u64,
    /// Those of them that are not decoded.
    pub(crate) not_decoded_bytes: u64,
    /// Time that was lost, of all threads.
    pub(crate) lost_ns: u64,
    /// How much older the decoded trace is than the recorded one.
    pub(crate) behind_ns: u64,
}

const NS_PER_S: f64 = 1e9;

impl Interval<'_> {
    /// The share of the trace that is decoded, from 0 to 1.
    pub(crate) fn decoded(&self) -> f64 {
        match self.trace_bytes {
            0 => 1.0,
            all => (all - self.not_decoded_bytes.min(all)) as f64 / all as f64,
        }
    }

    fn seconds(&self) -> f64 {
        self.interval_ns.max(1) as f64 / NS_PER_S
    }
}

/// Writes what the columns are.
///
/// # Errors
/// What `out` says.
pub(crate) fn write_head(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>10} {:>9} {:>9}",
        "calls/s", "mean", "p50", "p90", "p99", "max", "off-CPU", "trace/s", "lost", "behind"
    )
}

/// Writes a line for each function.
///
/// # Errors
/// What `out` says.
pub(crate) fn write(out: &mut dyn Write, interval: &Interval<'_>) -> io::Result<()> {
    let none = || "-".to_owned();
    for (function, (name, _)) in interval.figures.iter().zip(interval.names) {
        let latency = &function.latency;
        let spread = latency.spread.as_ref();
        let of =
            |pick: fn(&analyzer::Spread) -> u64| spread.map_or_else(none, |spread| duration(pick(spread)));
        let off_cpu = function.off_cpu.as_ref().filter(|_| latency.count > 0);
        write!(
            out,
            "{:>10.0} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>10} {:>9} {:>9}",
            latency.count as f64 / interval.seconds(),
            spread.map_or_else(none, |spread| mean_duration(spread.mean_ns)),
            of(|spread| spread.p50_ns),
            of(|spread| spread.p90_ns),
            of(|spread| spread.p99_ns),
            of(|spread| spread.max_ns),
            off_cpu.map_or_else(none, |stats| percent(share(stats.sum_ns, latency.sum_ns))),
            size((interval.trace_bytes as f64 / interval.seconds()) as u64),
            duration(interval.lost_ns),
            duration(interval.behind_ns),
        )?;
        if interval.not_decoded_bytes > 0 {
            write!(out, "  decoded {:.0} %", 100.0 * interval.decoded())?;
        }
        if interval.names.len() > 1 {
            write!(out, "  {name}")?;
        }
        writeln!(out)?;
    }
    out.flush()
}
