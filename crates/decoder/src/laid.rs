//! Outputs of consecutive segments as one, in the bytes of a store.
//!
//! ```text
//!   segments   |----|----|----|----|
//!   output      ev   digest   ev digest ev    always read
//!   runs            | events |  |events|      read where the digest does not do
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use model::{AuxOffset, DigestedRun, Digester, Ns, Tid, TraceEvent};
use serde::{Deserialize, Serialize};

use crate::packed::{EVENT_BYTES, NoOutput, Packer};
use crate::segment_decoder::SegmentDecoder;
use crate::segment_output::SegmentOutput;
use crate::stretch::{LastTime, Stretch};

/// A segment, or consecutive ones laid together, with stored output; or a missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSegment {
    /// Index in `Recording::buffers`.
    pub buffer: usize,
    /// Where it starts.
    pub at: AuxOffset,
    /// Where the next one starts, or the buffer ends.
    pub end: AuxOffset,
    /// The time of its first packets; 0 of a buffer's first segment, which may begin with a loss.
    pub start: Ns,
    /// The time of the next one's first packets; `None`: there is none.
    pub until: Option<Ns>,
    /// Its bytes of trace.
    pub bytes: u64,
    /// Its output is stored.
    pub is_there: bool,
}

/// The bytes of an output.
#[derive(Debug)]
pub struct StoredOutput {
    /// [`SegmentOutput::from_bytes`]: all but the events of digested runs.
    pub output: Vec<u8>,
    /// The events of digested runs, a stretch each, as an output.
    pub runs: Vec<u8>,
}

/// With so many events an output takes up no other segment. More would leave the caches of a processor
/// before they are packed, which costs more than is saved where outputs are joined.
const EVENTS_MAX: usize = 1 << 15;

/// Outputs of consecutive segments, laid together.
#[derive(Default)]
pub(crate) struct Laid {
    /// All of them as one; `None`: there is none yet.
    segment: Option<StoredSegment>,
    /// They are of a thread's own buffer: no other one has events that come between theirs.
    is_of_thread: bool,
    output: SegmentOutput,
    last: BTreeMap<Tid, LastTime>,
    /// Room for the events of a stretch.
    room: Vec<TraceEvent>,
}

impl Laid {
    /// This segment is laid together with those that are there.
    pub(crate) fn is_followed_by(&self, next: &StoredSegment) -> bool {
        let events: usize = self.output.stretches.iter().map(|stretch| stretch.events.len()).sum();
        let is_next = |segment: StoredSegment| (segment.buffer, segment.end) == (next.buffer, next.at);
        self.is_of_thread && events < EVENTS_MAX && self.segment.is_some_and(is_next)
    }

    /// All of the segments as one, and its output.
    pub(crate) fn take(&mut self) -> Option<(StoredSegment, &SegmentOutput)> {
        self.segment.take().map(|segment| (segment, &self.output))
    }

    /// Other segments begin here.
    pub(crate) fn begin(&mut self, segment: StoredSegment, is_of_thread: bool) {
        let before = std::mem::take(&mut self.output).stretches;
        let rooms = before.into_iter().map(|stretch| stretch.events).chain([std::mem::take(&mut self.room)]);
        let mut room = rooms.max_by_key(Vec::capacity).unwrap_or_default();
        room.clear();
        *self = Self {
            segment: Some(StoredSegment { bytes: 0, ..segment }),
            is_of_thread,
            room,
            ..Self::default()
        };
    }

    /// Adds the output of a segment, of which the decoder gets the room back.
    pub(crate) fn add(&mut self, next: StoredSegment, output: SegmentOutput, decoder: &dyn SegmentDecoder) {
        if let Some(segment) = &mut self.segment {
            (segment.end, segment.until) = (next.end, next.until);
            segment.bytes += next.bytes;
        }
        let all = &mut self.output;
        all.overflows += output.overflows;
        all.clock_errors += output.clock_errors;
        all.kernel_desyncs += output.kernel_desyncs;
        if !self.is_of_thread {
            return all.stretches.extend(output.stretches);
        }
        for mut stretch in output.stretches {
            stretch.continue_from(self.last.entry(stretch.tid).or_default());
            let events = std::mem::take(&mut stretch.events);
            let of = |stretch: &Stretch| (stretch.pid, stretch.tid, stretch.space);
            match all.stretches.last_mut().filter(|known| of(known) == of(&stretch)) {
                Some(known) => {
                    known.events.extend_from_slice(&events);
                    known.left_out += stretch.left_out;
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

/// Packs an output, and the events of digested runs apart.
pub(crate) fn pack<G: Digester>(
    output: &SegmentOutput,
    digester: Option<&G>,
) -> Result<StoredOutput, NoOutput> {
    let (mut all, mut runs) = (Packer::default(), Packer::default());
    for stretch in &output.stretches {
        let events = |places: Range<usize>| stretch.events.get(places).unwrap_or_default();
        let (mut next, mut left_out) = (0, stretch.left_out);
        for run in packed_digests(stretch, digester) {
            let Range { start, end } = run.events;
            if start > next || left_out > 0 {
                all.stretch(stretch, std::mem::take(&mut left_out), events(next..start));
            }
            all.run(stretch, run);
            runs.stretch(stretch, 0, events(start..end));
            next = end;
        }
        let rest = events(next..stretch.events.len());
        if next == 0 || left_out > 0 || !rest.is_empty() {
            all.stretch(stretch, left_out, rest);
        }
    }
    Ok(StoredOutput { output: all.finish(output)?, runs: runs.finish(&SegmentOutput::default())? })
}

/// The runs of a stretch with the bytes of their digests, as far as these are no more than those of events.
fn packed_digests<G: Digester>(stretch: &Stretch, digester: Option<&G>) -> Vec<DigestedRun<Vec<u8>>> {
    let Some(digester) = digester else { return Vec::new() };
    let runs = digester.digest(stretch.tid, stretch.space, &stretch.events).into_iter();
    let packed = |DigestedRun { events, first, last, digest }| {
        let digest = digester.pack(&digest).filter(|bytes| bytes.len() <= events.len() * EVENT_BYTES)?;
        Some(DigestedRun { events, first, last, digest })
    };
    runs.filter_map(packed).collect()
}
