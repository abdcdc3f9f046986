//! The reader: `perf.data` bytes to a [`model::Recording`].
//!
//! ```text
//! header    where the sections are, which layout
//! attr      events: how to read the records that they wrote
//! records   the walk from record to record
//! sample_id process, thread, time and CPU: the trailer of each record
//! sideband  record bodies
//! auxtrace  AUXTRACE_INFO, trace payloads, PERF_RECORD_AUX: buffers
//! tracepoints  where the fields of sched:sched_switch stand
//! snapshots  what is new in each copy of a ring
//! features  command line, CPU, build ids, event names
//! compressed  records of `perf record -z`
//! kept      the sideband records, no more than a real file may have
//! collect   the above, put together in one pass
//! listing   all records, for people
//! excerpt   records and trace of a time, as a file of its own
//! open      a file, or a directory of them
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
mod compressed;
mod error;
mod excerpt;
mod features;
#[cfg(test)]
mod fixture;
mod header;
mod kept;
mod listing;
mod open;
mod record_window;
mod records;
mod sample_id;
mod sideband;
mod snapshots;
#[cfg(test)]
mod tests;
mod tracepoints;

use std::path::Path;

use model::Recording;

use collect::Parts;
pub use error::{OpenError, ReadError};
pub use excerpt::{Excerpt, ExcerptError, Source, write_excerpt};
pub use listing::Listed;
pub use open::File;
pub(crate) use tracepoints::APART_NS;

/// Reads a recording that is in memory; `path` only names it in errors.
///
/// # Errors
/// As [`File::open`] and [`File::recording`].
pub fn parse<'a>(bytes: &'a [u8], path: &Path) -> Result<Recording<'a>, ReadError> {
    if bytes.is_empty() {
        return Err(OpenError::Empty { path: path.to_path_buf() }.into());
    }
    header::check_magic(bytes, path)?;
    collect::recording(Parts { main: bytes.into(), more: &[] }).map_err(|refusal| error::name(refusal, path))
}
