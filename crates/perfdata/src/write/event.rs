//! The events of a recording (`perf_event_attr`) with their ids.

use super::le::Append;

/// `attr.type` of software events.
pub const PERF_TYPE_SOFTWARE: u32 = 1;
/// `attr.type` of tracepoints.
pub const PERF_TYPE_TRACEPOINT: u32 = 2;
/// `attr.config` of the software event that counts nothing and only carries sideband.
pub const PERF_COUNT_SW_DUMMY: u64 = 9;

/// Size of an attr in our files: PERF_ATTR_SIZE_VER7.  perf 6.1 refuses attrs larger than it knows.
pub const ATTR_SIZE: usize = 128;

/// In `sample_type` of all our events: what stands after every sideband record is then the same
/// ([`super::SampleId`]), and the CPU is always known.
pub(super) const SAMPLE_TYPE: u64 =
    sample::IP | sample::TID | sample::TIME | sample::CPU | sample::IDENTIFIER;

/// `read_format`: PERF_FORMAT_ID.
const READ_FORMAT: u64 = 1 << 2;

/// Bits of `attr.sample_type` (PERF_SAMPLE_*).
mod sample {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// The part of a `perf_event_attr` that differs between our events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// `type`: the PMU's number.
    pub event_type: u32,
    /// `config`.
    pub config: u64,
    /// Flag bits, see the constants; `sample_id_all` is always on.
    pub flags: u64,
    /// `aux_watermark`, bytes.
    pub aux_watermark: u32,
}

impl Attr {
    /// The event starts disabled.
    pub const DISABLED: u64 = 1 << 0;
    /// Children inherit the event.
    pub const INHERIT: u64 = 1 << 1;
    /// User code only.
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    /// No hypervisor.
    pub const EXCLUDE_HV: u64 = 1 << 6;
    /// `execve` enables the event.
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    /// Record executable mappings.
    pub const MMAP: u64 = 1 << 8;
    /// Record names.
    pub const COMM: u64 = 1 << 9;
    /// Record births and deaths.
    pub const TASK: u64 = 1 << 13;
    /// Mappings as MMAP2.
    pub const MMAP2: u64 = 1 << 23;
    /// Tell `execve` from a change of name.
    pub const COMM_EXEC: u64 = 1 << 24;
    /// Record context switches.
    pub const CONTEXT_SWITCH: u64 = 1 << 26;

    /// MMAP2 has the build id of the file (Linux 5.12).
    pub const BUILD_ID: u64 = 1 << 34;
    /// Threads inherit the event, and processes do not (Linux 5.13; with [`Self::INHERIT`]).
    pub const INHERIT_THREAD: u64 = 1 << 35;

    const SAMPLE_ID_ALL: u64 = 1 << 18;

    /// Only tracepoints have samples.
    const fn sample_type(&self) -> u64 {
        match self.event_type {
            PERF_TYPE_TRACEPOINT => SAMPLE_TYPE | sample::CALLCHAIN | sample::RAW,
            _ => SAMPLE_TYPE,
        }
    }

    /// The `perf_event_attr`, as it stands in the file and as the kernel takes it.
    #[must_use]
    pub fn bytes(&self) -> [u8; ATTR_SIZE] {
        let mut out = Vec::with_capacity(ATTR_SIZE);
        out.u32(self.event_type);
        out.u32(ATTR_SIZE as u32);
        out.u64(self.config);
        out.u64(1); // sample_period
        out.u64(self.sample_type());
        out.u64(READ_FORMAT);
        out.u64(self.flags | Self::SAMPLE_ID_ALL);
        // wakeup, bp_type, config1, config2, branch_sample_type, sample_regs_user, sample_stack_user,
        // clockid, sample_regs_intr
        out.extend_from_slice(&[0; 56]);
        out.u32(self.aux_watermark);
        let mut bytes = [0; ATTR_SIZE];
        bytes.iter_mut().zip(out).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// An event: its attr, and the CPUs or threads that it was opened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's name as perf prints it, e.g. `intel_pt//u`.
    pub name: String,
    /// What was opened.
    pub attr: Attr,
    /// One per CPU or thread that it was opened on.
    pub ids: Vec<EventId>,
}

/// Where one of an event's file descriptors was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The kernel's id: PERF_EVENT_IOC_ID.
    pub id: u64,
    /// perf's number of the ring buffer.
    pub index: u32,
    /// The CPU, or -1.
    pub cpu: i32,
    /// The thread, or -1.
    pub tid: i32,
}
