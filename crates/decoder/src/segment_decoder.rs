//! Who decodes a segment: ours does by default, and another decoder can stand in its place.
//!
//! What surrounds it is the same for both: cutting buffers into segments, workers, merging by time, time that
//! never runs backwards.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use model::TraceEvent;
use rustc_hash::FxHashMap;

use crate::Context;
use crate::clock::{CrystalRatio, TimelineRoom};
use crate::effects::Effects;
use crate::flow::decode_segment;
use crate::graph::BlockGraph;
use crate::output::{Output, ROOM_EVENTS_MIN};
use crate::segment::Segment;
use crate::segment_output::SegmentOutput;
use crate::worker_cache::WorkerCache;

/// Decodes segments, several at once.
///
/// A segment's output covers its bytes from where the PSB+ at its start says that execution is (or from the
/// first address that is certain, with a gap before it if nothing else covers that) to where the PSB+ after
/// its end says. It depends on nothing but the segment and the context.
pub trait SegmentDecoder: Sync {
    /// Decodes one segment.
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput;

    /// A line on how it worked, for those who want to know.
    fn diagnosis(&self) -> Option<String> {
        None
    }

    /// The events of a stretch have served: their room can be used again.
    fn give_back(&self, events: Vec<TraceEvent>) {
        drop(events);
    }

    /// How many bytes segments should have at least, if it can choose; `wanted`: what the options say.
    fn segment_bytes(&self, wanted: u64) -> u64 {
        wanted
    }
}

/// Our own decoder.  What it remembers is about one recording and one sink, so a decode uses it up.
pub struct OwnDecoder {
    memo_entries: usize,
    /// What each worker knows of the code, which it finds out for itself: so nobody waits, and it stays in
    /// the caches of a CPU.
    known: Mutex<FxHashMap<ThreadId, WorkerCache>>,
    /// Room for events, with those that have served.
    rooms: Mutex<Vec<Vec<TraceEvent>>>,
    crystal: OnceLock<Option<CrystalRatio>>,
}

/// Rooms that are kept: as many as there are segments that wait to be given out, but not with any number of
/// workers.
const ROOMS_MAX: usize = 32;

/// Far more than a program's busy parts need; half a cache line each, but only as many as there are effects.
const MEMO_ENTRIES: usize = 1 << 18;

impl Default for OwnDecoder {
    fn default() -> Self {
        Self::with_memo(MEMO_ENTRIES)
    }
}

impl OwnDecoder {
    /// With another number of places in the memo than usual, four at least: what is decoded does not depend
    /// on it.
    #[must_use]
    pub fn with_memo(memo_entries: usize) -> Self {
        Self { memo_entries, known: Mutex::default(), rooms: Mutex::default(), crystal: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<ThreadId, WorkerCache>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rooms(&self) -> MutexGuard<'_, Vec<Vec<TraceEvent>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SegmentDecoder for OwnDecoder {
    fn diagnosis(&self) -> Option<String> {
        let known = self.lock();
        let sum = |of: fn(&Effects) -> u64| known.values().map(|known| of(&known.effects)).sum::<u64>();
        let (packets, misses) = (sum(|effects| effects.packets), sum(|effects| effects.misses));
        let share = 100.0 * packets.saturating_sub(misses) as f64 / packets.max(1) as f64;
        Some(format!("memo: {misses} effects worked out for {packets} packets, {share:.1} % hits"))
    }

    fn give_back(&self, events: Vec<TraceEvent>) {
        let mut rooms = self.rooms();
        if events.capacity() >= ROOM_EVENTS_MIN && rooms.len() < ROOMS_MAX {
            rooms.push(events);
        }
    }

    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        let anew = || WorkerCache {
            graph: BlockGraph::new(),
            effects: Effects::new(self.memo_entries),
            output: Output::new(context.asks_about.is_none()),
            timeline: TimelineRoom::new(),
        };
        let worker = thread::current().id();
        let mut known = self.lock().remove(&worker).unwrap_or_else(anew);
        let recording = context.recording;
        let measure = || CrystalRatio::measure(&recording.buffers, recording.pt.tsc_ctc_ratio);
        let crystal = *self.crystal.get_or_init(measure);
        known.output.room = self.rooms().pop().unwrap_or_default();
        let output = decode_segment(context, crystal, &mut known, segment);
        self.give_back(std::mem::take(&mut known.output.room));
        known.effects.tidy();
        // Effects are of blocks, and blocks of nothing else.
        let no_blocks = known.graph.is_full();
        if no_blocks {
            known.graph.clear();
        }
        if no_blocks || known.effects.is_full() {
            known.effects.clear();
        }
        self.lock().insert(worker, known);
        output
    }
}
