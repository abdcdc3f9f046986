//! The reader: `perf.data` bytes to a [`model::Recording`].
//!
//! ```text
//! header    where the sections are, which layout
//! attr      events: how to read the records that they wrote
//! records   the walk from record to record
//! sample_id who and when: the trailer of each record
//! sideband  record bodies
//! auxtrace  AUXTRACE_INFO, trace payloads, PERF_RECORD_AUX: buffers
//! features  command line, CPU, build ids, event names
//! collect   the above, put together in one pass
//! ```
//!
//! The record bodies are read here and not by the crate `linux-perf-event-reader`, which panics on a build
//! id length that is out of range, reads an unterminated name into the record's trailer, refuses a whole
//! file for one event of a kind that it does not know, and has no AUX, ITRACE_START and AUXTRACE bodies.

mod attr;
mod auxtrace;
mod buffers;
mod bytes;
mod collect;
mod error;
mod features;
#[cfg(test)]
mod fixture;
mod header;
mod records;
mod sample_id;
mod sideband;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use model::Recording;

use crate::mmap::Mapping;
pub use error::{OpenError, ReadError};

/// An open `perf.data` file.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    mapping: Mapping,
}

impl File {
    /// Maps a file.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be opened or is not a `perf.data` file of this byte order.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        let io = |source| OpenError::Io { path: path.clone(), source };
        // Looked at before opening: opening a named pipe would wait for its writer.
        let kind = std::fs::metadata(&path).map_err(io)?.file_type();
        if kind.is_dir() {
            return Err(OpenError::Directory { path });
        }
        if !kind.is_file() {
            return Err(OpenError::NotAFile { path });
        }
        let file = std::fs::File::open(&path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(OpenError::Empty { path });
        }
        let mapping = Mapping::of(&file).map_err(io)?;
        header::check_magic(&mapping, &path)?;
        Ok(Self { path, mapping })
    }

    /// The file's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.mapping
    }

    /// Reads all records; the trace stays in the mapping.
    ///
    /// A file that is cut or damaged gives what precedes that place, and says so in
    /// [`Recording::damage`].
    ///
    /// # Errors
    /// [`ReadError`] if the file has no Intel PT that could be decoded.
    pub fn recording(&self) -> Result<Recording<'_>, ReadError> {
        parse(&self.mapping, &self.path)
    }
}

/// Reads a recording that is in memory; `path` only names it in errors.
///
/// # Errors
/// As [`File::open`] and [`File::recording`].
pub fn parse<'a>(bytes: &'a [u8], path: &Path) -> Result<Recording<'a>, ReadError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty { path: path.to_path_buf() }.into());
    }
    header::check_magic(bytes, path)?;
    collect::recording(bytes).map_err(|refusal| error::name(refusal, path))
}
