//! Puts records and trace in the order of time and streams them into the file.
//!
//! Threads are simulated one slice after the other, so that what comes later in the simulation may be earlier
//! in time, but never before the horizon: the time at which the next thread can run.  All before it is
//! written and forgotten.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use model::Ns;
use perfdata::write::{AuxChunk, Event, Features, Writer};

use crate::sideband::Timed;

/// A round ends with the first AUX data after this many records; [`ROUND_RECORDS_MAX`] ends it in any case.
const ROUND_RECORDS: u32 = 16;
/// A round ends after this many records, whether there was AUX data or not.
const ROUND_RECORDS_MAX: u32 = 2000;

const BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug)]
enum TimelineItem {
    Record(Vec<u8>),
    Aux(AuxChunk, Rc<[u8]>),
}

#[derive(Debug)]
pub(crate) struct Timeline {
    writer: Writer<BufWriter<File>>,
    /// One per buffer, if raw bytes are wanted.
    raw: Vec<BufWriter<File>>,
    /// By time, then in the order in which they came.
    pending: BTreeMap<(Ns, u64), TimelineItem>,
    count: u64,
    since_round: u32,
}

impl Timeline {
    pub(crate) fn create(path: &Path, events: Vec<Event>) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
        let writer = Writer::new(out, events)?;
        Ok(Self { writer, raw: vec![], pending: BTreeMap::new(), count: 0, since_round: 0 })
    }

    /// Also writes each buffer's bytes to `PREFIX.N.pt`.
    pub(crate) fn also_raw(&mut self, prefix: &Path, buffers: u32) -> io::Result<()> {
        let create = |i| {
            let mut path = prefix.as_os_str().to_owned();
            path.push(format!(".{i}.pt"));
            File::create(path).map(BufWriter::new)
        };
        self.raw = (0..buffers).map(create).collect::<io::Result<_>>()?;
        Ok(())
    }

    /// A record that goes to the file at once: what must stand before all others.
    pub(crate) fn head(&mut self, record: &[u8]) -> io::Result<()> {
        self.writer.record(record)
    }

    pub(crate) fn add(&mut self, (at, record): Timed) {
        self.push(at, TimelineItem::Record(record));
    }

    pub(crate) fn add_all(&mut self, records: Vec<Timed>) {
        records.into_iter().for_each(|record| self.add(record));
    }

    /// Trace that was taken out of a buffer.
    pub(crate) fn add_aux(&mut self, at: Ns, chunk: AuxChunk, bytes: Rc<[u8]>) {
        self.push(at, TimelineItem::Aux(chunk, bytes));
    }

    fn push(&mut self, at: Ns, item: TimelineItem) {
        self.count += 1;
        self.pending.insert((at, self.count), item);
    }

    /// Writes all that is before the horizon.
    pub(crate) fn release(&mut self, horizon: Ns) -> io::Result<()> {
        while let Some(first) = self.pending.first_entry().filter(|first| first.key().0 < horizon) {
            let is_aux = match first.remove() {
                TimelineItem::Record(record) => {
                    self.writer.record(&record)?;
                    false
                }
                TimelineItem::Aux(chunk, bytes) => {
                    self.writer.aux(&chunk, &[&bytes])?;
                    if let Some(raw) = self.raw.get_mut(chunk.index as usize) {
                        raw.write_all(&bytes)?;
                    }
                    true
                }
            };
            self.since_round += 1;
            if is_aux && self.since_round > ROUND_RECORDS || self.since_round > ROUND_RECORDS_MAX {
                self.writer.finished_round()?;
                self.since_round = 0;
            }
        }
        Ok(())
    }

    /// Writes the rest and completes the file.  Returns its size.
    pub(crate) fn finish(mut self, features: &Features) -> io::Result<u64> {
        self.release(Ns::MAX)?;
        self.writer.finished_round()?;
        self.raw.iter_mut().try_for_each(Write::flush)?;
        let out = self.writer.finish(features)?;
        Ok(out.get_ref().metadata()?.len())
    }
}
