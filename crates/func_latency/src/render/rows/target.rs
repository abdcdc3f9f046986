//! The file or directory that rows go to, and the form that its name asks for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::exit::{Exit, failure};

/// Where per-call rows go, and in which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsTarget {
    /// A file of text.
    Lines(RowsFile),
    /// A Parquet file of the calls.
    Parquet(PathBuf),
    /// A directory of Parquet files: of the calls, and of what is inside of them.
    Tables(PathBuf),
}

impl RowsTarget {
    /// By its name: a directory that there is, or a name that ends in a slash, is one of tables.
    ///
    /// # Errors
    /// Its name does not say in which form it is.
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        if is_directory(&path) {
            return Ok(Self::Tables(path));
        }
        match path.extension().and_then(OsStr::to_str) {
            Some("parquet") => Ok(Self::Parquet(path)),
            Some("jsonl" | "csv") => rows_file(path).map(Self::Lines),
            _ => {
                let message = format!(
                    "--rows {}: the name must end in .parquet, .jsonl or .csv, or in / for a directory",
                    path.display()
                );
                Err(failure(Exit::Usage, message))
            }
        }
    }

    /// The file or directory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Lines(RowsFile { path, .. }) | Self::Parquet(path) | Self::Tables(path) => path,
        }
    }
}

/// A directory, there or to come.
pub(crate) fn is_directory(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/")
}

/// A file of per-call rows, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsFile {
    /// The file.
    pub path: PathBuf,
    /// Its form.
    pub form: RowsForm,
}

/// Form of per-call rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsForm {
    /// One JSON object a line.
    JsonLines,
    /// Comma-separated values with a header line.
    Csv,
}

pub(crate) fn rows_file(path: PathBuf) -> Result<RowsFile> {
    let form = match Path::new(&path).extension().and_then(OsStr::to_str) {
        Some("jsonl") => RowsForm::JsonLines,
        Some("csv") => RowsForm::Csv,
        _ => {
            let message =
                format!("{}: rows are read from files whose names end in .jsonl or .csv", path.display());
            return Err(failure(Exit::Usage, message));
        }
    };
    Ok(RowsFile { path, form })
}
