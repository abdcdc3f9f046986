//! What a worker keeps from one segment to the next.

use crate::clock::TimelineRoom;
use crate::effects::Effects;
use crate::graph::BlockGraph;
use crate::output::Output;

/// What is known of the code, and of what packets do in it; and room that each segment uses anew.
pub(crate) struct WorkerCache<W> {
    pub(crate) graph: BlockGraph,
    pub(crate) effects: Effects<W>,
    pub(crate) output: Output<W>,
    pub(crate) timeline: TimelineRoom,
}
