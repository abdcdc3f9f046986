//! What is going on, on a terminal: one line on stderr that is overwritten.

use std::cell::Cell;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use super::watched::Watched;
use crate::render::units::{duration, grouped};

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

    /// How far the window is; `window`: how long it will be, if that is known.
    pub(super) fn show(&self, elapsed: Duration, window: Option<Duration>, seen: &Watched) {
        let now = Instant::now();
        if self.is_terminal && now >= self.next.get() {
            self.next.set(now + EVERY);
            self.say(&figures(elapsed, window, seen));
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

/// `2.3 s left: 1,234 calls, p50 7.10 us, p99 35.0 us`
fn figures(elapsed: Duration, window: Option<Duration>, seen: &Watched) -> String {
    let when = match window {
        Some(window) => format!("{:.1} s left", window.saturating_sub(elapsed).as_secs_f64()),
        None => format!("{:.1} s", elapsed.as_secs_f64()),
    };
    let calls = if seen.calls() == 1 { "call" } else { "calls" };
    let so_far = format!("{when}: {} {calls}", grouped(seen.calls()));
    let figure = |share| seen.percentile(share).map(|time| duration(time.as_nanos() as u64));
    match (figure(0.5), figure(0.99)) {
        (Some(p50), Some(p99)) => format!("{so_far}, p50 {p50}, p99 {p99} as measured"),
        _ => so_far,
    }
}
