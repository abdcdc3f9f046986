//! `watch --snapshot`: the trace unit writes over its rings for ever, and only trace that is asked for is
//! written and decoded.
//!
//! ```text
//!   rings    |=====|=====|=====|...                      overwritten; nothing leaves them
//!   trigger        SIGUSR2, the exit of a command, the end of the watch
//!   copies         of all rings, what they hold and no copy before has      -> pieces
//!   records  threads, switches, mappings, all the time   -> pieces, the newest kept
//!   capture  copies, and the records of all pieces that are kept
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::Result;
use model::{Ns, Recording, TscClock};
use recorder::{Copied, Piece, RingCopies};

use super::captures::{Captures, Limits};
use super::console::ATTENDED_EACH;
use super::display::Display;
use super::followed::{self, Arriving, LiveWatch};
use super::growing::{Growing, Part};
use super::kept_pieces::{KeptPieces, OpenedPiece};
use super::outside::{Event, Heard, Listener};
use super::trace_capture::{CaptureTrace, TraceCapturer};
use super::triggers::Hit;
use crate::args::Format;
use crate::config::CallsConfig;
use crate::exit::Exit;
use crate::messages;
use crate::render::units::size;

/// What is asked for.
pub(super) struct SnapshotsAsked<'a> {
    /// How calls of a capture are looked at.
    pub(super) calls: &'a CallsConfig,
    /// The kernel's symbols name what calls waited for.
    pub(super) with_kernel: bool,
    pub(super) format: Format,
    pub(super) limits: Limits,
    pub(super) listener: Listener,
}

/// Pieces are no longer, so that a snapshot does not wait for its records.
const PIECE_MAX: Duration = Duration::from_secs(1);

/// Records, and takes snapshots.
pub(super) fn run(live: LiveWatch<'_>, asked: SnapshotsAsked<'_>) -> Result<Exit> {
    let live = LiveWatch { interval: live.interval.min(PIECE_MAX), ..live };
    let copies = Arc::new(RingCopies::default());
    let most_bytes = live.most_bytes;
    followed::run(&live, Some(Arc::clone(&copies)), |arriving| {
        let Ok(first) = arriving.pieces.recv() else { return Ok(Exit::Nothing) };
        let opened = OpenedPiece::new(&first)?;
        FlightRecorder::new(arriving, copies, most_bytes, opened.recording(), asked)?.run(first, opened)
    })
}

/// What is recorded, and what snapshots are taken for.
struct FlightRecorder<'a> {
    arriving: Arriving<'a>,
    copies: Arc<RingCopies>,
    most_bytes: u64,
    kept: KeptPieces,
    growing: Growing,
    calls: &'a CallsConfig,
    clock: Option<TscClock>,
    heard: Heard<(Option<Ns>, u64)>,
    captures: Captures,
    display: Display,
    /// Those that are being taken, in the order in which they were asked for.
    asked: VecDeque<AskedSnapshot>,
    /// The one that ends the watch was taken.
    is_over: bool,
    /// When the last one was taken: the next one has no trace from before that.
    begins: Option<Ns>,
    /// The last one lacks a ring, which the next one has.
    has_left: bool,
}

/// A snapshot that is being taken.
struct AskedSnapshot {
    /// That of the copies.
    number: u64,
    event: Event,
    at: Ns,
    copied: Option<Copied>,
}

impl<'a> FlightRecorder<'a> {
    fn new(
        arriving: Arriving<'a>,
        copies: Arc<RingCopies>,
        most_bytes: u64,
        first: &Recording<'_>,
        asked: SnapshotsAsked<'a>,
    ) -> Result<Self> {
        let SnapshotsAsked { calls, with_kernel, format, limits, mut listener } = asked;
        let clock = first.clock;
        let growing = Growing::new(calls.clone(), first, None);
        let growing = if with_kernel { growing.with_kernel_of_this_machine() } else { growing };
        // Not before there is trace of what it does.
        listener.begin(false)?;
        // A ring is copied as soon as anything happens, whatever else is being done.
        let asking = Arc::clone(&copies);
        let heard = Heard::stamped(listener, move || {
            let number = asking.ask();
            (clock.map(recorder::perf_clock_now), number)
        });
        messages::note(format!(
            "no trace is written or decoded until SIGUSR2 (kill -USR2 {}), a command of --until, or the end",
            std::process::id()
        ));
        Ok(Self {
            arriving,
            copies,
            most_bytes,
            kept: KeptPieces::default(),
            growing,
            calls,
            clock,
            heard,
            captures: Captures::new(Limits { before_ns: 0, after_ns: 0, ..limits }),
            // Its thread must not take signals: those are held back by now.
            display: Display::new(format, false)?,
            asked: VecDeque::new(),
            is_over: false,
            begins: None,
            has_left: false,
        })
    }

    /// Follows the recording to its end.
    fn run(mut self, first: Piece, opened: OpenedPiece) -> Result<Exit> {
        let mut is_last = first.until.is_none();
        self.take(&first, opened)?;
        while !is_last {
            self.hear();
            self.go_on();
            match self.arriving.pieces.recv_timeout(ATTENDED_EACH) {
                Ok(piece) => {
                    is_last = piece.until.is_none();
                    self.take(&piece, OpenedPiece::new(&piece)?)?;
                }
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.end();
        self.captures.summarise();
        Ok(if self.captures.are_made() { Exit::Done } else { Exit::Nothing })
    }

    /// Keeps a piece, and takes its records.
    fn take(&mut self, piece: &Piece, mut opened: OpenedPiece) -> Result<()> {
        if piece.left_out_bytes > 0 {
            messages::warn(format!(
                "{} of trace had no room: --spool has room for more, or -m makes buffers smaller",
                size(piece.left_out_bytes)
            ));
        }
        let new_records = std::mem::take(&mut opened.new_records);
        let span = opened.recording().time_span;
        let part = Part { buffers: Vec::new(), sideband: new_records, until: piece.until, span };
        self.growing.take_records(part)?;
        self.growing.forget_before(opened.time);
        let OpenedPiece { read, time, .. } = opened;
        self.kept.push(piece, read, time);
        self.trim();
        Ok(())
    }

    /// Lets go of what is more than the room is for, unless a snapshot may have its copies there.
    fn trim(&mut self) {
        if self.asked.is_empty() && !self.copies.is_waited_for() {
            let freed = self.kept.trim(Ns(0), self.most_bytes / KEPT_SHARE);
            self.arriving.waiting_bytes.fetch_sub(freed, Ordering::Relaxed);
            self.kept.begins().into_iter().for_each(|begins| self.copies.forget_before(begins));
        }
    }

    /// Takes what has happened.
    fn hear(&mut self) {
        for ((at, number), event) in self.heard.take() {
            let at = at.unwrap_or_else(|| self.now());
            self.asked.push_back(AskedSnapshot { number, event, at, copied: None });
        }
    }

    fn now(&self) -> Ns {
        self.clock.map_or_else(|| self.kept.until().unwrap_or_default(), recorder::perf_clock_now)
    }

    /// Takes the snapshots of which everything is there.
    fn go_on(&mut self) {
        while let Some(first) = self.asked.front_mut().filter(|_| !self.is_over) {
            if first.copied.is_none() {
                first.copied = self.copies.take(first.number);
            }
            // The copies, and the records of their time, are in the pieces up to then.
            let until = self.kept.until();
            let is_there = |copied: &Copied| until.is_some_and(|until| until >= copied.until);
            if !first.copied.as_ref().is_some_and(is_there) {
                break;
            }
            let Some(AskedSnapshot { event, at, copied: Some(copied), .. }) = self.asked.pop_front() else {
                break;
            };
            self.is_over = event.ends;
            self.capture(event, at, copied);
            if self.is_over {
                self.arriving.interrupts.end_early();
            }
        }
        self.trim();
    }

    /// The recording has ended: what was asked for last, or else its end, has what the rings still held.
    fn end(&mut self) {
        if self.is_over && !self.has_left {
            return;
        }
        self.hear();
        let first = self.asked.front().map(|first| (first.at, first.event.name));
        let (at, first_name) = first.unzip();
        let at = at.unwrap_or_else(|| self.now());
        let (mut copied, mut triggers) = (Copied::default(), Vec::new());
        for asked in std::mem::take(&mut self.asked) {
            copied.add(asked.copied.unwrap_or_default());
            triggers.push(asked.event.trigger);
        }
        copied.add(self.copies.take_rest());
        let name = first_name.unwrap_or("end");
        let is_asked = !triggers.is_empty();
        triggers.push("the end of the watch".to_owned());
        if is_asked || !copied.trace.is_empty() {
            self.capture(Event { trigger: triggers.join(", "), name, ends: true }, at, copied);
        }
    }

    fn capture(&mut self, event: Event, at: Ns, copied: Copied) {
        let Event { name, trigger, .. } = event;
        self.has_left = copied.has_left;
        if copied.trace.is_empty() {
            let why = if copied.has_left { "there was no room for it" } else { "there is no new trace" };
            messages::note(format!("{trigger}: nothing is captured: {why}"));
            return;
        }
        let hit = Hit { is_asked: true, span: (at, copied.until), ..Hit::at(at, None, name, trigger) };
        self.captures.take(vec![hit]);
        let kept = self.kept.trace();
        let begins = self.begins.max(kept.begins);
        if !copied.has_left {
            self.begins = copied.began.or(self.begins);
        }
        let trace = CaptureTrace { copies: Some(copied.trace), begins, ..kept };
        let capturer = TraceCapturer { growing: &self.growing, trace: &trace, calls: self.calls };
        let display = &mut self.display;
        self.captures.make(&capturer, None, &mut |capture| display.captured(capture));
    }
}

/// Pieces without a snapshot take this share of the room.
const KEPT_SHARE: u64 = 2;
