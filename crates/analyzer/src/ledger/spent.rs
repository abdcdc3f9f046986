//! What time was spent on.

use model::{OffCpuSplit, Schedule, Tid};

use crate::place::ChildKind;
use crate::tree::{Step, off_cpu_spans};

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spent {
    /// Code of the program.
    Running,
    /// System calls, on the CPU.
    Kernel,
    /// Interrupts and faults, on the CPU.
    Interrupts,
    /// Off the CPU, which it gave up.
    Blocked,
    /// Woken up, and waiting for a CPU; where nothing tells of wake-ups that is blocked.
    Runnable,
    /// Off the CPU, which it was taken from.
    Preempted,
    /// Off the CPU, and nothing says why.
    OffCpu,
}

impl Spent {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Kernel,
        Self::Interrupts,
        Self::Blocked,
        Self::Runnable,
        Self::Preempted,
        Self::OffCpu,
    ];

    /// Name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Kernel => "kernel",
            Self::Interrupts => "interrupts and faults",
            Self::Blocked => "blocked",
            Self::Runnable => "runnable",
            Self::Preempted => "preempted",
            Self::OffCpu => "off the CPU",
        }
    }
}

/// Time by what it was spent on, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([u64; Spent::ALL.len()]);

impl Parts {
    /// A node's own time in a recording.
    ///
    /// Time off the CPU is that of the analysis, which knows on which side of an event a switch was; what it
    /// did there the switch records and the scheduler's events say.
    #[must_use]
    pub fn of(step: &Step<'_>, tid: Tid, schedule: &Schedule) -> Self {
        let mut parts = Self::on_cpu(step);
        let off_cpu_ns = step.own.off_cpu_ns.unwrap_or_default();
        if off_cpu_ns == 0 {
            return parts;
        }
        if !schedule.has_switches() {
            *parts.of_kind(Spent::OffCpu) = off_cpu_ns;
            return parts;
        }
        let mut split = OffCpuSplit::default();
        off_cpu_spans(schedule, tid, step.node.start, step.node.end())
            .for_each(|span| split.add(span.split()));
        let rest_ns = parts.add_split(split, off_cpu_ns);
        *parts.of_kind(Spent::Blocked) += rest_ns;
        parts
    }

    /// A call's time off the CPU, where `split` says as far as is known what it did there.
    pub(crate) fn off_cpu(split: OffCpuSplit, off_cpu_ns: u64) -> Self {
        let mut parts = Self::default();
        let rest_ns = parts.add_split(split, off_cpu_ns);
        let blocked_ns = split.blocked_ns.min(rest_ns);
        *parts.of_kind(Spent::Blocked) = blocked_ns;
        *parts.of_kind(Spent::OffCpu) = rest_ns - blocked_ns;
        parts
    }

    /// A node's own time on the CPU; all of its own time, where it is not known how much that is.
    pub(crate) fn on_cpu(step: &Step<'_>) -> Self {
        Self::at_work(step, step.own.on_cpu_ns().unwrap_or(step.own.sum_ns))
    }

    /// All of a node's own time, as if it had been on the CPU.
    pub(crate) fn whole(step: &Step<'_>) -> Self {
        Self::at_work(step, step.own.sum_ns)
    }

    fn at_work(step: &Step<'_>, ns: u64) -> Self {
        let mut parts = Self::default();
        *parts.of_kind(Self::spent_at_work(step.node.kind)) = ns;
        parts
    }

    /// What a node's own time on the CPU is spent on.
    const fn spent_at_work(kind: ChildKind) -> Spent {
        match kind {
            ChildKind::Syscall => Spent::Kernel,
            ChildKind::Interrupt => Spent::Interrupts,
            _ => Spent::Running,
        }
    }

    /// Adds the part of the time off the CPU that was not asleep; returns the rest.
    fn add_split(&mut self, split: OffCpuSplit, off_cpu_ns: u64) -> u64 {
        let preempted_ns = split.preempted_ns.min(off_cpu_ns);
        let runnable_ns = split.runnable_ns.min(off_cpu_ns - preempted_ns);
        *self.of_kind(Spent::Preempted) = preempted_ns;
        *self.of_kind(Spent::Runnable) = runnable_ns;
        off_cpu_ns - preempted_ns - runnable_ns
    }

    /// Turns errors of all below a node into those of all that is in it; `error_ns`: that of its total.
    pub(super) fn enclose(&mut self, kind: ChildKind, error_ns: u64) {
        let stays_ns = self.get(Spent::Kernel).saturating_add(self.get(Spent::Interrupts));
        let at_work = Self::spent_at_work(kind);
        *self.of_kind(at_work) = match at_work {
            Spent::Running => error_ns.saturating_add(stays_ns),
            _ => error_ns,
        };
        for off_cpu in [Spent::Blocked, Spent::Runnable, Spent::Preempted, Spent::OffCpu] {
            *self.of_kind(off_cpu) = error_ns;
        }
    }

    /// The part of stays in the kernel, on the CPU.
    pub(super) fn of_stays(self) -> Self {
        let mut stays = Self::default();
        for spent in [Spent::Kernel, Spent::Interrupts] {
            *stays.of_kind(spent) = self.get(spent);
        }
        stays
    }

    fn of_kind(&mut self, spent: Spent) -> &mut u64 {
        let [running, kernel, interrupts, blocked, runnable, preempted, off_cpu] = &mut self.0;
        match spent {
            Spent::Running => running,
            Spent::Kernel => kernel,
            Spent::Interrupts => interrupts,
            Spent::Blocked => blocked,
            Spent::Runnable => runnable,
            Spent::Preempted => preempted,
            Spent::OffCpu => off_cpu,
        }
    }

    /// Time spent on one thing.
    #[must_use]
    pub fn get(mut self, spent: Spent) -> u64 {
        *self.of_kind(spent)
    }

    /// All of it.
    #[must_use]
    pub fn total(self) -> u64 {
        self.0.iter().copied().fold(0, u64::saturating_add)
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(more);
        }
    }
}
