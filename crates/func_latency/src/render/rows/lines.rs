//! Rows as lines of JSON or CSV, in the order of their functions and starts: calls end in another order.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use analyzer::{CallRow, CountersAsked, FunctionReport, Reason, Report, RowSink};
use anyhow::{Context, Result};
use model::Tid;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::columns::{CallColumns, CellSink, CellValue, RowCells, all_call_columns, call_columns};
use super::origin::Origin;
use super::sorted_lines::SortedLines;
use super::target::{RowsFile, RowsForm};
use super::texts::TextId;
use crate::output;
use crate::render::Names;

impl CellSink for Vec<CellValue> {
    fn cell(&mut self, cell: CellValue) {
        self.push(cell);
    }
}

/// A cell with the text that it has the number of.
struct WithText<'t> {
    cell: CellValue,
    texts: &'t [Box<str>],
}

impl WithText<'_> {
    fn text(&self, TextId(at): TextId) -> &str {
        self.texts.get(at as usize).map_or("", |text| &**text)
    }
}

/// A cell of CSV; null is empty.
impl fmt::Display for WithText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cell {
            CellValue::Null => Ok(()),
            CellValue::Int(value) => value.fmt(f),
            CellValue::Long(value) => value.fmt(f),
            CellValue::Count(value) => value.fmt(f),
            CellValue::Flag(value) => value.fmt(f),
            CellValue::Text(text) => self.text(text).fmt(f),
            CellValue::Call(id) => id.fmt(f),
            CellValue::Offset(at) => at.fmt(f),
        }
    }
}

impl Serialize for WithText<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.cell {
            CellValue::Null => to.serialize_none(),
            CellValue::Int(value) => to.serialize_i32(value),
            CellValue::Long(value) => to.serialize_i64(value),
            CellValue::Count(value) => to.serialize_u64(value),
            CellValue::Flag(value) => to.serialize_bool(value),
            CellValue::Text(text) => to.serialize_str(self.text(text)),
            CellValue::Call(id) => to.collect_str(&id),
            CellValue::Offset(at) => to.collect_str(&at),
        }
    }
}

/// A row as an object of JSON.
struct Object<'t> {
    names: &'t [String],
    cells: &'t [CellValue],
    texts: &'t [Box<str>],
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_map(Some(self.names.len()))?;
        for (name, cell) in self.names.iter().zip(self.cells) {
            object.serialize_entry(name, &WithText { cell: *cell, texts: self.texts })?;
        }
        object.end()
    }
}

/// Makes lines of calls.
struct LineMaker<'n> {
    columns: CallColumns,
    /// Of all columns, with those of labels.
    names: Vec<String>,
    cells: RowCells<'n>,
    /// Of the row that is made.
    row: Vec<CellValue>,
}

impl<'n> LineMaker<'n> {
    fn new(names: &'n dyn Names, origin: &Origin, counters: Option<CountersAsked>) -> Self {
        Self::with_columns(names, origin, counters, all_call_columns(counters.is_some()))
    }

    fn with_columns(
        names: &'n dyn Names,
        origin: &Origin,
        counters: Option<CountersAsked>,
        columns: CallColumns,
    ) -> Self {
        let own = columns.iter().map(|column| column.name);
        let all = own.chain(origin.labels.columns()).map(str::to_owned).collect();
        Self { columns, names: all, cells: RowCells::new(names, origin, counters), row: Vec::new() }
    }

    fn object(&mut self, call: &CallRow, waited_for: Option<&Reason>) -> Object<'_> {
        self.row.clear();
        self.cells.call(&mut self.row, &self.columns, call, waited_for);
        self.cells.labels(&mut self.row);
        Object { names: &self.names, cells: &self.row, texts: self.cells.texts.all() }
    }

    /// Writes what a file begins with.
    fn write_header(&self, out: &mut dyn Write, form: RowsForm) -> io::Result<()> {
        match form {
            RowsForm::JsonLines => Ok(()),
            RowsForm::Csv => writeln!(out, "{}", self.names.join(",")),
        }
    }

    /// Writes a row and the end of its line.
    fn write(
        &mut self,
        mut out: &mut dyn Write,
        form: RowsForm,
        call: &CallRow,
        waited_for: Option<&Reason>,
    ) -> io::Result<()> {
        let object = self.object(call, waited_for);
        match form {
            RowsForm::JsonLines => {
                serde_json::to_writer(&mut out, &object)?;
                out.write_all(b"\n")
            }
            RowsForm::Csv => write_csv(out, &object),
        }
    }
}

/// Most lines are shorter.
const LINE_BYTES: usize = 512;

fn write_csv(out: &mut dyn Write, Object { cells, texts, .. }: &Object<'_>) -> io::Result<()> {
    let mut csv = csv::WriterBuilder::new().buffer_capacity(LINE_BYTES).from_writer(out);
    let mut field = String::new();
    for &cell in *cells {
        field.clear();
        // Memory takes all that is written.
        let _ = write!(field, "{}", WithText { cell, texts });
        csv.write_field(&field).map_err(io_error)?;
    }
    csv.write_record(None::<&[u8]>).map_err(io_error)?;
    csv.flush()
}

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Makes rows as JSON lines have them.
pub(crate) struct JsonRows<'n>(LineMaker<'n>);

impl<'n> JsonRows<'n> {
    pub(crate) fn new(names: &'n dyn Names, origin: &Origin) -> Self {
        Self(LineMaker::new(names, origin, None))
    }

    pub(crate) fn row(&mut self, call: &CallRow, waited_for: Option<&Reason>) -> serde_json::Value {
        // Keys are texts, and nothing in it can fail.
        serde_json::to_value(self.0.object(call, waited_for)).unwrap_or_default()
    }
}

/// Rows in a document of JSON, without where they are from.
pub(crate) struct RowList {
    names: Vec<String>,
    rows: Vec<Vec<CellValue>>,
    texts: Vec<Box<str>>,
}

impl RowList {
    pub(crate) fn new(names: &dyn Names, calls: &[CallRow]) -> Self {
        let mut maker = LineMaker::with_columns(names, &Origin::default(), None, call_columns());
        let rows = calls.iter().map(|call| maker.object(call, None).cells.to_vec()).collect();
        let LineMaker { names, cells, .. } = maker;
        Self { names, rows, texts: cells.texts.into_all() }
    }
}

impl Serialize for RowList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { names, rows, texts } = self;
        to.collect_seq(rows.iter().map(|cells| Object { names, cells, texts }))
    }
}

/// Bytes of rows that are in memory, at most; more rows wait on disk.
const BOUND: usize = 64 << 20;

/// Writes rows to a file.
pub struct RowsWriter<'n> {
    target: &'n RowsFile,
    maker: LineMaker<'n>,
    line: Vec<u8>,
    lines: SortedLines,
    failed: Option<io::Error>,
}

impl<'n> RowsWriter<'n> {
    /// Of no rows yet; with columns of what each call executed, if that is asked for.
    #[must_use]
    pub fn new(
        target: &'n RowsFile,
        names: &'n dyn Names,
        origin: &Origin,
        counters: Option<CountersAsked>,
    ) -> Self {
        let lines = SortedLines::new(BOUND, output::directory(&target.path).to_owned());
        let maker = LineMaker::new(names, origin, counters);
        Self { target, maker, line: Vec::new(), lines, failed: None }
    }

    /// With another bound of the bytes in memory; the output does not depend on it.
    #[must_use]
    pub fn with_bound(self, bound: usize) -> Self {
        let lines = SortedLines::new(bound, output::directory(&self.target.path).to_owned());
        Self { lines, ..self }
    }

    fn add(&mut self, function: usize, call: &CallRow, waited_for: Option<&Reason>) -> io::Result<()> {
        self.line.clear();
        self.maker.write(&mut self.line, self.target.form, call, waited_for)?;
        let Tid(tid) = call.id.tid;
        let thread = (i64::from(tid) - i64::from(i32::MIN)) as u64; // in the order of numbers with a sign
        let place = thread << 32 | u64::from(call.depth);
        self.lines.push([function as u64, call.start_ns.0, place, call.id.number], &self.line)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It could not be created or written, or rows could not wait on disk.
    pub fn finish(self) -> Result<()> {
        let Self { target, maker, lines, failed, .. } = self;
        if let Some(error) = failed {
            return Err(error).with_context(|| {
                format!(
                    "{}: rows that memory has no room for cannot be written beside it",
                    target.path.display()
                )
            });
        }
        output::write_file(&target.path, |out| {
            maker.write_header(out, target.form)?;
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

/// Writes the rows that a report has.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, form: RowsForm, report: &Report, names: &dyn Names) -> io::Result<()> {
    let counters =
        |function: &FunctionReport| function.figures.counters.as_ref().map(|counters| counters.asked);
    let asked = report.functions.iter().find_map(counters);
    let mut maker = LineMaker::new(names, &Origin::default(), asked);
    maker.write_header(out, form)?;
    let rows = report.functions.iter().flat_map(|function| {
        let numbered = function.rows.iter().enumerate();
        numbered.map(|(number, call)| (call, function.row_details.reasons.longest_of(number)))
    });
    for (call, waited_for) in rows {
        maker.write(out, form, call, waited_for)?;
    }
    Ok(())
}
