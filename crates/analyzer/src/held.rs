//! An event that is held back.

use model::{Counters, SpaceId, TraceEvent};

/// An event after a landing that only it and others decide ([`crate::look_ahead`]).
pub(crate) struct Held {
    pub(crate) space: SpaceId,
    pub(crate) event: TraceEvent,
    /// The thread's counters, where they were asked for: few events are held back, and fewer with these.
    pub(crate) counters: Option<Box<Counters>>,
}

impl Held {
    pub(crate) fn new(space: SpaceId, event: &TraceEvent, counters: Option<&Counters>) -> Self {
        Self { space, event: *event, counters: counters.map(|counters| Box::new(*counters)) }
    }
}
