//! What runs now: the recorder writes pieces, and they are decoded behind it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Result;
use model::{AuxBuffer, AuxOffset, AuxOwner, AuxPiece, AuxRecord, Ns, Recording};
use recorder::{Interrupts, Piece};

use super::followed::{self, Arriving, LiveWatch};
use super::growing::{Growing, Part};
use super::kept_pieces::{KeptPieces, OpenedPiece, ReadPiece};
use super::{ATTENDED_EACH, RecordedInterval, Watch, ns};
use crate::exit::Exit;

/// Records and watches.
pub(super) fn run(
    live: &LiveWatch<'_>,
    watch: impl FnOnce(&Recording<'_>) -> Result<Watch> + Send,
) -> Result<Exit> {
    let (most_bytes, stays) = (live.most_bytes, live.record.window.is_none());
    followed::run(live, None, |arriving| Follow::new(arriving, most_bytes, stays).run(watch))
}

/// Takes pieces from the recorder, and decodes them.
pub(super) struct Follow<'r> {
    /// By which the recording is ended.
    interrupts: &'r Interrupts,
    pieces: Receiver<Piece>,
    waiting_bytes: Arc<AtomicU64>,
    /// More bytes do not wait to be decoded.
    most_bytes: u64,
    queue: VecDeque<Arrived>,
    /// What is still needed of earlier pieces.
    tails: Vec<Tail>,
    /// Pieces that were decoded and that a capture may need.
    kept: KeptPieces,
    /// A view stays when the target has ended.
    stays: bool,
}

/// A piece, and when it came.
struct Arrived {
    piece: Piece,
    at: Instant,
}

/// The oldest pieces are left undecoded until those that wait take less than this share of the room.
const WAITING_SHARE: u64 = 2;

impl<'r> Follow<'r> {
    pub(super) fn new(arriving: Arriving<'r>, most_bytes: u64, stays: bool) -> Self {
        let Arriving { pieces, waiting_bytes, interrupts } = arriving;
        Self {
            interrupts,
            pieces,
            waiting_bytes,
            most_bytes,
            queue: VecDeque::new(),
            tails: Vec::new(),
            kept: KeptPieces::default(),
            stays,
        }
    }

    /// Decodes pieces until there are no more, and reports.
    pub(super) fn run(mut self, watch: impl FnOnce(&Recording<'_>) -> Result<Watch>) -> Result<Exit> {
        let Some(first) = self.next(None) else { return Ok(Exit::Nothing) };
        let mut opened = OpenedPiece::new(&first.piece)?;
        opened.check_decodable()?;
        let mut watch = watch(opened.recording())?;
        let mut missed = Missed::default();
        self.take(&mut watch, first, opened, &mut missed)?;
        while let Some(arrived) = self.next(Some(&mut watch)) {
            let opened = OpenedPiece::new(&arrived.piece)?;
            self.take(&mut watch, arrived, opened, &mut missed)?;
        }
        if self.stays && !self.interrupts.was_taken() {
            watch.stay(&self.kept.trace(), || self.interrupts.take());
        }
        watch.finish()
    }

    /// The next piece; waits for it, and does meanwhile what keys ask for.
    fn next(&mut self, mut watch: Option<&mut Watch>) -> Option<Arrived> {
        let arrived = |piece| Arrived { piece, at: Instant::now() };
        while self.queue.is_empty() {
            match self.pieces.recv_timeout(ATTENDED_EACH) {
                Ok(piece) => self.queue.push_back(arrived(piece)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    watch.iter_mut().for_each(|watch| self.attend(watch));
                }
            }
        }
        self.queue.extend(self.pieces.try_iter().map(arrived));
        self.queue.pop_front()
    }

    /// Does what keys ask for, between pieces.
    fn attend(&self, watch: &mut Watch) {
        watch.attend();
        let until = self.kept.until();
        if until.is_some() {
            self.capture(watch, until);
        }
        self.heed(watch);
    }

    /// Makes the captures that are due; everything is known up to `until`. Ends the recording if one of them
    /// ends the watch.
    fn capture(&self, watch: &mut Watch, until: Option<Ns>) {
        if watch.capture(&self.kept.trace(), until) {
            self.interrupts.end_early();
        }
    }

    /// Ends the recording if the view was left; and the view if a signal came after one that had ended the
    /// recording. Then the next signal ends this process.
    fn heed(&self, watch: &mut Watch) {
        if watch.console.is_left() && !self.interrupts.was_taken() {
            self.interrupts.end_early();
        }
        let is_over = watch.console.is_left() || self.interrupts.was_taken() && self.interrupts.take();
        if is_over && watch.console.leave() {
            self.interrupts.let_go();
        }
    }

    /// What waits after the current piece has no room.
    fn is_too_much(&self) -> bool {
        let bytes: u64 = self.queue.iter().map(|arrived| arrived.piece.bytes).sum();
        bytes > self.most_bytes / WAITING_SHARE
    }

    /// Decodes a piece, or of one that is left out takes the records only.
    fn take(
        &mut self,
        watch: &mut Watch,
        Arrived { piece, at }: Arrived,
        mut opened: OpenedPiece,
        missed: &mut Missed,
    ) -> Result<()> {
        // The last one has what ends the recording.
        let is_left_out = piece.until.is_some() && self.is_too_much();
        let Piece { until, trace_bytes, left_out_bytes, length, .. } = piece;
        let part = opened.take_records(until);
        let OpenedPiece { read, time, .. } = opened;
        missed.add(length, trace_bytes + left_out_bytes, left_out_bytes);
        if is_left_out {
            missed.not_decoded_bytes += trace_bytes;
        }
        let done = if is_left_out {
            watch.growing.take_records(part)
        } else {
            let buffers = buffers(&self.tails, read.borrow_dependent());
            let part = Part { buffers: buffers.clone(), ..part };
            let all = std::mem::take(missed);
            let interval = RecordedInterval {
                end: time,
                length_ns: ns(all.length).max(1),
                trace_bytes: all.trace_bytes,
                not_decoded_bytes: all.not_decoded_bytes,
                now: Ns(time.0.saturating_add(ns(at.elapsed()))),
            };
            let added = watch.add(part, interval);
            let tails: Vec<_> =
                buffers.iter().filter_map(|buffer| Tail::of(buffer, &watch.growing)).collect();
            let bytes: u64 = tails.iter().map(Tail::bytes).sum();
            // Only as long as the code of the functions is not mapped all of the trace is needed.
            self.tails = if bytes > self.most_bytes { Vec::new() } else { tails };
            added
        };
        done?;
        self.keep(watch, piece, read, time);
        self.heed(watch);
        Ok(())
    }

    /// Keeps a decoded piece as long as a capture may need it and there is room; makes the captures that are
    /// due.
    fn keep(&mut self, watch: &mut Watch, piece: Piece, read: ReadPiece, time: Ns) {
        let Some(needs_from) = watch.needs_from() else {
            drop(read);
            self.waiting_bytes.fetch_sub(piece.bytes, Ordering::Relaxed);
            return;
        };
        let until = piece.until;
        self.kept.push(&piece, read, time);
        self.capture(watch, until);
        let freed = self.kept.trim(needs_from, self.most_bytes / WAITING_SHARE);
        self.waiting_bytes.fetch_sub(freed, Ordering::Relaxed);
    }
}

/// The trace of a buffer that is not decoded yet, or will be decoded again: a copy, so that its piece can go.
struct Tail {
    index: u32,
    owner: AuxOwner,
    pieces: Vec<(AuxOffset, Vec<u8>)>,
    records: Vec<AuxRecord>,
}

impl Tail {
    /// `None`: nothing is needed.
    fn of(buffer: &AuxBuffer<'_>, growing: &Growing) -> Option<Self> {
        let needed = growing.needed_from(buffer.index).unwrap_or_default();
        let rest = |piece: &AuxPiece<'_>| {
            let skip = usize::try_from(needed.0.saturating_sub(piece.offset.0)).ok()?;
            let bytes = piece.bytes.get(skip..).filter(|bytes| !bytes.is_empty())?;
            Some((piece.offset.plus(skip as u64), bytes.to_vec()))
        };
        let pieces: Vec<_> = buffer.pieces.iter().filter_map(rest).collect();
        let records = buffer.records.iter().copied().filter(|record| record.end() >= needed).collect();
        let (index, owner) = (buffer.index, buffer.owner);
        (!pieces.is_empty()).then_some(Self { index, owner, pieces, records })
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    fn buffer(&self) -> AuxBuffer<'_> {
        let pieces = self.pieces.iter();
        let pieces = pieces.map(|(offset, bytes)| AuxPiece { offset: *offset, bytes, file_offset: 0 });
        AuxBuffer {
            index: self.index,
            owner: self.owner,
            pieces: pieces.collect(),
            records: self.records.clone(),
        }
    }
}

/// What was recorded since the last line.
#[derive(Default)]
struct Missed {
    length: Duration,
    trace_bytes: u64,
    not_decoded_bytes: u64,
}

impl Missed {
    fn add(&mut self, length: Duration, trace_bytes: u64, not_decoded_bytes: u64) {
        self.length += length;
        self.trace_bytes += trace_bytes;
        self.not_decoded_bytes += not_decoded_bytes;
    }
}

/// What is needed of earlier pieces, and the trace of this one, by perf's number of the buffer.
fn buffers<'a>(tails: &'a [Tail], recording: &Recording<'a>) -> Vec<AuxBuffer<'a>> {
    let mut of: BTreeMap<u32, AuxBuffer<'a>> = tails.iter().map(|tail| (tail.index, tail.buffer())).collect();
    for buffer in &recording.buffers {
        let mut buffer = buffer.clone();
        cut_padding(&mut buffer);
        match of.get_mut(&buffer.index) {
            Some(known) => {
                known.pieces.append(&mut buffer.pieces);
                known.records.append(&mut buffer.records);
            }
            None => _ = of.insert(buffer.index, buffer),
        }
    }
    of.into_values().collect()
}

/// AUXTRACE payloads are padded to whole words.
const PAYLOAD_ALIGNMENT: u64 = 8;

/// Cuts the zeros after the trace: bytes of the next piece have their offsets. The trace ends where an AUX
/// record of the kernel does.
fn cut_padding(buffer: &mut AuxBuffer<'_>) {
    let Some(last) = buffer.pieces.last_mut() else { return };
    let end = last.offset.plus(last.bytes.len() as u64);
    let is_at_end = |at: &AuxOffset| *at <= end && end.minus(*at) < PAYLOAD_ALIGNMENT;
    let Some(true_end) = buffer.records.iter().map(AuxRecord::end).filter(is_at_end).max() else { return };
    let len = usize::try_from(true_end.0.saturating_sub(last.offset.0)).unwrap_or(usize::MAX);
    last.bytes = last.bytes.get(..len).unwrap_or(last.bytes);
}
