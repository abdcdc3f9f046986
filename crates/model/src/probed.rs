//! Calls as probes at entries and returns see them: paired already, one by one, without what ran in between.

use crate::address::Avma;
use crate::clock::Ns;
use crate::ids::{Cpu, Pid, Tid};
use crate::probe_cost::ProbeCost;
use serde::{Deserialize, Serialize};

/// One call that was paired by its stack pointer.  Times are those of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedCall {
    /// Which of the probed functions, by its place among them.
    pub function: usize,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// CPU at entry.
    pub cpu: Cpu,
    /// When the probe at the entry was hit, or the window began ([`ProbedEnd::NoEntry`]).
    pub start: Ns,
    /// When the probe at the end was hit; without one, when the call was certainly still running.
    pub end: Ns,
    /// Off the CPU in between.
    pub off_cpu: OffCpuSplit,
    /// Where it returns to; `None`: that could not be read.
    pub return_address: Option<Avma>,
    /// The first instruction of the function; 0 if its entry was not seen.
    pub entry: Avma,
    /// Of the entry, among those of all probed functions in the thread, from 0.
    pub number: u64,
    /// The call that is its caller, by number, if this is the call of a child.
    pub parent: Option<u64>,
    /// Probes that were hit inside, which took part of its time.
    pub probes: u64,
    /// Activations of the same function below.
    pub depth: u32,
    /// How it ended.
    pub end_kind: ProbedEnd,
}

/// How a probed call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedEnd {
    /// It returned.
    Return,
    /// It jumped out of its function.
    Jump,
    /// Its frame was gone when its thread was seen next: an exception or `longjmp` unwound it, or its stack
    /// was switched away from.
    Unseen,
    /// The same, and the stack that it was on goes on without it: unless stacks are switched, it was unwound.
    Unwound,
    /// It is a region, which began again in the same frame.
    Anew,
    /// Its thread ended inside.
    ThreadEnd,
    /// It was running when the window began.
    NoEntry,
    /// It was running when the probes were removed.
    Open,
}

/// Time off the CPU, by what the thread did there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuSplit {
    /// Asleep: until it was woken.
    pub blocked_ns: u64,
    /// Woken up, and waiting for a CPU.
    pub runnable_ns: u64,
    /// Not asleep, and waiting for a CPU that another thread was given.
    pub preempted_ns: u64,
}

impl OffCpuSplit {
    /// All of it.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.blocked_ns.saturating_add(self.runnable_ns).saturating_add(self.preempted_ns)
    }
}

impl OffCpuSplit {
    /// This and `more`.
    pub const fn add(&mut self, more: Self) {
        self.blocked_ns = self.blocked_ns.saturating_add(more.blocked_ns);
        self.runnable_ns = self.runnable_ns.saturating_add(more.runnable_ns);
        self.preempted_ns = self.preempted_ns.saturating_add(more.preempted_ns);
    }
}

/// Once that a thread with open calls was off the CPU, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffCpuInterval {
    /// Thread.
    pub tid: Tid,
    /// When it went off.
    pub out: Ns,
    /// When it was woken; `None`: it was preempted, or was not seen to be woken.
    pub woken: Option<Ns>,
    /// When it came back.
    pub back: Ns,
    /// It did not sleep.
    pub is_preempted: bool,
    /// Its outermost open call, by number.
    pub outermost: u64,
    /// The system call that it was in.
    pub syscall: Option<u32>,
    /// The kernel's stack when it went off, innermost first; empty if it was preempted or in a system call.
    pub stack: Vec<Avma>,
    /// The thread that ran on the CPU from which it was woken.
    pub waker: Option<WakerSeen>,
}

/// The thread on the CPU that another was woken from: it woke that one, or was interrupted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakerSeen {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// The kernel's stack, innermost first.
    pub stack: Vec<Avma>,
    /// Its own code, innermost first, then return addresses; empty unless it was asked for.
    pub user_stack: Vec<Avma>,
    /// It was in no system call, in which threads wake others.
    pub is_perhaps_interrupted: bool,
}

impl OffCpuInterval {
    /// What it did there.
    #[must_use]
    pub fn split(&self) -> OffCpuSplit {
        if self.is_preempted {
            return OffCpuSplit { preempted_ns: self.back.since(self.out), ..OffCpuSplit::default() };
        }
        // Where no wake-up was seen it cannot be told how long it waited for a CPU.
        let woken = self.woken.unwrap_or(self.back);
        let (blocked_ns, runnable_ns) = (woken.since(self.out), self.back.since(woken));
        OffCpuSplit { blocked_ns, runnable_ns, preempted_ns: 0 }
    }
}

/// Calls of a thread that the ring had no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostCalls {
    /// Thread.
    pub tid: Tid,
    /// Their number.
    pub count: u64,
    /// Their first entry.
    pub from: Ns,
    /// Their last end.
    pub to: Ns,
}

impl LostCalls {
    /// With those of a later loss of the thread.
    #[must_use]
    pub fn joined(self, later: &Self) -> Self {
        let count = self.count.saturating_add(later.count);
        Self { count, from: self.from.min(later.from), to: self.to.max(later.to), ..self }
    }
}

/// How long a probed thread lived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedThread {
    /// Thread.
    pub tid: Tid,
    /// When it was born.
    pub born: Ns,
    /// When it died, if it did.
    pub died: Option<Ns>,
}

/// A slice of the window in which the same functions were probed throughout.
///
/// ```text
///   |  asked only  | a+c |  asked only  | a+c |      `children`: false, true, false, true
///   start         end=start            ...
/// ```
/// Slices are in order and do not overlap; between two of them probes are being placed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedSlice {
    /// Its begin, of `CLOCK_MONOTONIC`.
    pub start: Ns,
    /// Its end.
    pub end: Ns,
    /// Children of the asked functions were probed, too.
    pub children: bool,
}

/// Takes what probes see: the calls of a thread in the order of their ends.
pub trait ProbeSink {
    /// What probes cost has been measured anew, by the number of their function: so it is for the calls that
    /// are told from now on.
    fn costs(&mut self, _: &[ProbeCost]) {}
    /// A slice of the window begins (see [`ProbedSlice`]): before the records of calls that begin in it.
    /// Told again while it has not ended, it begins later than was told.
    fn slice_begins(&mut self, start: Ns, children: bool);
    /// It has ended: before the records of calls that begin after it.
    fn slice_ends(&mut self, end: Ns);
    /// A call has ended, or was open when the probes were removed.
    fn call(&mut self, call: &ProbedCall);
    /// A thread with open calls was off the CPU: before the records of those calls.
    fn off_cpu(&mut self, interval: &OffCpuInterval);
    /// Records of calls had no room.
    fn lost(&mut self, lost: &LostCalls);
    /// A thread that had calls, at its end or at that of the window.
    fn thread(&mut self, thread: &ProbedThread);
}
