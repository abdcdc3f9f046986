//! The events of a recording: the trace, and the sideband on a dummy event of its own.
//!
//! The sideband is not on the trace's event, which the kernel disables when its buffer is full: a thread that
//! is switched out then, or maps a file, is recorded all the same.

use model::{AuxOwner, Tid};
use perfdata::write::{Attr, PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE};

use crate::plan::{Layout, Plan};
use crate::sys::{EventFd, Scope};

/// The trace's event is the first in the file, the sideband's the second.
pub(crate) const TRACE: usize = 0;
/// See [`TRACE`].
pub(crate) const SIDEBAND: usize = 1;

/// A buffer of trace is to be read when this part of it is full: early enough to be read before all of it is,
/// seldom enough to cost nothing.
const WATERMARK_SHARE: u64 = 4;
/// The part for a buffer that is of two regions whatever the watermark ([`KernelCan::regions_by_watermark`]):
/// the driver puts its interrupt at the end of the region in front of the one that the watermark is in
/// (`pt_buffer_reset_markers`), and in front of the first half there is none but the last, where all is full
/// already.
const WATERMARK_SHARE_OF_HALVES: u64 = 2;

/// What the kernel's perf can do that is younger than Intel PT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCan {
    /// Build ids in MMAP2 (5.12).
    pub build_ids: bool,
    /// Events that threads inherit and processes do not (5.13).
    pub inherit_by_threads: bool,
}

impl KernelCan {
    /// Regions of a buffer are as large as its watermark (`rb_alloc_aux`): since 5.13, as
    /// [`Self::inherit_by_threads`].
    const fn regions_by_watermark(self) -> bool {
        self.inherit_by_threads
    }

    /// Tries, on this thread.
    #[must_use]
    pub fn probe() -> Self {
        let opens = |flags| {
            let flags = flags | Attr::DISABLED | Attr::EXCLUDE_KERNEL | Attr::EXCLUDE_HV;
            EventFd::open(&dummy(flags), Scope::Thread(Tid(0))).is_ok()
        };
        Self {
            build_ids: opens(Attr::MMAP | Attr::MMAP2 | Attr::BUILD_ID),
            inherit_by_threads: opens(Attr::INHERIT | Attr::INHERIT_THREAD),
        }
    }
}

/// The two attrs of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attrs {
    pub(crate) trace: Attr,
    pub(crate) sideband: Attr,
}

/// What inherits the events of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heirs {
    Nobody,
    /// The threads that it creates.
    Threads,
    /// The processes, too.
    Processes,
}

/// What the attrs depend on, but for the plan and the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    /// The PMU's number.
    pub(crate) pmu: u32,
    /// Its config.
    pub(crate) config: u64,
    /// Which threads that are born meanwhile inherit the events.
    pub(crate) heirs: Heirs,
    /// Begin when the program is executed.
    pub(crate) on_exec: bool,
}

impl Attrs {
    pub(crate) fn new(purpose: Purpose, plan: &Plan, can: KernelCan) -> Self {
        let given = |on: bool, flag: u64| if on { flag } else { 0 };
        let inherit = match plan.layout {
            Layout::TasksByCpu => match purpose.heirs {
                Heirs::Nobody => 0,
                Heirs::Threads => Attr::INHERIT | given(can.inherit_by_threads, Attr::INHERIT_THREAD),
                Heirs::Processes => Attr::INHERIT,
            },
            Layout::Threads | Layout::WholeCpus => 0,
        };
        let user = Attr::DISABLED | Attr::EXCLUDE_KERNEL | Attr::EXCLUDE_HV | inherit;
        let names = Attr::COMM | Attr::COMM_EXEC | Attr::TASK;
        let mappings = Attr::MMAP | Attr::MMAP2 | given(can.build_ids, Attr::BUILD_ID);
        Self {
            trace: Attr {
                event_type: purpose.pmu,
                config: purpose.config,
                flags: user | given(purpose.on_exec, Attr::ENABLE_ON_EXEC),
                aux_watermark: watermark(plan, can),
            },
            sideband: dummy(user | names | mappings | Attr::CONTEXT_SWITCH),
        }
    }
}

/// `aux_watermark` of a buffer.
pub(crate) fn watermark(plan: &Plan, can: KernelCan) -> u32 {
    let share = if can.regions_by_watermark() { WATERMARK_SHARE } else { WATERMARK_SHARE_OF_HALVES };
    u32::try_from(plan.trace_bytes / share).unwrap_or(u32::MAX)
}

/// An event that counts nothing, for its records.
pub(crate) fn dummy(flags: u64) -> Attr {
    Attr { event_type: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_DUMMY, flags, aux_watermark: 0 }
}

/// The open events of one buffer.
#[derive(Debug)]
pub(crate) struct BufferEvents {
    /// perf's number of the buffer.
    pub(crate) index: u32,
    /// The thread or CPU with its trace in it.
    pub(crate) owner: AuxOwner,
    /// Those of the trace; the first one has the buffer.
    pub(crate) trace: Vec<EventFd>,
    /// Those of the sideband, with output into it.
    pub(crate) sideband: Vec<EventFd>,
}

impl BufferEvents {
    /// Starts the trace, or goes on with it.  An event of an ended thread cannot, and need not.
    pub(crate) fn enable_trace(&self) {
        self.trace.iter().for_each(|event| drop(event.enable()));
    }

    /// Starts to record sideband.
    pub(crate) fn enable_sideband(&self) {
        self.sideband.iter().for_each(|event| drop(event.enable()));
    }

    /// Stops the trace.
    pub(crate) fn disable_trace(&self) {
        self.trace.iter().for_each(|event| drop(event.disable()));
    }

    /// Stops the sideband.
    pub(crate) fn disable_sideband(&self) {
        self.sideband.iter().for_each(|event| drop(event.disable()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs(layout: Layout, heirs: Heirs, can: KernelCan) -> Attrs {
        let plan = Plan {
            layout,
            buffers: 1,
            watched: 0,
            trace_bytes: 1 << 20,
            records_bytes: 1 << 16,
            events: 2,
            sized: false,
        };
        Attrs::new(Purpose { pmu: 8, config: 0x2401, heirs, on_exec: false }, &plan, can)
    }

    const ALL: KernelCan = KernelCan { build_ids: true, inherit_by_threads: true };

    #[test]
    fn only_events_of_tasks_by_cpu_are_inherited() {
        let inherits = |attrs: Attrs| {
            let flags = [attrs.trace.flags, attrs.sideband.flags];
            flags.map(|flags| (flags & Attr::INHERIT != 0, flags & Attr::INHERIT_THREAD != 0))
        };
        let by_cpu = Layout::TasksByCpu;
        assert_eq!(inherits(attrs(by_cpu, Heirs::Threads, ALL)), [(true, true); 2]);
        assert_eq!(inherits(attrs(by_cpu, Heirs::Processes, ALL)), [(true, false); 2]);
        assert_eq!(inherits(attrs(by_cpu, Heirs::Threads, KernelCan::default())), [(true, false); 2]);
        assert_eq!(inherits(attrs(by_cpu, Heirs::Nobody, ALL)), [(false, false); 2]);
        assert_eq!(inherits(attrs(Layout::Threads, Heirs::Threads, ALL)), [(false, false); 2]);
    }

    #[test]
    fn sideband_is_not_on_the_trace() {
        let Attrs { trace, sideband } = attrs(Layout::Threads, Heirs::Threads, ALL);
        let tells =
            Attr::MMAP | Attr::MMAP2 | Attr::COMM | Attr::TASK | Attr::CONTEXT_SWITCH | Attr::BUILD_ID;
        assert_eq!((trace.flags & tells, sideband.flags & tells), (0, tells));
        assert_eq!((trace.aux_watermark, sideband.aux_watermark), (1 << 18, 0));
        let older = attrs(Layout::Threads, Heirs::Threads, KernelCan::default());
        assert_eq!(older.trace.aux_watermark, 1 << 19, "an interrupt between the two halves");
        assert_eq!(trace.flags & sideband.flags & Attr::EXCLUDE_KERNEL, Attr::EXCLUDE_KERNEL);
    }
}
