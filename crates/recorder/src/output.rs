//! The file, shared by all who write to it.
//!
//! Each record, with its payload, goes to the file in one piece and at once: whenever we are killed, what is
//! there is whole up to the last one. Nothing is buffered, because what is written is large.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use perfdata::write::{Features, Writer};

/// A file that is written.
#[derive(Debug)]
pub(crate) struct Output {
    state: Mutex<State>,
    failed: AtomicBool,
}

#[derive(Debug)]
struct State {
    writer: Writer<File>,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

impl Output {
    pub(crate) fn new(writer: Writer<File>) -> Self {
        Self { state: Mutex::new(State { writer, error: None }), failed: AtomicBool::new(false) }
    }

    /// Writes, unless that has failed before.
    pub(crate) fn put(&self, write: impl FnOnce(&mut Writer<File>) -> io::Result<()>) {
        let mut state = self.state();
        if state.error.is_none() {
            state.error = write(&mut state.writer).err();
            self.failed.store(state.error.is_some(), Ordering::Relaxed);
        }
    }

    /// Nothing is written any more.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the file.  Returns its size.
    ///
    /// # Errors
    /// The first one, whenever it was.  The file stays as that of a killed recorder then: it may have more
    /// of one CPU than of another.
    pub(crate) fn finish(self, features: &Features) -> io::Result<u64> {
        let State { writer, error } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => Err(error),
            None => writer.finish(features)?.metadata().map(|file| file.len()),
        }
    }
}
