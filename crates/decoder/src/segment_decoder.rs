//! The decoder of segments: ours by default, and another one can stand in its place.
//!
//! What surrounds it is the same for both: cutting buffers into segments, workers, merging by time, time that
//! never runs backwards.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use model::{CountersSince, TraceEvent};

use crate::Context;
use crate::clock::{CrystalRatio, TimelineRoom};
use crate::effects::Effects;
use crate::flow::decode_segment;
use crate::graph::BlockGraph;
use crate::output::{Output, ROOM_EVENTS_MIN};
use crate::segment::Segment;
use crate::segment_output::SegmentOutput;
use crate::work::{InstructionCount, Tally, Work};
use crate::worker_cache::{WorkerCache, WorkerCaches};

/// Decodes segments, several at once.
///
/// A segment's output covers its bytes from where the PSB+ at its start says that execution is (or from the
/// first address that is certain, with a gap before it if nothing else covers that) to where the PSB+ after
/// its end says. It depends on nothing but the segment and the context.
pub trait SegmentDecoder: Sync {
    /// Decodes one segment.
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput;

    /// A line on how it worked, for diagnosis.
    fn diagnosis(&self) -> Option<String> {
        None
    }

    /// The events of a stretch have served, and their counters: their room can be used again.
    fn give_back(&self, events: Vec<TraceEvent>, counters: Vec<CountersSince>) {
        drop((events, counters));
    }

    /// How many bytes segments should have at least, if it can choose; `wanted`: what the options say.
    fn segment_bytes(&self, wanted: u64) -> u64 {
        wanted
    }
}

/// Our own decoder.  What it remembers is about one recording and one sink, so a decode uses it up.
pub struct OwnDecoder {
    memo_entries: usize,
    plain: WorkerCaches<WorkerCache<InstructionCount>>,
    /// In a decode with counters.
    counting: WorkerCaches<WorkerCache<Tally>>,
    /// Room for events, with those that have served.
    rooms: Mutex<Vec<Vec<TraceEvent>>>,
    /// Room for counters of events, likewise.
    counters_rooms: Mutex<Vec<Vec<CountersSince>>>,
    crystal: OnceLock<Option<CrystalRatio>>,
}

/// Rooms that are kept: one for each segment that waits to be given out, but not with any number of
/// workers.
const ROOMS_MAX: usize = 32;

/// Far more than a program's busy parts need; half a cache line each, and the memo grows with the effects.
const MEMO_ENTRIES: usize = 1 << 18;

impl Default for OwnDecoder {
    fn default() -> Self {
        Self::with_memo(MEMO_ENTRIES)
    }
}

impl OwnDecoder {
    /// With another number of places in the memo than usual, four at least: the events do not depend on it.
    #[must_use]
    pub fn with_memo(memo_entries: usize) -> Self {
        Self {
            memo_entries,
            plain: WorkerCaches::default(),
            counting: WorkerCaches::default(),
            rooms: Mutex::default(),
            counters_rooms: Mutex::default(),
            crystal: OnceLock::new(),
        }
    }

    /// Takes the crystal clock's rate as measured elsewhere.
    pub(crate) fn set_crystal(&mut self, crystal: Option<CrystalRatio>) {
        self.crystal = OnceLock::from(crystal);
    }

    /// All workers have ended, and there will be others.
    pub(crate) fn pass_caches_on(&mut self) {
        self.plain.pass_on();
        self.counting.pass_on();
    }

    fn decode_with<W: Work>(
        &self,
        caches: &WorkerCaches<WorkerCache<W>>,
        context: &Context<'_>,
        segment: &Segment<'_>,
    ) -> SegmentOutput {
        let anew = || WorkerCache {
            graph: BlockGraph::new(),
            effects: Effects::new(self.memo_entries),
            output: Output::new(context.asks_about.is_none()),
            timeline: TimelineRoom::new(),
        };
        let mut known = caches.take().unwrap_or_else(anew);
        let recording = context.recording;
        let measure = || CrystalRatio::measure(&recording.buffers, recording.pt.tsc_ctc_ratio);
        let crystal = *self.crystal.get_or_init(measure);
        known.output.room = lock(&self.rooms).pop().unwrap_or_default();
        if W::COUNTS {
            known.output.counters_room = lock(&self.counters_rooms).pop().unwrap_or_default();
        }
        let output = decode_segment(context, crystal, &mut known, segment);
        let Output { room, counters_room, .. } = &mut known.output;
        self.give_back(std::mem::take(room), std::mem::take(counters_room));
        known.effects.tidy();
        // Effects are of blocks, and blocks of nothing else.
        let no_blocks = known.graph.is_full();
        if no_blocks {
            known.graph.clear();
        }
        if no_blocks || known.effects.is_full() {
            known.effects.clear();
        }
        caches.keep(known);
        output
    }
}

/// Keeps room that is worth it.
fn give_back_to<T>(rooms: &Mutex<Vec<Vec<T>>>, room: Vec<T>) {
    if room.capacity() >= ROOM_EVENTS_MIN {
        let mut rooms = lock(rooms);
        if rooms.len() < ROOMS_MAX {
            rooms.push(room);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packets that asked for effects, and those that asked for one that was not remembered.
fn asked<W: Work>(caches: &WorkerCaches<WorkerCache<W>>) -> (u64, u64) {
    let sum = |of: fn(&Effects<W>) -> u64| caches.sum(|known| of(&known.effects));
    (sum(|effects| effects.packets), sum(|effects| effects.misses))
}

impl SegmentDecoder for OwnDecoder {
    fn diagnosis(&self) -> Option<String> {
        let (plain, counting) = (asked(&self.plain), asked(&self.counting));
        let (packets, misses) = (plain.0 + counting.0, plain.1 + counting.1);
        let share = 100.0 * packets.saturating_sub(misses) as f64 / packets.max(1) as f64;
        Some(format!("memo: {misses} effects worked out for {packets} packets, {share:.1} % hits"))
    }

    fn give_back(&self, events: Vec<TraceEvent>, counters: Vec<CountersSince>) {
        give_back_to(&self.rooms, events);
        give_back_to(&self.counters_rooms, counters);
    }

    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        if context.counts {
            self.decode_with(&self.counting, context, segment)
        } else {
            self.decode_with(&self.plain, context, segment)
        }
    }
}
