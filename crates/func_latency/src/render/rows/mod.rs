//! One row for every call, as JSON lines, CSV or Parquet; `docs/rows.md` describes the columns.

mod columns;
mod lines;
mod origin;
mod parquet;
mod repeated;
mod sorted_lines;
mod tables;
mod target;
mod texts;

use analyzer::{CountersAsked, ProbedParts, Report, RowSink};
use anyhow::Result;

use super::Names;
pub(crate) use lines::{JsonRows, RowList};
pub use lines::{RowsWriter, write};
pub use origin::{Label, Labels, Origin};
pub use tables::{SCHEMA, TablesWriter};
pub use target::{RowsFile, RowsForm, RowsTarget};
pub(crate) use target::{is_directory, rows_file};

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
                Ok(Self::Lines(Box::new(RowsWriter::new(file, names, origin, counters))))
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

/// Writes the rows that a report has, and what they are made of where tables are written.
///
/// # Errors
/// A file could not be created or written.
pub fn write_file(
    target: &RowsTarget,
    (report, parts): (&Report, &ProbedParts),
    names: &dyn Names,
    origin: &Origin,
) -> Result<()> {
    let mut output = RowsOutput::new(target, names, origin, None)?;
    let sink = output.sink();
    for (number, function) in report.functions.iter().enumerate() {
        for (at, row) in function.rows.iter().enumerate() {
            sink.row(number, row, function.row_details.reasons.longest_of(at));
            if let Some(parts) = parts.of_calls.get(&(row.id, row.start_ns)).filter(|_| sink.wants_parts()) {
                sink.parts(row, parts);
            }
        }
    }
    parts.gaps.iter().for_each(|gap| sink.gap(gap));
    output.finish()
}
