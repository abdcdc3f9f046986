//! A table as a Parquet file: columns are gathered for one row group, and written when it is full.
//!
//! ```text
//!   row -> cells -> columns in memory, at most ROWS_IN_GROUP rows -> a thread -> row group in the file
//! ```
//! Every column may be null. What is written depends on the rows and their order only. A text that many
//! cells have is a number in memory, which the thread replaces by the text: two threads that count references
//! to one text wait for each other at each cell.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::slice::IterMut;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use analyzer::CallId;
use anyhow::{Context, Result};
use model::AuxOffset;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::columns::{CellSink, CellValue, Kind};
use super::repeated::RepeatedColumn;
use super::texts::TextId;
use crate::output::{OutputFile, cannot_write};

/// Rows of a row group: what DuckDB gives to one thread at a time; all columns of this number of calls take
/// some 50 MB.
const ROWS_IN_GROUP: usize = 122_880;

/// The columns of a table, in their order.
pub(super) type Columns = Vec<(String, Kind)>;

/// A table that is being written.
pub(super) struct TableWriter {
    kinds: Vec<Kind>,
    columns: Vec<ColumnChunk>,
    rows: usize,
    /// Takes full row groups to the thread that writes them.
    groups: SyncSender<RowGroup>,
    /// Texts that the thread has.
    texts_sent: usize,
    written: JoinHandle<Result<(), ParquetError>>,
    file: OutputFile,
    path: PathBuf,
}

/// Rows for the thread.
struct RowGroup {
    columns: Vec<ColumnChunk>,
    /// Texts that are new since the group before.
    texts: Vec<ByteArray>,
}

struct ColumnChunk {
    /// 1: there is a value; 0: null.
    defined: Vec<i16>,
    values: Values,
}

enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Flag(Vec<bool>),
    Text(Vec<TextId>),
    Id(Ids),
}

/// Texts that are in one cell each, one after the other.
#[derive(Default)]
struct Ids {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// The cells of one row, which are given in the order of the columns.
pub(super) struct Cells<'t>(IterMut<'t, ColumnChunk>);

impl TableWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn create(path: PathBuf, schema: &str, columns: &Columns) -> Result<Self> {
        let file = OutputFile::create(&path)?;
        let writer = open(&file, schema, columns).with_context(|| cannot_write(&path))?;
        // One group waits for nothing, so that there are two of a table at most.
        let (groups, full) = mpsc::sync_channel(0);
        let thread = thread::Builder::new().name("rows".to_owned());
        let written =
            thread.spawn(move || write_groups(writer, &full)).with_context(|| cannot_write(&path))?;
        let kinds: Vec<Kind> = columns.iter().map(|(_, kind)| *kind).collect();
        let columns = empty(&kinds);
        Ok(Self { kinds, columns, rows: 0, groups, texts_sent: 0, written, file, path })
    }

    /// Adds a row with the cells that `fill` gives.
    pub(super) fn add(&mut self, fill: impl FnOnce(&mut Cells<'_>)) {
        let mut cells = Cells(self.columns.iter_mut());
        fill(&mut cells);
        // A cell that was not given is null.
        cells.0.for_each(|column| column.defined.push(0));
        self.rows += 1;
    }

    /// Has a full row group written, in which `texts` are the texts of all numbers.
    ///
    /// # Errors
    /// A row group could not be written: [`Self::finish`] says why.
    pub(super) fn write_if_full(&mut self, texts: &[Box<str>]) -> io::Result<()> {
        if self.rows < ROWS_IN_GROUP { Ok(()) } else { self.send_group(texts) }
    }

    fn send_group(&mut self, texts: &[Box<str>]) -> io::Result<()> {
        let columns = std::mem::replace(&mut self.columns, empty(&self.kinds));
        self.rows = 0;
        let new = texts.get(self.texts_sent..).unwrap_or_default();
        self.texts_sent = texts.len();
        let texts = new.iter().map(|text| ByteArray::from(&**text)).collect();
        self.groups.send(RowGroup { columns, texts }).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Writes the last row group; returns the file, which is whole and has not taken its place yet.
    ///
    /// # Errors
    /// It could not be written.
    pub(super) fn finish(mut self, texts: &[Box<str>]) -> Result<OutputFile> {
        if self.rows > 0 {
            // The thread knows why this fails.
            let _ = self.send_group(texts);
        }
        drop(self.groups);
        let written =
            self.written.join().unwrap_or_else(|_| Err(ParquetError::General("cut short".to_owned())));
        written.map_err(io_error).with_context(|| cannot_write(&self.path))?;
        Ok(self.file)
    }
}

/// Columns without rows.
fn empty(kinds: &[Kind]) -> Vec<ColumnChunk> {
    kinds.iter().map(|kind| ColumnChunk::new(*kind)).collect()
}

/// Writes row groups as they come, and the end of the file.
fn write_groups(
    mut writer: SerializedFileWriter<File>,
    groups: &Receiver<RowGroup>,
) -> Result<(), ParquetError> {
    let mut texts: Vec<ByteArray> = Vec::new();
    let described = writer.schema_descr().columns().to_vec();
    let properties = Arc::clone(writer.properties());
    let mut repeated: Vec<Option<RepeatedColumn>> = described.iter().map(|_| None).collect();
    for RowGroup { columns, texts: new } in groups {
        texts.extend(new);
        let mut group = writer.next_row_group()?;
        for ((column, description), repeated) in columns.into_iter().zip(&described).zip(&mut repeated) {
            let Some(value) = column.value_of_all() else {
                let Some(mut writer) = group.next_column()? else { break };
                write_column(writer.untyped(), column, &texts)?;
                writer.close()?;
                continue;
            };
            let of = (value, column.defined.len());
            let known = match repeated.take().filter(|known| known.is_of(of)) {
                Some(known) => known,
                None => RepeatedColumn::encode(of, description, &properties, |writer| {
                    write_column(writer, column, &texts)
                })?,
            };
            repeated.insert(known).append(&mut group)?;
        }
        group.close()?;
    }
    writer.finish().map(drop)
}

/// Writes all cells of a column; `texts` are those of all numbers.
fn write_column(
    writer: &mut ColumnWriter<'_>,
    ColumnChunk { defined, values }: ColumnChunk,
    texts: &[ByteArray],
) -> Result<(), ParquetError> {
    let defined = defined.as_slice();
    match (values, writer) {
        (Values::Int(all), ColumnWriter::Int32ColumnWriter(to)) => {
            to.write_batch(&all, Some(defined), None).map(drop)
        }
        (Values::Long(all), ColumnWriter::Int64ColumnWriter(to)) => {
            to.write_batch(&all, Some(defined), None).map(drop)
        }
        (Values::Flag(all), ColumnWriter::BoolColumnWriter(to)) => {
            to.write_batch(&all, Some(defined), None).map(drop)
        }
        (Values::Text(all), ColumnWriter::ByteArrayColumnWriter(to)) => {
            let text = |TextId(at): TextId| texts.get(at as usize).cloned().unwrap_or_default();
            write_texts(to, all.into_iter().map(text), defined)
        }
        (Values::Id(all), ColumnWriter::ByteArrayColumnWriter(to)) => {
            write_texts(to, all.into_texts(), defined)
        }
        _ => Err(ParquetError::General("a column of another type".to_owned())),
    }
}

/// Cells with texts in memory at a time: a multiple of the 1,024 at which the writer ends pages.
const TEXTS_AT_ONCE: usize = 8 << 10;

/// Writes the texts of a column.
fn write_texts(
    to: &mut ColumnWriterImpl<'_, ByteArrayType>,
    mut texts: impl Iterator<Item = ByteArray>,
    defined: &[i16],
) -> Result<(), ParquetError> {
    let mut batch = Vec::with_capacity(TEXTS_AT_ONCE);
    for defined in defined.chunks(TEXTS_AT_ONCE) {
        let count = defined.iter().filter(|defined| **defined > 0).count();
        batch.clear();
        batch.extend(texts.by_ref().take(count));
        to.write_batch(&batch, Some(defined), None)?;
    }
    Ok(())
}

impl Ids {
    /// Adds what [`CallId`] is shown as, which `fmt` takes twenty times as long for.
    fn push_call(&mut self, CallId { tid, number }: CallId) -> bool {
        let mut digits = itoa::Buffer::new();
        self.bytes.extend_from_slice(digits.format(tid.0).as_bytes());
        self.bytes.push(b'-');
        self.bytes.extend_from_slice(digits.format(number).as_bytes());
        self.end()
    }

    fn push_offset(&mut self, offset: AuxOffset) -> bool {
        // Memory takes all that is written.
        let _ = write!(self.bytes, "{offset}");
        self.end()
    }

    fn end(&mut self) -> bool {
        self.ends.push(self.bytes.len());
        true
    }

    fn into_texts(self) -> impl Iterator<Item = ByteArray> {
        let (bytes, mut start) = (ByteArray::from(self.bytes), 0);
        self.ends.into_iter().map(move |end| {
            let text = bytes.slice(start, end - start);
            start = end;
            text
        })
    }
}

/// Begins a Parquet file in `file`, which itself writes nothing.
fn open(file: &OutputFile, schema: &str, columns: &Columns) -> io::Result<SerializedFileWriter<File>> {
    let to = file.out.get_ref().try_clone()?;
    let column =
        |(name, kind): &(String, Kind)| format!("OPTIONAL {} {name}{};", kind.physical(), kind.logical());
    let message = format!("message rows {{ {} }}", columns.iter().map(column).collect::<String>());
    let message = parse_message_type(&message).map_err(io_error)?;
    let begin = WriterProperties::builder()
        .set_created_by(concat!("func_latency version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(io_error)?))
        .set_key_value_metadata(Some(vec![KeyValue::new("schema".to_owned(), schema.to_owned())]));
    let properties = columns.iter().fold(begin, |properties, (name, kind)| kind.encode(properties, name));
    SerializedFileWriter::new(to, Arc::new(message), Arc::new(properties.build())).map_err(io_error)
}

impl Kind {
    const fn physical(self) -> &'static str {
        match self {
            Self::Int => "INT32",
            Self::Long => "INT64",
            Self::Flag => "BOOLEAN",
            Self::Text | Self::Id => "BYTE_ARRAY",
        }
    }

    const fn logical(self) -> &'static str {
        match self {
            Self::Text | Self::Id => " (UTF8)",
            Self::Int | Self::Long | Self::Flag => "",
        }
    }

    /// A dictionary is for values that come again; times differ little from the ones before.
    fn encode(self, properties: WriterPropertiesBuilder, name: &str) -> WriterPropertiesBuilder {
        let column = ColumnPath::from(name);
        match self {
            Self::Int | Self::Text | Self::Flag => properties,
            Self::Id => properties.set_column_dictionary_enabled(column, false),
            Self::Long => properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED),
        }
    }
}

impl ColumnChunk {
    fn new(kind: Kind) -> Self {
        let values = match kind {
            Kind::Int => Values::Int(Vec::new()),
            Kind::Long => Values::Long(Vec::new()),
            Kind::Flag => Values::Flag(Vec::new()),
            Kind::Text => Values::Text(Vec::new()),
            Kind::Id => Values::Id(Ids::default()),
        };
        Self { defined: Vec::new(), values }
    }

    /// The value of all rows; `None`: they differ, as ids do.
    fn value_of_all(&self) -> Option<CellValue> {
        let rows = self.defined.len();
        Some(match &self.values {
            Values::Int(all) => one_of(all, rows)?.into(),
            Values::Long(all) => one_of(all, rows)?.into(),
            Values::Flag(all) => one_of(all, rows)?.into(),
            Values::Text(all) => one_of(all, rows)?.into(),
            Values::Id(_) => return None,
        })
    }
}

/// The value of all `rows`, which may be null; `None`: they differ.
fn one_of<T: Copy + PartialEq>(all: &[T], rows: usize) -> Option<Option<T>> {
    match all {
        [] => Some(None),
        [first, others @ ..] => {
            (all.len() == rows && others.iter().all(|other| other == first)).then_some(Some(*first))
        }
    }
}

impl CellSink for Cells<'_> {
    /// Null where the column is of another type, and a number of 2^63 or more: readers of Parquet take none.
    fn cell(&mut self, cell: CellValue) {
        let Some(column) = self.0.next() else { return };
        let is_given = match (&mut column.values, cell) {
            (Values::Int(all), CellValue::Int(value)) => push(all, Some(value)),
            (Values::Long(all), CellValue::Long(value)) => push(all, Some(value)),
            (Values::Long(all), CellValue::Count(value)) => push(all, i64::try_from(value).ok()),
            (Values::Flag(all), CellValue::Flag(value)) => push(all, Some(value)),
            (Values::Text(all), CellValue::Text(value)) => push(all, Some(value)),
            (Values::Id(all), CellValue::Call(value)) => all.push_call(value),
            (Values::Id(all), CellValue::Offset(value)) => all.push_offset(value),
            _ => false,
        };
        column.defined.push(is_given.into());
    }
}

/// Adds a value; whether there is one.
fn push<T>(all: &mut Vec<T>, value: Option<T>) -> bool {
    let Some(value) = value else { return false };
    all.push(value);
    true
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}
