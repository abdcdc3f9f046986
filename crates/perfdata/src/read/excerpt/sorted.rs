//! The records of an excerpt's files, sorted by what becomes of them.

use std::collections::{BTreeMap, BTreeSet};

use model::{AuxOffset, AuxOwner, AuxRecord, Cpu, Ns, Sideband, SidebandRecord, Tid};

use super::{Excerpt, word};
use crate::read::buffers::{Buffers, Said, owner};
use crate::read::bytes;
use crate::read::listing::Listed;
use crate::read::sample_id::SampleFields;
use crate::record_types;

/// Bytes of `struct perf_event_header`.
const RECORD_HEADER_SIZE: usize = 8;

/// A record of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The number of its file.
    pub(super) source: usize,
    /// Offset in that file.
    pub(super) at: u64,
    /// Bytes, without the payload of AUXTRACE.
    pub(super) size: usize,
    /// Where in it the time of the trailer is, in bytes from its start; `None`: it has none.
    pub(super) time_at: Option<usize>,
}

/// A record from before the excerpt that says something of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    /// When, and of one time the place in the order of the file.
    order: (Option<Ns>, u64),
    cpu: Option<Cpu>,
    tid: Option<Tid>,
    item: Item,
    change: Change,
}

/// What it tells of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// What is mapped, or how a thread is called.
    State,
    /// A thread, or else a process, begins.
    Born {
        process: bool,
    },
    Died,
    Traced,
    Switch {
        out: bool,
    },
}

/// What is known of a thread before the excerpt begins: records, and where in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// The first record of its being traced on each CPU.
    traced: BTreeMap<Option<Cpu>, (u64, Item)>,
    /// The last switch record, and its CPU.
    switch: Option<(Option<Cpu>, (u64, Item))>,
}

impl Before {
    /// The records that say where the thread is: ITRACE_START, then the switch. Tracing of a thread starts
    /// once on each CPU of a recording by CPUs; only the start on the CPU of the last switch is taken, as any
    /// other would leave the thread running on a CPU that it has left.
    pub(super) fn records(&self) -> impl Iterator<Item = (Option<Cpu>, (u64, Item))> {
        let traced = self.traced.iter().map(|(cpu, traced)| (*cpu, *traced));
        let last = traced.max_by_key(|(_, (number, _))| *number);
        let traced = match self.switch {
            Some((cpu, (number, _))) if last.is_none_or(|(_, (last, _))| last < number) => {
                self.traced.get(&cpu).map(|traced| (cpu, *traced)).or(last)
            }
            _ => last,
        };
        traced.into_iter().chain(self.switch)
    }
}

/// The thread of a switch record, its CPU, and whether it left that.
pub(super) type SwitchKey = (Option<Tid>, Option<Cpu>, bool);

/// The records, sorted by what becomes of them.
#[derive(Default)]
pub(super) struct Sorted {
    /// The owners of buffers, by number and by the ids of events; they have no trace here.
    pub(super) buffers: Buffers<'static>,
    /// Written by the recorder, before anything happened.
    pub(super) own: Vec<Item>,
    /// From before the excerpt, but for switches, in the order of the file: that of time on each CPU, and
    /// not on all of them.
    pub(super) earlier: Vec<Earlier>,
    /// The last time that each thread came to each CPU, and left it.
    pub(super) switches: BTreeMap<SwitchKey, Earlier>,
    pub(super) inside: Vec<(Item, Kind)>,
    /// There is a record of the excerpt's time.
    has_begun: bool,
    /// Records from before.
    number: u64,
}

/// How things stood when the excerpt began.
#[derive(Default)]
pub(super) struct Start {
    /// What is mapped, and how threads are called, in the order of time.
    pub(super) state: Vec<Item>,
    pub(super) threads: BTreeMap<Tid, Before>,
    /// The last record on each CPU of a thread that left it.
    pub(super) left: BTreeMap<Cpu, Item>,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    AsItIs,
    Trace(AuxPayload),
    Aux(Said),
}

/// What an AUXTRACE record says: `size, offset, reference, idx, tid, cpu`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuxPayload {
    pub(super) buffer: u32,
    owner: AuxOwner,
    pub(super) size: u64,
    pub(super) offset: u64,
}

impl AuxPayload {
    const LEN: usize = 48;

    fn of(record: &[u8]) -> Option<Self> {
        let [size, offset, _, index_and_tid, cpu] = [8, 16, 24, 32, 40].map(|at| word(record, at));
        let owner = owner(cpu as u32, (index_and_tid >> 32) as u32);
        (record.len() >= Self::LEN).then_some(Self { buffer: index_and_tid as u32, owner, size, offset })
    }
}

impl Sorted {
    /// Adds the next record of a file, which has a number.
    pub(super) fn add(&mut self, (source, file): (usize, &[u8]), listed: &Listed, excerpt: &Excerpt) {
        let Listed { record_type, size, time_at, event_id, ref record } = *listed;
        let item = Item { source, at: record.file_offset, size, time_at };
        let bytes = || bytes::at(file, item.at, size as u64).unwrap_or_default();
        if record_type == record_types::ID_INDEX {
            let _ = self.buffers.add_ids(bytes().get(RECORD_HEADER_SIZE..).unwrap_or_default());
        }
        match record_type {
            // perf's marks of the order of reading, which is another one here.
            record_types::FINISHED_ROUND => (),
            record_types::AUXTRACE => {
                if let Some(payload) = AuxPayload::of(bytes()) {
                    self.buffers.buffer(payload.buffer, payload.owner);
                    self.inside.push((item, Kind::Trace(payload)));
                }
            }
            record_types::USER_TYPE_START.. if !self.has_begun => self.own.push(item),
            record_types::USER_TYPE_START.. => self.inside.push((item, Kind::AsItIs)),
            _ => self.add_of_kernel(item, event_id, record, excerpt),
        }
    }

    fn add_of_kernel(
        &mut self,
        item: Item,
        event_id: Option<u64>,
        record: &SidebandRecord,
        excerpt: &Excerpt,
    ) {
        if let Sideband::Aux { offset, size, flags } = record.body
            && !excerpt.is_of_copies
        {
            let &SidebandRecord { time, cpu, pid, tid, .. } = record;
            let by = SampleFields { pid, tid, time, id: event_id, cpu };
            let record = AuxRecord { offset: AuxOffset(offset), size, flags, time };
            self.inside.push((item, Kind::Aux(Said { record, by })));
            return;
        }
        match record.time {
            Some(time) if time > excerpt.to => (),
            Some(time) if time >= excerpt.from => {
                // How complete the file was meanwhile.
                if !matches!(record.body, Sideband::Other { record_type: record_types::LOST_SAMPLES }) {
                    self.has_begun = true;
                    self.inside.push((item, Kind::AsItIs));
                }
            }
            _ => self.add_earlier(item, record),
        }
    }

    /// The buffers of threads that died before the excerpt begins: those to which nothing was written since.
    /// Others may have their numbers by now, and buffers of their own.
    pub(super) fn buffers_of_dead(&self) -> BTreeSet<u32> {
        let mut died: BTreeMap<Tid, Option<Ns>> = BTreeMap::new();
        for &Earlier { order: (time, _), tid, change, .. } in &self.earlier {
            if let (Change::Died, Some(tid)) = (change, tid) {
                let last = died.entry(tid).or_default();
                *last = time.max(*last);
            }
        }
        let mut written: BTreeMap<u32, Option<Ns>> = BTreeMap::new();
        for (_, kind) in &self.inside {
            if let Kind::Aux(said) = kind
                && said.record.size > 0
                && let Some(buffer) = self.buffers.index_of(said)
            {
                let last = written.entry(buffer).or_default();
                *last = said.record.time.max(*last);
            }
        }
        let is_dead = |(buffer, last): &(u32, Option<Ns>)| match self.buffers.owner_of(*buffer) {
            Some(AuxOwner::Thread(tid)) => died.get(&tid).is_some_and(|died| last <= died),
            _ => false,
        };
        written.into_iter().filter(is_dead).map(|(buffer, _)| buffer).collect()
    }

    fn add_earlier(&mut self, item: Item, record: &SidebandRecord) {
        self.number += 1;
        match Earlier::of(item, self.number, record) {
            Some(switch @ Earlier { change: Change::Switch { out }, .. }) => {
                let last = self.switches.entry((switch.tid, switch.cpu, out)).or_insert(switch);
                *last = if last.order <= switch.order { switch } else { *last };
            }
            earlier => self.earlier.extend(earlier),
        }
    }
}

impl Earlier {
    /// `None`: it says nothing of the excerpt.
    fn of(item: Item, number: u64, record: &SidebandRecord) -> Option<Self> {
        let (tid, change) = match &record.body {
            Sideband::Mmap(_) | Sideband::Comm { .. } => (None, Change::State),
            Sideband::Fork { pid, parent_pid, tid, .. } => {
                (Some(*tid), Change::Born { process: pid != parent_pid })
            }
            Sideband::Exit { tid, .. } => (Some(*tid), Change::Died),
            Sideband::ItraceStart { tid, .. } => (Some(*tid), Change::Traced),
            Sideband::Switch { out, .. } | Sideband::SwitchCpuWide { out, .. } => {
                (record.tid.filter(|tid| tid.0 > 0), Change::Switch { out: *out })
            }
            _ => return None,
        };
        Some(Self { order: (record.time, number), cpu: record.cpu, tid, item, change })
    }
}

impl Start {
    pub(super) fn new(sorted: Vec<Earlier>, switches: BTreeMap<SwitchKey, Earlier>) -> Self {
        let mut earlier: Vec<Earlier> = sorted.into_iter().chain(switches.into_values()).collect();
        earlier.sort_by_key(|earlier| earlier.order);
        let mut start = Self::default();
        for (number, earlier) in (0..).zip(&earlier) {
            start.add(number, earlier);
        }
        start
    }

    fn add(&mut self, number: u64, &Earlier { cpu, tid, item, change, .. }: &Earlier) {
        match (change, tid) {
            (Change::State, _) => self.state.push(item),
            // Of a thread the first that is known is not its birth.
            (Change::Born { process }, Some(tid)) => {
                self.threads.remove(&tid);
                self.state.extend(process.then_some(item));
            }
            (Change::Died, Some(tid)) => _ = self.threads.remove(&tid),
            (Change::Traced, Some(tid)) => {
                self.threads.entry(tid).or_default().traced.entry(cpu).or_insert((number, item));
            }
            (Change::Switch { out }, tid) => {
                if let Some(cpu) = cpu.filter(|_| out) {
                    self.left.insert(cpu, item);
                }
                if let Some(tid) = tid {
                    self.threads.entry(tid).or_default().switch = Some((cpu, (number, item)));
                }
            }
            (Change::Born { .. } | Change::Died | Change::Traced, None) => (),
        }
    }
}
