//! What perf records beside the trace: mappings, names, births, deaths, context switches.

use crate::address::{Avma, FileOffset};
use crate::clock::Ns;
use crate::ids::{Cpu, Pid, Tid};
use crate::sched::{Waiting, Waking};

/// GNU build id: up to 20 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(pub Vec<u8>);

impl std::fmt::Display for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// A file as the kernel numbers it: another inode on a device is another file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode {
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// Number of the inode there; never 0.
    pub number: u64,
}

/// A mapping of a file (or of anonymous memory, `//anon`) into a process, or of kernel text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mmap {
    /// Process; -1 for the kernel.
    pub pid: Pid,
    /// First address.
    pub start: Avma,
    /// Length in bytes.
    pub len: u64,
    /// Where in the file the mapping starts.
    pub file_offset: FileOffset,
    /// The file as the kernel names it, e.g. `/usr/bin/x`, `[vdso]`, `//anon`, `/tmp/y (deleted)`.
    pub path: String,
    /// Build id, if the record (or the header's table) has one.
    pub build_id: Option<BuildId>,
    /// Which file it was, in records that have no build id in its place. Its generation is left out: perf
    /// writes 0 for mappings older than the recording, and no system call tells it.
    pub inode: Option<Inode>,
    /// Can be executed (`PROT_EXEC`; MMAP records without the data bit).
    pub executable: bool,
    /// Kernel text or module (`PERF_RECORD_MISC_KERNEL`).
    pub kernel: bool,
}

/// The body of one sideband record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sideband {
    /// MMAP, MMAP2. In a box: there are far more switches than mappings, and a server's are kept by the
    /// million.
    Mmap(Box<Mmap>),
    /// COMM; `exec`: the name changed because the process executed a new program.
    Comm {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// New name.
        name: String,
        /// PERF_RECORD_MISC_COMM_EXEC.
        exec: bool,
    },
    /// FORK: thread `tid` of process `pid` was born from `parent_tid` of `parent_pid`.
    Fork {
        /// Process of the newborn.
        pid: Pid,
        /// The newborn.
        tid: Tid,
        /// Its creator's process.
        parent_pid: Pid,
        /// Its creator.
        parent_tid: Tid,
    },
    /// EXIT.
    Exit {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// SWITCH: the record's own thread went on or off its CPU.
    Switch {
        /// PERF_RECORD_MISC_SWITCH_OUT.
        out: bool,
        /// PERF_RECORD_MISC_SWITCH_OUT_PREEMPT.
        preempted: bool,
    },
    /// SWITCH_CPU_WIDE: as [`Sideband::Switch`]; the other party is the next (out) or previous (in) thread.
    SwitchCpuWide {
        /// PERF_RECORD_MISC_SWITCH_OUT.
        out: bool,
        /// PERF_RECORD_MISC_SWITCH_OUT_PREEMPT.
        preempted: bool,
        /// The other thread's process.
        other_pid: Pid,
        /// The other thread.
        other_tid: Tid,
    },
    /// A sample of the tracepoint `sched:sched_switch`: the CPU went from one thread to another.
    SchedSwitch {
        /// The thread that left.
        prev: Tid,
        /// It could have run on (state `R` or `R+`).
        preempted: bool,
        /// The thread that came.
        next: Tid,
        /// What the thread that left waits for, if the sample says something of it.
        waiting: Option<Box<Waiting>>,
    },
    /// A sample of the tracepoint `sched:sched_waking` or `sched:sched_wakeup`: a thread was woken.
    SchedWaking(Box<Waking>),
    /// ITRACE_START: tracing of this thread began.
    ItraceStart {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
    },
    /// The events of this thread were opened while it ran: ID_INDEX names them after the recording's first
    /// time.
    AttachedLate {
        /// Thread.
        tid: Tid,
    },
    /// LOST: records that did not fit their ring buffer.
    Lost {
        /// How many.
        count: u64,
    },
    /// AUX: new trace data (kept here for `dump`; [`crate::AuxRecord`] has it per buffer).
    Aux {
        /// Where in the buffer's stream.
        offset: u64,
        /// Bytes.
        size: u64,
        /// PERF_AUX_FLAG_*.
        flags: u64,
    },
    /// A record that we know by number only.
    Other {
        /// perf's record type.
        record_type: u32,
    },
}

impl From<Mmap> for Sideband {
    fn from(mmap: Mmap) -> Self {
        Self::Mmap(Box::new(mmap))
    }
}

/// A sideband record, with the thread and the time of its sample id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidebandRecord {
    /// When; `None` if the event that wrote it has no time (`sample_id_all` off), or the record was
    /// synthesised by perf with time 0 (then it holds from the start).
    pub time: Option<Ns>,
    /// On which CPU.
    pub cpu: Option<Cpu>,
    /// Current process.
    pub pid: Option<Pid>,
    /// Current thread.
    pub tid: Option<Tid>,
    /// Offset of the record in the file.
    pub file_offset: u64,
    /// What happened.
    pub body: Sideband,
}
