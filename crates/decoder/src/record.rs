//! What one segment's decoding gives until its clock is known.

use model::AuxOffset;

use crate::block::BlockId;
use crate::clock::Slot;
use crate::effects::{EdgeId, Prunable};
use crate::work::InstructionCount;

/// What happened at a packet. Small, for there is one for each TNT and TIP, and most are only skipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<W = InstructionCount> {
    pub(crate) at: AuxOffset,
    pub(crate) what: What,
    pub(crate) prunable: Prunable,
    /// The first branch of an effect; after pruning, the only one.
    pub(crate) edge: EdgeId,
    /// The call that an effect's last branch returned to, if only the stack knows that; none: it has not
    /// returned.
    pub(crate) call: BlockId,
    /// The slot of the last packet before it.
    pub(crate) lo: Slot,
    /// The slot of the first packet after it; `lo` again where the packet itself has a time.
    pub(crate) slot: Slot,
    /// Work done before it.
    pub(crate) work: W,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// The branches of an effect.
    Effect,
    /// The branches of an effect with the first bit of a TNT packet: those after it are of the next slot.
    Tnt,
    /// Something else; its number is in the place of the edge's.
    Other,
}

/// The branches of an effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edges {
    pub(crate) first: EdgeId,
    /// With that of the first bit of a TNT packet.
    pub(crate) has_first_bit: bool,
    pub(crate) prunable: Prunable,
    /// The call that the last one returned to, if only the stack knows that; none: it has not returned.
    pub(crate) call: BlockId,
}
