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

use analyzer::{CallRow, CountersAsked, PartOfRow, Reason, RowGap, RowParts, RowSink, RowWait, Waker};
use anyhow::{Context, Result};
use model::{GapCause, Pid, Tid};

use super::columns::Kind::{self, Id, Int, Long, Text};
use super::columns::{
    CallColumns, CellValue, Column, RowCells, RowTable, all_call_columns, column, columns_of_parts, give,
};
use super::origin::Origin;
use super::parquet::TableWriter;
use super::texts::OriginTexts;
use crate::output::{OutputFile, cannot_write, directory};
use crate::render::Names;
use crate::render::names::reason_kind;

/// Name and version of the tables, in the metadata of each file.
pub const SCHEMA: &str = "func_latency.rows/1";

/// Writes the tables of one recording.
pub struct TablesWriter<'n> {
    cells: RowCells<'n>,
    columns: CallColumns,
    calls: TableWriter,
    /// The other tables, if a directory is written.
    parts: Option<PartTables>,
    failed: Option<io::Error>,
}

struct PartTables {
    children: PartTable<ChildTable>,
    off_cpu: PartTable<WaitTable>,
    gaps: PartTable<GapTable>,
}

/// A table of children, times off the CPU or gaps.
struct PartTable<T: RowTable> {
    /// The columns that tell which call a row is a part of; none, if it is of no call.
    of_call: CallColumns,
    columns: &'static [Column<T>],
    writer: TableWriter,
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
        let columns = all_call_columns(true);
        let described = described(columns.iter().copied()).chain(label_columns(origin)).collect();
        let calls = TableWriter::create(path.to_owned(), SCHEMA, &described)?;
        Ok(Self { cells: RowCells::new(names, origin, counters), columns, calls, parts: None, failed: None })
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
        let place = |table: &str| {
            let path = place(path, table, origin);
            let parent = directory(&path);
            fs::create_dir_all(parent).with_context(|| cannot_write(parent))?;
            Ok::<_, anyhow::Error>(path)
        };
        let parts = PartTables {
            children: PartTable::create(place("children")?, columns_of_parts(), &CHILD, origin)?,
            off_cpu: PartTable::create(place("off_cpu")?, columns_of_parts(), &OFF_CPU, origin)?,
            gaps: PartTable::create(place("gaps")?, CallColumns::new(), &GAP, origin)?,
        };
        let calls = Self::file(&place("calls")?, names, origin, counters)?;
        Ok(Self { parts: Some(parts), ..calls })
    }

    /// Writes the last row groups; the files take their places.
    ///
    /// # Errors
    /// One could not be written.
    pub fn finish(self) -> Result<()> {
        let Self { cells, calls, parts, failed, .. } = self;
        let texts = cells.texts.all();
        let parts = parts
            .map(|PartTables { children, off_cpu, gaps }| [children.writer, off_cpu.writer, gaps.writer]);
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
        self.write(|Self { cells, columns, calls, .. }| {
            calls.add(|to| {
                cells.call(to, columns, row, waited_for);
                cells.labels(to);
            });
            calls.write_if_full(cells.texts.all())
        });
    }

    fn wants_parts(&self) -> bool {
        self.parts.is_some()
    }

    fn parts(&mut self, row: &CallRow, parts: &RowParts) {
        self.write(|Self { cells, parts: tables, .. }| {
            let Some(tables) = tables else { return Ok(()) };
            let children = &mut tables.children;
            parts.children.iter().try_for_each(|child| children.add(cells, Some(row), child))?;
            parts.waits.iter().try_for_each(|wait| tables.off_cpu.add(cells, Some(row), wait))
        });
    }

    fn gap(&mut self, gap: &RowGap) {
        self.write(|Self { cells, parts, .. }| {
            parts.as_mut().map_or(Ok(()), |tables| tables.gaps.add(cells, None, gap))
        });
    }
}

impl<T: RowTable> PartTable<T> {
    fn create(
        path: PathBuf,
        of_call: CallColumns,
        columns: &'static [Column<T>],
        origin: &Origin,
    ) -> Result<Self> {
        let own = described(of_call.iter().copied()).chain(described(columns)).chain(described(&OF_ALL));
        let writer = TableWriter::create(path, SCHEMA, &own.chain(label_columns(origin)).collect())?;
        Ok(Self { of_call, columns, writer })
    }

    /// Adds a row; `call`: the call that it is a part of.
    fn add(&mut self, cells: &mut RowCells<'_>, call: Option<&CallRow>, row: &T::Row<'_>) -> io::Result<()> {
        let Self { of_call, columns, writer } = self;
        writer.add(|to| {
            if let Some(call) = call {
                cells.call_of_part(to, of_call, call);
            }
            give(to, *columns, &mut cells.texts, row);
            give(to, &OF_ALL, &mut cells.texts, &cells.origin);
            cells.labels(to);
        });
        writer.write_if_full(cells.texts.all())
    }
}

/// What a child took of a call.
enum ChildTable {}

impl RowTable for ChildTable {
    type Row<'a> = PartOfRow;
}

static CHILD: [Column<ChildTable>; 7] = [
    column("child", Text, |texts, child| texts.callee(child.key.kind, child.key.function).into()),
    column("kind", Text, |texts, child| texts.word(child.key.kind.name()).into()),
    column("site", Text, |texts, child| texts.site(child.key.site).into()),
    column("count", Long, |_, child| child.total.count.into()),
    column("sum_ns", Long, |_, child| child.total.sum_ns.into()),
    column("error_ns", Long, |_, child| child.error_ns.into()),
    column("off_cpu_ns", Long, |_, child| child.total.off_cpu_ns.into()),
];

/// A time of a call off the CPU.
enum WaitTable {}

impl RowTable for WaitTable {
    type Row<'a> = RowWait;
}

static OFF_CPU: [Column<WaitTable>; 10] = [
    column("from_ns", Long, |_, wait| wait.from.0.into()),
    column("to_ns", Long, |_, wait| wait.to.0.into()),
    column("blocked_ns", Long, |_, wait| wait.split.blocked_ns.into()),
    column("runnable_ns", Long, |_, wait| wait.knows_wakeups.then_some(wait.split.runnable_ns).into()),
    column("preempted_ns", Long, |_, wait| wait.split.preempted_ns.into()),
    column("reason", Text, |texts, wait| texts.reason(&wait.reason).into()),
    column("kind", Text, |texts, wait| {
        texts.reason(&wait.reason).map(|_| texts.word(reason_kind(&wait.reason))).into()
    }),
    column("waker", Text, |texts, wait| match &wait.waker {
        Some(Waker::Thread { name, .. }) => texts.waker(name).into(),
        other => other.as_ref().map(|_| texts.word("[interrupt]")).into(),
    }),
    column("waker_pid", Int, |_, wait| waking_thread(wait).map(|(Pid(pid), _)| pid).into()),
    column("waker_tid", Int, |_, wait| waking_thread(wait).map(|(_, Tid(tid))| tid).into()),
];

/// The thread that has ended a wait; `None`: an interrupt, or it is not known.
fn waking_thread(wait: &RowWait) -> Option<(Pid, Tid)> {
    if let Some(Waker::Thread { pid, tid, .. }) = wait.waker { Some((pid, tid)) } else { None }
}

/// What the trace lacks.
enum GapTable {}

impl RowTable for GapTable {
    type Row<'a> = RowGap;
}

static GAP: [Column<GapTable>; 9] = [
    column("tid", Int, |_, row| row.tid.map(|tid| tid.0).into()),
    column("cpu", Int, |_, row| row.cpu.map(|cpu| cpu.0).into()),
    column("from_ns", Long, |_, row| row.gap.from.point.0.into()),
    column("to_ns", Long, |_, row| row.gap.to.point.0.into()),
    column("lost_ns", Long, |_, row| row.lost_ns.into()),
    column("bytes", Long, |_, row| row.gap.bytes.into()),
    column("cause", Text, |texts, row| texts.word(row.gap.cause.name()).into()),
    column("object", Text, |texts, row| match row.gap.cause {
        GapCause::MissingCode { object } => texts.object(object).into(),
        _ => CellValue::Null,
    }),
    column("aux_offset", Id, |_, row| row.gap.at.into()),
];

/// Where the parts of all calls of a file are from.
enum OriginTable {}

impl RowTable for OriginTable {
    type Row<'a> = OriginTexts;
}

/// What all tables but that of calls end with, before their labels.
static OF_ALL: [Column<OriginTable>; 2] = [
    column("host", Text, |_, origin| origin.host.into()),
    column("recording", Text, |_, origin| origin.recording.into()),
];

/// Names and types of columns.
fn described<'c, T: RowTable>(
    columns: impl IntoIterator<Item = &'c Column<T>>,
) -> impl Iterator<Item = (String, Kind)> {
    columns.into_iter().map(|column| (column.name.to_owned(), column.kind))
}

fn label_columns(origin: &Origin) -> impl Iterator<Item = (String, Kind)> {
    origin.labels.columns().map(|name| (name.to_owned(), Text))
}
