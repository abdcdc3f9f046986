//! What runs now: the recorder writes pieces, and they are decoded behind it.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use model::{AuxBuffer, AuxOwner, Ns, Recording};
use recorder::{Interrupts, Piece, Pieces};

use super::growing::{Growing, Part};
use super::{Meant, Watch};
use crate::exit::Exit;
use crate::prepared::Prepared;
use crate::record_command;
use crate::record_config::RecordConfig;
use crate::{output, recording};

/// What a live watch needs besides.
pub(super) struct Live<'a> {
    pub(super) record: &'a RecordConfig,
    pub(super) directory: Option<PathBuf>,
    pub(super) most_bytes: u64,
    pub(super) interval: Duration,
}

/// Records and watches.
pub(super) fn run(
    live: &Live<'_>,
    watch: impl FnOnce(&Recording<'_>) -> Result<Watch> + Send,
) -> Result<Exit> {
    let interrupts = Interrupts::hold().context("cannot hold signals back")?;
    let prepared = Prepared::new(live.record, &interrupts)?;
    record_command::announce(live.record, &prepared);
    let spool = Spool::create(live.directory.as_deref())?;
    let (reader, pieces) = mpsc::channel();
    let waiting_bytes = Arc::new(AtomicU64::new(0));
    let how = Pieces {
        directory: spool.0.clone(),
        length: live.interval,
        most_bytes: live.most_bytes,
        waiting_bytes: Arc::clone(&waiting_bytes),
        reader,
    };
    std::thread::scope(|scope| {
        let follow = scope.spawn(move || Follow::new(pieces, waiting_bytes, live.most_bytes).run(watch));
        let first = spool.0.join("0.data");
        let recorded = prepared.record_in_pieces(&first, live.record.window, &interrupts, Some(&how));
        // The follower ends when no more pieces can come.
        drop(how);
        drop(interrupts);
        recorded.iter().for_each(|summary| record_command::tell(live.record, summary));
        let followed = follow.join().map_err(|_| anyhow::anyhow!("the thread that decodes failed"))?;
        recorded.and(followed)
    })
}

/// The directory of the pieces; removed in the end.
struct Spool(PathBuf);

impl Spool {
    fn create(directory: Option<&Path>) -> Result<Self> {
        let within = directory.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = within.join(format!("func_latency-watch-{}", std::process::id()));
        output::create_empty_directory("--spool-dir", &path)?;
        Ok(Self(path))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // What cannot be removed is left in a directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Follows the recorder.
struct Follow {
    pieces: Receiver<Piece>,
    waiting_bytes: Arc<AtomicU64>,
    /// More bytes do not wait to be decoded.
    most_bytes: u64,
    queue: VecDeque<Arrived>,
    /// Pieces of which trace is still needed, the oldest first.
    kept: VecDeque<(Piece, perfdata::File)>,
}

/// A piece, and when it came.
struct Arrived {
    piece: Piece,
    at: Instant,
}

/// The oldest pieces are left undecoded until those that wait take less than this share of the room.
const WAITING_SHARE: u64 = 2;

impl Follow {
    fn new(pieces: Receiver<Piece>, waiting_bytes: Arc<AtomicU64>, most_bytes: u64) -> Self {
        Self { pieces, waiting_bytes, most_bytes, queue: VecDeque::new(), kept: VecDeque::new() }
    }

    /// Decodes pieces until there are no more, and reports.
    fn run(mut self, watch: impl FnOnce(&Recording<'_>) -> Result<Watch>) -> Result<Exit> {
        let Some(first) = self.next() else { return Ok(Exit::Nothing) };
        let file = recording::open(&first.piece.path)?;
        let mut watch = watch(&recording::read_decodable(&file)?)?;
        drop(file);
        let mut arrived = Some(first);
        let mut missed = Missed::default();
        while let Some(Arrived { piece, at }) = arrived {
            let is_left_out = self.is_too_much();
            let is_whole = piece.until.is_none();
            self.take(&mut watch, piece, at, is_left_out && !is_whole, &mut missed)?;
            arrived = self.next();
        }
        watch.finish()
    }

    /// The next piece; waits for it.
    fn next(&mut self) -> Option<Arrived> {
        let arrived = |piece| Arrived { piece, at: Instant::now() };
        if self.queue.is_empty() {
            self.queue.extend(self.pieces.recv().ok().map(arrived));
        }
        self.queue.extend(self.pieces.try_iter().map(arrived));
        self.queue.pop_front()
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
        piece: Piece,
        at: Instant,
        is_left_out: bool,
        missed: &mut Missed,
    ) -> Result<()> {
        let file = recording::open(&piece.path)?;
        // It is mapped; so nothing is left of it when we are killed.
        let _ = fs::remove_file(&piece.path);
        let Piece { until, trace_bytes, left_out_bytes, length, .. } = piece;
        let (new, span, time) = {
            let recording = file.recording()?;
            let is_new = |record: &&model::SidebandRecord| record.file_offset >= piece.new_from;
            let new: Vec<_> = recording.sideband.iter().filter(is_new).cloned().collect();
            let last = new.iter().filter_map(|record| record.time).max();
            (new, recording.time_span, until.or(last).unwrap_or_default())
        };
        missed.add(length, trace_bytes + left_out_bytes, left_out_bytes);
        if is_left_out {
            missed.not_decoded_bytes += trace_bytes;
        }
        self.kept.push_back((piece, file));
        if is_left_out {
            let part = Part { buffers: Vec::new(), sideband: new, until, span };
            watch.growing.take_records(part)?;
            self.release_last();
            return Ok(());
        }
        let recordings: Vec<Recording<'_>> =
            self.kept.iter().map(|(_, file)| file.recording()).collect::<Result<_, _>>()?;
        let part = Part { buffers: buffers(&recordings, &mut watch.growing), sideband: new, until, span };
        let all = std::mem::take(missed);
        let waited_ns = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        watch.add(
            part,
            Meant {
                time,
                interval_ns: u64::try_from(all.length.as_nanos()).unwrap_or(u64::MAX).max(1),
                trace_bytes: all.trace_bytes,
                not_decoded_bytes: all.not_decoded_bytes,
                now: Ns(time.0.saturating_add(waited_ns)),
            },
        )?;
        drop(recordings);
        self.release_decoded(&watch.growing)
    }

    /// Lets the pieces go that nothing more is needed of.
    fn release_decoded(&mut self, growing: &Growing) -> Result<()> {
        while let Some((_, file)) = self.kept.front() {
            let is_needed = |buffer: &AuxBuffer<'_>| {
                let end = buffer.pieces.last().map(|piece| piece.offset.plus(piece.bytes.len() as u64));
                let needed = growing.needed_from(buffer.owner);
                end.is_some_and(|end| needed.is_none_or(|needed| end > needed))
            };
            if file.recording()?.buffers.iter().any(is_needed) {
                break;
            }
            if let Some((piece, _)) = self.kept.pop_front() {
                self.waiting_bytes.fetch_sub(piece.bytes, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn release_last(&mut self) {
        if let Some((piece, _)) = self.kept.pop_back() {
            self.waiting_bytes.fetch_sub(piece.bytes, Ordering::Relaxed);
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

/// The trace of pieces that follow one another, by buffer, as far as it is needed.
fn buffers<'a>(recordings: &[Recording<'a>], growing: &mut Growing) -> Vec<AuxBuffer<'a>> {
    let mut of: BTreeMap<AuxOwner, AuxBuffer<'a>> = BTreeMap::new();
    for buffer in recordings.iter().flat_map(|recording| &recording.buffers) {
        let needed = growing.needed_from(buffer.owner).unwrap_or_default();
        let known = of.entry(buffer.owner).or_insert_with(|| AuxBuffer {
            index: buffer.index,
            owner: buffer.owner,
            pieces: Vec::new(),
            records: Vec::new(),
        });
        let is_needed = |piece: &&model::AuxPiece<'_>| piece.offset.plus(piece.bytes.len() as u64) >= needed;
        known.pieces.extend(buffer.pieces.iter().filter(is_needed));
        known.records.extend(buffer.records.iter().copied());
    }
    growing.in_order(of)
}
