//! What of the first thread's work any other one could have done: the segments that it decoded, and what was
//! made of their events ahead of the sums. The rest is what only one thread does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};

use decoder::{Context, OwnDecoder, Segment, SegmentDecoder, SegmentOutput};
use model::{CountersSince, DigestedRun, Digester, RunPart, SpaceId, Tid, TraceEvent};

use crate::stopwatch::on_cpu_ns;

/// Adds up what the thread that made it does of that.
#[derive(Clone)]
pub(crate) struct Parallel(Arc<Sums>);

struct Sums {
    first: ThreadId,
    /// When it began, or did the last step of it.
    last: AtomicU64,
    ns: AtomicU64,
}

impl Parallel {
    pub(crate) fn new() -> Self {
        let (last, ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Sums { first: thread::current().id(), last, ns }))
    }

    /// So far.
    pub(crate) fn ns(&self) -> u64 {
        self.0.ns.load(Relaxed)
    }

    fn begins(&self) {
        if thread::current().id() == self.0.first {
            self.0.last.store(on_cpu_ns(), Relaxed);
        }
    }

    fn goes_on(&self) {
        if thread::current().id() == self.0.first {
            let now = on_cpu_ns();
            self.0.ns.fetch_add(now.saturating_sub(self.0.last.swap(now, Relaxed)), Relaxed);
        }
    }
}

/// A decoder or a sink with a count of the time that it works.
pub(crate) struct Watched<T>(pub(crate) T, pub(crate) Parallel);

impl SegmentDecoder for Watched<OwnDecoder> {
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        self.1.begins();
        let output = self.0.decode(context, segment);
        self.1.goes_on();
        output
    }

    fn give_back(&self, events: Vec<TraceEvent>, counters: Vec<CountersSince>) {
        self.0.give_back(events, counters);
    }
}

/// Each follows what was decoded, on the same thread: what was done between is a part of it, too.
impl<T: Digester> Digester for Watched<T> {
    type Digest = T::Digest;

    fn digest(&self, tid: Tid, space: SpaceId, events: &[TraceEvent]) -> Vec<DigestedRun<T::Digest>> {
        let runs = self.0.digest(tid, space, events);
        self.1.goes_on();
        runs
    }

    fn join(&self, tid: Tid, space: SpaceId, parts: &[RunPart<T::Digest>]) -> Vec<DigestedRun<T::Digest>> {
        self.0.join(tid, space, parts)
    }

    fn pack(&self, digest: &T::Digest) -> Option<Vec<u8>> {
        self.0.pack(digest)
    }

    fn unpack(&self, bytes: &[u8], run: &DigestedRun<()>) -> Option<T::Digest> {
        self.0.unpack(bytes, run)
    }

    fn workers_min(&self) -> usize {
        self.0.workers_min()
    }
}
