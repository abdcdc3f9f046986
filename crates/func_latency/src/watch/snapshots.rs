//! `watch --snapshot`: the trace unit writes over its rings for ever, and only what is asked for is written
//! and decoded.
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

use anyhow::Result;
use model::{Ns, TscClock};
use recorder::{Copied, Piece, RingCopies};

use super::captures::{Captures, Limits};
use super::console::ATTENDED_EACH;
use super::display::Display;
use super::followed::{self, Arriving, LiveWatch};
use super::growing::{Growing, Part};
use super::kept_pieces::{KeptPieces, OpenedPiece};
use super::outside::{Event, Heard, Listener, Outside};
use super::trace_capture::{CaptureTrace, TraceCapturer};
use super::triggers::Hit;
use crate::config::CallsConfig;
use crate::exit::Exit;
use crate::{messages, recording};

/// What is asked for.
pub(super) struct SnapshotsAsked<'a> {
    /// How calls of a capture are looked at.
    pub(super) calls: &'a CallsConfig,
    /// The kernel's symbols name what calls waited for.
    pub(super) with_kernel: bool,
    pub(super) display: Display,
    pub(super) limits: Limits,
    pub(super) listener: Listener,
    pub(super) has_until: bool,
}

/// Records, and takes snapshots.
pub(super) fn run(live: &LiveWatch<'_>, asked: SnapshotsAsked<'_>) -> Result<Exit> {
    let copies = Arc::new(RingCopies::default());
    let most_bytes = live.most_bytes;
    let until = if asked.has_until { ", the exit of --until's command" } else { "" };
    messages::note(format!(
        "no trace is written or decoded until SIGUSR2 (kill -USR2 {}){until} or the end",
        std::process::id()
    ));
    followed::run(live, Some(Arc::clone(&copies)), |arriving| {
        let Ok(first) = arriving.pieces.recv() else { return Ok(Exit::Nothing) };
        FlightRecorder::new(arriving, copies, most_bytes, &first, asked)?.run(first)
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
    outside: Outside,
    captures: Captures,
    display: Display,
    /// What has happened and has no snapshot yet.
    waiting: VecDeque<(Ns, Event)>,
    /// The one that is being taken.
    current: Option<Current>,
    /// The one that ends the watch was taken.
    is_over: bool,
    /// No trace from before is in the next one.
    begins: Option<Ns>,
}

/// A snapshot that is being taken.
struct Current {
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
        first: &Piece,
        asked: SnapshotsAsked<'a>,
    ) -> Result<Self> {
        let SnapshotsAsked { calls, with_kernel, display, limits, listener, .. } = asked;
        let file = recording::open(&first.path)?;
        let whole = file.recording()?;
        let clock = whole.clock;
        let growing = Growing::new(calls.clone(), &whole, None);
        let growing = if with_kernel { growing.with_kernel_of_this_machine() } else { growing };
        Ok(Self {
            arriving,
            copies,
            most_bytes,
            kept: KeptPieces::default(),
            growing,
            calls,
            clock,
            outside: Outside::Heard(Heard::by(listener, clock)),
            captures: Captures::new(Limits { before_ns: 0, after_ns: 0, ..limits }),
            display,
            waiting: VecDeque::new(),
            current: None,
            is_over: false,
            begins: None,
        })
    }

    /// Follows the recording to its end.
    fn run(mut self, first: Piece) -> Result<Exit> {
        let mut arrived = Some(first);
        loop {
            if let Some(piece) = arrived.take() {
                let is_last = piece.until.is_none();
                self.take(piece)?;
                if is_last {
                    break;
                }
            }
            self.hear();
            self.go_on();
            match self.arriving.pieces.recv_timeout(ATTENDED_EACH) {
                Ok(piece) => arrived = Some(piece),
                Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.end();
        self.captures.summarise();
        Ok(if self.captures.are_made() { Exit::Done } else { Exit::Nothing })
    }

    /// Keeps a piece, and takes its records.
    fn take(&mut self, piece: Piece) -> Result<()> {
        let mut opened = OpenedPiece::new(&piece)?;
        if piece.left_out_bytes > 0 {
            messages::warn("a copy of the rings had no room, and is not there: --spool has room for more");
        }
        let new_records = std::mem::take(&mut opened.new_records);
        let span = opened.recording().time_span;
        let part = Part { buffers: Vec::new(), sideband: new_records, until: piece.until, span };
        self.growing.take_records(part)?;
        self.growing.forget_before(opened.time);
        let OpenedPiece { read, time, .. } = opened;
        self.kept.push(&piece, read, time);
        let freed = self.kept.trim(Ns(0), self.most_bytes / KEPT_SHARE);
        self.arriving.waiting_bytes.fetch_sub(freed, Ordering::Relaxed);
        Ok(())
    }

    /// Takes what has happened.
    fn hear(&mut self) {
        let time = self.now();
        self.waiting.extend(self.outside.events(time, false));
    }

    fn now(&self) -> Ns {
        self.clock.map_or_else(|| self.kept.until().unwrap_or_default(), recorder::perf_clock_now)
    }

    /// Takes the snapshot that is due one step further.
    fn go_on(&mut self) {
        if self.current.is_none()
            && let Some((at, event)) = self.waiting.pop_front()
        {
            let number = self.copies.ask();
            self.current = Some(Current { number, event, at, copied: None });
        }
        let Some(current) = &mut self.current else { return };
        if current.copied.is_none() {
            current.copied = self.copies.take(current.number);
        }
        // The copies, and the records of their time, are in the pieces up to then.
        let until = self.kept.until();
        let is_there = |copied: &Copied| until.is_some_and(|until| until >= copied.until);
        if current.copied.as_ref().is_some_and(is_there)
            && let Some(Current { event, at, copied: Some(copied), .. }) = self.current.take()
        {
            self.is_over = event.ends;
            self.capture(event, at, copied);
            if self.is_over {
                self.arriving.interrupts.end_early();
            }
        }
    }

    /// The recording has ended: what was asked for last, or else its end, has what the rings still held.
    fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.hear();
        let mut copied = Copied::default();
        let (at, event) = match self.current.take() {
            Some(current) => {
                copied = current.copied.unwrap_or_default();
                (current.at, current.event)
            }
            None => self.waiting.pop_front().unwrap_or_else(|| {
                let trigger = "the end of the watch".to_owned();
                (self.now(), Event { trigger, name: "end", ends: true })
            }),
        };
        copied.add(self.copies.take_rest());
        if !copied.trace.is_empty() {
            self.capture(event, at, copied);
        }
    }

    fn capture(&mut self, event: Event, at: Ns, copied: Copied) {
        let Event { name, trigger, .. } = event;
        let hit = Hit { is_asked: true, span: (at, copied.until), ..Hit::at(at, None, name, trigger) };
        self.captures.take(vec![hit]);
        let kept = self.kept.trace();
        let begins = self.begins.max(kept.begins);
        self.begins = copied.began;
        let trace = CaptureTrace { copies: Some(copied.trace), begins, ..kept };
        let capturer = TraceCapturer { growing: &self.growing, trace: &trace, calls: self.calls };
        let display = &mut self.display;
        self.captures.make(&capturer, None, &mut |capture| display.captured(capture));
    }
}

/// Pieces that are kept take this share of the room: a copy of the rings is to have the rest.
const KEPT_SHARE: u64 = 2;
