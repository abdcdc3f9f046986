//! How far decoding has come: on a terminal, and only if it takes over a second.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use crate::messages;
use crate::render::units::size;

const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// A line on stderr that is overwritten, and gone at the end.
pub(crate) struct Progress {
    what: &'static str,
    total_bytes: u64,
    /// When to write next; `None`: not on a terminal.
    next: Cell<Option<Instant>>,
    written: Cell<bool>,
}

impl Progress {
    /// Progress over `total_bytes` bytes.
    pub(crate) fn new(what: &'static str, total_bytes: u64) -> Self {
        let is_shown = stderr().is_terminal() && !messages::are_held();
        let next = is_shown.then(|| Instant::now() + FIRST);
        Self { what, total_bytes, next: Cell::new(next), written: Cell::new(false) }
    }

    /// Shows that `bytes` bytes are done, now and then.
    pub(crate) fn at(&self, bytes: u64) {
        let now = Instant::now();
        if self.next.get().is_none_or(|next| now < next) {
            return;
        }
        self.next.set(Some(now + EVERY));
        self.written.set(true);
        let percent = 100.0 * bytes as f64 / self.total_bytes.max(1) as f64;
        let (done, all) = (size(bytes), size(self.total_bytes));
        // A terminal that cannot be written to is no reason to stop.
        let _ = write!(stderr(), "\r{}: {percent:.0} % ({done} of {all})\x1b[K", self.what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.written.get() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
