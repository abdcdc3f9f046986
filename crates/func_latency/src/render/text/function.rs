//! One function: histogram, figures, children, callers, calls that were not seen whole.

use std::io::{self, Write};

use analyzer::{CallCounts, CallRow, FunctionReport, Spread, Stats};

use super::{callers, children, rule};
use crate::render::names::{caller_name, file_name};
use crate::render::table::{Align, Table};
use crate::render::units::{counted, duration, grouped, mean_duration, percent, share};
use crate::render::{View, histogram};

pub(super) fn write(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    inlined: u64,
    width: usize,
) -> io::Result<()> {
    let name = view.names.function(function.id);
    let object = view.names.object_of(function.id).unwrap_or_else(|| "[no object]".to_owned());
    rule(out, '=', width)?;
    writeln!(out, "Latency of [{name}] ({})", file_name(&object))?;
    if function.calls == CallCounts::default() {
        writeln!(out, "  no call of any kind was seen")?;
        return inlined_note(out, inlined);
    }
    let off_cpu = view.report.trace.off_cpu_known;
    if function.latency.count > 0 {
        histogram::write(out, &function.histogram, off_cpu)?;
        writeln!(out)?;
    }
    let went_off = function.histogram.iter().map(|b| b.off_cpu_count).sum();
    figures(out, &function.latency, off_cpu.then_some((&function.off_cpu, went_off)), width)?;
    if function.latency.count > 0 {
        error_line(out, function)?;
        cpu_line(out, view, function)?;
    }
    counts(out, function, inlined)?;
    if !function.children.is_empty() {
        rule(out, '-', width)?;
        writeln!(out, "Children of [{name}]")?;
        children::write(out, view, &function.children, width)?;
    }
    callers::write(out, view, function, &name, width)?;
    longest_open(out, view, function, &name, width)
}

/// Average, extremes, percentiles: rounded, and as they were measured.
pub(super) fn figures(
    out: &mut dyn Write,
    latency: &Stats,
    off_cpu: Option<(&Stats, u64)>,
    width: usize,
) -> io::Result<()> {
    let mut titles = vec![("", Align::Left), ("latency", Align::Right), ("in ns", Align::Right)];
    if off_cpu.is_some() {
        titles.extend([("off-CPU", Align::Right), ("in ns", Align::Right)]);
    }
    let Some(spread) = &latency.spread else {
        return writeln!(out, "  no call was seen from entry to return");
    };
    let mut table = Table::new(&titles);
    let mean = |s: &Spread| [mean_duration(s.mean_ns), exact_mean(s.mean_ns)];
    let exact = |ns: u64| [duration(ns), grouped(ns)];
    type Figure = fn(&Spread) -> u64;
    let rows: [(&str, Option<Figure>); 7] = [
        ("average", None),
        ("min", Some(|s| s.min_ns)),
        ("p50", Some(|s| s.p50_ns)),
        ("p90", Some(|s| s.p90_ns)),
        ("p99", Some(|s| s.p99_ns)),
        ("p99.9", Some(|s| s.p999_ns)),
        ("max", Some(|s| s.max_ns)),
    ];
    let off_spread = off_cpu.and_then(|(stats, _)| stats.spread.as_ref());
    for (title, figure) in rows {
        let mut cells = vec![title.to_owned()];
        for spread in [Some(spread), off_spread].into_iter().flatten() {
            cells.extend(figure.map_or_else(|| mean(spread), |figure| exact(figure(spread))));
        }
        table.row(cells);
    }
    table.write(out, width)?;
    write!(out, "  count: {}, total: {}", grouped(latency.count), duration(latency.sum_ns))?;
    match off_cpu {
        Some((stats, went_off)) => writeln!(
            out,
            ", off-CPU: {} ({} % of calls), total {}",
            grouped(went_off),
            percent(share(went_off, latency.count)),
            duration(stats.sum_ns)
        ),
        None => writeln!(out),
    }
}

/// `1,234.5`.
fn exact_mean(mean_ns: f64) -> String {
    let tenths = (mean_ns * 10.0).round() as u64; // saturates
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// Figures without their error would look exact.
fn error_line(out: &mut dyn Write, function: &FunctionReport) -> io::Result<()> {
    let mean = mean_duration(function.error.sum_ns as f64 / function.latency.count as f64);
    let max = duration(function.error.max_ns);
    writeln!(out, "  error of one latency: at most {mean} on average, {max} for the least certain call")
}

fn cpu_line(out: &mut dyn Write, view: &View<'_>, function: &FunctionReport) -> io::Result<()> {
    let known = view.report.trace.off_cpu_known;
    let estimated = if view.report.loss.coverage < 1.0 {
        "; estimated: what was seen stands for what was lost"
    } else {
        ""
    };
    let note = if known { "" } else { "; no context-switch records: off-CPU time is in it" };
    let cpu = percent(function.cpu_percent);
    writeln!(out, "  CPU percent: {cpu} % (100 % is one core{estimated}{note})")
}

fn counts(out: &mut dyn Write, function: &FunctionReport, inlined: u64) -> io::Result<()> {
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
        writeln!(out, "  {ended} ended at a jump out of the IP filter: where they went on was not traced")?;
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
    let mut table = Table::new(&[
        ("called from", Align::Left),
        ("at least", Align::Right),
        ("in ns", Align::Right),
        ("off-CPU", Align::Right),
        ("status", Align::Left),
        ("thread", Align::Right),
        ("start, ns", Align::Right),
    ]);
    for call in &function.longest_open {
        table.row(open_row(view, call));
    }
    table.write(out, width)
}

fn open_row(view: &View<'_>, call: &CallRow) -> Vec<String> {
    vec![
        caller_name(view.names, call.caller),
        duration(call.latency_ns),
        grouped(call.latency_ns),
        duration(call.off_cpu_ns),
        call.status.name().to_owned(),
        call.tid.0.to_string(),
        call.start_ns.0.to_string(),
    ]
}
