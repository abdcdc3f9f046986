//! The flow packet that is being followed, as far as times hang on it.

use model::AuxOffset;

use crate::clock::Slot;

/// The flow packet that is being followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The last slot before the branches that are followed now: that of the flow packet before.
    pub(crate) lo: Slot,
    /// The last slot that the packet's own branch did not precede: `slot`, unless the packet may have
    /// waited.
    pub(crate) own: Slot,
    /// The first slot that it did not happen after: the packet's own.
    pub(crate) slot: Slot,
    /// Where it is.
    pub(crate) at: AuxOffset,
}
