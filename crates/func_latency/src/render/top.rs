//! The functions of a recording, by time or calls.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{self, Write};

use analyzer::{CallCounts, ChildKind, ChildRow, FunctionReport, Report};
use clap::ValueEnum;
use model::{FunctionId, NoTimes};
use serde::Serialize;

use super::Names;
use super::json::CallsJson;
use super::names::file_name;
use super::row_limit::RowLimit;
use super::table::{Align, Table};
use super::time_sum::TimeSum;
use super::units::{counted, duration, grouped};
use super::wrappers::Wrappers;

/// What functions are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopBy {
    /// Time in the function and all that it called
    #[default]
    Time,
    /// Time in the function itself
    #[value(name = "self")]
    Own,
    /// Number of calls
    Calls,
}

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency_top/1";

/// A report on every function, and how to list it.
#[derive(Clone, Copy)]
pub struct TopView<'a> {
    /// What the analysis found out.
    pub report: &'a Report,
    /// What ids are called.
    pub names: &'a dyn Names,
    /// The recording's file, as it was named.
    pub input: &'a str,
    /// What functions are sorted by.
    pub by: TopBy,
    /// Which rows of the text are printed.
    pub table_rows: RowLimit,
}

/// A function of the list.
struct TopRow<'a> {
    function: &'a FunctionReport,
    /// All calls, whole or not.
    calls: u64,
    /// Time in its outermost calls, as far as they were seen.
    total: TimeSum,
    /// The part of that in no callee.
    own: TimeSum,
    /// The functions that only call it, the outermost first.
    wrappers: Vec<FunctionId>,
}

impl<'a> TopRow<'a> {
    fn new(function: &'a FunctionReport) -> Self {
        let open = &function.open;
        let own = |rows: &[ChildRow]| {
            let row = rows.iter().find(|row| row.kind == ChildKind::Own);
            row.map_or(TimeSum::default(), |row| TimeSum { ns: row.total.sum_ns, error_ns: row.error_ns })
        };
        Self {
            function,
            calls: calls(function),
            total: TimeSum { ns: function.outermost.total.sum_ns, error_ns: function.outermost.error_ns }
                .plus(TimeSum { ns: open.observed.sum_ns, error_ns: error_of_open(function) }),
            own: own(&function.figures.children).plus(own(&open.children)),
            wrappers: Vec::new(),
        }
    }

    fn weight(&self, by: TopBy) -> u64 {
        match by {
            TopBy::Time => self.total.ns,
            TopBy::Own => self.own.ns,
            TopBy::Calls => self.calls,
        }
    }
}

/// All calls, whole or not.
fn calls(function: &FunctionReport) -> u64 {
    let CallCounts { complete, unwound, open_start, open_end, cut, .. } = function.calls;
    [complete, unwound, open_start, open_end, cut].into_iter().fold(0, u64::saturating_add)
}

/// The most by which the observed part of open calls may differ from the true one.
fn error_of_open(function: &FunctionReport) -> u64 {
    let CallCounts { open_start, open_end, cut, .. } = function.calls;
    let all_listed = open_start + open_end + cut <= function.open.longest.len() as u64;
    let sum = |errors: &mut dyn Iterator<Item = u64>| errors.fold(0, u64::saturating_add);
    if all_listed && function.open.resumed.count == 0 {
        sum(&mut function.open.longest.iter().map(|call| call.error_ns))
    } else {
        // The rows add up to the observed part.
        sum(&mut function.open.children.iter().map(|row| row.error_ns))
    }
}

impl TopView<'_> {
    /// The functions that were called, the first by what was asked for first.
    fn rows(&self) -> Vec<TopRow<'_>> {
        let rows = self.report.functions.iter().map(TopRow::new);
        let mut rows: Vec<TopRow<'_>> = rows.filter(|row| row.calls > 0).collect();
        rows.sort_by_key(|row| (Reverse(row.weight(self.by())), Reverse(row.calls), row.function.id));
        rows
    }

    /// [`Self::rows`], with wrappers at what they lead to; unchanged where all are printed, or without times.
    fn unwrapped_rows(&self) -> Vec<TopRow<'_>> {
        let rows = self.rows();
        if self.table_rows == RowLimit::ALL || !self.has_times() {
            return rows;
        }
        let wrappers = Wrappers::among(&self.report.functions, calls);
        let rows = rows.into_iter().filter(|row| !wrappers.has(row.function.id));
        rows.map(|row| TopRow { wrappers: wrappers.around(row.function.id), ..row }).collect()
    }

    /// By calls, where no time is known.
    fn by(&self) -> TopBy {
        if self.has_times() { self.by } else { TopBy::Calls }
    }

    fn has_times(&self) -> bool {
        self.report.trace.no_times.is_none()
    }

    /// Time of all threads, as far as it was seen.
    fn observed_ns(&self) -> u64 {
        self.report.loss.threads.iter().map(|thread| thread.observed_ns).fold(0, u64::saturating_add)
    }

    /// True if there is no function to choose.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    /// The name, as `-f` takes it.
    fn name(&self, function: FunctionId) -> String {
        let name = self.names.function(function);
        let place = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        place.filter(|place| place.contains("+0x")).map_or(name.clone(), str::to_owned)
    }

    fn object(&self, row: &TopRow<'_>) -> Option<String> {
        self.names.object_of(row.function.id)
    }
}

/// Writes the list into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write_text(out: &mut dyn Write, view: &TopView<'_>, width: usize) -> io::Result<()> {
    let (all, rows, observed_ns) = (view.rows(), view.unwrapped_rows(), view.observed_ns());
    let trace = &view.report.trace;
    writeln!(
        out,
        "{}: {} of {}, {} called\n",
        view.input,
        duration(trace.span_ns),
        counted(trace.threads, "thread"),
        counted(all.len() as u64, "function")
    )?;
    let whole = match view.by() {
        TopBy::Time | TopBy::Own => observed_ns,
        TopBy::Calls => all.iter().map(|row| row.calls).fold(0, u64::saturating_add),
    };
    let (listed, _) = view.table_rows.split(&rows, |row| row.weight(view.by()), whole);
    if view.has_times() { timed(view, listed, observed_ns) } else { untimed(view, listed) }
        .write(out, width)?;
    left_out(out, view, &all, listed)?;
    if view.has_times() {
        writeln!(
            out,
            "\ntotal: the function and what it called; %: of the threads' time, on the CPU or not"
        )?;
    }
    writeln!(out, "choose one: func_latency report -i {} -f 'FUNC'", view.input)
}

/// Says how many functions are not there, and how much time is in them.
fn left_out(
    out: &mut dyn Write,
    view: &TopView<'_>,
    all: &[TopRow<'_>],
    listed: &[TopRow<'_>],
) -> io::Result<()> {
    let named = |row: &TopRow<'_>| [&row.wrappers[..], &[row.function.id]].concat();
    let listed: HashSet<FunctionId> = listed.iter().flat_map(named).collect();
    let rest = || all.iter().filter(|row| !listed.contains(&row.function.id));
    let functions = match rest().count() {
        0 => return Ok(()),
        count => counted(count as u64, "more function"),
    };
    let own = rest().map(|row| row.own).fold(TimeSum::default(), TimeSum::plus);
    let percent = own.percent(view.observed_ns());
    let says_something = view.has_times() && percent != "< 100";
    let own = if says_something { format!(", {percent} % of the time in themselves") } else { String::new() };
    writeln!(out, "  ... {functions}{own}; --all prints them")
}

fn timed(view: &TopView<'_>, rows: &[TopRow<'_>], observed_ns: u64) -> Table {
    let right = |title| (title, Align::Right);
    let mut table = Table::new(&[
        ("function", Align::Left),
        ("object", Align::Left),
        right("calls"),
        right("total"),
        right("%"),
        right("self"),
        right("%"),
    ]);
    for row in rows {
        let cells = vec![
            view.name(row.function.id),
            view.object(row).map_or_else(String::new, |path| file_name(&path).to_owned()),
            grouped(row.calls),
            row.total.text(),
            row.total.percent(observed_ns),
            row.own.text(),
            row.own.percent(observed_ns),
        ];
        let wrappers: Vec<String> = row.wrappers.iter().map(|id| view.name(*id)).collect();
        let note = (!wrappers.is_empty()).then(|| format!("through {}", wrappers.join(", ")));
        table.row_with_notes(cells, note.as_slice());
    }
    table
}

/// Of a trace without times.
fn untimed(view: &TopView<'_>, rows: &[TopRow<'_>]) -> Table {
    let mut table =
        Table::new(&[("function", Align::Left), ("object", Align::Left), ("calls", Align::Right)]);
    for row in rows {
        let object = view.object(row).map_or_else(String::new, |path| file_name(&path).to_owned());
        table.row(vec![view.name(row.function.id), object, grouped(row.calls)]);
    }
    table
}

#[derive(Serialize)]
struct TopDocument {
    schema: &'static str,
    span_ns: u64,
    /// Time of all threads, as far as it was seen; what shares are of.
    observed_ns: Option<u64>,
    /// Why no time is known; null: times are known.
    no_times: Option<&'static str>,
    functions: Vec<TopEntry>,
}

#[derive(Serialize)]
struct TopEntry {
    name: String,
    object: Option<String>,
    calls: CallsJson,
    /// Null: no time is known.
    total: Option<TimeSum>,
    #[serde(rename = "self")]
    own: Option<TimeSum>,
    share: Option<f64>,
}

/// Writes all functions as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, view: &TopView<'_>) -> io::Result<()> {
    let observed_ns = view.observed_ns();
    let timed = view.has_times();
    let entry = |row: &TopRow<'_>| TopEntry {
        name: view.name(row.function.id),
        object: view.object(row),
        calls: row.function.calls.into(),
        total: timed.then_some(row.total),
        own: timed.then_some(row.own),
        share: (timed && observed_ns > 0).then(|| row.total.ns as f64 / observed_ns as f64),
    };
    let document = TopDocument {
        schema: SCHEMA,
        span_ns: view.report.trace.span_ns,
        observed_ns: timed.then_some(observed_ns),
        no_times: view.report.trace.no_times.map(NoTimes::reason),
        functions: view.rows().iter().map(entry).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
