//! The file, shared by all threads that write to it.
//!
//! Each record, with its payload, goes to the file in one piece and at once: whenever we are killed, the file
//! is whole up to the last one. Nothing is buffered, because the writes are large.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Cpu, Ns, Tid};
use perfdata::write::{AuxChunk, EventId, Features, Record, SampleId, Writer};

use crate::pieces::Cutting;

/// A file that is written, or the pieces that it is cut into.
#[derive(Debug)]
pub(crate) struct Output {
    state: Mutex<OutputState>,
    failed: AtomicBool,
}

#[derive(Debug)]
struct OutputState {
    writer: Writer<File>,
    cutting: Option<Cutting>,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
}

impl Output {
    pub(crate) fn new(writer: Writer<File>, cutting: Option<Cutting>) -> Self {
        Self {
            state: Mutex::new(OutputState { writer, cutting, error: None }),
            failed: AtomicBool::new(false),
        }
    }

    /// Writes whole records.
    pub(crate) fn records(&self, records: &[u8]) {
        self.put(|OutputState { writer, cutting, .. }| {
            cutting.as_mut().map_or(Ok(()), |cutting| cutting.keep(records))?;
            writer.record(records)
        });
    }

    /// Writes trace. False: it is left out.
    pub(crate) fn aux(&self, chunk: &AuxChunk, payload: &[&[u8]]) -> bool {
        let mut has_room = false;
        self.put(|OutputState { writer, cutting, .. }| {
            let bytes = payload.iter().map(|piece| piece.len() as u64).sum();
            has_room = cutting.as_mut().is_none_or(|cutting| cutting.takes(bytes, writer.position()));
            if has_room { writer.aux(chunk, payload) } else { Ok(()) }
        });
        has_room && !self.failed()
    }

    /// The piece ends as soon as it has everything up to `time`.
    pub(crate) fn cut_after(&self, time: Ns) {
        if let Some(cutting) = &mut self.state().cutting {
            cutting.end_after(time);
        }
    }

    /// Writes that everything is there up to `time`. If it is time for that, the piece ends.
    pub(crate) fn complete_until(&self, time: Ns) {
        self.put(|OutputState { writer, cutting, .. }| {
            writer.record(&complete_until(time))?;
            match cutting {
                Some(cutting) if cutting.is_due(time) => cutting.cut(writer, time),
                _ => Ok(()),
            }
        });
    }

    /// The ids of the events of a thread's new buffer.
    pub(crate) fn add_ids(&self, tid: Tid, ids: &[(usize, EventId)]) {
        self.put(|OutputState { writer, cutting, .. }| {
            cutting.iter_mut().for_each(|cutting| cutting.add_ids(tid, ids));
            writer.add_ids(ids)
        });
    }

    /// Writes, unless that has failed before.
    fn put(&self, write: impl FnOnce(&mut OutputState) -> io::Result<()>) {
        let mut state = self.state();
        if state.error.is_none() {
            state.error = write(&mut state).err();
            self.failed.store(state.error.is_some(), Ordering::Relaxed);
        }
    }

    /// Nothing is written any more.
    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the file.  Returns its size.
    ///
    /// # Errors
    /// The first one, whenever it was.  The file stays as that of a killed recorder then: it may have more
    /// of one CPU than of another.
    pub(crate) fn finish(self, features: &Features) -> io::Result<u64> {
        let OutputState { writer, cutting, error } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = error {
            return Err(error);
        }
        let bytes = writer.finish(features)?.metadata()?.len();
        cutting.into_iter().for_each(|cutting| cutting.finish(bytes));
        Ok(bytes)
    }
}

/// The record that says up to when the file has everything.
pub(crate) fn complete_until(time: Ns) -> Vec<u8> {
    let mut record = Vec::new();
    let id = SampleId { tid: Tid(-1), cpu: Cpu(u32::MAX), time, ..SampleId::default() };
    Record::Complete.encode(&id, &mut record);
    record
}
