//! Virtual machines: their code is not here, and is not followed.
//!
//! ```text
//!   host's kernel --PIP non-root, TIP--> guest ... guest --FUP, PIP, TIP--> host's kernel
//! ```
//! SDM volume 3, "Intel Processor Trace", "VMX". The thread that runs the machine is in its kernel meanwhile,
//! and nothing of its own code is lost; so a stay is a gap of no thread.

use model::{AuxOffset, GapCause};

use super::{Flow, State};
use crate::output::Moment;
use crate::owner::Running;
use crate::step::Step;
use crate::work::Work;

/// A stay in a virtual machine, or the part of it since the last PSB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    from: Moment,
    at: AuxOffset,
}

impl<W: Work> Flow<'_, W> {
    /// PIP says whether a virtual machine runs from the next TIP on: its addresses are in a space that we do
    /// not know.
    pub(super) fn pip(&mut self, non_root: bool) {
        self.guest = non_root;
        if !non_root && matches!(self.state, State::Guest) {
            self.state = State::Kernel; // the VM exit's TIP goes to the host's kernel
        }
    }

    /// A virtual machine runs.
    pub(super) fn enter_guest(&mut self, step: Step) {
        self.state = State::Guest;
        if !self.tail {
            self.stay = Some(Stay { from: Moment::At(step.slot), at: step.at });
        }
    }

    /// The packet at `at` has ended a stay in a virtual machine, if it was in one.
    pub(super) fn end_stay(&mut self, at: AuxOffset) {
        let Some(stay) = self.stay.take() else { return };
        let to = Moment::At(self.clock.slot(self.walk.work()));
        self.walk.thread(Running::UNKNOWN, self.walk.space, self.clock.now_lo());
        let bytes = at.0.saturating_sub(stay.at.0);
        self.walk.gap(stay.from, to, bytes, stay.at, GapCause::Guest);
    }
}
