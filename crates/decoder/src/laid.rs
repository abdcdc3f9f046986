//! Outputs of consecutive segments as one, in the bytes of a store.
//!
//! ```text
//!   segments   |----|----|----|----|
//!   stretch     events                    of a thread
//!   pieces      ev   run      ev run ev
//!   stored      ev   digest   ev digest ev
//! ```

use std::ops::Range;

use model::{DigestedRun, Digester, TraceEvent};

use crate::packed::{EVENT_BYTES, NoOutput, Packer};
use crate::segment_decoder::SegmentDecoder;
use crate::segment_output::SegmentOutput;
use crate::stored_run::OutputPlace;
use crate::stored_segment::StoredSegment;
use crate::stretch::{LastTime, Stretch};

/// With so many events, 2 MB, an output takes up no other segment. More would leave the caches of a processor
/// before they are packed, which costs as much as is saved by fewer outputs.
const EVENTS_MAX: usize = 1 << 15;

/// Outputs of consecutive segments, laid together.
#[derive(Default)]
pub(crate) struct Laid {
    /// All of them as one; `None`: there is none yet.
    segment: Option<StoredSegment>,
    /// They are of a thread's own buffer: no other one has events that come between theirs.
    pub(crate) is_of_thread: bool,
    output: SegmentOutput,
    /// That of the last event, of a thread's.
    last: LastTime,
    /// Room for the events of a stretch.
    room: Vec<TraceEvent>,
}

impl Laid {
    /// This segment is laid together with those that are there.
    pub(crate) fn is_followed_by(&self, next: &StoredSegment) -> bool {
        let events: usize = self.output.stretches.iter().map(|stretch| stretch.events.len()).sum();
        let is_followed = self.segment.is_some_and(|segment| segment.is_followed_by(next));
        self.is_of_thread && events < EVENTS_MAX && is_followed
    }

    /// All of the segments as one, and its output.
    pub(crate) fn take(&mut self) -> Option<(StoredSegment, &SegmentOutput)> {
        self.segment.take().map(|segment| (segment, &self.output))
    }

    /// The output of all of the segments.
    pub(crate) fn into_output(self) -> SegmentOutput {
        self.output
    }

    /// Other segments begin here; their events are not earlier than `after`.
    pub(crate) fn begin(&mut self, segment: StoredSegment, is_of_thread: bool, after: LastTime) {
        let before = std::mem::take(&mut self.output).stretches;
        let rooms = before.into_iter().map(|stretch| stretch.events).chain([std::mem::take(&mut self.room)]);
        let mut room = rooms.max_by_key(Vec::capacity).unwrap_or_default();
        room.clear();
        let after = if is_of_thread { after } else { LastTime::default() };
        let segment = Some(StoredSegment { bytes: 0, after, ..segment });
        *self = Self { segment, is_of_thread, output: SegmentOutput::default(), last: after, room };
    }

    /// The time of the last event, if the next segment of the buffer is this one.
    pub(crate) fn last_before(&self, next: &StoredSegment) -> LastTime {
        let is_followed = self.segment.is_some_and(|segment| segment.is_followed_by(next));
        if self.is_of_thread && is_followed { self.last } else { LastTime::default() }
    }

    /// Adds the output of a segment, of which the decoder gets the room back.
    pub(crate) fn add(
        &mut self,
        next: StoredSegment,
        mut output: SegmentOutput,
        decoder: &dyn SegmentDecoder,
    ) {
        let is_gap = |event: &TraceEvent| matches!(event, TraceEvent::Gap(_));
        // While the events are in the processor's caches.
        for stretch in &mut output.stretches {
            stretch.has_gap = !stretch.in_order && stretch.events.iter().any(is_gap);
        }
        self.segment.iter_mut().for_each(|segment| segment.extend(&next));
        let all = &mut self.output;
        all.add_counts(&output);
        if !self.is_of_thread {
            return all.stretches.extend(output.stretches);
        }
        for mut stretch in output.stretches {
            stretch.continue_from(&mut self.last);
            let events = std::mem::take(&mut stretch.events);
            let of = |stretch: &Stretch| (stretch.pid, stretch.tid, stretch.space);
            match all.stretches.last_mut().filter(|known| of(known) == of(&stretch)) {
                Some(known) => {
                    known.events.extend_from_slice(&events);
                    known.left_out += stretch.left_out;
                    known.has_gap |= stretch.has_gap;
                }
                None => {
                    stretch.events = std::mem::take(&mut self.room);
                    stretch.events.extend_from_slice(&events);
                    all.stretches.push(stretch);
                }
            }
            decoder.give_back(events, Vec::new());
        }
    }
}

/// A part of an output's stretch.
pub(crate) struct LaidPiece<D> {
    /// Index of the stretch.
    pub(crate) stretch: usize,
    /// The places of its events there.
    pub(crate) places: Range<usize>,
    pub(crate) left_out: u64,
    /// They are a run: its digest, and this one's bytes.
    pub(crate) run: Option<(DigestedRun<D>, Vec<u8>)>,
}

impl<D> LaidPiece<D> {
    /// About so many bytes in a store.
    pub(crate) fn bytes(&self) -> usize {
        self.run.as_ref().map_or(self.places.len() * EVENT_BYTES, |(_, bytes)| bytes.len())
    }
}

/// The pieces of an output, of all stretches.
pub(crate) fn pieces<G: Digester>(output: &SegmentOutput, digester: Option<&G>) -> Vec<LaidPiece<G::Digest>> {
    let mut pieces = Vec::new();
    for (number, stretch) in output.stretches.iter().enumerate() {
        let (mut next, mut left_out) = (0, stretch.left_out);
        for (run, bytes) in packed_digests(stretch, digester) {
            let places = run.places.clone();
            if places.start > next || left_out > 0 {
                let left_out = std::mem::take(&mut left_out);
                pieces.push(LaidPiece { stretch: number, places: next..places.start, left_out, run: None });
            }
            next = places.end;
            pieces.push(LaidPiece { stretch: number, places, left_out: 0, run: Some((run, bytes)) });
        }
        let rest = next..stretch.events.len();
        if next == 0 || left_out > 0 || !rest.is_empty() {
            pieces.push(LaidPiece { stretch: number, places: rest, left_out, run: None });
        }
    }
    pieces
}

/// Packs the output of a segment.
pub(crate) fn pack<D>(
    segment: &StoredSegment,
    output: &SegmentOutput,
    pieces: &[LaidPiece<D>],
) -> Result<Vec<u8>, NoOutput> {
    let mut packer = Packer::default();
    for LaidPiece { stretch: number, places, left_out, run } in pieces {
        let Some(stretch) = output.stretches.get(*number) else { continue };
        match run {
            Some((run, bytes)) => {
                let at = |event| OutputPlace { segment: segment.at, stretch: *number, event };
                packer.run(stretch, at(places.start)..at(places.end), run, bytes.clone());
            }
            None => {
                let events = stretch.events.get(places.clone()).unwrap_or_default();
                packer.stretch(stretch, *left_out, events);
            }
        }
    }
    packer.finish(output)
}

/// The runs of a stretch with the bytes of their digests, as far as these are no more than those of events.
/// None where something was lost: what follows is looked at event by event, until it tells where control is.
fn packed_digests<G: Digester>(
    stretch: &Stretch,
    digester: Option<&G>,
) -> Vec<(DigestedRun<G::Digest>, Vec<u8>)> {
    let Some(digester) = digester.filter(|_| !stretch.has_gap) else { return Vec::new() };
    let runs = digester.digest(stretch.tid, stretch.space, &stretch.events).into_iter();
    let packed = |run: DigestedRun<G::Digest>| {
        let bytes =
            digester.pack(&run.digest).filter(|bytes| bytes.len() <= run.places.len() * EVENT_BYTES)?;
        Some((run, bytes))
    };
    runs.filter_map(packed).collect()
}
