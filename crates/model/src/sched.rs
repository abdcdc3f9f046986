//! What the scheduler says of its own decisions: the events that explain why a thread was off its CPU.
//!
//! ```text
//!   sched_switch (out)     sched_waking            sched_switch (in)
//!   ------|--------------------|-------------------------|------
//!         |      blocked       |        runnable         |
//!         |<- where it waits   |<- which thread ran, with which stack
//! ```
//! A recorder takes them as [`SchedEvent`]s; in a recording they are samples of the tracepoints of these
//! names.

use crate::address::Avma;
use crate::ids::{Cpu, Pid, Tid};
use crate::probed::WakerSeen;

/// An event of the scheduler, as eBPF programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedEvent {
    /// When, by `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// On which CPU.
    pub cpu: Cpu,
    /// The current process: of a switch, that of the thread that leaves.
    pub pid: Pid,
    /// The current thread.
    pub tid: Tid,
    /// The kernel's stack, innermost first; may be empty.
    pub stack: Vec<Avma>,
    /// Of a wake-up, the current thread's user code, innermost first; empty unless it was asked for.
    pub user_stack: Vec<Avma>,
    /// What happened.
    pub body: SchedBody,
}

/// What the scheduler did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedBody {
    /// `sched_switch`: the CPU goes from one thread to another.
    Switch {
        /// The thread that leaves.
        prev: SchedTask,
        /// Its state, as the tracepoint has it: 0 and 0x100 (taken off although it could run) are no sleep.
        state: u64,
        /// The system call that it is in.
        syscall: Option<u32>,
        /// The thread that comes.
        next: SchedTask,
    },
    /// `sched_waking`: the current thread wakes another one, or is interrupted by what does.
    Waking {
        /// The thread that is woken.
        woken: SchedTask,
        /// The CPU that it was on.
        target: Cpu,
        /// The current thread was interrupted: a timer or a device wakes.
        is_interrupt: bool,
        /// The current thread's name.
        waker_name: [u8; 16],
    },
}

/// A thread, as the scheduler's events name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedTask {
    /// Its number.
    pub tid: Tid,
    /// Its name, up to the first zero.
    pub name: [u8; 16],
    /// Its priority, as the kernel counts: 120 is nice 0.
    pub priority: i32,
}

/// What a thread does as it goes off its CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The system call that it is in.
    pub syscall: Option<u32>,
    /// The kernel's stack, innermost first; empty: not known.
    pub stack: Vec<Avma>,
}

/// A thread is woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waking {
    /// The thread that is woken.
    pub tid: Tid,
    /// The thread that ran when it was woken.
    pub waker: WakerSeen,
}
