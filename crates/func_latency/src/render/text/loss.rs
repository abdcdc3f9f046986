//! What was lost: how much of the time the report speaks for.

use std::io::{self, Write};

use analyzer::{CauseLoss, Limits, ThreadLoss};

use super::rule;
use crate::render::View;
use crate::render::table::{Align, Table, write_sentence};
use crate::render::units::{counted, duration, grouped, size};

/// Threads and CPUs that are listed, if not all are.
const LISTED: usize = 10;

pub(super) fn write(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let loss = &view.report.loss;
    rule(out, '=', width)?;
    let window = loss.threads.iter().map(|t| t.window_ns).fold(0, u64::saturating_add);
    let share = view.timed(loss).map(|loss| {
        let (lost, window) = (duration(loss.lost_ns), duration(window));
        format!("{lost} of {window} of thread time (coverage {})", coverage(loss.coverage))
    });
    let sentence = format!(
        "Lost: {}; {}, {}, {}",
        share.unwrap_or_else(|| "a share of the time that is not known".to_owned()),
        counted(loss.overflows, "overflow"),
        counted(loss.truncated, "full buffer"),
        counted(loss.errors, "decoding error"),
    );
    write_sentence(out, &sentence, (0, 2), width)?;
    view.timed(()).map_or(Ok(()), |()| outside(out, &loss.threads))?;
    if !loss.by_cause.is_empty() {
        causes(out, view, width)?;
        by_thread(out, view, width)?;
        by_cpu(out, view, width)?;
    }
    for problem in view.problems {
        writeln!(out, "  {problem}")?;
    }
    limits(out, &view.report.limits)
}

/// Never rounded up to a whole that it is not.
fn coverage(share: f64) -> String {
    let percent = 100.0 * share;
    if share < 1.0 && percent > 99.99 { "> 99.99 %".to_owned() } else { format!("{percent:.2} %") }
}

/// What an IP filter hides is not lost, but it is not visible either.
fn outside(out: &mut dyn Write, threads: &[ThreadLoss]) -> io::Result<()> {
    let outside = threads.iter().filter_map(|thread| thread.outside_ns);
    match outside.reduce(u64::saturating_add) {
        Some(ns) => writeln!(out, "  not lost, but not visible: {} outside of the IP filter", duration(ns)),
        None => Ok(()),
    }
}

fn causes(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let mut table = Table::new(&columns(
        "cause",
        &[("first in", Align::Right), ("at offset", Align::Right), ("object", Align::Left)],
    ));
    for loss in &view.report.loss.by_cause {
        let mut cells = vec![loss.cause.name().to_owned()];
        cells.extend(sums(view, std::slice::from_ref(loss)));
        let tid = loss.first.tid;
        cells.push(if tid.0 > 0 { format!("thread {}", tid.0) } else { "[unknown]".to_owned() });
        cells.push(if view.is_probed() { not_known() } else { loss.first.at.to_string() });
        cells.push(loss.object().map(|id| view.names.object(id)).unwrap_or_default());
        table.row(cells);
    }
    table.write(out, width)
}

/// Writes the loss of each thread, if there are several.
fn by_thread(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let threads = &view.report.loss.threads;
    let mut lossy: Vec<&ThreadLoss> = threads.iter().filter(|thread| !thread.by_cause.is_empty()).collect();
    if threads.len() < 2 || lossy.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    lossy.sort_by_key(|thread| (std::cmp::Reverse(thread.lost_ns), thread.tid));
    let mut table = Table::new(&columns("thread", &[("observed", Align::Right), ("mostly", Align::Left)]));
    for thread in lossy.iter().take(view.table_rows.details(LISTED)) {
        let mut cells = vec![thread.tid.0.to_string()];
        cells.extend(sums(view, &thread.by_cause));
        let observed = view.timed(thread.observed_ns).map_or_else(not_known, duration);
        cells.extend([observed, mostly(&thread.by_cause)]);
        table.row(cells);
    }
    table.write(out, width)?;
    more(out, view, lossy.len(), "thread")
}

/// Writes the loss of each CPU, if the recording says which.
fn by_cpu(out: &mut dyn Write, view: &View<'_>, width: usize) -> io::Result<()> {
    let cpus = &view.report.loss.cpus;
    if cpus.iter().all(|loss| loss.cpu.is_none()) {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&columns("CPU", &[("mostly", Align::Left)]));
    for loss in cpus.iter().take(view.table_rows.details(LISTED)) {
        let mut cells = vec![loss.cpu.map_or_else(|| "[unknown]".to_owned(), |cpu| cpu.0.to_string())];
        cells.extend(sums(view, &loss.by_cause));
        cells.push(mostly(&loss.by_cause));
        table.row(cells);
    }
    table.write(out, width)?;
    more(out, view, cpus.len(), "CPU")
}

/// The columns of a table: of what the rows are, [`sums`], and more.
fn columns(of: &'static str, more: &[(&'static str, Align)]) -> Vec<(&'static str, Align)> {
    let sums = ["count", "trace", "time", "in ns", "calls cut"].map(|name| (name, Align::Right));
    [&[(of, Align::Left)], &sums[..], more].concat()
}

/// Gaps, trace, time, the same in ns, calls.
fn sums(view: &View<'_>, by_cause: &[CauseLoss]) -> [String; 5] {
    let sum = |of: fn(&CauseLoss) -> u64| by_cause.iter().map(of).fold(0, u64::saturating_add);
    let lost_ns = view.timed(sum(|c| c.lost_ns));
    [
        grouped(sum(|c| c.count)),
        trace(sum(|c| c.bytes)),
        lost_ns.map_or_else(not_known, duration),
        lost_ns.map_or_else(not_known, grouped),
        grouped(sum(|c| c.calls)),
    ]
}

/// What was never written has no size that is known.
fn trace(bytes: u64) -> String {
    if bytes == 0 { not_known() } else { size(bytes) }
}

fn not_known() -> String {
    "-".to_owned()
}

fn mostly(by_cause: &[CauseLoss]) -> String {
    CauseLoss::largest(by_cause).map_or_else(String::new, |loss| loss.cause.name().to_owned())
}

fn more(out: &mut dyn Write, view: &View<'_>, all: usize, what: &str) -> io::Result<()> {
    match all.saturating_sub(view.table_rows.details(LISTED)) {
        0 => Ok(()),
        rest => writeln!(out, "  {}; --all prints them", counted(rest as u64, &format!("more {what}"))),
    }
}

fn limits(out: &mut dyn Write, limits: &Limits) -> io::Result<()> {
    let reached = [
        (limits.capped_tail_calls, "tail calls in chains so long that their oldest links were ended early"),
        (limits.capped_stacks, "times that a stack was deeper than is followed: its calls are cut"),
        (
            limits.undecided_landings,
            "landings of an exception or longjmp in one of several activations: a guess",
        ),
        (
            limits.undecided_calls,
            "calls that may have ended at another time, as control landed where several open calls had been, or may have",
        ),
        (
            limits.stack_switches,
            "times that control landed where no open call explains it (fibers, goroutines): open calls are cut",
        ),
    ];
    for (count, what) in reached.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "  {}: {what}", grouped(count))?;
    }
    Ok(())
}
