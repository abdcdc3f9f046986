//! What one segment's decoding gives until its clock is known.

use model::AuxOffset;

use crate::block::BlockId;
use crate::clock::Slot;
use crate::effects::EdgeId;
use crate::work::Instructions;

/// What happened at a packet, in few bytes: there are many, and most are only passed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<W = Instructions> {
    pub(crate) at: AuxOffset,
    pub(crate) what: What,
    /// So many branches of an effect come down to a return to `call`, or without one to a call or jumps, and
    /// nobody asks about any of them; 0: see what they are.
    pub(crate) quiet: u8,
    /// Of an effect the first branch; once it is pruned, one branch alone.
    pub(crate) edge: EdgeId,
    /// The call that an effect's last branch returned to, if only the stack knows that; none: it has not
    /// returned.
    pub(crate) call: BlockId,
    /// It happened after the packet of this slot
    pub(crate) lo: Slot,
    /// and not after that one's; the same slot twice if it is that packet's own.
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
    /// Something else, whose number is in the place of the edge's.
    Other,
}

/// The branches of an effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edges {
    pub(crate) first: EdgeId,
    /// With that of the first bit of a TNT packet.
    pub(crate) has_first_bit: bool,
    /// See [`Record::quiet`].
    pub(crate) quiet: u8,
    /// The call that the last one returned to, if only the stack knows that; none: it has not returned.
    pub(crate) call: BlockId,
}
