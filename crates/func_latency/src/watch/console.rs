//! What a watch tells, and what it is asked for meanwhile.
//!
//! ```text
//!   figures  -> display, file of metrics
//!   hits     -> captures -> display
//!   keys, signals, the exit of a command  -> hits; the end of the watch
//! ```

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use analyzer::FunctionReport;
use anyhow::Result;
use model::{FunctionId, Ns};

use super::captures::{Capturer, Captures, Limits};
use super::display::{Display, SeenCalls};
use super::outside::{Event, Outside};
use super::triggers::Hit;
use crate::render::interval::{Interval, SeenBy, openmetrics};
use crate::render::screen::state::Wish;
use crate::target::Wanted;

/// Time between two looks for keys and signals while nothing new is seen.
pub(super) const ATTENDED_EACH: Duration = Duration::from_millis(50);

/// Tells figures and captures of a watch, and takes what keys, signals and a command's exit ask for.
pub(super) struct Console {
    display: Display,
    openmetrics: Option<PathBuf>,
    /// Names and objects of the watched functions; empty until these are found.
    names: Vec<(String, String)>,
    /// `None`: nothing is captured.
    captures: Option<(Captures, Outside)>,
    /// Time lost since the watch began, of all threads.
    lost_ns: u64,
    /// The watch ends when everything up to then was seen.
    ends_at: Option<Ns>,
    /// The view was left, by a key.
    is_left: bool,
}

/// What becomes of hits, and what makes some besides calls.
pub(super) struct HitsTaken {
    pub(super) limits: Limits,
    pub(super) outside: Outside,
}

/// The calls that ended in an interval.
pub(super) struct IntervalSeen<'a> {
    /// Its end.
    pub(super) time: Ns,
    pub(super) interval_ns: u64,
    pub(super) figures: &'a [FunctionReport],
    pub(super) slowest: &'a [Hit],
    pub(super) lost_ns: u64,
    pub(super) seen_by: SeenBy,
}

impl Console {
    /// `hits`: what becomes of them; `None`: there are none.
    pub(super) fn new(display: Display, openmetrics: Option<PathBuf>, hits: Option<HitsTaken>) -> Self {
        let captures = hits.map(|HitsTaken { limits, outside }| (Captures::new(limits), outside));
        Self { display, openmetrics, names: Vec::new(), captures, lost_ns: 0, ends_at: None, is_left: false }
    }

    /// Tells the figures of an interval. `so_far`: by what all since the watch began was seen.
    ///
    /// # Errors
    /// Stdout or the file of metrics cannot be written.
    pub(super) fn tell(&mut self, of: &IntervalSeen<'_>, so_far: SeenBy, seen: &dyn SeenCalls) -> Result<()> {
        if self.names.is_empty() {
            let name = |wanted: &Wanted| (wanted.function.name.clone(), wanted.function.object_name.clone());
            self.names = seen.wanted().iter().map(name).collect();
        }
        let interval = Interval {
            time_ns: of.time.0,
            interval_ns: of.interval_ns,
            figures: of.figures,
            names: &self.names,
            lost_ns: of.lost_ns,
            seen_by: of.seen_by,
        };
        self.lost_ns = self.lost_ns.saturating_add(of.lost_ns);
        self.display.interval(&interval, of.slowest, seen)?;
        let Some(path) = &self.openmetrics else { return Ok(()) };
        let totals = openmetrics::Totals {
            figures: &seen.total_figures(),
            names: &self.names,
            lost_ns: self.lost_ns,
            seen_by: so_far,
        };
        openmetrics::replace(path, &totals)
    }

    /// Takes what has happened outside of the target up to `time`. `waits`: for the end of the command of
    /// `--until`, too.
    pub(super) fn hear(&mut self, time: Ns, waits: bool) {
        // A view stays, and looks for it meanwhile.
        let waits = waits && !self.display.is_view();
        let Some((captures, outside)) = &mut self.captures else { return };
        let hit = |(time, event): (Ns, Event)| {
            if event.ends {
                self.ends_at = Some(time);
            }
            Hit::of_event(time, event)
        };
        captures.take(outside.events(time, waits).into_iter().map(hit).collect());
    }

    /// Takes hits, by the times of their ends; `left_out`: more that are not among them.
    pub(super) fn take(&mut self, hits: Vec<Hit>, left_out: u64) {
        if let Some((captures, _)) = &mut self.captures {
            captures.take(hits);
            captures.leave_out(left_out);
        }
    }

    /// Takes what was asked for by keys.
    pub(super) fn attend(&mut self, seen: &dyn SeenCalls) {
        for wish in self.display.wishes() {
            match wish {
                Wish::Leave => self.is_left = true,
                Wish::Capture(call) => {
                    let function: Option<FunctionId> =
                        seen.wanted().get(call.function).map(|wanted| wanted.function.id);
                    self.take(vec![Hit::chosen(&call, function)], 0);
                }
                // The view does these itself.
                Wish::Show(_) | Wish::WritePage(_) => (),
            }
        }
    }

    /// The view was left.
    pub(super) const fn is_left(&self) -> bool {
        self.is_left
    }

    /// The time from which on captures need what is known, where everything up to `until` was seen; `None`:
    /// there are none.
    pub(super) fn needs_from(&self, until: Ns) -> Option<Ns> {
        self.captures.as_ref().map(|(captures, _)| captures.needs_from(until))
    }

    /// Whether there is anything to capture, where everything is known up to `until`.
    #[cfg(feature = "bpf")]
    pub(super) fn has_due(&self, until: Option<Ns>) -> bool {
        self.captures.as_ref().is_some_and(|(captures, _)| captures.has_due(until))
    }

    /// Makes the captures of which all is known. Returns, once, whether the watch has come to its end.
    pub(super) fn capture(&mut self, capturer: &dyn Capturer, until: Option<Ns>) -> bool {
        if let Some((captures, _)) = &mut self.captures {
            captures.make(capturer, until, &mut |capture| self.display.captured(capture));
        }
        self.is_over(until)
    }

    /// Whether the watch has come to its end, told once.
    pub(super) fn is_over(&mut self, until: Option<Ns>) -> bool {
        let Some((captures, _)) = &self.captures else { return false };
        let is_over = |end: &mut Ns| until.is_some() && captures.is_all_known(*end, until);
        self.ends_at.take_if(is_over).is_some()
    }

    /// Nothing more is recorded: the view stays until it is left, or `is_over`. Captures are still made.
    pub(super) fn stay(
        &mut self,
        time: Ns,
        seen: &dyn SeenCalls,
        capturer: &dyn Capturer,
        is_over: impl Fn() -> bool,
    ) {
        if !self.display.end(seen) {
            return;
        }
        while !self.is_left && !is_over() {
            thread::sleep(ATTENDED_EACH);
            self.attend(seen);
            self.hear(time, false);
            self.is_left |= self.capture(capturer, None) || self.ends_at.is_some();
        }
    }

    /// Gives the terminal back; returns whether a view had it.
    pub(super) fn leave(&mut self) -> bool {
        self.is_left = true;
        self.display.close()
    }

    /// The report follows: says what became of hits, and gives the terminal back.
    pub(super) fn end(self) {
        // Keys that might have asked for one are no reason to speak of captures.
        if let Some((captures, _)) = &self.captures
            && (captures.has_hits() || !self.display.is_view())
        {
            captures.summarise();
        }
        drop(self.display);
    }
}
