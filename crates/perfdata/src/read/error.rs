//! Why a file gives no recording at all.  Everything less than that is [`model::Damage`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use model::Damage;
use thiserror::Error;

/// The file cannot be opened as `perf.data`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused.
    #[error("cannot open {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory without the file `data`, which `perf record --kcore` and `--threads` make.
    #[error(
        "{path} is a directory without a file `data`: not a recording of `perf record --kcore` or `--threads`",
        path = path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A pipe, socket or device.
    #[error("{path} is not a regular file: write the recording to a file first", path = path.display())]
    NotAFile {
        /// What is no file.
        path: PathBuf,
    },
    /// No bytes at all.
    #[error("{path} is empty: the recording wrote nothing; record again", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Does not start with `PERFILE2`.
    #[error("{path} is not a perf.data file: it does not start with PERFILE2", path = path.display())]
    NotPerfData {
        /// The file.
        path: PathBuf,
    },
    /// Intel PT packets without a recording around them.
    #[error(
        "{path} is raw Intel PT: it has a PSB packet at offset {psb}, and not the perf.data around it. What is missing to \
         use it: which code was mapped where, which thread ran, what the trace unit was set to, and what a TSC is in perf's \
         clock. Record with func_latency record or perf record -e intel_pt//u, and give that file",
        path = path.display()
    )]
    RawTrace {
        /// The file.
        path: PathBuf,
        /// Offset of the first PSB.
        psb: usize,
    },
    /// Recorded on a big-endian machine.
    #[error(
        "{path} was recorded on a big-endian machine, which has no Intel PT: wrong file",
        path = path.display()
    )]
    BigEndian {
        /// The file.
        path: PathBuf,
    },
    /// The first version of the format (before Linux 3.1).
    #[error(
        "{path} has the old format PERFFILE, older than Intel PT: record with a current perf",
        path = path.display()
    )]
    OldFormat {
        /// The file.
        path: PathBuf,
    },
}

/// The file is `perf.data`, but gives no recording of Intel PT.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not even `perf.data`.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No event is described.
    #[error("{path} has no events{damage}; record again", path = path.display(), damage = after(.damage))]
    NoEvents {
        /// The file.
        path: PathBuf,
        /// Where it is damaged.
        damage: Option<Damage>,
    },
    /// There are events, but no Intel PT.
    #[error(
        "no Intel PT in {path}{damage}: events are {events}; record with -e intel_pt//u",
        path = path.display(), damage = after(.damage), events = .events.join(", ")
    )]
    NoIntelPt {
        /// The file.
        path: PathBuf,
        /// Names of its events.
        events: Vec<String>,
        /// Where it is damaged: the description of the trace may have been lost there.
        damage: Option<Damage>,
    },
    /// A trace, but of another kind.
    #[error(
        "{path} holds a trace of {kind} (AUXTRACE_INFO at offset {offset:#x}), not of Intel PT; record with \
         -e intel_pt//u",
        path = path.display()
    )]
    OtherTrace {
        /// The file.
        path: PathBuf,
        /// Offset of the AUXTRACE_INFO record.
        offset: u64,
        /// perf's name of the kind.
        kind: String,
    },
    /// A feature of the format that this reader does not have.
    #[error("{path} has {what} (at offset {offset:#x}), which is not read; {instead}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Where it was met.
        offset: u64,
        /// The feature.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
}

fn after(damage: &Option<Damage>) -> impl fmt::Display {
    match damage {
        Some(d) => format!(" (damaged at offset {:#x}: {})", d.file_offset, d.what),
        None => String::new(),
    }
}

/// A [`ReadError`] before the file's name is known.
#[derive(Debug)]
pub(super) enum Refusal {
    NoEvents { damage: Option<Damage> },
    NoIntelPt { events: Vec<String>, damage: Option<Damage> },
    OtherTrace { offset: u64, kind: String },
    Unsupported { offset: u64, what: &'static str, instead: &'static str },
}

pub(super) fn name(refusal: Refusal, path: &Path) -> ReadError {
    let path = path.to_path_buf();
    match refusal {
        Refusal::NoEvents { damage } => ReadError::NoEvents { path, damage },
        Refusal::NoIntelPt { events, damage } => ReadError::NoIntelPt { path, events, damage },
        Refusal::OtherTrace { offset, kind } => ReadError::OtherTrace { path, offset, kind },
        Refusal::Unsupported { offset, what, instead } => {
            ReadError::Unsupported { path, offset, what, instead }
        }
    }
}
