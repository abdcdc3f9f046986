//! What can go wrong while a recording is made.

use std::io;
use std::path::{Path, PathBuf};

/// Why no recording was made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the log is not what the plugin writes.
    #[error("{}: line or record {record}: {what}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Number of the line or record, from 1.
        record: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The IP filter names something that is not there.
    #[error("filter {text}: {what}")]
    Filter {
        /// The filter as given.
        text: String,
        /// What is missing.
        what: &'static str,
    },
    /// The function that is to fault is not there.
    #[error("fault {text}: {what}")]
    Fault {
        /// The function as given.
        text: String,
        /// What is missing.
        what: &'static str,
    },
    /// The function that is to have slow calls is not there.
    #[error("slow calls of {text}: {what}")]
    SlowCalls {
        /// The function.
        text: String,
        /// What is missing.
        what: &'static str,
    },
    /// A program of several threads is to have copies.
    #[error("copies are made of a program's only thread, and this one has {threads}")]
    Copies {
        /// The program's threads.
        threads: usize,
    },
    /// A program could not be started or failed.
    #[error("{program}: {what}")]
    Program {
        /// Its name.
        program: String,
        /// What happened.
        what: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_path_buf(), source }
    }
}
