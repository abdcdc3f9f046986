//! Columns of row groups that have one value in all rows, encoded once for all such groups.
//!
//! ```text
//!   row groups   |--------|--------|--------|--
//!   host         encoded   copied   copied   ...
//!   latency_ns   encoded   encoded  encoded  ...
//! ```
//! Of the calls of one function, most columns with texts are such: its name, its object, the recording. The
//! encoder looks up each cell in its dictionary, which took a fifth of a report with a directory of rows.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, get_column_writer};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::columns::CellValue;

/// A column of a row group, encoded.
pub(super) struct RepeatedColumn {
    /// The value of all rows, and their number.
    of: (CellValue, usize),
    bytes: Bytes,
    closed: ColumnCloseResult,
}

impl RepeatedColumn {
    /// Encodes what `write` writes: all rows of `of`.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn encode(
        of: (CellValue, usize),
        column: &ColumnDescPtr,
        properties: &WriterPropertiesPtr,
        write: impl FnOnce(&mut ColumnWriter<'_>) -> Result<(), ParquetError>,
    ) -> Result<Self, ParquetError> {
        let mut bytes = TrackedWrite::new(Vec::new());
        let pages = Box::new(SerializedPageWriter::new(&mut bytes));
        let mut writer = get_column_writer(Arc::clone(column), Arc::clone(properties), pages);
        write(&mut writer)?;
        let closed = writer.close()?;
        Ok(Self { of, bytes: bytes.into_inner()?.into(), closed })
    }

    /// It is of this value in this number of rows.
    pub(super) fn is_of(&self, of: (CellValue, usize)) -> bool {
        self.of == of
    }

    /// Adds it to a row group.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn append(&self, group: &mut SerializedRowGroupWriter<'_, File>) -> Result<(), ParquetError> {
        group.append_column(&self.bytes, self.closed.clone())
    }
}
