//! Calls, and what is inside of them, as tables in Parquet files: `docs/rows.md` describes each column.
//!
//! ```text
//!   FILE.parquet                                     the calls
//!   DIR/calls/recording=ID/calls.parquet             the same
//!   DIR/children/recording=ID/children.parquet       what each child took of each call
//!   DIR/off_cpu/recording=ID/off_cpu.parquet         each time off the CPU inside of each call
//!   DIR/gaps/recording=ID/gaps.parquet               what the trace lacks
//! ```
//! Rows are written as calls end; no row waits for others than those of its row group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use analyzer::{
    CallRow, CountersAsked, PartOfRow, ProbedRow, Reason, RowGap, RowParts, RowSink, RowWait, Waker,
};
use anyhow::{Context, Result};
use model::GapCause;

use super::origin::{ORIGIN_COLUMNS, Origin};
use super::parquet::{Cells, Columns, Kind, TableWriter};
use super::texts::{FunctionTexts, OriginTexts, Texts};
use crate::output::{OutputFile, cannot_write, directory};
use crate::render::Names;
use crate::render::counters::Numbers;
use crate::render::names::reason_kind;

/// Name and version of the tables, in the metadata of each file.
pub const SCHEMA: &str = "func_latency.rows/1";

/// Writes the tables of one recording.
pub struct TablesWriter<'n> {
    cells: RowCells<'n>,
    calls: TableWriter,
    /// The other tables, if a directory is written.
    parts: Option<PartTables>,
    failed: Option<io::Error>,
}

struct PartTables {
    children: TableWriter,
    off_cpu: TableWriter,
    gaps: TableWriter,
}

/// What the cells of rows are made of.
struct RowCells<'n> {
    origin: Origin,
    of_all: OriginTexts,
    texts: Texts<'n>,
    counters: Option<CountersAsked>,
}

impl<'n> TablesWriter<'n> {
    /// Creates a file of calls.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(
        path: &Path,
        names: &'n dyn Names,
        origin: &Origin,
        counters: Option<CountersAsked>,
    ) -> Result<Self> {
        let calls = TableWriter::create(path.to_owned(), SCHEMA, &call_columns(origin))?;
        Ok(Self { cells: RowCells::new(names, origin, counters), calls, parts: None, failed: None })
    }

    /// Creates all tables below a directory; those that are there of the same recording are replaced.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn below(
        path: &Path,
        names: &'n dyn Names,
        origin: &Origin,
        counters: Option<CountersAsked>,
    ) -> Result<Self> {
        let create = |table: &str, columns: &Columns| {
            let path = place(path, table, origin);
            let parent = directory(&path);
            fs::create_dir_all(parent).with_context(|| cannot_write(parent))?;
            TableWriter::create(path, SCHEMA, columns)
        };
        let parts = PartTables {
            children: create("children", &part_columns(&CHILD, origin))?,
            off_cpu: create("off_cpu", &part_columns(&OFF_CPU, origin))?,
            gaps: create("gaps", &columns(&GAP, origin))?,
        };
        let calls = create("calls", &call_columns(origin))?;
        Ok(Self { cells: RowCells::new(names, origin, counters), calls, parts: Some(parts), failed: None })
    }

    /// Writes what is left; the files take their places.
    ///
    /// # Errors
    /// One could not be written.
    pub fn finish(self) -> Result<()> {
        let Self { cells, calls, parts, failed } = self;
        let texts = cells.texts.all();
        let parts = parts.map(|PartTables { children, off_cpu, gaps }| [children, off_cpu, gaps]);
        // Calls come last: where they are, all is.
        let tables = parts.into_iter().flatten().chain([calls]);
        // None takes its place before all are whole.
        let files = tables.map(|table| table.finish(texts)).collect::<Result<Vec<OutputFile>>>()?;
        failed.map_or(Ok(()), |error| Err(error).context("cannot write rows"))?;
        files.into_iter().try_for_each(OutputFile::finish)
    }

    /// Does nothing after an error, which [`Self::finish`] tells.
    fn write(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = write(self).err();
        }
    }
}

/// Where a table of a recording is.
fn place(directory: &Path, table: &str, origin: &Origin) -> PathBuf {
    // What Hive, Spark and DuckDB take for null.
    let recording = origin.recording.as_deref().unwrap_or("__HIVE_DEFAULT_PARTITION__");
    directory.join(table).join(format!("recording={recording}")).join(format!("{table}.parquet"))
}

impl RowSink for TablesWriter<'_> {
    fn row(&mut self, _: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.write(|Self { cells, calls, .. }| {
            calls.add(|to| cells.call(to, row, waited_for));
            calls.write_if_full(cells.texts.all())
        });
    }

    fn wants_parts(&self) -> bool {
        self.parts.is_some()
    }

    fn parts(&mut self, row: &CallRow, parts: &RowParts) {
        self.write(|Self { cells, parts: tables, .. }| {
            let Some(tables) = tables else { return Ok(()) };
            for child in &parts.children {
                tables.children.add(|to| cells.child(to, row, child));
                tables.children.write_if_full(cells.texts.all())?;
            }
            parts.waits.iter().try_for_each(|wait| {
                tables.off_cpu.add(|to| cells.wait(to, row, wait));
                tables.off_cpu.write_if_full(cells.texts.all())
            })
        });
    }

    fn gap(&mut self, gap: &RowGap) {
        self.write(|Self { cells, parts, .. }| {
            let Some(tables) = parts else { return Ok(()) };
            tables.gaps.add(|to| cells.gap(to, gap));
            tables.gaps.write_if_full(cells.texts.all())
        });
    }
}

/// Columns of a call, before those of its counters and its origin.
const CALL: [(&str, Kind); 23] = [
    ("id", Kind::Id),
    ("tid", Kind::Int),
    ("cpu", Kind::Int),
    ("start_ns", Kind::Long),
    ("latency_ns", Kind::Long),
    ("error_ns", Kind::Long),
    ("off_cpu_ns", Kind::Long),
    ("status", Kind::Text),
    ("caller", Kind::Text),
    ("site", Kind::Text),
    ("function", Kind::Text),
    ("aux_buffer", Kind::Int),
    ("aux_offset", Kind::Id),
    ("cut_by", Kind::Text),
    ("undecided", Kind::Flag),
    ("ended_by_jump", Kind::Flag),
    ("pid", Kind::Int),
    ("thread", Kind::Text),
    ("waited_for", Kind::Text),
    ("measured_ns", Kind::Long),
    ("measured_off_cpu_ns", Kind::Long),
    ("began", Kind::Text),
    ("end_ns", Kind::Long),
];

/// The kinds of [`ORIGIN_COLUMNS`].
const ORIGIN: [Kind; ORIGIN_COLUMNS.len()] =
    [Kind::Int, Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Long];

/// Columns that tell which call a part is of.
const OF_CALL: [(&str, Kind); 6] = [
    ("id", Kind::Id),
    ("function", Kind::Text),
    ("object", Kind::Text),
    ("status", Kind::Text),
    ("depth", Kind::Int),
    ("tid", Kind::Int),
];

const CHILD: [(&str, Kind); 7] = [
    ("child", Kind::Text),
    ("kind", Kind::Text),
    ("site", Kind::Text),
    ("count", Kind::Long),
    ("sum_ns", Kind::Long),
    ("error_ns", Kind::Long),
    ("off_cpu_ns", Kind::Long),
];

const OFF_CPU: [(&str, Kind); 10] = [
    ("from_ns", Kind::Long),
    ("to_ns", Kind::Long),
    ("blocked_ns", Kind::Long),
    ("runnable_ns", Kind::Long),
    ("preempted_ns", Kind::Long),
    ("reason", Kind::Text),
    ("kind", Kind::Text),
    ("waker", Kind::Text),
    ("waker_pid", Kind::Int),
    ("waker_tid", Kind::Int),
];

const GAP: [(&str, Kind); 9] = [
    ("tid", Kind::Int),
    ("cpu", Kind::Int),
    ("from_ns", Kind::Long),
    ("to_ns", Kind::Long),
    ("lost_ns", Kind::Long),
    ("bytes", Kind::Long),
    ("cause", Kind::Text),
    ("object", Kind::Text),
    ("aux_offset", Kind::Id),
];

fn owned(columns: &[(&str, Kind)]) -> Columns {
    columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
}

/// These, and those that all tables end with.
fn columns(of_table: &[(&str, Kind)], origin: &Origin) -> Columns {
    let labels = origin.labels.columns().map(|name| (name.to_owned(), Kind::Text));
    let of_all = owned(&[("host", Kind::Text), ("recording", Kind::Text)]);
    owned(of_table).into_iter().chain(of_all).chain(labels).collect()
}

fn part_columns(of_part: &[(&str, Kind)], origin: &Origin) -> Columns {
    columns(&[&OF_CALL, of_part].concat(), origin)
}

fn call_columns(origin: &Origin) -> Columns {
    let counters = Numbers::NAMES.map(|name| (name, Kind::Long));
    let of_origin: Vec<(&str, Kind)> = ORIGIN_COLUMNS.into_iter().zip(ORIGIN).collect();
    let labels = origin.labels.columns().map(|name| (name.to_owned(), Kind::Text));
    owned(&[&CALL[..], &counters, &of_origin].concat()).into_iter().chain(labels).collect()
}

fn number(value: u32) -> Option<i32> {
    i32::try_from(value).ok()
}

impl<'n> RowCells<'n> {
    fn new(names: &'n dyn Names, origin: &Origin, counters: Option<CountersAsked>) -> Self {
        let mut texts = Texts::new(names);
        let of_all = texts.origin(origin);
        Self { origin: origin.clone(), of_all, texts, counters }
    }

    /// The cells of [`CALL`], [`Numbers`] and [`ORIGIN`], and the labels.
    fn call(&mut self, to: &mut Cells<'_>, row: &CallRow, waited_for: Option<&Reason>) {
        let texts = &mut self.texts;
        let FunctionTexts { name, object, build_id } = texts.function(row.function);
        to.id(Some(&row.id));
        to.int(Some(row.tid.0));
        to.int(row.cpu.and_then(|cpu| number(cpu.0)));
        [row.start_ns.0, row.latency_ns, row.error_ns].into_iter().for_each(|ns| to.count(Some(ns)));
        to.count(row.off_cpu_ns);
        to.text(Some(texts.word(row.status.name())));
        to.text(Some(texts.caller(row.caller)));
        to.text(texts.site(row.site));
        to.text(Some(name));
        to.int(row.aux_buffer.and_then(number));
        to.id(row.aux_offset.as_ref());
        to.text(row.cut_by.map(|cut| texts.word(cut.cause.name())));
        to.flag(row.undecided);
        to.flag(row.ended_by_jump);
        to.int(row.pid.map(|pid| pid.0));
        to.text(texts.thread(row.tid));
        to.text(waited_for.and_then(|reason| texts.reason(reason)));
        probed(texts, to, row);
        to.count(row.status.counted().then(|| row.end_ns()));
        self.counters(to, row);
        let process = row.pid.and_then(|pid| self.texts.thread(model::Tid(pid.0)));
        to.int(number(row.depth));
        [process, object, build_id].into_iter().for_each(|cell| to.text(cell));
        to.text(self.of_all.host);
        to.text(self.of_all.recording);
        to.long(self.origin.realtime_ns(row.start_ns.0));
        self.labels(to);
    }

    fn counters(&self, to: &mut Cells<'_>, row: &CallRow) {
        let numbers = self.counters.map(|asked| Numbers::of_call(row, asked));
        numbers.unwrap_or_default().in_order().into_iter().for_each(|number| to.count(number));
    }

    fn labels(&self, to: &mut Cells<'_>) {
        self.of_all.labels.iter().for_each(|label| to.text(Some(*label)));
    }

    /// The cells that all tables end with.
    fn of_all(&self, to: &mut Cells<'_>) {
        to.text(self.of_all.host);
        to.text(self.of_all.recording);
        self.labels(to);
    }

    /// The cells of [`OF_CALL`].
    fn of_call(&mut self, to: &mut Cells<'_>, row: &CallRow) {
        let FunctionTexts { name, object, .. } = self.texts.function(row.function);
        to.id(Some(&row.id));
        to.text(Some(name));
        to.text(object);
        to.text(Some(self.texts.word(row.status.name())));
        to.int(number(row.depth));
        to.int(Some(row.tid.0));
    }

    /// The cells of [`CHILD`].
    fn child(&mut self, to: &mut Cells<'_>, row: &CallRow, child: &PartOfRow) {
        let PartOfRow { key, total, error_ns } = child;
        self.of_call(to, row);
        to.text(Some(self.texts.callee(key.kind, key.function)));
        to.text(Some(self.texts.word(key.kind.name())));
        to.text(self.texts.site(key.site));
        [total.count, total.sum_ns, *error_ns].into_iter().for_each(|number| to.count(Some(number)));
        to.count(total.off_cpu_ns);
        self.of_all(to);
    }

    /// The cells of [`OFF_CPU`].
    fn wait(&mut self, to: &mut Cells<'_>, row: &CallRow, wait: &RowWait) {
        self.of_call(to, row);
        to.count(Some(wait.from.0));
        to.count(Some(wait.to.0));
        to.count(Some(wait.split.blocked_ns));
        to.count(wait.knows_wakeups.then_some(wait.split.runnable_ns));
        to.count(Some(wait.split.preempted_ns));
        let reason = self.texts.reason(&wait.reason);
        let kind = reason.map(|_| self.texts.word(reason_kind(&wait.reason)));
        to.text(reason);
        to.text(kind);
        match &wait.waker {
            Some(Waker::Thread { pid, tid, name }) => {
                to.text(Some(self.texts.waker(name)));
                to.int(Some(pid.0));
                to.int(Some(tid.0));
            }
            other => {
                to.text(other.as_ref().map(|_| self.texts.word("[interrupt]")));
                to.int(None);
                to.int(None);
            }
        }
        self.of_all(to);
    }

    /// The cells of [`GAP`].
    fn gap(&mut self, to: &mut Cells<'_>, RowGap { tid, cpu, gap, lost_ns }: &RowGap) {
        to.int(tid.map(|tid| tid.0));
        to.int(cpu.and_then(|cpu| number(cpu.0)));
        [gap.from.point.0, gap.to.point.0, *lost_ns, gap.bytes].into_iter().for_each(|n| to.count(Some(n)));
        to.text(Some(self.texts.word(gap.cause.name())));
        let object = if let GapCause::MissingCode { object } = gap.cause { Some(object) } else { None };
        to.text(object.map(|object| self.texts.object(object)));
        to.id(Some(&gap.at));
        self.of_all(to);
    }
}

/// The cells of what probes measured.
fn probed(texts: &mut Texts<'_>, to: &mut Cells<'_>, row: &CallRow) {
    let of = |figure: fn(&ProbedRow) -> u64| row.probed.as_ref().map(figure);
    to.count(of(|probed| probed.measured_ns));
    to.count(of(|probed| probed.measured_off_cpu_ns).filter(|_| row.off_cpu_ns.is_some()));
    to.text(row.probed.map(|probed| texts.word(probed.began.name())));
}
