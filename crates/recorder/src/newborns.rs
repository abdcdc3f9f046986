//! Threads that are born while each thread has a buffer of its own: the kernel lets none inherit events with
//! such buffers, so they are opened when their creator's FORK record is read. What they did before is a gap,
//! `not yet attached`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use model::{AuxOwner, Ns, Pid, Tid};
use perfdata::write::EventId;

use crate::attach::{OpenBuffer, Opener};
use crate::buffer_records::TaskRecord;
use crate::build_ids::BuildIds;
use crate::events::{BufferEvents, SIDEBAND, TRACE};
use crate::output::Output;
use crate::snapshot::{BuildIdOf, Snapshot};

/// Opens events for newborn threads.
pub(crate) struct Newborns<'a> {
    opener: Opener,
    build_ids: BuildIds<'a>,
    /// Child processes, too.
    follow: bool,
    next_index: AtomicU32,
    /// Threads that live, and that the kernel does not let us trace.
    refused: AtomicU64,
    /// Threads that were dead by then.
    missed: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Threads that have events, or cannot have them.
    tids: BTreeSet<Tid>,
    /// When the kernel refused them.
    refused: BTreeMap<Tid, Ns>,
    /// What is in the file of each process.
    snapshots: BTreeMap<Pid, Snapshot>,
}

impl Known {
    /// A thread was born. One of its number that was refused before that has ended: nothing else tells of its
    /// end.
    fn born(&mut self, tid: Tid, time: Ns) {
        if self.refused.get(&tid).is_some_and(|refused| *refused < time) {
            self.refused.remove(&tid);
            self.tids.remove(&tid);
        }
    }
}

impl<'a> Newborns<'a> {
    /// `snapshots` and `buffers` are what there is so far.
    pub(crate) fn new(
        opener: &Opener,
        build_id: BuildIdOf<'a>,
        follow: bool,
        snapshots: &[Snapshot],
        buffers: &[OpenBuffer],
    ) -> Self {
        let tids = buffers.iter().filter_map(|buffer| match buffer.events.owner {
            AuxOwner::Thread(tid) => Some(tid),
            AuxOwner::Cpu(_) => None,
        });
        let known = Known {
            tids: tids.collect(),
            refused: BTreeMap::new(),
            snapshots: snapshots.iter().map(|snapshot| (snapshot.pid, snapshot.clone())).collect(),
        };
        let next_index = AtomicU32::new(buffers.len() as u32);
        let opener = opener.for_newborns();
        let (refused, missed) = (AtomicU64::new(0), AtomicU64::new(0));
        let build_ids = BuildIds::new(build_id);
        Self { opener, build_ids, follow, next_index, refused, missed, known: Mutex::new(known) }
    }

    /// How many could not be opened.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The thread has ended: its number may be given to another one.
    pub(crate) fn forget(&self, tid: Tid) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).tids.remove(&tid);
    }

    /// How many had ended before they were looked for.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Opens a thread that was born, and the others of its process that have no events yet.
    pub(crate) fn attend_birth(
        &self,
        born: TaskRecord,
        output: &Output,
        now: &dyn Fn() -> Ns,
    ) -> Vec<OpenBuffer> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).born(born.tid, born.time);
        let opened = self.attend(born.pid, output, now);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = self.follow || known.snapshots.contains_key(&born.pid);
        if is_ours && !known.tids.contains(&born.tid) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
        opened
    }

    /// Opens the threads of a process that have no events yet.
    pub(crate) fn attend(&self, pid: Pid, output: &Output, now: &dyn Fn() -> Ns) -> Vec<OpenBuffer> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.follow && !known.snapshots.contains_key(&pid) {
            return Vec::new();
        }
        let mut opened = Vec::new();
        loop {
            let tids = self.opener.proc.tasks(pid).unwrap_or_default();
            let new: Vec<Tid> = tids.into_iter().filter(|tid| known.tids.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let index = self.next_index.fetch_add(1, Ordering::Relaxed);
                match self.opener.thread(index, tid) {
                    Ok(Some(buffer)) => {
                        output.add_ids(tid, &event_ids(&buffer.events)); // before any record has them
                        buffer.events.enable_sideband();
                        buffer.events.enable_trace();
                        // From here on its EXIT is recorded; one that came before is not.
                        match self.opener.proc.lives(tid) {
                            true => opened.push(buffer),
                            false => drop(known.tids.remove(&tid)),
                        }
                    }
                    Ok(None) => drop(known.tids.remove(&tid)), // it has died
                    Err(_) => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        known.refused.insert(tid, now());
                    }
                }
            }
        }
        if !opened.is_empty() {
            self.tell_what_changed(pid, &mut known, output, now());
        }
        opened
    }

    /// What the thread mapped before it was watched.
    fn tell_what_changed(&self, pid: Pid, known: &mut Known, output: &Output, now: Ns) {
        let mut snapshot = Snapshot::of(&self.opener.proc, pid, &|path| self.build_ids.of(path));
        let before = known.snapshots.insert(pid, snapshot.clone()).unwrap_or_default();
        snapshot.threads.clear();
        snapshot.mappings.retain(|mapping| !before.mappings.contains(mapping));
        output.records(&snapshot.records(now));
    }
}

/// The ids of a buffer's events, with the number of the event in the file.
pub(crate) fn event_ids(events: &BufferEvents) -> Vec<(usize, EventId)> {
    let (cpu, tid) = match events.owner {
        AuxOwner::Cpu(cpu) => (i32::try_from(cpu.0).unwrap_or(-1), -1),
        AuxOwner::Thread(tid) => (-1, tid.0),
    };
    let index = events.index;
    let trace = events.trace.iter().map(|event| (TRACE, event));
    let sideband = events.sideband.iter().map(|event| (SIDEBAND, event));
    let ids = trace.chain(sideband);
    // A descriptor that is open has an id.
    ids.filter_map(|(number, event)| Some((number, EventId { id: event.id().ok()?, index, cpu, tid })))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_refused_is_a_new_thread_from_its_birth_on() {
        let mut known = Known { tids: [Tid(7), Tid(8)].into(), ..Known::default() };
        known.refused.insert(Tid(7), Ns(50));
        known.born(Tid(7), Ns(40));
        known.born(Tid(8), Ns(60));
        assert_eq!(known.tids, [Tid(7), Tid(8)].into(), "7 is who was refused, 8 has events");
        known.born(Tid(7), Ns(60));
        assert_eq!(known.tids, [Tid(8)].into());
    }
}
