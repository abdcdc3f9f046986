//! `watch --snapshot`: the trace unit writes over its rings for ever, and only trace that is asked for is
//! written and decoded.
//!
//! ```text
//!   rings    |=====|=====|=====|...                      overwritten; nothing leaves them
//!   trigger        SIGUSR2, the exit of a command, the end of the watch, a hit that probes see
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
use model::{FunctionId, Ns, Recording, TscClock};
use recorder::{Copied, Piece, Proc, RingCopies};

use super::captures::{Captures, Limits};
use super::console::ATTENDED_EACH;
use super::display::{Display, SeenCalls as _};
use super::followed::{self, Arriving, LiveWatch};
use super::growing::Growing;
use super::kept_pieces::{KeptPieces, OpenedPiece};
use super::outside::{Heard, Listener};
#[cfg(feature = "bpf")]
use super::probe_triggers::{self, TriggersAsked};
use super::probed_hits::{LeftOut, ProbedHit, ProbedHits};
use super::trace_capture::{CaptureTrace, CopiedRings, TraceCapturer};
use super::triggers::{Hit, Triggers};
use super::uprobes_pages::UprobesPages;
use crate::args::Format;
use crate::config::CallsConfig;
use crate::exit::Exit;
#[cfg(not(feature = "bpf"))]
use crate::exit::failure;
use crate::messages;
use crate::render::units::size;
use crate::target::Wanted;

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

/// Records, and takes snapshots; `triggers` make some, besides what the listener hears.
pub(super) fn run(live: &LiveWatch<'_>, asked: SnapshotsAsked<'_>, triggers: Triggers) -> Result<Exit> {
    let copies = Arc::new(RingCopies::default());
    let rate = asked.limits.rate;
    if !triggers.need_probes() {
        return record(live, asked, copies, ProbedHits::none(rate));
    }
    #[cfg(feature = "bpf")]
    {
        let looked_for = TriggersAsked { record: live.record, triggers, rate, copies: Arc::clone(&copies) };
        probe_triggers::during(looked_for, live.interrupts, |hits| record(live, asked, copies, hits))
    }
    #[cfg(not(feature = "bpf"))]
    {
        let message = "--over and --on need probes with --snapshot, and this func_latency was built without eBPF (cargo build \
                       --features bpf): SIGUSR2 and --until capture without";
        Err(failure(Exit::NotPossible, message))
    }
}

fn record(
    live: &LiveWatch<'_>,
    asked: SnapshotsAsked<'_>,
    copies: Arc<RingCopies>,
    hits: ProbedHits,
) -> Result<Exit> {
    let LiveWatch { record, most_bytes, on_screen, interrupts, .. } = *live;
    let (directory, interval) = (live.directory.clone(), live.interval.min(PIECE_MAX));
    let live = LiveWatch { record, directory, most_bytes, interval, on_screen, interrupts };
    followed::run(&live, Some(Arc::clone(&copies)), |arriving| {
        let Ok(first) = arriving.pieces.recv() else { return Ok(Exit::Nothing) };
        let opened = OpenedPiece::new(&first)?;
        let pages = UprobesPages::new(&live.record.request.target);
        let recording = opened.recording();
        FlightRecorder::new(arriving, copies, most_bytes, recording, asked, hits, pages)?.run(first, opened)
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
    probed: ProbedHits,
    pages: UprobesPages<'a>,
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
    hit: Hit,
    /// The watch ends with it.
    ends: bool,
    copied: Option<Copied>,
}

impl<'a> FlightRecorder<'a> {
    fn new(
        arriving: Arriving<'a>,
        copies: Arc<RingCopies>,
        most_bytes: u64,
        first: &Recording<'_>,
        asked: SnapshotsAsked<'a>,
        probed: ProbedHits,
        pages: UprobesPages<'a>,
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
        probed.gate.open();
        messages::note(format!(
            "no trace is written or decoded until SIGUSR2 (kill -USR2 {}), {}a command of --until, or the end",
            std::process::id(),
            if probed.are_looked_for { "a hit of --over or --on, " } else { "" }
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
            probed,
            pages,
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
        self.growing.take_records(opened.take_records(piece.until))?;
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
            let ends = event.ends;
            let hit = Hit::of_event(at.unwrap_or_else(|| self.now()), event);
            self.asked.push_back(AskedSnapshot { number, hit, ends, copied: None });
        }
        for ProbedHit { number, hit, function } in self.probed.take() {
            // Its process may end before there is the capture.
            self.pages.look(&Proc::host());
            let hit = Hit { span: self.recorded(hit.span), function: self.function_of(function), ..hit };
            self.asked.push_back(AskedSnapshot { number, hit, ends: false, copied: None });
        }
        self.asked.make_contiguous().sort_by_key(|asked| asked.number);
        let LeftOut { beyond_rate, less_slow } = self.probed.gate.take_left_out();
        self.captures.leave_out(beyond_rate);
        self.captures.leave_out_less_slow(less_slow);
    }

    /// A span of `CLOCK_MONOTONIC` in the recording's clock.
    fn recorded(&self, (from, to): (Ns, Ns)) -> (Ns, Ns) {
        let Some(clock) = self.clock else { return (self.now(), self.now()) };
        let to_recorded = recorder::perf_clock_at_monotonic(clock, to);
        (Ns(to_recorded.0.saturating_sub(to.since(from))), to_recorded)
    }

    /// The watched function of this name and object.
    fn function_of(&self, called: Option<(String, String)>) -> Option<FunctionId> {
        let (name, object) = called?;
        let is_it = |wanted: &&Wanted| wanted.function.name == name && wanted.function.object_name == object;
        self.growing.wanted().iter().find(is_it).map(|wanted| wanted.function.id)
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
            let Some(AskedSnapshot { hit, ends, copied: Some(copied), .. }) = self.asked.pop_front() else {
                break;
            };
            self.is_over = ends;
            self.capture(hit, copied);
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
        let (mut copied, mut hits) = (Copied::default(), Vec::new());
        for asked in std::mem::take(&mut self.asked) {
            copied.add(asked.copied.unwrap_or_default());
            hits.push(asked.hit);
        }
        copied.add(self.copies.take_rest());
        if hits.is_empty() && copied.trace.is_empty() {
            return;
        }
        let triggers: String = hits.iter().map(|hit| format!("{}, ", hit.trigger)).collect();
        let trigger = format!("{triggers}the end of the watch");
        // A call can be chosen in it, another event cannot.
        let of_call = hits.iter().position(|hit| hit.latency_ns.is_some()).unwrap_or(0);
        let hit = (of_call < hits.len()).then(|| hits.swap_remove(of_call));
        let hit = hit.unwrap_or_else(|| Hit::at(self.now(), None, "end", String::new()));
        self.capture(Hit { trigger, is_asked: true, ..hit }, copied);
    }

    /// `hit`: within the rate, if that limits it.
    fn capture(&mut self, hit: Hit, copied: Copied) {
        self.has_left = copied.has_left;
        if copied.trace.is_empty() {
            let why = match copied.has_left {
                true => "there was no room for it",
                false if self.begins.is_some_and(|last| hit.span.1 <= last) => {
                    "the snapshot before has its trace"
                }
                false => "there is no new trace",
            };
            messages::note(format!("{}: nothing is captured: {why}", hit.trigger));
            return self.captures.leave_out_without_trace();
        }
        match hit.is_asked {
            true => self.captures.take(vec![hit]),
            false => self.captures.take_admitted(hit),
        }
        let kept = self.kept.trace();
        let begins = self.begins.max(kept.begins);
        if !copied.has_left {
            self.begins = copied.began.or(self.begins);
        }
        self.pages.look(&Proc::host());
        let copies = Some(CopiedRings { copied, untold: self.pages.records() });
        let trace = CaptureTrace { copies, begins, ..kept };
        let capturer = TraceCapturer { growing: &self.growing, trace: &trace, calls: self.calls };
        let display = &mut self.display;
        self.captures.make(&capturer, None, &mut |capture| display.captured(capture));
        self.probed.gate.set_floor(self.captures.floor());
    }
}

/// Pieces without a snapshot take this share of the room.
const KEPT_SHARE: u64 = 2;
