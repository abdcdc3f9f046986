//! One function: histogram, figures, children, callers, calls that were not seen whole.

use std::io::{self, Write};

use analyzer::{CallCounts, CallRow, FunctionReport};

use super::figures::Figures;
use super::{
    callers, children, code_blocks, counters, off_cpu, open_calls, rule, slices, summary, uncertain,
};
use crate::render::names::{caller_name, file_name};
use crate::render::table::{Align, Table, write_sentence};
use crate::render::units::{counted, duration, grouped, mean_duration, percent, share};
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
    let figures = Figures {
        of: &function.figures,
        tails: Some(&function.tails).filter(|tails| tails.calls > 0),
        outermost: (function.nested_calls() > 0).then_some(function.outermost),
    };
    summary::write(out, view, function, &figures, width)?;
    if function.figures.latency.count > 0 {
        uncertain::histogram(out, function.figures.error.shorter, function.figures.latency.count)?;
        match view.by {
            Some(metric) => {
                counters::histogram(out, std::iter::once(function.figures.counters.as_ref()), metric)?
            }
            None => histogram::write(out, &function.figures.histogram)?,
        }
        writeln!(out)?;
    }
    figures.write(out, width)?;
    if function.figures.latency.count > 0 {
        error_line(out, view, function, width)?;
        cpu_line(out, view, function)?;
    }
    slices::figures(out, function, view.report.trace.span_ns)?;
    counts(out, view, function, inlined)?;
    nested(out, function, width)?;
    counters::write(out, view, function, &name, width)?;
    if function.figures.children.is_empty() {
        slices::no_children(out, function)?;
    } else {
        rule(out, '-', width)?;
        writeln!(out, "Children of [{name}]")?;
        slices::children(out, function)?;
        if function.nested_calls() > 0 && function.time_once().is_none() {
            writeln!(
                out,
                "  by way of other functions it calls itself: their time has that of nested calls again"
            )?;
        }
        children::write(out, view, &function.figures.children, function.time_once(), width)?;
    }
    if let Some(blocks) = view.code_blocks_of(function.id) {
        rule(out, '-', width)?;
        writeln!(out, "Code blocks of [{name}]: its own time, from call to call")?;
        code_blocks::write(out, view, blocks, width)?;
    }
    if let Some(causes) = &function.off_cpu_causes {
        let about = off_cpu::About {
            name: &name,
            names: view.names,
            sched_apart_ns: view.sched_apart_ns,
            rows: view.table_rows,
        };
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

/// Figures without their error would look exact.
fn error_line(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    width: usize,
) -> io::Result<()> {
    let (error, count) = (&function.figures.error, function.figures.latency.count);
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
        let sentence = format!(
            "{calls} ({of_all} %) took less than their own error: all that is known is an upper bound"
        );
        write_sentence(out, &sentence, (2, 4), width)?;
    }
    if function.figures.latency.rounded {
        let sentence = "more than 1,048,576 latencies are different: percentiles and stddev are of latencies \
                        rounded down by less than 0.1 %";
        write_sentence(out, sentence, (2, 4), width)?;
    }
    Ok(())
}

fn cpu_line(out: &mut dyn Write, view: &View<'_>, function: &FunctionReport) -> io::Result<()> {
    let Some(cpu_percent) = function.outermost.cpu_percent else {
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
    // As far off as the latencies that it is of; a thread is on one core at most.
    let error = cpu_percent * share(function.outermost.error_ns, function.outermost.total.sum_ns) / 100.0;
    let cores = 100.0 * view.report.trace.threads as f64;
    let cpu = match percent(error) {
        _ if error >= cpu_percent && error > 0.0 => {
            format!("at most {} %", percent((cpu_percent + error).min(cores)))
        }
        error if error == "0.0" || error.starts_with('<') => format!("{} %", percent(cpu_percent)),
        error => format!("{} % +- {error}", percent(cpu_percent)),
    };
    writeln!(out, "  CPU percent: {cpu} (100 % is one core{estimated})")
}

/// How many calls ran inside of others.
fn nested(out: &mut dyn Write, function: &FunctionReport, width: usize) -> io::Result<()> {
    let nested = function.nested_calls();
    if nested == 0 {
        return Ok(());
    }
    let (all, verb) =
        (counted(function.figures.latency.count, "call"), if nested == 1 { "is" } else { "are" });
    let sentence = format!(
        "of these {all} {} {verb} inside another one: totals and shares are those of the {} that are not",
        grouped(nested),
        grouped(function.outermost.total.count)
    );
    write_sentence(out, &sentence, (2, 4), width)
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
    if function.calls.ended_by_jump > 0 {
        let ended = counted(function.calls.ended_by_jump, "call");
        let has_filter = view.report.loss.threads.iter().any(|thread| thread.outside_ns.is_some());
        let out_of = if has_filter { "the IP filter" } else { "the function" };
        writeln!(
            out,
            "  {ended} ended at a jump out of {out_of}: where they went on was not traced, and they took that long or longer"
        )?;
    }
    if function.calls.hidden > 0 {
        let hidden = counted(function.calls.hidden, "counted call");
        writeln!(
            out,
            "  {hidden} ran outside of the IP filter: only calls by code inside of it are seen, and none of what they called outside"
        )?;
    }
    if function.calls.undecided > 0 {
        let guessed = counted(function.calls.undecided, "counted call");
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
    if function.open.longest.is_empty() {
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
    for call in &function.open.longest {
        table.row(open_row(view, call));
    }
    table.write(out, width)
}

fn open_row(view: &View<'_>, call: &CallRow) -> Vec<String> {
    let mut cells = vec![
        caller_name(view.names, call.from.caller),
        duration(call.at_least_ns()),
        grouped(call.at_least_ns()),
    ];
    cells.extend(call.off_cpu_ns.map(duration));
    cells.extend([status(call), call.id.tid.0.to_string(), call.start_ns.0.to_string()]);
    cells
}

/// A cut call's says what cut it.
fn status(call: &CallRow) -> String {
    let name = call.end.status.name();
    call.end.cut_by.map_or_else(|| name.to_owned(), |cut| format!("{name} ({})", cut.cause.name()))
}
