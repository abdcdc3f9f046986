//! Outputs of segments that another process decoded: given to a file here, joined from files there.
//!
//! ```text
//!   one process      segments --workers--> outputs --join--> sink
//!   several          segments --workers--> outputs -> file           decode_share, one for each share
//!                                   files -> outputs --join--> sink  join_stored
//! ```
//! Both ways the same outputs are joined in the same order, so that the sink cannot tell them apart. The
//! outputs depend on what the sink asks about: that has to be the same both times.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use model::{AuxOffset, AuxOwner, AuxPiece, DigestSink, Digester, EventTime, Gap, GapCause, Ns, TraceEvent};

use crate::laid::{Laid, StoredOutput, StoredSegment, pack};
use crate::owner::{Owner, Running};
use crate::packed::NoOutput;
use crate::pieces::{clip, extent, first_time, parts, start_time};
use crate::segment::{Segment, Stream, Timed};
use crate::segment_decoder::SegmentDecoder;
use crate::segment_output::SegmentOutput;
use crate::share::{Share, segments};
use crate::stretch::Stretch;
use crate::workers::{Decoding, Place, QueuedSegment, with_outputs};
use crate::{Context, DecodeOptions, DecodeStats, Decoded, NoDigester, join};

/// Where outputs are stored.
pub trait StoredOutputs: Sync {
    /// The output of the segment that starts at `at` in a buffer. Where it cannot be read, it is empty, and
    /// the store knows why.
    fn output(&self, buffer: usize, at: AuxOffset) -> SegmentOutput;

    /// The events of that output's digested runs, likewise.
    fn runs(&self, buffer: usize, at: AuxOffset) -> SegmentOutput;

    /// Those are other runs than that output has: one of them is damaged.
    fn mismatch(&self, buffer: usize, at: AuxOffset);
}

/// Decodes a share of a recording and gives the outputs of its segments to `take`, in the order of buffers
/// and offsets, until that breaks: consecutive segments of a thread's buffer as one. One thread digests and
/// packs what all workers decode.
pub fn decode_share<G: Digester>(
    decoder: Box<dyn SegmentDecoder>,
    context: &Context<'_>,
    options: &DecodeOptions,
    share: Share,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    take: &mut dyn FnMut(StoredSegment, Result<StoredOutput, NoOutput>) -> ControlFlow<()>,
) -> Decoded {
    let segment_bytes = decoder.segment_bytes(options.segment_bytes);
    let segments = segments(context.recording, segment_bytes, share);
    let stored: Vec<StoredSegment> = segments.iter().map(|segment| stored(context, segment)).collect();
    let mut decoded = Decoded::default();
    let stats = &mut decoded.stats;
    let decoding = Decoding { context, decoder: &*decoder };
    let items = segments.into_iter().map(item);
    with_outputs(decoding, decoding, None::<&NoDigester>, options.workers, items, |outputs| {
        let mut laid = Laid::default();
        for segment in stored {
            if outputs.place().is_none() {
                break;
            }
            let (output, _) = outputs.take();
            stats.segments += 1;
            stats.bytes += segment.bytes;
            stats.overflows += output.overflows;
            stats.clock_errors += output.clock_errors;
            stats.kernel_desyncs += output.kernel_desyncs;
            let events = |stretch: &Stretch| stretch.events.len() as u64 + stretch.left_out;
            stats.events += output.stretches.iter().map(events).sum::<u64>();
            progress(stats.bytes);
            if !laid.is_followed_by(&segment) {
                if let Some((done, output)) = laid.take()
                    && take(done, pack(output, digester)).is_break()
                {
                    return;
                }
                let owner = context.recording.buffers.get(segment.buffer).map(|buffer| buffer.owner);
                laid.begin(segment, matches!(owner, Some(AuxOwner::Thread(_))));
            }
            laid.add(segment, output, &*decoder);
        }
        if let Some((done, output)) = laid.take() {
            let _ = take(done, pack(output, digester)); // nothing follows that it could break off
        }
    });
    decoded.diagnosis = decoder.diagnosis();
    decoded
}

fn item(segment: Segment<'_>) -> QueuedSegment<'_> {
    let (buffer, bytes) = (segment.buffer, segment.len());
    QueuedSegment { place: Place { group: 0, start: Ns(0), buffer, bytes, again: None }, segment }
}

fn stored(context: &Context<'_>, segment: &Segment<'_>) -> StoredSegment {
    let start = if segment.first { Ns(0) } else { start_time(context, &segment.pieces) };
    let ahead = clip(&segment.pieces, segment.end, AuxOffset(u64::MAX));
    StoredSegment {
        buffer: segment.buffer,
        at: segment.start(),
        end: segment.end,
        start,
        until: first_time(context, &ahead),
        bytes: segment.len(),
        is_there: true,
    }
}

/// Joins stored outputs as if `segments`, in the order of buffers and offsets, had been decoded here. What is
/// missing of them is a gap of its thread.
pub fn join_stored<G: Digester>(
    context: &Context<'_>,
    segments: &[StoredSegment],
    outputs: &dyn StoredOutputs,
    workers: usize,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    sink: &mut dyn DigestSink<G::Digest>,
) -> Decoded {
    let missing = segments.iter().filter(|segment| !segment.is_there);
    let missing = missing.map(|segment| ((segment.buffer, segment.at), *segment)).collect();
    let store = Store { outputs, missing };
    let timed = segments.iter().map(|segment| Timed { start: segment.start, segment: segment.whole() });
    let stats = join::run_on(context, &store, timed, workers, progress, digester, sink);
    let bytes = segments.iter().map(|segment| segment.bytes).fold(0, u64::saturating_add);
    Decoded { stats: DecodeStats { bytes, ..stats }, diagnosis: None }
}

/// `segments`, in the order of buffers and offsets, with missing ones for the rest of the recording's
/// trace.
#[must_use]
pub fn with_missing(context: &Context<'_>, segments: &[StoredSegment]) -> Vec<StoredSegment> {
    let whole = |pieces: &[AuxPiece<'_>]| extent(pieces).unwrap_or_default();
    let mut all = Vec::with_capacity(segments.len());
    for (index, buffer) in context.recording.buffers.iter().enumerate() {
        let Some(stream) = Stream::new(index, buffer, whole) else { continue };
        let first = segments.partition_point(|segment| segment.buffer < index);
        let of_buffer = segments.iter().skip(first).take_while(|segment| segment.buffer == index);
        let extent = stream.extent();
        let (mut at, mut start) = (extent.start, Some(Ns(0)));
        for segment in of_buffer {
            all.extend(missing(&stream, at, start, (segment.at, Some(segment.start))));
            all.push(*segment);
            (at, start) = (at.max(segment.end), segment.until);
        }
        all.extend(missing(&stream, at, start, (extent.end, None)));
    }
    all
}

fn missing(
    stream: &Stream<'_>,
    at: AuxOffset,
    start: Option<Ns>,
    (end, until): (AuxOffset, Option<Ns>),
) -> Option<StoredSegment> {
    let bytes = parts(stream.pieces(), at, end).map(|piece| piece.bytes.len() as u64).sum();
    let (buffer, start) = (stream.buffer(), start.unwrap_or_default());
    (bytes > 0).then_some(StoredSegment { buffer, at, end, start, until, bytes, is_there: false })
}

impl StoredSegment {
    /// The segment without its bytes.
    fn whole<'a>(&self) -> Segment<'a> {
        Segment {
            buffer: self.buffer,
            pieces: vec![AuxPiece { offset: self.at, bytes: &[], file_offset: 0 }],
            end: self.end,
            first: false,
            last: false,
            truncations: vec![],
            lost_after: None,
            missing: 0,
        }
    }

    /// Its trace as a gap of each thread that ran.
    fn lost(&self, context: &Context<'_>) -> SegmentOutput {
        let Some(buffer) = context.recording.buffers.get(self.buffer) else {
            return SegmentOutput::default();
        };
        let owner = Owner::new(context, buffer.owner);
        let (first, last) = context.recording.time_span.unwrap_or((Ns(0), Ns::MAX));
        let from = self.start.max(first);
        let to = self.until.unwrap_or(last).max(from);
        let now = if self.until.is_some() { owner.at(to) } else { Running::UNKNOWN };
        let mut bytes = self.bytes;
        let stretches = owner.lost(owner.at(from), now, to).into_iter().map(|part| {
            let from = part.from.unwrap_or(from).max(from);
            let until = part.not_after.unwrap_or(to).min(to).min(context.last_of(part.running)).max(from);
            let (from, to) = (EventTime::exact(from), EventTime::exact(until));
            let cause = GapCause::NotDecoded;
            let gap = Gap { from, to, bytes: std::mem::take(&mut bytes), at: self.at, cause };
            let space = context.code.space(part.running.pid, from.point);
            let mut stretch = Stretch::new(part.running, space, from.point);
            stretch.push(TraceEvent::Gap(gap));
            stretch
        });
        SegmentOutput { stretches: stretches.collect(), ..SegmentOutput::default() }
    }
}

/// Stored outputs in the place of a decoder.
struct Store<'o> {
    outputs: &'o dyn StoredOutputs,
    missing: BTreeMap<(usize, AuxOffset), StoredSegment>,
}

impl SegmentDecoder for Store<'_> {
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        let (buffer, at) = (segment.buffer, segment.start());
        if let Some(missing) = self.missing.get(&(buffer, at)) {
            return missing.lost(context);
        }
        let mut output = self.outputs.output(buffer, at);
        let runs = output.stretches.iter_mut().filter_map(|stretch| stretch.stored.as_mut());
        runs.for_each(|run| run.segment = (buffer, at));
        output
    }

    fn runs(&self, buffer: usize, at: AuxOffset) -> SegmentOutput {
        self.outputs.runs(buffer, at)
    }

    fn mismatch(&self, buffer: usize, at: AuxOffset) {
        self.outputs.mismatch(buffer, at);
    }
}
