//! What stored runs were digested from, for those of which the digest does not do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use model::{AuxOffset, DigestSink, DigestedRun, Digester, Pid, SpaceId, Tid, TraceEvent, WholeRun};

use crate::Context;
use crate::segment_output::SegmentOutput;
use crate::store::Store;
use crate::stored_run::{Level, OutputPlace, StoredRun};
use crate::stretch::Stretch;

/// A part of what a run was digested from.
pub(crate) enum Below {
    Events(Vec<TraceEvent>),
    Run(Box<StoredRun>),
}

/// What decoding and joining know of a recording, with the levels below its outputs. Without a store there is
/// none, and no stored run.
pub(crate) struct Lower<'a, G> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) store: Option<&'a Store<'a>>,
    pub(crate) digester: Option<&'a G>,
    /// Of each buffer the segment that was decoded last. Runs of a buffer are asked for in order: each of its
    /// segments is decoded once.
    decoded: RefCell<LastOutputs>,
    /// Of each buffer the output that was read last.
    read: RefCell<LastOutputs>,
}

/// By buffer: where the segment starts, and its output.
type LastOutputs = BTreeMap<usize, (AuxOffset, SegmentOutput)>;

/// The output of a segment, which `make` gives if it is not the last one.
fn last_or(
    outputs: &mut LastOutputs,
    (buffer, at): (usize, AuxOffset),
    make: impl Fn() -> SegmentOutput,
) -> &SegmentOutput {
    let known = outputs.entry(buffer).or_insert_with(|| (at, make()));
    if known.0 != at {
        *known = (at, make());
    }
    &known.1
}

impl<'a, G: Digester> Lower<'a, G> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        store: Option<&'a Store<'a>>,
        digester: Option<&'a G>,
    ) -> Self {
        Self { context, store, digester, decoded: RefCell::default(), read: RefCell::default() }
    }

    /// Gives what is below a run, in order.
    pub(crate) fn parts(&self, run: &StoredRun, give: &mut dyn FnMut(Below)) {
        let Some(store) = self.store else { return };
        if run.level == Level::Decoded {
            return give(Below::Events(self.decoded(store, run)));
        }
        let StoredRun { buffer, ref below, .. } = *run;
        let (mut read, mut events) = (self.read.borrow_mut(), 0);
        for at in store.starts(buffer, below.start.segment..=below.end.segment) {
            let output = || store.output(&(buffer, at, Level::Decoded));
            for (number, stretch) in last_or(&mut read, (buffer, at), output).stretches.iter().enumerate() {
                let place = OutputPlace { segment: at, stretch: number, event: 0 };
                let Some(part) = part_of(stretch, place, below) else { continue };
                events += match &part {
                    Below::Events(events) => events.len() as u64,
                    Below::Run(run) => run.events,
                };
                give(part);
            }
        }
        if events != run.events {
            store.mismatch(buffer, below.start.segment);
        }
    }

    /// The events of a run of a decoded output.
    fn decoded(&self, store: &Store<'_>, run: &StoredRun) -> Vec<TraceEvent> {
        let OutputPlace { segment: at, stretch, event } = run.below.start;
        let mut decoded = self.decoded.borrow_mut();
        let decode = || store.decode_again(self.context, run.buffer, at);
        let stretch = last_or(&mut decoded, (run.buffer, at), decode).stretches.get(stretch);
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

/// What of a stretch at `place` is within `below`, if something is.
fn part_of(stretch: &Stretch, place: OutputPlace, below: &Range<OutputPlace>) -> Option<Below> {
    if place >= below.end || place.next_stretch() <= below.start {
        return None;
    }
    if let Some(run) = &stretch.stored {
        return Some(Below::Run(run.clone()));
    }
    let first = if place < below.start { below.start.event } else { 0 };
    let end = if below.end < place.next_stretch() { below.end.event } else { stretch.events.len() };
    stretch.events.get(first..end).map(|events| Below::Events(events.to_vec()))
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
