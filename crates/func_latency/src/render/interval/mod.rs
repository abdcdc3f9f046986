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
    /// Time that was lost, of all threads.
    pub(crate) lost_ns: u64,
    /// By what the calls are known.
    pub(crate) seen_by: SeenBy,
}

/// By what calls are known, and what that took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SeenBy {
    /// By their trace.
    Trace(TraceSeen),
    /// By probes.
    Probes {
        /// CPU time of the probes, of that which the processes take without, in percent.
        cost_percent: f64,
    },
}

/// Trace of some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSeen {
    /// Bytes that were recorded.
    pub recorded_bytes: u64,
    /// Those of them that are not decoded.
    pub not_decoded_bytes: u64,
    /// How much older what is decoded is than what is recorded.
    pub behind_ns: u64,
}

impl Default for SeenBy {
    fn default() -> Self {
        Self::Trace(TraceSeen::default())
    }
}

impl TraceSeen {
    /// The share that is decoded, from 0 to 1.
    pub(crate) fn decoded(&self) -> f64 {
        match self.recorded_bytes {
            0 => 1.0,
            all => (all - self.not_decoded_bytes.min(all)) as f64 / all as f64,
        }
    }

    /// Bytes a second, in an interval.
    pub(crate) fn rate(&self, interval_ns: u64) -> u64 {
        (self.recorded_bytes as f64 / (interval_ns.max(1) as f64 / NS_PER_S)) as u64
    }

    /// What is said of trace that is left undecoded.
    pub(crate) fn left_undecoded(&self) -> Option<String> {
        (self.not_decoded_bytes > 0).then(|| format!("  decoded {:.0} %", 100.0 * self.decoded()))
    }
}

const NS_PER_S: f64 = 1e9;

impl Interval<'_> {
    fn seconds(&self) -> f64 {
        self.interval_ns.max(1) as f64 / NS_PER_S
    }
}

/// Writes what the columns are.
///
/// # Errors
/// What `out` says.
pub(crate) fn write_head(out: &mut dyn Write, seen_by: &SeenBy) -> io::Result<()> {
    let last = match seen_by {
        SeenBy::Trace(_) => ["trace/s", "lost", "behind"],
        SeenBy::Probes { .. } => ["p50 +-", "lost", "cost"],
    };
    let columns = ["calls/s", "mean", "p50", "p90", "p99", "max", "off-CPU"].into_iter().chain(last);
    write_line(out, columns.map(str::to_owned))?;
    writeln!(out)
}

/// Writes a line for each function.
///
/// # Errors
/// What `out` says.
pub(crate) fn write(out: &mut dyn Write, interval: &Interval<'_>) -> io::Result<()> {
    for (function, (name, _)) in interval.figures.iter().zip(interval.names) {
        write_line(out, cells(function, interval).into_iter())?;
        if let SeenBy::Trace(trace) = &interval.seen_by {
            write!(out, "{}", trace.left_undecoded().unwrap_or_default())?;
        }
        if interval.names.len() > 1 {
            write!(out, "  {name}")?;
        }
        writeln!(out)?;
    }
    out.flush()
}

fn cells(function: &FunctionReport, interval: &Interval<'_>) -> [String; 10] {
    let none = || "-".to_owned();
    let latency = &function.figures.latency;
    let spread = latency.spread.as_ref();
    let of = |pick: fn(&analyzer::Spread) -> u64| spread.map_or_else(none, |spread| duration(pick(spread)));
    let off_cpu = function.figures.off_cpu.as_ref().filter(|_| latency.count > 0);
    let lost = duration(interval.lost_ns);
    let [first, second, third] = match interval.seen_by {
        SeenBy::Trace(trace) => [size(trace.rate(interval.interval_ns)), lost, duration(trace.behind_ns)],
        SeenBy::Probes { cost_percent } => {
            let error = spread.map(|spread| function.figures.error.of(spread.p50_ns, |ranks| ranks.p50_ns));
            [error.map_or_else(none, duration), lost, format!("{} %", percent(cost_percent))]
        }
    };
    [
        format!("{:.0}", function.counted_calls() as f64 / interval.seconds()),
        spread.map_or_else(none, |spread| mean_duration(spread.mean_ns)),
        of(|spread| spread.p50_ns),
        of(|spread| spread.p90_ns),
        of(|spread| spread.p99_ns),
        of(|spread| spread.max_ns),
        off_cpu.map_or_else(none, |stats| percent(share(stats.sum_ns, latency.sum_ns))),
        first,
        second,
        third,
    ]
}

const WIDTHS: [usize; 10] = [10, 10, 10, 10, 10, 10, 7, 10, 9, 9];

/// Each cell in its column.
fn write_line(out: &mut dyn Write, cells: impl Iterator<Item = String>) -> io::Result<()> {
    for (at, (cell, width)) in cells.zip(WIDTHS).enumerate() {
        let space = if at == 0 { "" } else { " " };
        write!(out, "{space}{cell:>width$}")?;
    }
    Ok(())
}
