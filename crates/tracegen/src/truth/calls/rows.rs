//! The results: one row for each call, and sums by child and by caller.

use std::collections::BTreeMap;

use model::{Avma, Executed, Ns, Tid};

use super::code::FunctionIndex;

/// How a frame was entered, or what kind of child it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entered {
    /// By a call.
    Call,
    /// By a jump to its first instruction.
    Tail,
    /// By the kernel: a signal handler.
    Signal,
    /// Tracing began at its first instruction, because control came from outside the IP filter.
    Filter,
    /// It was running when it was first seen.
    Found,
    /// System call: a child, never a frame.
    Syscall,
    /// Interrupt or fault: a child, never a frame.
    Interrupt,
}

/// How much of a call was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// From its entry to its return.
    Complete,
    /// From its entry until control landed in an outer frame.
    Unwound,
    /// Running with no known entry.
    OpenStart,
    /// In progress when tracing ended.
    OpenEnd,
    /// Some of it was seen, and a loss fell in it.
    Cut,
}

impl Status {
    /// All of them, in order of precedence.
    pub const ALL: [Self; 5] = [Self::Complete, Self::Unwound, Self::OpenStart, Self::OpenEnd, Self::Cut];

    /// Name in rows and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Unwound => "unwound",
            Self::OpenStart => "open_start",
            Self::OpenEnd => "open_end",
            Self::Cut => "cut",
        }
    }

    /// It enters the latency figures.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Complete | Self::Unwound)
    }
}

/// What traced user code executed, and in how many core cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Instructions, branches and calls.
    pub executed: Executed,
    /// Core cycles, by the trace unit's counter.
    pub cycles: u64,
}

impl Ran {
    /// What was executed from `earlier` on.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            executed: self.executed - earlier.executed,
            cycles: self.cycles.saturating_sub(earlier.cycles),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { executed: self.executed + more.executed, cycles: self.cycles + more.cycles }
    }
}

/// One call of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Thread.
    pub tid: Tid,
    /// Its place among the entries of the function in the thread, those without a row included.
    pub number: u64,
    /// Its entry; for [`Status::OpenStart`] when it was first seen.
    pub start: Ns,
    /// From `start` to its end; "at least" if it is open.
    pub latency_ns: u64,
    /// How long the thread was off its CPU in that time.
    pub off_cpu_ns: u64,
    /// What was executed in that time.
    pub ran: Ran,
    /// How much of it was seen.
    pub status: Status,
    /// The instruction that entered it; 0 if not known.
    pub caller_ip: Avma,
    /// How it was entered.
    pub entered: Entered,
    /// Enclosing activations of the function.
    pub depth: u32,
    /// It ended at a jump out of the IP filter.
    pub by_jump: bool,
    /// Its entry fell in a loss.
    pub entry_lost: bool,
    /// It was open when control landed in one of several frames and nothing told in which: its end is a
    /// guess.
    pub unsure: bool,
}

/// Count, times and what was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Their time.
    pub ns: u64,
    /// How much of it was off the CPU.
    pub off_cpu_ns: u64,
    /// What was executed in it.
    pub ran: Ran,
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.ns += other.ns;
        self.off_cpu_ns += other.off_cpu_ns;
        self.ran = self.ran.plus(other.ran);
    }
}

/// Direct callee, call site, kind.
pub(super) type ChildKey = (FunctionIndex, Avma, Entered);

/// Sums by child.
#[derive(Clone, Debug, Default)]
pub(super) struct Children(pub(super) BTreeMap<ChildKey, Sum>);

impl Children {
    pub(super) fn add(&mut self, key: ChildKey, sum: Sum) {
        self.0.entry(key).or_default().add(sum);
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (&key, &sum) in &other.0 {
            self.add(key, sum);
        }
    }

    pub(super) fn total(&self) -> Sum {
        let mut total = Sum::default();
        self.0.values().for_each(|&sum| total.add(sum));
        total
    }
}

/// What one thread, or all threads, did.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: Vec<Row>,
    /// Of complete and unwound calls.
    pub(super) children: Children,
    /// Of the others: their seen parts, without those inside of another call of the function.
    pub(super) open: Sum,
    pub(super) open_children: Children,
    /// Calls that lie in one loss entirely.
    pub(super) hidden: u64,
    /// Landings in frames that are older than the recording.
    pub(super) odd_flow: u64,
}

impl Tally {
    pub(super) fn add(&mut self, mut other: Self) {
        self.rows.append(&mut other.rows);
        self.children.add_all(&other.children);
        self.open.add(other.open);
        self.open_children.add_all(&other.open_children);
        self.hidden += other.hidden;
    }
}
