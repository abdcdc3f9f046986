//! Outputs of segments that another process decoded: given to a file here, joined from files there.
//!
//! ```text
//!   one process      segments --workers--> outputs --join--> sink
//!   several          segments --workers--> outputs -> file           decode_share, one for each share
//!                                   files -> outputs --join--> sink  join_stored
//! ```
//! Both ways the same outputs are joined in the same order, so that the sink cannot tell them apart. The
//! outputs depend on what the sink asks about: that has to be the same both times.

use std::ops::ControlFlow;

use model::{AuxOffset, AuxOwner, AuxPiece, DigestSink, Digester, Ns};

use crate::joined::Joined;
use crate::laid::{Laid, pack, pieces};
use crate::packed::NoOutput;
use crate::pieces::{extent, parts};
use crate::segment::{Segment, Stream, Timed};
use crate::segment_decoder::SegmentDecoder;
use crate::share::{Share, segments};
use crate::store::{Store, StoredParts};
use crate::stored_run::Level;
use crate::stored_segment::StoredSegment;
use crate::stretch::{LastTime, Stretch};
use crate::workers::{Decoding, Place, QueuedSegment, with_outputs};
use crate::{Context, DecodeOptions, DecodeStats, Decoded, NoDigester, join};

/// Takes what is to be stored, until it breaks.
type TakeOutput<'t> = dyn FnMut(StoredSegment, Result<Vec<u8>, NoOutput>) -> ControlFlow<()> + 't;

/// Decodes a share of a recording and gives the outputs of its segments to `take`, until that breaks:
/// consecutive segments of a thread's buffer as one, and after many of these one that joins them. One thread
/// digests and packs what all workers decode.
pub fn decode_share<G: Digester>(
    decoder: Box<dyn SegmentDecoder>,
    context: &Context<'_>,
    options: &DecodeOptions,
    share: Share,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    take: &mut TakeOutput<'_>,
) -> Decoded {
    let segment_bytes = decoder.segment_bytes(options.segment_bytes);
    let segments = segments(context.recording, segment_bytes, share);
    let stored: Vec<StoredSegment> =
        segments.iter().map(|segment| StoredSegment::of(context, segment)).collect();
    let mut decoded = Decoded::default();
    let stats = &mut decoded.stats;
    let decoding = Decoding { context, decoder: &*decoder };
    let items = segments.into_iter().map(item);
    with_outputs(decoding, decoding, None::<&NoDigester>, options.workers, items, |outputs| {
        let mut storing = Storing { digester, laid: Laid::default(), joined: None, take };
        for segment in stored {
            if outputs.place().is_none() {
                break;
            }
            let (output, _) = outputs.take();
            stats.add(&output, segment.bytes);
            let events = |stretch: &Stretch| stretch.events.len() as u64 + stretch.left_out;
            stats.events += output.stretches.iter().map(events).sum::<u64>();
            progress(stats.bytes);
            if !storing.laid.is_followed_by(&segment) {
                let after = storing.laid.last_before(&segment);
                if storing.end_laid().is_break() {
                    return;
                }
                let owner = context.recording.buffers.get(segment.buffer).map(|buffer| buffer.owner);
                storing.laid.begin(segment, matches!(owner, Some(AuxOwner::Thread(_))), after);
            }
            storing.laid.add(segment, output, &*decoder);
        }
        if storing.end_laid().is_continue() {
            let _ = storing.end_joined(); // nothing follows that it could break off
        }
    });
    decoded.diagnosis = decoder.diagnosis();
    decoded
}

/// Outputs on their way into a store.
struct Storing<'s, 't, G: Digester> {
    digester: Option<&'s G>,
    laid: Laid,
    /// Of a thread's buffer.
    joined: Option<Joined<G::Digest>>,
    take: &'s mut TakeOutput<'t>,
}

impl<G: Digester> Storing<'_, '_, G> {
    /// Stores the output of the segments that are laid together.
    fn end_laid(&mut self) -> ControlFlow<()> {
        let is_of_thread = self.laid.is_of_thread;
        let Some((segment, output)) = self.laid.take() else { return ControlFlow::Continue(()) };
        let pieces = pieces(output, self.digester);
        (self.take)(segment, pack(&segment, output, &pieces))?;
        let Some(digester) = self.digester.filter(|_| is_of_thread) else { return ControlFlow::Continue(()) };
        let is_followed = |joined: &mut Joined<_>| joined.is_followed_by(&segment);
        let (mut joined, ended) = match self.joined.take_if(is_followed) {
            Some(joined) => (joined, None),
            None => (Joined::new(segment), self.joined.take()),
        };
        joined.add(&segment, output, pieces, digester);
        self.joined = Some(joined);
        self.store_joined(ended)
    }

    /// Stores the joined output of those that are stored.
    fn end_joined(&mut self) -> ControlFlow<()> {
        let ended = self.joined.take();
        self.store_joined(ended)
    }

    fn store_joined(&mut self, joined: Option<Joined<G::Digest>>) -> ControlFlow<()> {
        match joined.zip(self.digester).and_then(|(joined, digester)| joined.finish(digester)) {
            Some((segment, bytes)) => (self.take)(segment, Ok(bytes)),
            None => ControlFlow::Continue(()),
        }
    }
}

fn item(segment: Segment<'_>) -> QueuedSegment<'_> {
    let (buffer, bytes) = (segment.buffer, segment.len());
    QueuedSegment { place: Place { group: 0, start: Ns(0), buffer, bytes, again: None }, segment }
}

/// Joins stored outputs as if their segments had been decoded here. What is missing of them is a gap of its
/// thread. Where a digest does not do, `decoder` gives the events again.
pub fn join_stored<G: Digester>(
    decoder: Box<dyn SegmentDecoder>,
    context: &Context<'_>,
    options: &DecodeOptions,
    stored: StoredParts<'_>,
    progress: &dyn Fn(u64),
    digester: Option<&G>,
    sink: &mut dyn DigestSink<G::Digest>,
) -> Decoded {
    let asks_about = sink.asks_about();
    let context = &Context { asks_about: asks_about.as_ref(), ..*context };
    let store = Store::new(stored, &*decoder, decoder.segment_bytes(options.segment_bytes));
    let timed = store.top().map(|segment| Timed { start: segment.start, segment: segment.whole() });
    let stats = join::run_on(context, &store, timed, options.workers, progress, digester, sink);
    let bytes = store.top().map(|segment| segment.bytes).fold(0, u64::saturating_add);
    Decoded { stats: DecodeStats { bytes, ..stats }, diagnosis: None }
}

/// `segments`, in the order of their keys, with missing ones for the rest of the recording's trace.
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
    let (level, after) = (Level::Decoded, LastTime::default());
    (bytes > 0).then_some(StoredSegment {
        buffer,
        at,
        end,
        start,
        until,
        after,
        bytes,
        is_there: false,
        level,
    })
}
