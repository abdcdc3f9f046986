//! The timeline (`-l`): each call of a function as a dot where and as long as it was, by thread.
//!
//! ```text
//! rows -> plots      threads with the slowest calls have one each, all others one together
//!      -> plot       axes that all plots share; dots and arrows on a canvas of braille characters
//!      -> outliers   the slowest calls one by one
//! ```

mod axis;
mod canvas;
mod outliers;
mod plot;

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::{CallRow, FunctionReport};
use model::{Ns, Tid};

use super::View;
use super::names::{file_name, slice_name};
use super::units::{counted, duration, grouped};
use plot::Frame;

/// Threads that have a plot of their own.
const PLOTS: usize = 8;

/// How to draw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineStyle {
    /// Consecutive calls of a thread that are drawn as their least, median and most; 1: each call.
    pub bin_calls: usize,
    /// The time to draw, if not all (`--ti`).
    pub window: Option<(Ns, Ns)>,
    /// Colours may be used.
    pub colour: bool,
    /// Columns of a line.
    pub width: usize,
}

/// Draws the rows of all functions. The names of the view, and that of its file, are written as they are:
/// they must be harmless to a terminal.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, view: &View<'_>, style: &TimelineStyle) -> io::Result<()> {
    view.report.functions.iter().try_for_each(|function| write_function(out, view, function, style))
}

fn write_function(
    out: &mut dyn Write,
    view: &View<'_>,
    function: &FunctionReport,
    style: &TimelineStyle,
) -> io::Result<()> {
    let object = view.names.object_of(function.id).unwrap_or_else(|| "[no object]".to_owned());
    writeln!(out, "\n{}", "=".repeat(style.width))?;
    writeln!(out, "Timeline of [{}] ({})", view.names.function(function.id), file_name(&object))?;
    if function.rows.is_empty() {
        return writeln!(out, "  no call of any kind was seen");
    }
    let (from, to) = span(view, style);
    legend(out, function, style, from)?;
    let slowest_ns = function.figures.latency.spread.map(|spread| spread.p999_ns);
    let frame = Frame::new(&function.rows, (from, to), slowest_ns.unwrap_or(u64::MAX), style);
    for plot in plots(&function.rows) {
        writeln!(out, "\n{}", plot.title)?;
        frame.write(out, &plot.rows, style.colour)?;
    }
    match slowest_ns {
        Some(ns) => outliers::write(out, view, function, ns, from, style.width),
        None => Ok(()),
    }
}

/// First and last instant that is drawn.
fn span(view: &View<'_>, style: &TimelineStyle) -> (u64, u64) {
    let (begin, end) = view.report.trace.window;
    let (from, to) = style.window.unwrap_or((begin, end));
    (begin.max(from).0, end.min(to).0)
}

fn legend(
    out: &mut dyn Write,
    function: &FunctionReport,
    style: &TimelineStyle,
    from_ns: u64,
) -> io::Result<()> {
    if style.bin_calls > 1 {
        let calls = grouped(style.bin_calls as u64);
        writeln!(
            out,
            "  three dots for each {calls} calls of a thread: their least, median and most; at the time"
        )?;
        writeln!(out, "  when the first of them began")?;
    } else {
        writeln!(out, "  a dot is a call (or several) at the time when it began, by its latency")?;
    }
    if function.rows.iter().any(|row| !row.end.status.counted()) {
        writeln!(out, "  an arrow is a call that was not seen from entry to end: it took longer")?;
    }
    if let Some(sliced) = function.sliced {
        let kind = slice_name(sliced.figures_of);
        writeln!(
            out,
            "  figures are of calls that began where the function was probed {kind}; all are drawn"
        )?;
    }
    writeln!(out, "  time 0 is {from_ns} ns of perf's clock;")?;
    writeln!(out, "  --ti {from_ns},MIN,MAX shows the calls from MIN to MAX ns after it")
}

/// The calls of one plot: those of a thread together, in the order of their start.
struct Plot<'a> {
    title: String,
    rows: Vec<&'a CallRow>,
}

/// Threads with the slowest calls first; where there are many, those behind them share the last plot.
fn plots(rows: &[CallRow]) -> Vec<Plot<'_>> {
    let mut by_thread: BTreeMap<Tid, Vec<&CallRow>> = BTreeMap::new();
    for row in rows {
        by_thread.entry(row.id.tid).or_default().push(row);
    }
    let mut threads: Vec<(Tid, Vec<&CallRow>)> = by_thread.into_iter().collect();
    threads.sort_by_key(|(_, rows)| std::cmp::Reverse(longest_ns(rows))); // stable: then by thread
    // One thread alone needs no plot "of others".
    let own = if threads.len() > PLOTS + 1 { PLOTS } else { threads.len() };
    let others = threads.split_off(own);
    let mut plots: Vec<Plot<'_>> = threads
        .into_iter()
        .map(|(tid, rows)| Plot { title: format!("Thread {}: {}", tid.0, summary(&rows)), rows })
        .collect();
    if !others.is_empty() {
        let count = others.len();
        let rows: Vec<&CallRow> = others.into_iter().flat_map(|(_, rows)| rows).collect();
        let title = format!("The other {count} threads (-T TID: one of them): {}", summary(&rows));
        plots.push(Plot { title, rows });
    }
    plots
}

fn longest_ns(rows: &[&CallRow]) -> u64 {
    rows.iter().map(|row| row.latency_ns).max().unwrap_or(0)
}

/// `6,711 calls, the longest 2.00 ms; 2 not seen from entry to end, the longest at least 9.00 ms`.
fn summary(rows: &[&CallRow]) -> String {
    let (whole, open): (Vec<&CallRow>, Vec<&CallRow>) = rows.iter().partition(|row| row.end.status.counted());
    let mut text = counted(whole.len() as u64, "call");
    if !whole.is_empty() {
        text = format!("{text}, the longest {}", duration(longest_ns(&whole)));
    }
    if !open.is_empty() {
        let (count, longest) = (grouped(open.len() as u64), duration(longest_ns(&open)));
        text = format!("{text}; {count} not seen from entry to end, the longest at least {longest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rows::row;
    use analyzer::Status;

    /// Every thread is in a plot, however many there are.
    #[test]
    fn threads_with_the_slowest_calls_have_their_own_plot() {
        let rows: Vec<CallRow> = (0..20).map(|i| row(i, 0, 100 + i as u64, Status::Complete)).collect();
        let plots = plots(&rows);
        assert_eq!(plots.len(), PLOTS + 1);
        assert_eq!(plots[0].title, "Thread 19: 1 call, the longest 119 ns");
        let last = &plots[PLOTS];
        assert_eq!(last.title, "The other 12 threads (-T TID: one of them): 12 calls, the longest 111 ns");
        assert_eq!(plots.iter().map(|plot| plot.rows.len()).sum::<usize>(), rows.len());
        assert_eq!(super::plots(&rows[..PLOTS + 1]).len(), PLOTS + 1);
    }

    #[test]
    fn calls_that_did_not_end_are_told_apart() {
        let rows = [row(7, 0, 50, Status::Complete), row(7, 1, 9_000, Status::OpenEnd)];
        let title =
            "Thread 7: 1 call, the longest 50 ns; 1 not seen from entry to end, the longest at least 9.00 us";
        assert_eq!(plots(&rows)[0].title, title);
        let open = [row(7, 1, 9_000, Status::OpenEnd)];
        assert_eq!(
            summary(&open.iter().collect::<Vec<_>>()),
            title["Thread 7: ".len()..].replace("1 call, the longest 50 ns", "0 calls")
        );
    }
}
