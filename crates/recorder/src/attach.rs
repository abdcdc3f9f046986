//! Opens the events of all threads and maps their buffers, while threads come and go.
//!
//! A thread that is created meanwhile has inherited some of the events of its creator: those that were open
//! by then. So threads are listed again until there are no new ones, and each new one gets the events that it
//! lacks: a second event of the trace on the same thread and CPU the kernel refuses (EBUSY). The sideband has
//! no such rule, but is opened before the trace: a thread that has inherited the trace has inherited the
//! sideband.
//!
//! Where only some CPUs are traced there is sideband of all the others, too: a thread that runs there must
//! not look as if it slept. A thread that is created meanwhile may have that twice; its records are doubled
//! then, and say the same.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;

use model::{AuxOwner, Cpu, Tid};

use crate::cpu_list::CpuList;
use crate::error::RecordError;
use crate::events::{Attrs, BufferEvents, KernelCan, watermark};
use crate::plan::Plan;
use crate::procfs::Proc;
use crate::sys::{EventFd, Ring, Scope};
use crate::workers::Workers;

/// A buffer and its events.
#[derive(Debug)]
pub(crate) struct OpenBuffer {
    pub(crate) events: BufferEvents,
    pub(crate) ring: Ring,
    /// Records that were read before there is a file.
    pub(crate) early: Vec<u8>,
}

impl OpenBuffer {
    /// Makes room for more records.
    pub(crate) fn read_early(&mut self) {
        self.ring.take_records(&mut self.early);
    }
}

/// On which CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Trace and sideband.
    pub(crate) traced: CpuList,
    /// Sideband only.
    pub(crate) watched: CpuList,
}

impl Places {
    /// A buffer in the making for each CPU: those with sideband only, and the others.
    fn halves(&self) -> [Vec<Half>; 2] {
        let traced: Vec<Half> =
            (0..).zip(&self.traced.0).map(|(index, cpu)| Half::new(index, AuxOwner::Cpu(*cpu))).collect();
        let next = traced.len() as u32;
        let watched = (next..).zip(&self.watched.0);
        let watched = watched.map(|(index, cpu)| Half::of_sideband(index, AuxOwner::Cpu(*cpu)));
        [watched.collect(), traced]
    }
}

/// How buffers are opened.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    pub(crate) attrs: Attrs,
    pub(crate) can: KernelCan,
    pub(crate) plan: Plan,
    /// The trace of each ring is overwritten for ever.
    pub(crate) overwrites: bool,
    /// IP filter, in the kernel's syntax.
    pub(crate) filter: Option<CString>,
    pub(crate) proc: Proc,
    pub(crate) workers: Workers,
}

/// A server may create threads for ever; those that come later are newborns.
const LISTS_MAX: usize = 4;

/// What an event of the trace on a thread came to.
enum Traced {
    Yes,
    /// The thread has ended.
    Gone,
    /// The thread has one already.
    Already,
}

impl Opener {
    /// This opener with the plan for threads that are born later.
    pub(crate) fn for_newborns(&self) -> Self {
        let mut newborn = Self { plan: self.plan.for_newborns(), ..self.clone() };
        newborn.attrs.trace.aux_watermark = watermark(&newborn.plan, self.can);
        newborn
    }

    /// One buffer for each CPU, for these threads.
    ///
    /// # Errors
    /// The kernel refuses; another tracer is there.
    pub(crate) fn tasks_by_cpu(
        &self,
        places: &Places,
        list: &mut dyn FnMut() -> Vec<Tid>,
    ) -> Result<Vec<OpenBuffer>, RecordError> {
        let mut known: BTreeSet<Tid> = BTreeSet::new();
        let [mut watched, mut halves] = places.halves();
        for lists in 1_usize.. {
            let first = known.is_empty();
            let new: Vec<Tid> = list().into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            let sum = |halves: &[Half], of: fn(&Half) -> usize| halves.iter().map(of).sum::<usize>();
            let count =
                |halves: &[Half]| (sum(halves, |half| half.trace.len()), sum(halves, |half| half.gone));
            let before = count(&halves);
            for halves in [&mut watched, &mut halves] {
                let buffers = halves.len();
                let first_index = halves.first().map_or(0, |half| half.index);
                self.workers.each(halves, |half| match half.owner {
                    AuxOwner::Cpu(cpu) => {
                        let tids = starting_at(&new, half.index - first_index, buffers);
                        self.open_on_cpu(half, cpu, tids, first)
                    }
                    AuxOwner::Thread(_) => Ok(()),
                })?;
            }
            let (opened, gone) = count(&halves);
            // All new ones have inherited everything, and so will those that are yet to come. One that has
            // gone may have had nothing, and so has what it created. But a server may create such for ever.
            if opened == before.0 && (gone == before.1 || lists >= LISTS_MAX) {
                break;
            }
        }
        // A CPU without a buffer has no thread: all have ended.
        let mut buffers: Vec<OpenBuffer> = halves.into_iter().filter_map(Half::whole).collect();
        if buffers.is_empty() {
            return Err(RecordError::AllGone);
        }
        buffers.extend(watched.into_iter().filter_map(Half::whole));
        Ok(buffers)
    }

    fn open_on_cpu(
        &self,
        half: &mut Half,
        cpu: Cpu,
        tids: impl Iterator<Item = Tid>,
        first: bool,
    ) -> Result<(), RecordError> {
        for tid in tids {
            let scope = Scope::ThreadOnCpu(tid, cpu);
            match self.add(half, scope)? {
                Traced::Already if first => return Err(self.busy(scope)),
                Traced::Gone => half.gone += 1,
                Traced::Yes | Traced::Already => (),
            }
        }
        Ok(())
    }

    /// One buffer for each thread.
    ///
    /// # Errors
    /// The kernel refuses; another tracer is there.
    pub(crate) fn threads(&self, list: &mut dyn FnMut() -> Vec<Tid>) -> Result<Vec<OpenBuffer>, RecordError> {
        let mut known: BTreeSet<Tid> = BTreeSet::new();
        let mut buffers = Vec::new();
        for _ in 0..LISTS_MAX {
            let mut new: Vec<Half> = Vec::new();
            for tid in list().into_iter().filter(|tid| known.insert(*tid)) {
                let index = (buffers.len() + new.len()) as u32;
                new.push(Half::new(index, AuxOwner::Thread(tid)));
            }
            if new.is_empty() {
                break;
            }
            self.workers.each(&mut new, |half| self.open_once(half))?;
            buffers.extend(new.into_iter().filter_map(Half::whole));
        }
        // Threads that have ended leave no holes in the numbers.
        (0..).zip(&mut buffers).for_each(|(index, buffer)| buffer.events.index = index);
        if buffers.is_empty() { Err(RecordError::AllGone) } else { Ok(buffers) }
    }

    /// One buffer for a thread; `None` if it has ended.
    ///
    /// # Errors
    /// The kernel refuses; another tracer is there.
    pub(crate) fn thread(&self, index: u32, tid: Tid) -> Result<Option<OpenBuffer>, RecordError> {
        let mut half = Half::new(index, AuxOwner::Thread(tid));
        self.open_once(&mut half)?;
        Ok(half.whole())
    }

    /// One buffer for each CPU, for all that runs there.
    ///
    /// # Errors
    /// The kernel refuses; another tracer is there.
    pub(crate) fn whole_cpus(&self, places: &Places) -> Result<Vec<OpenBuffer>, RecordError> {
        let [watched, mut halves] = places.halves();
        halves.extend(watched);
        self.workers.each(&mut halves, |half| self.open_once(half))?;
        Ok(halves.into_iter().filter_map(Half::whole).collect())
    }

    /// The one event of a buffer that is not shared.
    fn open_once(&self, half: &mut Half) -> Result<(), RecordError> {
        let scope = match half.owner {
            AuxOwner::Cpu(cpu) => Scope::Cpu(cpu),
            AuxOwner::Thread(tid) => Scope::Thread(tid),
        };
        match self.add(half, scope)? {
            Traced::Yes | Traced::Gone => Ok(()),
            Traced::Already => Err(self.busy(scope)),
        }
    }

    fn busy(&self, scope: Scope) -> RecordError {
        RecordError::open(named(scope), &io::Error::from_raw_os_error(libc::EBUSY), &self.proc)
    }

    /// Opens what a buffer is of in one scope, with output into it.  The first event maps it.
    fn add(&self, half: &mut Half, scope: Scope) -> Result<Traced, RecordError> {
        let refused = |error: &io::Error| RecordError::open(named(scope), error, &self.proc);
        let sideband = match EventFd::open(&self.attrs.sideband, scope) {
            Ok(event) => event,
            Err(error) if gone(&error) => return Ok(Traced::Gone),
            Err(error) => return Err(refused(&error)),
        };
        if half.sideband_only {
            match half.sideband.first() {
                Some(leader) => sideband.output_to(leader).map_err(|error| refused(&error))?,
                None => half.ring = Some(self.map(&sideband, 0)?),
            }
            half.sideband.push(sideband);
            return Ok(Traced::Yes);
        }
        let trace = match EventFd::open(&self.attrs.trace, scope) {
            Ok(event) => event,
            Err(error) if gone(&error) => return Ok(Traced::Gone),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(Traced::Already),
            Err(error) => return Err(refused(&error)),
        };
        if let Some(filter) = &self.filter {
            match trace.set_filter(filter) {
                Ok(()) => (),
                Err(error) if gone(&error) => return Ok(Traced::Gone),
                Err(error) => {
                    let filter = filter.to_string_lossy().into_owned();
                    return Err(RecordError::Filter { filter, errno: error.raw_os_error().unwrap_or(0) });
                }
            }
        }
        match half.trace.first() {
            Some(leader) => trace.output_to(leader).map_err(|error| refused(&error))?,
            None => half.ring = Some(self.map(&trace, self.plan.trace_bytes)?),
        }
        let leader = half.trace.first().unwrap_or(&trace);
        sideband.output_to(leader).map_err(|error| refused(&error))?;
        half.trace.push(trace);
        half.sideband.push(sideband);
        Ok(Traced::Yes)
    }

    fn map(&self, event: &EventFd, trace_bytes: u64) -> Result<Ring, RecordError> {
        let records_bytes = self.plan.records_bytes as usize;
        let ring = Ring::map(event, records_bytes, trace_bytes as usize, self.overwrites);
        ring.map_err(|error| RecordError::map(self.plan, &error, &self.proc))
    }
}

/// A buffer in the making.
#[derive(Debug)]
struct Half {
    index: u32,
    owner: AuxOwner,
    /// It gets no trace.
    sideband_only: bool,
    trace: Vec<EventFd>,
    sideband: Vec<EventFd>,
    ring: Option<Ring>,
    /// Threads that had ended before they could be opened.
    gone: usize,
}

impl Half {
    fn new(index: u32, owner: AuxOwner) -> Self {
        let (trace, sideband, ring) = (Vec::new(), Vec::new(), None);
        Self { index, owner, sideband_only: false, trace, sideband, ring, gone: 0 }
    }

    fn of_sideband(index: u32, owner: AuxOwner) -> Self {
        Self { sideband_only: true, ..Self::new(index, owner) }
    }

    fn whole(self) -> Option<OpenBuffer> {
        let Self { index, owner, trace, sideband, ring, .. } = self;
        let events = BufferEvents { index, owner, trace, sideband };
        ring.map(|ring| OpenBuffer { events, ring, early: Vec::new() })
    }
}

/// All threads; each of the `buffers` buffers begins with another one: to open an event locks what its thread
/// has, and workers that went the same way would wait for each other at every thread.
fn starting_at(tids: &[Tid], index: u32, buffers: usize) -> impl Iterator<Item = Tid> {
    let start = index as usize * tids.len() / buffers.max(1);
    tids.iter().cycle().skip(start).take(tids.len()).copied()
}

/// The thread has ended.
fn gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

fn named(scope: Scope) -> String {
    match scope {
        Scope::Thread(tid) => format!("thread {}", tid.0),
        Scope::ThreadOnCpu(tid, cpu) => format!("thread {} on CPU {}", tid.0, cpu.0),
        Scope::Cpu(cpu) => format!("CPU {}", cpu.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_buffer_begins_with_another_thread() {
        let tids: Vec<Tid> = (0..5).map(Tid).collect();
        let order = |index| starting_at(&tids, index, 3).map(|tid| tid.0).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0], [3, 4, 0, 1, 2]]);
        assert_eq!(starting_at(&[], 1, 3).count(), 0);
    }
}
