//! Events one by one, for a sink that takes no digests.

use model::{DigestSink, DigestedRun, EventSink, Pid, SpaceId, Tid, TraceEvent, WholeRun};

use crate::digest::RunDigest;

/// A sink that is given the events of runs, too.
pub struct EventByEvent<F>(pub F);

impl<F: FnMut(Pid, Tid, SpaceId, &[TraceEvent])> EventSink for EventByEvent<F> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.0(pid, tid, space, events);
    }
}

impl<F: FnMut(Pid, Tid, SpaceId, &[TraceEvent])> DigestSink<RunDigest> for EventByEvent<F> {
    fn run(
        &mut self,
        _: Pid,
        _: Tid,
        _: SpaceId,
        _: &DigestedRun<RunDigest>,
        whole: &dyn WholeRun<RunDigest>,
    ) {
        whole.give(self);
    }
}
