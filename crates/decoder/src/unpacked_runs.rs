//! The events of stored runs, for those of which the digest does not do.

use std::collections::BTreeMap;

use model::{AuxOffset, TraceEvent};

use crate::segment_decoder::SegmentDecoder;
use crate::stored_run::StoredRun;
use crate::stretch::Stretch;

/// Of each buffer the runs of the output that was asked for last. Those of a buffer are asked for in order:
/// each output's are read once.
#[derive(Default)]
pub(crate) struct UnpackedRuns(BTreeMap<usize, (AuxOffset, Vec<Stretch>)>);

impl UnpackedRuns {
    /// The events of a run; none if the store does not have them.
    pub(crate) fn events(&mut self, decoder: &dyn SegmentDecoder, run: &StoredRun) -> Vec<TraceEvent> {
        let (buffer, at) = run.segment;
        let read = || (at, decoder.runs(buffer, at).stretches);
        let known = self.0.entry(buffer).or_insert_with(read);
        if known.0 != at {
            *known = read();
        }
        let events = known.1.get(run.number).map_or(&[][..], |stretch| &stretch.events);
        let is_last_at = |event: &TraceEvent| event.time() == run.last;
        if events.len() != run.events
            || !events.first().is_some_and(|event| event.time() == run.first)
            || !events.last().is_some_and(is_last_at)
        {
            decoder.mismatch(buffer, at);
            return Vec::new();
        }
        events.to_vec()
    }
}
