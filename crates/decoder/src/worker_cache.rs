//! What a worker keeps from one segment to the next.

use crate::clock::TimelineRoom;
use crate::effects::Effects;
use crate::graph::BlockGraph;
use crate::output::Output;

/// What is known of the code, and of what packets do in it; and room that each segment uses anew.
pub(crate) struct WorkerCache {
    pub(crate) graph: BlockGraph,
    pub(crate) effects: Effects,
    pub(crate) output: Output,
    pub(crate) timeline: TimelineRoom,
}
