//! The events of stored runs, for those of which the digest does not do.

use model::{AuxOffset, TraceEvent};

use crate::segment_decoder::SegmentDecoder;
use crate::stored_run::StoredRun;
use crate::stretch::Stretch;

/// The runs of the output that was asked for last: where one digest does not do, others often do not.
#[derive(Default)]
pub(crate) struct UnpackedRuns {
    segment: Option<(usize, AuxOffset)>,
    runs: Vec<Stretch>,
}

impl UnpackedRuns {
    /// The events of a run; none if its store cannot be read.
    pub(crate) fn events(&mut self, decoder: &dyn SegmentDecoder, run: &StoredRun) -> Vec<TraceEvent> {
        let (buffer, at) = run.segment;
        if self.segment != Some((buffer, at)) {
            self.segment = Some((buffer, at));
            self.runs = decoder.runs(buffer, at).stretches;
        }
        self.runs.get(run.number).map_or_else(Vec::new, |run| run.events.clone())
    }
}
