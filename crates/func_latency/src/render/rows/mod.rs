//! One row for every call, as JSON lines, CSV or Parquet; `docs/rows.md` describes the columns.

mod origin;
mod parquet;
mod sorted_lines;
mod tables;
mod texts;

use std::collections::BTreeMap;
use std::io::{self, Write};

use analyzer::{CallRow, CountersAsked, FunctionReport, Reason, Report, RowSink};
use anyhow::{Context, Result};
use model::Tid;
use serde::Serialize;

use super::Names;
use super::counters::Numbers;
use super::names::{caller_name, reason_name};
use crate::config::{RowsFile, RowsForm, RowsTarget};
use crate::output;
pub use origin::{Label, Labels, Origin};
use origin::{ORIGIN_COLUMNS, Objects, OriginCells};
use sorted_lines::SortedLines;
pub use tables::{SCHEMA, TablesWriter};

/// A call as it is written: the columns in their order.
#[derive(Debug, Serialize)]
pub struct Row {
    id: String,
    tid: i32,
    cpu: Option<u32>,
    start_ns: u64,
    latency_ns: u64,
    error_ns: u64,
    /// `None`: not known.
    off_cpu_ns: Option<u64>,
    status: &'static str,
    caller: String,
    site: Option<String>,
    function: String,
    aux_buffer: Option<u32>,
    /// `None`: probes have timed it, and there is no trace.
    aux_offset: Option<String>,
    cut_by: Option<&'static str>,
    /// Its end is a guess, see [`CallRow::undecided`].
    undecided: bool,
    /// It left the IP filter by a jump: how long it went on is not known.
    ended_by_jump: bool,
    pid: Option<i32>,
    thread: Option<String>,
    /// Off the CPU, longest.
    waited_for: Option<String>,
    /// What probes measured, with what they added themselves: [`analyzer::ProbedRow`].
    measured_ns: Option<u64>,
    measured_off_cpu_ns: Option<u64>,
    /// In which kind of slice a probed call began.
    began: Option<&'static str>,
    /// `None`: it was not seen to end.
    end_ns: Option<u64>,
}

impl Row {
    /// The row of a call, and what that waited for longest.
    #[must_use]
    pub fn new(names: &dyn Names, call: &CallRow, waited_for: Option<&Reason>) -> Self {
        Self {
            id: call.id.to_string(),
            tid: call.tid.0,
            cpu: call.cpu.map(|cpu| cpu.0),
            start_ns: call.start_ns.0,
            latency_ns: call.latency_ns,
            error_ns: call.error_ns,
            off_cpu_ns: call.off_cpu_ns,
            status: call.status.name(),
            caller: caller_name(names, call.caller),
            site: call.site.map(|site| names.site(site)),
            function: names.function(call.function),
            aux_buffer: call.aux_buffer,
            aux_offset: call.aux_offset.map(|at| at.to_string()),
            cut_by: call.cut_by.map(|cut| cut.cause.name()),
            undecided: call.undecided,
            ended_by_jump: call.ended_by_jump,
            pid: call.pid.map(|pid| pid.0),
            thread: names.thread(call.tid),
            waited_for: waited_for.filter(|reason| **reason != Reason::Unknown).map(reason_name),
            measured_ns: call.probed.map(|probed| probed.measured_ns),
            measured_off_cpu_ns: call
                .probed
                .filter(|_| call.off_cpu_ns.is_some())
                .map(|probed| probed.measured_off_cpu_ns),
            began: call.probed.map(|probed| probed.began.name()),
            end_ns: call.status.counted().then(|| call.end_ns()),
        }
    }
}

/// A row as a line of JSON.
#[derive(Serialize)]
struct JsonLine<'r> {
    #[serde(flatten)]
    row: &'r Row,
    /// What the call executed, if that was asked for.
    #[serde(flatten)]
    numbers: Option<Numbers>,
    #[serde(flatten)]
    origin: &'r OriginCells<'r>,
    #[serde(flatten)]
    labels: &'r BTreeMap<String, String>,
}

/// A row as JSON lines have it.
pub(crate) fn json_row(
    names: &dyn Names,
    origin: &Origin,
    call: &CallRow,
    waited_for: Option<&Reason>,
) -> serde_json::Value {
    let mut objects = Objects::default();
    let row = Row::new(names, call, waited_for);
    let cells = OriginCells::new(origin, &mut objects, names, call);
    let labels = origin.labels.by_column();
    let line = JsonLine { row: &row, numbers: None, origin: &cells, labels };
    // Keys are texts, and nothing in it can fail.
    serde_json::to_value(line).unwrap_or_default()
}

/// Writes rows as calls end, in the form that is asked for.
pub enum RowsOutput<'n> {
    /// Lines of text.
    Lines(Box<RowsWriter<'n>>),
    /// Parquet.
    Tables(Box<TablesWriter<'n>>),
}

impl<'n> RowsOutput<'n> {
    /// An output of no rows yet.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn new(
        target: &'n RowsTarget,
        names: &'n dyn Names,
        origin: &Origin,
        counters: Option<CountersAsked>,
    ) -> Result<Self> {
        let tables = |tables: Result<_>| Ok(Self::Tables(Box::new(tables?)));
        match target {
            RowsTarget::Lines(file) => {
                let writer = RowsWriter::new(file, names).with_counters(counters);
                Ok(Self::Lines(Box::new(writer.with_origin(origin.clone()))))
            }
            RowsTarget::Parquet(path) => tables(TablesWriter::file(path, names, origin, counters)),
            RowsTarget::Tables(path) => tables(TablesWriter::below(path, names, origin, counters)),
        }
    }

    /// What takes the rows.
    pub fn sink(&mut self) -> &mut dyn RowSink {
        match self {
            Self::Lines(lines) => &mut **lines,
            Self::Tables(tables) => &mut **tables,
        }
    }

    /// Asks for the parts of each call.
    pub(crate) fn wants_parts(&self) -> bool {
        matches!(self, Self::Tables(tables) if tables.wants_parts())
    }

    /// Writes the files.
    ///
    /// # Errors
    /// One could not be written.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Lines(lines) => lines.finish(),
            Self::Tables(tables) => tables.finish(),
        }
    }
}

/// So many bytes of rows are in memory; what is more waits on disk.
const BOUND: usize = 64 << 20;

/// Writes rows to a file, those of the first function first, each by start: calls end in another order.
pub struct RowsWriter<'n> {
    target: &'n RowsFile,
    names: &'n dyn Names,
    counters: Option<CountersAsked>,
    origin: Origin,
    objects: Objects,
    line: Vec<u8>,
    lines: SortedLines,
    failed: Option<io::Error>,
}

impl<'n> RowsWriter<'n> {
    /// Of no rows yet.
    #[must_use]
    pub fn new(target: &'n RowsFile, names: &'n dyn Names) -> Self {
        Self::with_bound(target, names, BOUND)
    }

    /// With another bound of the bytes in memory: what is written does not depend on it.
    #[must_use]
    pub fn with_bound(target: &'n RowsFile, names: &'n dyn Names, bound: usize) -> Self {
        let lines = SortedLines::new(bound, output::directory(&target.path).to_owned());
        Self {
            target,
            names,
            counters: None,
            origin: Origin::default(),
            objects: Objects::default(),
            line: vec![],
            lines,
            failed: None,
        }
    }

    /// With columns of what each call executed, if that is asked for.
    #[must_use]
    pub fn with_counters(self, counters: Option<CountersAsked>) -> Self {
        Self { counters, ..self }
    }

    /// With columns of where the rows are from.
    #[must_use]
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    fn add(&mut self, function: usize, call: &CallRow, waited_for: Option<&Reason>) -> io::Result<()> {
        self.line.clear();
        let row = Row::new(self.names, call, waited_for);
        let cells = OriginCells::new(&self.origin, &mut self.objects, self.names, call);
        let (form, labels) = (self.target.form, &self.origin.labels);
        write_row(&mut self.line, form, &row, numbers(self.counters, call), &cells, labels)?;
        let Tid(tid) = call.tid;
        let thread = (i64::from(tid) - i64::from(i32::MIN)) as u64; // in the order of numbers with a sign
        let place = thread << 32 | u64::from(call.depth);
        self.lines.push([function as u64, call.start_ns.0, place, call.id.number], &self.line)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It could not be created or written, or rows could not wait on disk.
    pub fn finish(self) -> Result<()> {
        let Self { target, counters, origin, lines, failed, .. } = self;
        if let Some(error) = failed {
            return Err(error).with_context(|| {
                format!(
                    "{}: rows that memory has no room for cannot be written beside it",
                    target.path.display()
                )
            });
        }
        output::write_file(&target.path, |out| {
            write_header(out, target.form, counters.is_some(), &origin.labels)?;
            lines.write(out)
        })
    }
}

impl RowSink for RowsWriter<'_> {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        if self.failed.is_none() {
            self.failed = self.add(function, row, waited_for).err();
        }
    }
}

/// Writes the rows that a report has to a file.
///
/// # Errors
/// The file could not be created or written.
pub fn write_file(target: &RowsTarget, report: &Report, names: &dyn Names, origin: &Origin) -> Result<()> {
    let mut output = RowsOutput::new(target, names, origin, None)?;
    for (number, function) in report.functions.iter().enumerate() {
        for (at, row) in function.rows.iter().enumerate() {
            output.sink().row(number, row, function.row_reasons.longest_of(at));
        }
    }
    output.finish()
}

/// Writes the rows that a report has.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, form: RowsForm, report: &Report, names: &dyn Names) -> io::Result<()> {
    let has_counters = report.functions.iter().any(|function| function.counters.is_some());
    write_header(out, form, has_counters, &Labels::default())?;
    report.functions.iter().try_for_each(|function| write_rows_of(out, form, function, names))
}

fn write_rows_of(
    out: &mut dyn Write,
    form: RowsForm,
    function: &FunctionReport,
    names: &dyn Names,
) -> io::Result<()> {
    let counters = function.counters.as_ref().map(|counters| counters.asked);
    let (origin, mut objects) = (Origin::default(), Objects::default());
    let mut rows = function.rows.iter().enumerate();
    rows.try_for_each(|(number, call)| {
        let row = Row::new(names, call, function.row_reasons.longest_of(number));
        let cells = OriginCells::new(&origin, &mut objects, names, call);
        write_row(out, form, &row, numbers(counters, call), &cells, &origin.labels)
    })
}

/// What a call executed, if that was asked for: nulls of a call that was not seen whole.
fn numbers(counters: Option<CountersAsked>, call: &CallRow) -> Option<Numbers> {
    counters.map(|asked| Numbers::of_call(call, asked))
}

fn write_header(out: &mut dyn Write, form: RowsForm, has_counters: bool, labels: &Labels) -> io::Result<()> {
    let counters = if has_counters { &Numbers::NAMES[..] } else { &[] };
    let labels: Vec<&str> = labels.columns().collect();
    match form {
        RowsForm::JsonLines => Ok(()),
        RowsForm::Csv => {
            writeln!(out, "{}", [&COLUMNS, counters, &ORIGIN_COLUMNS, &labels].concat().join(","))
        }
    }
}

/// Writes a row and the end of its line.
fn write_row(
    mut out: &mut dyn Write,
    form: RowsForm,
    row: &Row,
    numbers: Option<Numbers>,
    origin: &OriginCells<'_>,
    labels: &Labels,
) -> io::Result<()> {
    match form {
        RowsForm::JsonLines => {
            let labels = labels.by_column();
            serde_json::to_writer(&mut out, &JsonLine { row, numbers, origin, labels })?;
            out.write_all(b"\n")
        }
        RowsForm::Csv => {
            let mut csv =
                csv::WriterBuilder::new().has_headers(false).buffer_capacity(LINE_BYTES).from_writer(out);
            let labels: Vec<&str> = labels.values().collect();
            match numbers {
                Some(numbers) => csv.serialize((row, numbers, origin, labels)),
                None => csv.serialize((row, origin, labels)),
            }
            .map_err(io_error)?;
            csv.flush()
        }
    }
}

/// Most lines are shorter.
const LINE_BYTES: usize = 512;

/// The header is written by hand, so that a file without calls has it, too.
const COLUMNS: [&str; 23] = [
    "id",
    "tid",
    "cpu",
    "start_ns",
    "latency_ns",
    "error_ns",
    "off_cpu_ns",
    "status",
    "caller",
    "site",
    "function",
    "aux_buffer",
    "aux_offset",
    "cut_by",
    "undecided",
    "ended_by_jump",
    "pid",
    "thread",
    "waited_for",
    "measured_ns",
    "measured_off_cpu_ns",
    "began",
    "end_ns",
];

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
