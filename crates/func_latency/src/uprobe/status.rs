//! What is going on, on a terminal: one line on stderr that is overwritten.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often figures change: as fast as they can be read.
const EVERY: Duration = Duration::from_millis(250);

/// The line.  Dropped, it is gone.
pub(crate) struct Status {
    is_terminal: bool,
    is_written: Cell<bool>,
    next: Cell<Instant>,
}

impl Status {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: stderr().is_terminal(),
            is_written: Cell::new(false),
            next: Cell::new(Instant::now()),
        }
    }

    /// What happens now.
    pub(super) fn say(&self, what: &str) {
        if self.is_terminal {
            self.is_written.set(true);
            // A terminal that cannot be written to is no reason to stop.
            let _ = write!(stderr(), "\r{what}\x1b[K");
        }
    }

    /// How far the window is: at times, as fast as it can be read.
    pub(super) fn show(&self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if self.is_terminal && now >= self.next.get() {
            self.next.set(now + EVERY);
            self.say(&text());
        }
    }

    /// Makes room for other lines.
    pub(super) fn clear(&self) {
        if self.is_written.replace(false) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}
