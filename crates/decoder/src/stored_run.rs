//! A run of events that is stored apart from those around it, as its digest may do in their place.

use model::{AuxOffset, DigestedRun, EventTime};

/// A run of events in a store.
#[derive(Debug)]
pub(crate) struct StoredRun {
    /// Where the segment that it is of starts: index in `Recording::buffers`, and offset.
    pub(crate) segment: (usize, AuxOffset),
    /// Its number among the runs of that segment's output.
    pub(crate) number: usize,
    /// How many events it has.
    pub(crate) events: usize,
    /// Time of the first one.
    pub(crate) first: EventTime,
    /// Time of the last one.
    pub(crate) last: EventTime,
    pub(crate) digest: Vec<u8>,
}

impl StoredRun {
    /// The run with its digest.
    pub(crate) fn with<D>(&self, digest: D) -> DigestedRun<D> {
        DigestedRun { events: 0..self.events, first: self.first, last: self.last, digest }
    }
}
