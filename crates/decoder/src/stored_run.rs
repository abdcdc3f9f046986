//! A run of events of which an output has the digest. What it was digested from is a level below.
//!
//! ```text
//!   trace             |----|----|----|----|----|----|----|----|
//!   outputs            ev digest ev  | ev digest  | ev digest ev     events are decoded again
//!   joined output      ev  digest                          ev        these outputs are read
//! ```

use std::ops::Range;

use model::{AuxOffset, DigestedRun, EventTime};
use serde::{Deserialize, Serialize};

/// What an output is made of. In the order of what does in the place of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Of outputs that are stored, too.
    Joined,
    /// Of trace.
    Decoded,
}

/// A place in the outputs of consecutive segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OutputPlace {
    /// Where the segment starts.
    pub(crate) segment: AuxOffset,
    /// Index of a stretch of its output: before that was stored, if it is decoded again.
    pub(crate) stretch: usize,
    /// Index of an event of the stretch.
    pub(crate) event: usize,
}

impl OutputPlace {
    /// Where the next stretch begins.
    pub(crate) fn next_stretch(self) -> Self {
        Self { stretch: self.stretch.saturating_add(1), event: 0, ..self }
    }
}

/// A run of events of a stored output.
#[derive(Clone, Debug)]
pub(crate) struct StoredRun {
    /// Index in `Recording::buffers`.
    pub(crate) buffer: usize,
    /// Level of the output that has the run.
    pub(crate) level: Level,
    /// What it was digested from.
    pub(crate) below: Range<OutputPlace>,
    /// How many events that are.
    pub(crate) events: u64,
    /// Time of the first one.
    pub(crate) first: EventTime,
    /// Time of the last one.
    pub(crate) last: EventTime,
    pub(crate) digest: Vec<u8>,
}

impl StoredRun {
    /// The run with its digest.
    pub(crate) fn with<D>(&self, digest: D) -> DigestedRun<D> {
        DigestedRun { places: 0..1, events: self.events, first: self.first, last: self.last, digest }
    }
}
