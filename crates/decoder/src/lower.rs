//! What stored runs were digested from, for those of which the digest does not do.

use std::cell::RefCell;
use std::collections::BTreeMap;

use model::{AuxOffset, DigestSink, DigestedRun, Digester, Pid, SpaceId, Tid, TraceEvent, WholeRun};

use crate::Context;
use crate::segment_output::SegmentOutput;
use crate::store::Store;
use crate::stored_run::{Level, OutputPlace, StoredRun};

/// A part of what a run was digested from.
pub(crate) enum Below {
    Events(Vec<TraceEvent>),
    Run(Box<StoredRun>),
}

/// The levels below an output. Without a store there is none, and no stored run.
pub(crate) struct Lower<'a, G> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) store: Option<&'a Store<'a>>,
    pub(crate) digester: Option<&'a G>,
    /// Of each buffer the output that was decoded last. Runs of a buffer are asked for in order: each of its
    /// segments is decoded once.
    decoded: RefCell<BTreeMap<usize, (AuxOffset, SegmentOutput)>>,
}

impl<'a, G: Digester> Lower<'a, G> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        store: Option<&'a Store<'a>>,
        digester: Option<&'a G>,
    ) -> Self {
        Self { context, store, digester, decoded: RefCell::default() }
    }

    /// Gives what is below a run, in order.
    pub(crate) fn parts(&self, run: &StoredRun, give: &mut dyn FnMut(Below)) {
        let Some(store) = self.store else { return };
        if run.level == Level::Decoded {
            return give(Below::Events(self.decoded(store, run)));
        }
        let StoredRun { buffer, ref below, .. } = *run;
        for at in store.starts(buffer, below.start.segment..=below.end.segment) {
            for (number, mut stretch) in
                store.output(&(buffer, at, Level::Decoded)).stretches.into_iter().enumerate()
            {
                let place = OutputPlace { segment: at, stretch: number, event: 0 };
                if place >= below.end {
                    return;
                }
                if place.next_stretch() <= below.start {
                    continue;
                }
                if let Some(run) = stretch.stored {
                    give(Below::Run(run));
                    continue;
                }
                if below.end < place.next_stretch() {
                    stretch.events.truncate(below.end.event);
                }
                if place < below.start {
                    stretch.events.drain(..below.start.event.min(stretch.events.len()));
                }
                give(Below::Events(stretch.events));
            }
        }
    }

    /// The events of a run of a decoded output.
    fn decoded(&self, store: &Store<'_>, run: &StoredRun) -> Vec<TraceEvent> {
        let OutputPlace { segment: at, stretch, event } = run.below.start;
        let mut decoded = self.decoded.borrow_mut();
        let decode = || (at, store.decode_again(self.context, run.buffer, at));
        let known = decoded.entry(run.buffer).or_insert_with(decode);
        if known.0 != at {
            *known = decode();
        }
        let stretch = known.1.stretches.get(stretch);
        let events = stretch.and_then(|stretch| stretch.events.get(event..run.below.end.event));
        let times = events.and_then(|events| Some((events.first()?.time(), events.last()?.time())));
        if times != Some((run.first, run.last)) {
            store.mismatch(run.buffer, at);
            return Vec::new();
        }
        events.unwrap_or_default().to_vec()
    }

    /// A run with its digest, if that is of use.
    pub(crate) fn digested(&self, run: &StoredRun) -> Option<DigestedRun<G::Digest>> {
        let digest = self.digester?.unpack(&run.digest, &run.with(()))?;
        Some(run.with(digest))
    }
}

/// A stored run of a thread.
pub(crate) struct WholeStored<'r, 'a, G> {
    pub(crate) lower: &'r Lower<'a, G>,
    pub(crate) pid: Pid,
    pub(crate) tid: Tid,
    pub(crate) space: SpaceId,
    pub(crate) run: &'r StoredRun,
}

impl<G: Digester> WholeRun<G::Digest> for WholeStored<'_, '_, G> {
    fn give(&self, sink: &mut dyn DigestSink<G::Digest>) {
        let Self { lower, pid, tid, space, run } = *self;
        lower.parts(run, &mut |part| match part {
            Below::Events(events) => sink.events(pid, tid, space, &events),
            Below::Run(run) => {
                let whole = WholeStored { run: &run, ..*self };
                match lower.digested(&run) {
                    Some(run) => sink.run(pid, tid, space, &run, &whole),
                    None => whole.give(sink),
                }
            }
        });
    }
}
