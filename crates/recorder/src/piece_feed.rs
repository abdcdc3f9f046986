//! Pieces of a recording that is made up: for tests of what follows a recorder.

use std::fs::OpenOptions;
use std::io::{self, Cursor};

use model::{Ns, Tid};
use perfdata::write::{AuxChunk, Event, EventId, Features, Writer};

use crate::output::Output;
use crate::pieces::{Cutting, Pieces, piece_path};

/// Writes what it is given as a recorder writes what it has read.
#[derive(Debug)]
pub struct PieceFeed(Output);

impl PieceFeed {
    /// Begins the first piece. `head`: records that stand in front of each.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(pieces: &Pieces, events: Vec<Event>, head: &[u8]) -> io::Result<Self> {
        let mut kept = Writer::new(Cursor::new(Vec::new()), events)?;
        kept.record(head)?;
        let file = OpenOptions::new().write(true).create_new(true).open(piece_path(&pieces.directory, 0))?;
        let first = kept.copy_to(file, kept.get_ref().get_ref())?;
        Ok(Self(Output::new(first, Some(Cutting::new(pieces, kept, Features::default())))))
    }

    /// Adds the ids of the events of a thread's new buffer.
    pub fn ids(&self, tid: Tid, ids: &[(usize, EventId)]) {
        self.0.add_ids(tid, ids);
    }

    /// Adds whole records.
    pub fn records(&self, records: &[u8]) {
        self.0.records(records);
    }

    /// Adds trace. False: it had no room, and is left out.
    pub fn trace(&self, chunk: &AuxChunk, payload: &[u8]) -> bool {
        self.0.aux(chunk, &[payload])
    }

    /// Everything is there up to `time`: the piece ends if it is time for that.
    pub fn complete_until(&self, time: Ns) {
        self.0.complete_until(time);
    }

    /// The recording is over.
    ///
    /// # Errors
    /// The first one, whenever it was.
    pub fn finish(self) -> io::Result<()> {
        self.0.finish(&Features::default()).map(drop)
    }
}
