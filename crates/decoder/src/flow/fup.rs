//! FUP packets, and what comes before them that says what they mean.

use model::{AsyncCause, Avma};

/// What the next FUP belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FupUse {
    /// An asynchronous event, if TIP or TIP.PGD follows.
    Interruption(Interruption),
    /// An event packet before it.
    Bound,
    /// An asynchronous event; but at the address that the PSB+ right before gave it may be OVF's own.
    AfterPsb(Avma),
}

impl Default for FupUse {
    fn default() -> Self {
        Self::Interruption(Interruption::Event(AsyncCause::Unknown))
    }
}

/// What ends code asynchronously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The kernel takes over.
    Event(AsyncCause),
    /// The transaction aborts; the program goes on at its abort handler.
    Abort,
}

/// A FUP that waits for its TIP or TIP.PGD.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fup {
    /// The instruction that did not run.
    pub(super) ip: Avma,
    pub(super) interruption: Interruption,
    /// It may be OVF's own: a PSB+ that has said the same may stand between them (SDM, "Compound Packet Event
    /// Summary").
    pub(super) may_be_ovf: bool,
}

impl Fup {
    /// The FUP that a TIP to `to` belongs to. One that may be OVF's own interrupts user code only if the
    /// kernel takes over.
    pub(super) fn of_tip(self, to: Option<Avma>) -> Option<Self> {
        let to_user = to.is_some_and(|to| !to.is_kernel());
        (!(self.may_be_ovf && to_user)).then_some(self)
    }
}
