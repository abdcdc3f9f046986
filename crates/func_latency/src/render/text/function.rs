//! One function: histogram, figures, children, callers, calls that were not seen whole.

use std::io::{self, Write};

use analyzer::{Bucket, CallCounts, CallRow, ErrorBound, FunctionReport, Quantiles, Spread, Stats, Tails};

use super::{callers, children, off_cpu, open_calls, rule, slices, uncertain};
use crate::render::names::{caller_name, file_name};
use crate::render::table::{Align, Table};
use crate::render::units::{
    counted, duration, duration_within, grouped, mean_duration, mean_duration_within, percent, share,
};
use crate::render::{View, histogram};

pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    inlined: u64,
    width: usize,
) -> io::Result<()> {
    let name = title(out, "Latency", view, function, width)?;
    if function.calls == CallCounts::default() {
        return no_call(out, inlined);
    }
    if function.latency.count > 0 {
        uncertain::histogram(out, function.error.shorter, function.latency.count)?;
        histogram::write(out, &function.histogram)?;
        writeln!(out)?;
    }
    let figures = Figures {
        latency: &function.latency,
        error: &function.error,
        tails: Some(&function.tails).filter(|tails| tails.calls > 0),
        off_cpu: OffCpuFigures::of(function.off_cpu.as_ref(), &function.histogram),
    };
    figures.write(out, width)?;
    if function.latency.count > 0 {
        tails_note(out, &function.tails)?;
        error_line(out, view, function)?;
        cpu_line(out, view, function)?;
    }
    slices::figures(out, function, view.report.trace.span_ns)?;
    counts(out, view, function, inlined)?;
    if function.children.is_empty() {
        slices::no_children(out, function)?;
    } else {
        rule(out, '-', width)?;
        writeln!(out, "Children of [{name}]")?;
        slices::children(out, function)?;
        children::write(out, view, &function.children, width)?;
    }
    if let Some(causes) = &function.off_cpu_causes {
        let about = off_cpu::About { name: &name, names: view.names, sched_apart_ns: view.sched_apart_ns };
        off_cpu::write(out, causes, &about, width)?;
    }
    callers::write(out, view, function, &name, width)?;
    open_calls::write(out, view, &function.open, &name, width)?;
    longest_open(out, view, function, &name, width)
}

/// Writes what the function's part begins with, and returns its name.
pub(super) fn title(
    out: &mut dyn Write,
    what: &str,
    view: &View<'_>,
    function: &FunctionReport,
    width: usize,
) -> io::Result<String> {
    let name = view.names.function(function.id);
    let object = view.names.object_of(function.id).unwrap_or_else(|| "[no object]".to_owned());
    rule(out, '=', width)?;
    writeln!(out, "{what} of [{name}] ({})", file_name(&object))?;
    Ok(name)
}

/// The figures of a set of calls: average, extremes, percentiles.
pub(super) struct Figures<'r> {
    pub(super) latency: &'r Stats,
    pub(super) error: &'r ErrorBound,
    /// What they may be with the calls that were not seen to end, if there are some.
    pub(super) tails: Option<&'r Tails>,
    /// Off-CPU time, if it is known.
    pub(super) off_cpu: Option<OffCpuFigures<'r>>,
}

/// Off-CPU time of a set of calls.
#[derive(Clone, Copy)]
pub(super) struct OffCpuFigures<'r> {
    stats: &'r Stats,
    /// Calls that were off the CPU at all.
    calls: u64,
}

impl<'r> OffCpuFigures<'r> {
    pub(super) fn of(stats: Option<&'r Stats>, histogram: &[Bucket]) -> Option<Self> {
        let calls = histogram.iter().filter_map(|bucket| bucket.off_cpu_count).sum();
        stats.map(|stats| Self { stats, calls })
    }
}

/// One of the figures, in each of the places that have it.
type Figure = (&'static str, fn(&Spread) -> u64, fn(&Quantiles) -> Option<u64>);

const FIGURES: [Figure; 6] = [
    ("min", |s| s.min_ns, |q| q.min_ns),
    ("p50", |s| s.p50_ns, |q| q.p50_ns),
    ("p90", |s| s.p90_ns, |q| q.p90_ns),
    ("p99", |s| s.p99_ns, |q| q.p99_ns),
    ("p99.9", |s| s.p999_ns, |q| q.p999_ns),
    ("max", |s| s.max_ns, |q| q.max_ns),
];

impl Figures<'_> {
    /// Rounded to what is known, and as they were measured, with how far off they may be.
    pub(super) fn write(&self, out: &mut dyn Write, width: usize) -> io::Result<()> {
        let Some(spread) = &self.latency.spread else {
            return writeln!(out, "  no call was seen from entry to return");
        };
        let right = |title| (title, Align::Right);
        let mut titles = vec![("", Align::Left), right("latency"), right("in ns"), right("+- ns")];
        if self.tails.is_some() {
            titles.push(right("with open calls"));
        }
        let off_spread = self.off_cpu.and_then(|off_cpu| off_cpu.stats.spread.as_ref());
        if off_spread.is_some() {
            titles.extend([right("off-CPU"), right("in ns")]);
        }
        let mut table = Table::new(&titles);
        let mut average = self.average(spread);
        if let Some(off_cpu) = off_spread {
            average.extend([mean_duration(off_cpu.mean_ns), exact_mean(off_cpu.mean_ns)]);
        }
        table.row(average);
        for (title, of_spread, of) in FIGURES {
            let ns = of_spread(spread);
            let error_ns = self.error.of(ns, of);
            let mut cells = vec![title.to_owned(), duration_within(ns, error_ns)];
            cells.extend(exactly(grouped(ns), grouped(error_ns), error_ns < ns || error_ns == 0));
            cells.extend(self.tails.map(|tails| between(of(&tails.at_least), of(&tails.at_most))));
            if let Some(off_cpu) = off_spread {
                let ns = of_spread(off_cpu);
                cells.extend([duration(ns), grouped(ns)]);
            }
            table.row(cells);
        }
        table.write(out, width)?;
        self.totals(out)
    }

    fn average(&self, spread: &Spread) -> Vec<String> {
        let error_ns = self.error.sum_ns as f64 / self.latency.count as f64;
        let rounded = mean_duration_within(spread.mean_ns, error_ns);
        let mut cells = vec!["average".to_owned(), rounded];
        let is_number = error_ns.round() < spread.mean_ns.round() || error_ns < 1.0;
        cells.extend(exactly(exact_mean(spread.mean_ns), exact_mean(error_ns), is_number));
        cells.extend(self.tails.map(|_| String::new()));
        cells
    }

    fn totals(&self, out: &mut dyn Write) -> io::Result<()> {
        let latency = self.latency;
        let total = duration_within(latency.sum_ns, self.error.sum_ns);
        write!(out, "  count: {}, total: {total}", grouped(latency.count))?;
        match self.off_cpu {
            Some(OffCpuFigures { stats, calls }) => writeln!(
                out,
                ", off-CPU: {} ({} % of calls), total {}",
                grouped(calls),
                percent(share(calls, latency.count)),
                duration(stats.sum_ns)
            ),
            None => writeln!(out),
        }
    }
}

/// A figure and its error; where it is less than that, nothing is known of it but that it is below what
/// stands before these.
fn exactly(figure: String, error: String, is_number: bool) -> [String; 2] {
    if is_number { [figure, error] } else { [String::new(), String::new()] }
}

/// Between what a figure is if calls of unknown length are counted, too.
fn between(at_least: Option<u64>, at_most: Option<u64>) -> String {
    match (at_least, at_most) {
        (Some(low), Some(high)) if low == high => duration(low),
        (Some(low), Some(high)) => format!("{} to {}", duration(low), duration(high)),
        (Some(low), None) => format!("{} or more", duration(low)),
        (None, _) => String::new(),
    }
}

/// `1,234.5`.
fn exact_mean(mean_ns: f64) -> String {
    let tenths = (mean_ns * 10.0).round() as u64; // saturates
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// Figures without their error would look exact.
fn error_line(out: &mut dyn Write, view: &View<'_>, function: &FunctionReport) -> io::Result<()> {
    let (error, count) = (&function.error, function.latency.count);
    let mean = mean_duration(error.sum_ns as f64 / count as f64);
    let max = duration(error.max_ns);
    if view.is_probed() {
        writeln!(
            out,
            "  error of one latency, as probes were measured: {mean} on average, {max} for the least certain call"
        )?;
    } else {
        writeln!(out, "  error of one latency: at most {mean} on average, {max} for the least certain call")?;
    }
    if error.shorter > 0 {
        let (calls, of_all) = (counted(error.shorter, "call"), percent(share(error.shorter, count)));
        writeln!(
            out,
            "  {calls} ({of_all} %) took less than their own error: all that is known is an upper bound"
        )?;
    }
    Ok(())
}

/// What the column says.
fn tails_note(out: &mut dyn Write, tails: &Tails) -> io::Result<()> {
    if tails.calls == 0 {
        return Ok(());
    }
    let calls = counted(tails.calls, "call");
    writeln!(
        out,
        "  with open calls: the figure with the {calls} not seen to end, if each took its \"at least\" up to if each was\n  \
         the longest of all; \"or more\": unknown, above the longest that was seen to end"
    )
}

fn cpu_line(out: &mut dyn Write, view: &View<'_>, function: &FunctionReport) -> io::Result<()> {
    let Some(cpu_percent) = function.cpu_percent else {
        return match view.report.trace.no_off_cpu {
            Some(why) => writeln!(out, "  off-CPU time and CPU percent: not known: {why}"),
            None => Ok(()),
        };
    };
    let estimated = if view.report.loss.coverage < 1.0 {
        "; estimated: what was seen stands for what was lost"
    } else {
        ""
    };
    // As far off as the latencies that it is of.
    let error = cpu_percent * share(function.error.sum_ns, function.latency.sum_ns) / 100.0;
    let cpu = match percent(error) {
        _ if error >= cpu_percent && error > 0.0 => {
            format!("at most {} %", percent(cpu_percent + error))
        }
        error if error == "0.0" || error.starts_with('<') => format!("{} %", percent(cpu_percent)),
        error => format!("{} % +- {error}", percent(cpu_percent)),
    };
    writeln!(out, "  CPU percent: {cpu} (100 % is one core{estimated})")
}

/// That no call was seen.
pub(super) fn no_call(out: &mut dyn Write, inlined: u64) -> io::Result<()> {
    writeln!(out, "  no call of any kind was seen")?;
    inlined_note(out, inlined)
}

/// How many calls were seen, and how much of them.
pub(super) fn counts(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    inlined: u64,
) -> io::Result<()> {
    let calls = &function.calls;
    writeln!(
        out,
        "  counted: {} complete, {} unwound; not counted: {} open at start, {} open at end, {} cut",
        grouped(calls.complete),
        grouped(calls.unwound),
        grouped(calls.open_start),
        grouped(calls.open_end),
        grouped(calls.cut)
    )?;
    if function.ended_by_jump > 0 {
        let ended = counted(function.ended_by_jump, "call");
        let has_filter = view.report.loss.threads.iter().any(|thread| thread.outside_ns.is_some());
        let out_of = if has_filter { "the IP filter" } else { "the function" };
        writeln!(
            out,
            "  {ended} ended at a jump out of {out_of}: where they went on was not traced, and they took that long or longer"
        )?;
    }
    if function.hidden > 0 {
        let hidden = counted(function.hidden, "counted call");
        writeln!(
            out,
            "  {hidden} ran outside of the IP filter: only calls by code inside of it are seen, and none of what they called outside"
        )?;
    }
    if function.undecided > 0 {
        let guessed = counted(function.undecided, "counted call");
        writeln!(
            out,
            "  {guessed} may have ended at another time: control landed where several open calls had been, or may have,\n  or \
             calls from the same place came and went meanwhile, out of sight"
        )?;
    }
    inlined_note(out, inlined)
}

fn inlined_note(out: &mut dyn Write, inlined: u64) -> io::Result<()> {
    if inlined > 0 {
        let instances = counted(inlined, "inlined instance");
        let verb = if inlined == 1 { "is" } else { "are" };
        writeln!(out, "  {instances} {verb} not counted")?;
    }
    Ok(())
}

/// The worst outlier is often the call that had not ended.
fn longest_open(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    name: &str,
    width: usize,
) -> io::Result<()> {
    if function.longest_open.is_empty() {
        return Ok(());
    }
    rule(out, '-', width)?;
    writeln!(out, "Longest calls of [{name}] that were not seen to end")?;
    let mut titles = vec![("called from", Align::Left), ("at least", Align::Right), ("in ns", Align::Right)];
    if view.report.trace.no_off_cpu.is_none() {
        titles.push(("off-CPU", Align::Right));
    }
    titles.extend([("status", Align::Left), ("thread", Align::Right), ("start, ns", Align::Right)]);
    let mut table = Table::new(&titles);
    for call in &function.longest_open {
        table.row(open_row(view, call));
    }
    table.write(out, width)
}

fn open_row(view: &View<'_>, call: &CallRow) -> Vec<String> {
    let mut cells =
        vec![caller_name(view.names, call.caller), duration(call.at_least_ns()), grouped(call.at_least_ns())];
    cells.extend(call.off_cpu_ns.map(duration));
    cells.extend([status(call), call.tid.0.to_string(), call.start_ns.0.to_string()]);
    cells
}

/// A cut call's says what cut it.
fn status(call: &CallRow) -> String {
    let name = call.status.name();
    call.cut_by.map_or_else(|| name.to_owned(), |cut| format!("{name} ({})", cut.cause.name()))
}
