//! The last flow packet: what bounds the branches of the next one from below.

use model::AuxOffset;

use crate::clock::Slot;
use crate::step::Step;

/// The last flow packet, and what has come after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastFlow {
    pub(super) slot: Slot,
    /// It was a TNT: nothing says yet when its last branch was.
    pub(super) open_tnt: bool,
    /// No timing packet has come since the last TNT: TIPs may have waited for it to be sent.
    pub(super) after_tnt: bool,
    /// What the branches of the last TNT cannot precede: the flow packet before it.
    pub(super) tnt_lo: Slot,
}

impl LastFlow {
    /// The step to a flow packet at `slot` that has not waited.
    #[inline(always)]
    pub(super) fn step(&self, slot: Slot, at: AuxOffset) -> Step {
        Step { lo: self.slot, own: slot, slot, at }
    }

    /// A TNT has come, at `slot`.
    #[inline(always)]
    pub(super) fn tnt(&mut self, slot: Slot) {
        *self = Self { slot, open_tnt: true, after_tnt: true, tnt_lo: self.slot };
    }

    /// The step to a TIP at `slot`, if it has a slot of its own.
    #[inline(always)]
    pub(super) fn tip_step(&self, slot: Slot, at: AuxOffset) -> Step {
        if self.after_tnt { self.among_tnt(at) } else { self.step(slot, at) }
    }

    /// A TIP has come at `slot` that has not waited.
    #[inline(always)]
    pub(super) fn tip(&mut self, slot: Slot) {
        (self.slot, self.open_tnt) = (slot, false);
    }

    /// The step to the branches of the last TNT after its first one.
    #[inline(always)]
    pub(super) fn rest_of_tnt(&self, at: AuxOffset) -> Step {
        Step { lo: self.tnt_lo, own: self.slot, slot: self.slot.next(), at }
    }

    /// The step for a TIP that may have waited for the TNT before it to be sent (SDM, "Deferred TIPs"): its
    /// branch is among those of the TNT after the first one, and has no time of its own.
    #[inline(always)]
    pub(super) fn among_tnt(&self, at: AuxOffset) -> Step {
        Step { own: self.tnt_lo, ..self.rest_of_tnt(at) }
    }
}
