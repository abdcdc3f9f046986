//! What perf records beside the trace, from what happens in the simulation.

use model::{Avma, Cpu, FileOffset, Ns, Pid, Tid};
use perfdata::write::{
    Attr, Event, EventId, FileIdentity, PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE, Record, SampleId, pt_config,
};

use crate::maps::Mapping;
use crate::options::Options;

/// The `intel_pt` PMU's number.
pub(crate) const PMU_TYPE: u32 = 8;
const AUX_WATERMARK: u32 = 1 << 20;
const FIRST_ID: u64 = 1000;

const PROT_READ_EXEC: u32 = 5;
const MAP_PRIVATE: u32 = 2;

/// The buffer and the CPU of a running thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunsOn {
    pub(crate) buffer: u32,
    pub(crate) cpu: Cpu,
}

impl RunsOn {
    /// A thread that runs here, and those that do the same at the same time elsewhere.
    pub(crate) fn copies(self, tid: Tid, options: &Options) -> impl Iterator<Item = (Tid, Self)> + use<> {
        let cpus = u32::from(options.ncpu);
        (0..u32::from(options.copies)).map(move |copy| {
            let cpu = Cpu(self.cpu.0 + copy * cpus);
            (Tid(tid.0 + copy as i32), Self { buffer: self.buffer + copy, cpu })
        })
    }
}

/// Which of the recording's events writes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Pt,
    Tracking,
    CpuWideSwitches,
}

/// The records of threads that go on and off the CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switches {
    /// No records.
    None,
    /// SWITCH of the traced threads.
    Tasks,
    /// SWITCH_CPU_WIDE.
    Cpus,
}

/// Builds the records.  All that come out carry perf's time, by which they are to be sorted.
#[derive(Debug)]
pub(crate) struct Sideband {
    pid: Pid,
    per_cpu: bool,
    switches: Switches,
    /// Tid of each buffer's thread, if not `per_cpu`.
    tids: Vec<Tid>,
    buffers: u32,
}

/// A record and the time to sort it by.
pub(crate) type Timed = (Ns, Vec<u8>);

impl Sideband {
    pub(crate) fn new(pid: Pid, tids: Vec<Tid>, options: &Options) -> Self {
        let switches = match options.switch {
            0 => Switches::None,
            3 if options.per_cpu => Switches::Cpus,
            _ => Switches::Tasks,
        };
        Self {
            pid,
            per_cpu: options.per_cpu,
            switches,
            buffers: if options.per_cpu { u32::from(options.ncpu) } else { tids.len() as u32 },
            tids,
        }
    }

    pub(crate) fn buffers(&self) -> u32 {
        self.buffers
    }

    /// What AUXTRACE_INFO says of switches; perf needs them only to tell the threads of a CPU apart.
    pub(crate) fn have_sched_switch(&self) -> u64 {
        match self.switches {
            _ if !self.per_cpu => 0,
            Switches::None => 0,
            Switches::Tasks => 2,
            Switches::Cpus => 3,
        }
    }

    /// The events of the recording.
    pub(crate) fn events(&self, options: &Options) -> Vec<Event> {
        let pt_of =
            if options.traces_kernel() { Attr::EXCLUDE_HV } else { Attr::EXCLUDE_KERNEL | Attr::EXCLUDE_HV };
        let inherited = if self.per_cpu { Attr::INHERIT } else { 0 };
        let user = Attr::EXCLUDE_KERNEL | Attr::EXCLUDE_HV | inherited;
        let pt = Attr {
            event_type: PMU_TYPE,
            config: config(options),
            flags: pt_of | inherited | Attr::DISABLED,
            aux_watermark: AUX_WATERMARK,
        };
        let dummy = |flags| Attr {
            event_type: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_DUMMY,
            flags,
            aux_watermark: 0,
        };
        let tracking = user | Attr::MMAP | Attr::COMM | Attr::TASK | Attr::MMAP2 | Attr::COMM_EXEC;
        let own_switches = if self.switches == Switches::Tasks { Attr::CONTEXT_SWITCH } else { 0 };
        let event = |name: &str, source, attr| Event { name: name.to_owned(), attr, ids: self.ids(source) };
        let mut events = vec![
            event(
                if options.traces_kernel() { "intel_pt/cyc,mtc/" } else { "intel_pt/cyc,mtc/u" },
                Source::Pt,
                pt,
            ),
            event("dummy:u", Source::Tracking, dummy(tracking | own_switches)),
        ];
        if self.switches == Switches::Cpus {
            events.push(event("dummy:HG", Source::CpuWideSwitches, dummy(Attr::CONTEXT_SWITCH)));
        }
        events
    }

    fn ids(&self, source: Source) -> Vec<EventId> {
        let id = |index: u32| {
            let tid = self.tids.get(index as usize).map_or(-1, |tid| tid.0);
            let (cpu, tid) = if self.per_cpu { (index as i32, -1) } else { (-1, tid) };
            EventId { id: self.id(source, index), index, cpu, tid }
        };
        (0..self.buffers).map(id).collect()
    }

    fn id(&self, source: Source, buffer: u32) -> u64 {
        FIRST_ID + source as u64 * u64::from(self.buffers) + u64::from(buffer)
    }

    fn record(&self, record: &Record<'_>, source: Source, tid: Tid, ns: u64, place: RunsOn) -> Timed {
        let pid = self.pid_of(tid);
        let id = self.id(source, place.buffer);
        let mut bytes = vec![];
        record.encode(&SampleId { pid, tid, time: Ns(ns), cpu: place.cpu, id }, &mut bytes);
        (Ns(ns), bytes)
    }

    /// What perf makes up about a process that runs already: time 0, no event.
    fn synthesised(&self, record: &Record<'_>, tid: Tid) -> Timed {
        let mut bytes = vec![];
        record.encode(&SampleId { pid: self.pid, tid, ..SampleId::default() }, &mut bytes);
        (Ns(0), bytes)
    }

    /// The kernel's text: its first address stands in the place of a file offset, too.
    pub(crate) fn kernel_text(&self, (start, len): (Avma, u64)) -> Timed {
        let record = Record::KernelMmap { start: start.0, len, reference: start.0, path: KERNEL_TEXT };
        let mut bytes = vec![];
        record.encode(&SampleId::default(), &mut bytes);
        (Ns(0), bytes)
    }

    pub(crate) fn exec(&self, name: &str, ns: u64) -> Timed {
        let (pid, tid) = (self.pid, self.main());
        self.record(&Record::Comm { pid, tid, name, exec: true }, Source::Tracking, tid, ns, FIRST_PLACE)
    }

    /// A thread that was there before: its birth (but for the main thread) and its name.
    pub(crate) fn existing_thread(&self, tid: Tid, name: &str) -> Vec<Timed> {
        let comm = Record::Comm { pid: self.pid, tid, name, exec: false };
        let mut records = vec![];
        if tid != self.main() {
            records.push(self.synthesised(&self.born((self.pid, tid), self.main()), tid));
        }
        records.push(self.synthesised(&comm, tid));
        records
    }

    pub(crate) fn fork(&self, child: (Pid, Tid), parent: Tid, ns: u64, place: RunsOn) -> Timed {
        self.record(&self.born(child, parent), Source::Tracking, parent, ns, place)
    }

    fn born(&self, (pid, tid): (Pid, Tid), parent_tid: Tid) -> Record<'static> {
        Record::Fork { pid, tid, parent_pid: self.pid, parent_tid }
    }

    pub(crate) fn exit(&self, tid: Tid, ns: u64, place: RunsOn) -> Timed {
        let record = Record::Exit { pid: self.pid, tid, parent_pid: self.pid, parent_tid: self.main() };
        self.record(&record, Source::Tracking, tid, ns, place)
    }

    pub(crate) fn itrace_start(&self, tid: Tid, ns: u64, place: RunsOn) -> Timed {
        self.record(&Record::ItraceStart { pid: self.pid, tid }, Source::Pt, tid, ns, place)
    }

    pub(crate) fn aux(&self, stretch: (u64, u64), flags: u64, tid: Tid, ns: u64, place: RunsOn) -> Timed {
        let (offset, size) = stretch;
        self.record(&Record::Aux { offset, size, flags }, Source::Pt, tid, ns, place)
    }

    /// A file was mapped; `when`: by which thread, and when, unless it was there before.
    pub(crate) fn mmap(&self, mapping: &Mapping, when: Option<(Tid, u64, RunsOn)>) -> Timed {
        let (major, minor, inode) = mapping.inode();
        let tid = self.main();
        let Avma(start) = mapping.start();
        let record = Record::Mmap2 {
            pid: self.pid,
            tid: when.map_or(tid, |(tid, ..)| tid),
            start,
            len: mapping.len,
            file_offset: FileOffset(mapping.file_offset),
            identity: FileIdentity::Inode { major, minor, inode, generation: 0 },
            protection: PROT_READ_EXEC,
            flags: MAP_PRIVATE,
            path: &mapping.path,
        };
        match when {
            Some((tid, ns, place)) => self.record(&record, Source::Tracking, tid, ns, place),
            None => self.synthesised(&record, tid),
        }
    }

    /// The thread comes; before it the CPU was idle.
    pub(crate) fn switch_in(&self, tid: Tid, ns: u64, place: RunsOn) -> Vec<Timed> {
        match self.switches {
            Switches::None => vec![],
            Switches::Tasks => vec![self.task_switch(tid, false, false, ns, place)],
            Switches::Cpus => vec![
                self.cpu_switch(IDLE, true, false, tid, ns - IDLE_NS, place),
                self.cpu_switch(tid, false, false, IDLE, ns, place),
            ],
        }
    }

    /// The thread goes; after it the CPU is idle.
    pub(crate) fn switch_out(&self, tid: Tid, preempted: bool, ns: u64, place: RunsOn) -> Vec<Timed> {
        match self.switches {
            Switches::None => vec![],
            Switches::Tasks => vec![self.task_switch(tid, true, preempted, ns, place)],
            Switches::Cpus => vec![
                self.cpu_switch(tid, true, preempted, IDLE, ns, place),
                self.cpu_switch(IDLE, false, false, tid, ns + IDLE_NS, place),
            ],
        }
    }

    /// Whether the end of a thread is followed by a switch record: its own events are gone by then.
    pub(crate) fn switches_after_exit(&self) -> bool {
        self.switches == Switches::Cpus
    }

    fn task_switch(&self, tid: Tid, out: bool, preempted: bool, ns: u64, place: RunsOn) -> Timed {
        self.record(&Record::Switch { out, preempted }, Source::Tracking, tid, ns, place)
    }

    fn cpu_switch(
        &self,
        tid: Tid,
        out: bool,
        preempted: bool,
        other_tid: Tid,
        ns: u64,
        place: RunsOn,
    ) -> Timed {
        let other_pid = self.pid_of(other_tid);
        let record = Record::SwitchCpuWide { out, preempted, other_pid, other_tid };
        self.record(&record, Source::CpuWideSwitches, tid, ns, place)
    }

    fn pid_of(&self, tid: Tid) -> Pid {
        if tid == IDLE { Pid(IDLE.0) } else { self.pid }
    }

    fn main(&self) -> Tid {
        Tid(self.pid.0)
    }
}

/// How perf names the kernel's text: by the symbol that tells where it was put.
const KERNEL_TEXT: &str = "[kernel.kallsyms]_text";

/// The idle task.
const IDLE: Tid = Tid(0);
/// Between the records of the idle task and of the thread.
const IDLE_NS: u64 = 60;
/// Where the main thread starts.
pub(crate) const FIRST_PLACE: RunsOn = RunsOn { buffer: 0, cpu: Cpu(0) };

/// `config` of the `intel_pt` event.
fn config(options: &Options) -> u64 {
    use pt_config as pt;
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let mtc = pt::MTC | u64::from(options.mtc_period) << pt::MTC_PERIOD_SHIFT;
    pt::PT
        | pt::BRANCH
        | pt::TSC
        | flag(!options.no_cyc, pt::CYC)
        | flag(!options.no_mtc, mtc)
        | flag(options.noretcomp, pt::NORETCOMP)
        | u64::from(options.cyc_thresh) << pt::CYC_THRESH_SHIFT
        | u64::from(options.psb_period) << pt::PSB_PERIOD_SHIFT
}
