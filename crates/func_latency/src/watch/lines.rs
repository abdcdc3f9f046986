//! Lines for stdout, from a thread of its own: a reader that stands still does not hold up the watch.

use std::io::{self, Write as _, stdout};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

/// Lines that wait to be written; with more the watch waits, too.
const WAITING_MAX: usize = 1 << 14;

/// Writes lines.
pub(super) struct LineWriter {
    /// `None`: no more will come.
    lines: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl LineWriter {
    pub(super) fn new() -> Self {
        let (lines, arrived) = mpsc::sync_channel::<Vec<u8>>(WAITING_MAX);
        let write = move || {
            arrived.iter().try_for_each(|line| {
                let mut out = stdout().lock();
                out.write_all(&line).and_then(|()| out.flush())
            })
        };
        Self { lines: Some(lines), thread: Some(thread::spawn(write)) }
    }

    /// Takes what is to be written.
    ///
    /// # Errors
    /// Something before it could not be written.
    pub(super) fn take(&mut self, text: Vec<u8>) -> io::Result<()> {
        if self.lines.as_ref().is_some_and(|lines| lines.send(text).is_ok()) {
            return Ok(());
        }
        self.end()?;
        Err(io::Error::other("a line before could not be written"))
    }

    /// Waits until everything is written.
    fn end(&mut self) -> io::Result<()> {
        self.lines = None;
        let failed = |_| io::Error::other("the thread that writes failed");
        self.thread.take().map_or(Ok(()), |thread| thread.join().map_err(failed)?)
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        // The report that follows cannot be written either, and says so.
        let _ = self.end();
    }
}
