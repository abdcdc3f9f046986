//! When something happens in a thread, by both of its clocks.

use model::{AuxOffset, BranchEvent, EventTime};

use crate::off_cpu::OffCpuClock;
use crate::total::RunningTotal;

/// A moment in a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadTime {
    pub(crate) time: EventTime,
    /// How long the thread has been off its CPU by then.
    pub(crate) off_cpu_ns: u64,
}

impl ThreadTime {
    /// What began at `begun` and ends now took.
    #[inline(always)]
    pub(crate) fn since(&self, begun: &Self) -> RunningTotal {
        RunningTotal {
            count: 1,
            sum_ns: self.time.point.since(begun.time.point),
            off_cpu_ns: self.off_cpu_ns.saturating_sub(begun.off_cpu_ns),
            error_ns: self.time.error_since_ns(&begun.time),
        }
    }
}

/// How far a thread has come.
pub(crate) struct ThreadClock<'a> {
    /// Time and AUX packet of the current event; the time after it, if it is a gap.
    pub(crate) now: EventTime,
    pub(crate) at: AuxOffset,
    pub(crate) off_cpu: OffCpuClock<'a>,
}

impl<'a> ThreadClock<'a> {
    /// Before the first event.
    pub(crate) fn new(off_cpu: OffCpuClock<'a>) -> Self {
        Self { now: EventTime::default(), at: AuxOffset(0), off_cpu }
    }

    /// Of the current event.
    #[inline(always)]
    pub(crate) fn time(&self) -> ThreadTime {
        ThreadTime { time: self.now, off_cpu_ns: self.off_cpu.total_ns() }
    }

    /// It is the time of this event, of user code.
    #[inline(always)]
    pub(crate) fn reach(&mut self, branch: &BranchEvent) {
        (self.now, self.at) = (branch.time, branch.at);
        self.off_cpu.pass(branch.time);
    }

    /// It is the time of this event, of kernel code.
    pub(crate) fn reach_in_kernel(&mut self, branch: &BranchEvent) {
        self.off_cpu.pass_in_kernel(branch.time);
        (self.now, self.at) = (branch.time, branch.at);
    }
}
