//! Why calls were off the CPU: what they waited for, and what woke them.
//!
//! ```text
//!   call      |-----------------------------------|
//!   off CPU         |~~~~~~~~~~|     |~~~~~|          each interval is in every call around it;
//!   inner            (recursion: not counted twice)   only outermost activations are summed
//! ```
//! Intervals come before the records of the calls that they are in.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use model::{Avma, FunctionId, Ns, OffCpuInterval, OffCpuSplit, Pid, ProbedCall, Schedule, Tid, WakerSeen};
use rustc_hash::FxHashMap;

use crate::sorted_pairs;

/// The functions that stacks are in.
pub trait StackNames {
    /// The kernel's function at an address; `None`: not known.
    fn kernel(&self, address: Avma) -> Option<&str>;

    /// A process's function at an address, then.
    fn user(&self, pid: Pid, time: Ns, address: Avma) -> FunctionId;
}

/// The source of the times off the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ToldBy {
    /// The scheduler's events: of wake-ups, too.
    #[default]
    Scheduler,
    /// Switch records: a thread that was woken and waits for a CPU is still blocked, and what it waited for
    /// is not known.
    SwitchRecords,
}

impl ToldBy {
    /// What tells of them in a recording with this schedule; `None`: it has no context switches.
    #[must_use]
    pub fn of(schedule: &Schedule) -> Option<Self> {
        let told_by = if schedule.has_wakeups() { Self::Scheduler } else { Self::SwitchRecords };
        schedule.has_switches().then_some(told_by)
    }
}

/// Why the outermost counted calls of a function were off the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffCpuCauses {
    /// How much is known.
    pub told_by: ToldBy,
    /// All of their time off the CPU.
    pub split: OffCpuSplit,
    /// By what they waited for, longest first.
    pub reasons: Vec<ReasonRow>,
    /// By waker, longest first.
    pub wakers: Vec<WakerRow>,
}

/// Time off the CPU for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonRow {
    /// What they waited for.
    pub reason: Reason,
    /// How often.
    pub count: u64,
    /// How long.
    pub split: OffCpuSplit,
}

/// Time asleep that one waker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakerRow {
    /// The waker.
    pub waker: Waker,
    /// How often.
    pub count: u64,
    /// How long they had slept.
    pub blocked_ns: u64,
    /// From where in its code, longest first; empty if that was not recorded.
    pub stacks: Vec<WakerStackRow>,
}

/// Time asleep that one waker ended from one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WakerStackRow {
    /// Its functions, innermost first; [`FunctionId::UNKNOWN`] where the process's code is not known.
    pub functions: Vec<FunctionId>,
    /// How often.
    pub count: u64,
    /// How long they had slept.
    pub blocked_ns: u64,
}

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// In a system call, by number.
    Syscall(u32),
    /// In the kernel without one (page faults, signals): the function that called the scheduler.
    Kernel(String),
    /// For a CPU that another thread was given.
    Preempted,
    /// Not known.
    Unknown,
}

/// What wakes a thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Waker {
    /// A timer or a device.
    Interrupt,
    /// A thread.
    Thread {
        /// Its process.
        pid: Pid,
        /// It.
        tid: Tid,
        /// Its name.
        name: String,
    },
}

/// A time off the CPU inside of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWait {
    /// Switched out.
    pub from: Ns,
    /// Switched in again.
    pub to: Ns,
    /// What the thread did meanwhile.
    pub split: OffCpuSplit,
    /// The recording tells of wake-ups: else a thread that waits for a CPU counts as blocked.
    pub knows_wakeups: bool,
    /// What it waited for.
    pub reason: Reason,
    /// What woke it; `None`: it was preempted, or the recording does not tell.
    pub waker: Option<Waker>,
    /// From where in its own code it was woken, innermost first; empty: not known.
    pub woken_from: Vec<FunctionId>,
}

/// What an interval has come to.
struct Known {
    interval: OffCpuInterval,
    reason: Reason,
    waker: Option<Waker>,
    /// Its own functions, innermost first.
    woken_from: Vec<FunctionId>,
}

impl Known {
    fn new(interval: &OffCpuInterval, names: &dyn StackNames) -> Self {
        let waker = interval.waker.as_ref().map(|seen| waker(seen, names));
        let woken_from = match waker {
            Some(Waker::Thread { .. }) => woken_from(interval, names),
            // The thread that it interrupted has nothing to do with it.
            Some(Waker::Interrupt) | None => Vec::new(),
        };
        Self { interval: interval.clone(), reason: reason(interval, names), waker, woken_from }
    }
}

/// Intervals of a thread that are kept, as long as a call is open.
const WAITS_MAX: usize = 1 << 14;

/// Intervals of all threads, until the calls that they are in have ended.
#[derive(Default)]
pub(crate) struct Intervals {
    threads: FxHashMap<Tid, Vec<Known>>,
}

/// Sums of one function.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct CauseSums {
    split: OffCpuSplit,
    #[serde(with = "sorted_pairs")]
    reasons: BTreeMap<Reason, (u64, OffCpuSplit)>,
    #[serde(with = "sorted_pairs")]
    wakers: BTreeMap<Waker, Woken>,
}

/// What one waker has ended.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Woken {
    all: CountAndTime,
    #[serde(with = "sorted_pairs")]
    from: BTreeMap<Vec<FunctionId>, CountAndTime>,
}

/// How often, and how long.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct CountAndTime {
    count: u64,
    ns: u64,
}

impl CountAndTime {
    fn merge(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
    }

    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

impl Woken {
    fn stacks(self) -> Vec<WakerStackRow> {
        let row =
            |(functions, CountAndTime { count, ns })| WakerStackRow { functions, count, blocked_ns: ns };
        let mut rows: Vec<WakerStackRow> = self.from.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.blocked_ns));
        rows
    }
}

impl Known {
    /// Of the call that it is in.
    fn wait(&self, knows_wakeups: bool) -> RowWait {
        let Self { interval, reason, waker, woken_from } = self;
        RowWait {
            from: interval.out,
            to: interval.back,
            split: interval.split(),
            knows_wakeups,
            reason: reason.clone(),
            waker: waker.clone(),
            woken_from: woken_from.clone(),
        }
    }

    /// A call that was preempted in its probes only has no time of that kind.
    fn is_in(&self, call: &ProbedCall) -> bool {
        let is_inside = call.start <= self.interval.out && self.interval.back <= call.end;
        is_inside && !(self.interval.is_preempted && call.off_cpu.preempted_ns == 0)
    }
}

impl Intervals {
    /// Of a thread the latest [`WAITS_MAX`] are known: a call may be open for days.
    pub(crate) fn add(&mut self, interval: &OffCpuInterval, names: &dyn StackNames) {
        let of_thread = self.threads.entry(interval.tid).or_default();
        if of_thread.len() >= WAITS_MAX {
            of_thread.drain(..WAITS_MAX / 2);
        }
        of_thread.push(Known::new(interval, names));
    }

    /// Records of calls of this thread were lost: which calls its intervals are in is not known.
    pub(crate) fn forget(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// What a call that has ended waited for, and how long, each reason once; to be asked before
    /// [`Self::of_call`].
    pub(crate) fn reasons_of(&self, call: &ProbedCall) -> Vec<(Reason, OffCpuSplit)> {
        by_reason(self.inside(call).map(|known| (known.reason.clone(), known.interval.split())))
    }

    /// The intervals of a call that has ended, in their order. Older ones of a call around it may be many.
    fn inside(&self, call: &ProbedCall) -> impl Iterator<Item = &Known> {
        let of_thread = self.threads.get(&call.tid).map(Vec::as_slice).unwrap_or_default();
        let first = of_thread.partition_point(|known| known.interval.back < call.start);
        of_thread.iter().skip(first).filter(|known| known.is_in(call))
    }

    /// The waits of a call that has ended, in their order; to be asked before [`Self::of_call`].
    pub(crate) fn waits_of(&self, call: &ProbedCall) -> Vec<RowWait> {
        self.inside(call).map(|known| known.wait(true)).collect()
    }

    /// A call has ended. Its intervals are added to `sums` if it counts; those of an outermost call are not
    /// needed any more.
    pub(crate) fn of_call(&mut self, call: &ProbedCall, sums: Option<&mut CauseSums>) {
        if let Some(sums) = sums {
            self.inside(call).for_each(|known| sums.add(known));
        }
        let Some(intervals) = self.threads.get_mut(&call.tid) else { return };
        if intervals.last().is_none_or(|last| last.interval.outermost == call.number) {
            self.threads.remove(&call.tid);
        }
    }
}

impl CauseSums {
    /// Adds the sums of another recording.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.split.add(other.split);
        for (reason, (count, split)) in &other.reasons {
            let (counts, sum) = self.reasons.entry(reason.clone()).or_default();
            *counts = counts.saturating_add(*count);
            sum.add(*split);
        }
        for (waker, woken) in &other.wakers {
            let sum = self.wakers.entry(waker.clone()).or_default();
            sum.all.merge(woken.all);
            for (from, count) in &woken.from {
                sum.from.entry(from.clone()).or_default().merge(*count);
            }
        }
    }

    /// Gives functions other numbers.
    pub(crate) fn renumbered(self, function: impl Fn(FunctionId) -> FunctionId) -> Self {
        let renumber = |mut woken: Woken| {
            let mut from: BTreeMap<Vec<FunctionId>, CountAndTime> = BTreeMap::new();
            for (functions, count) in woken.from {
                let functions = functions.into_iter().map(&function).collect();
                from.entry(functions).or_default().merge(count);
            }
            woken.from = from;
            woken
        };
        let wakers = self.wakers.into_iter().map(|(waker, woken)| (waker, renumber(woken))).collect();
        Self { wakers, ..self }
    }

    /// A call's time off the CPU, as it was counted with the call.
    pub(crate) fn add_split(&mut self, split: OffCpuSplit) {
        self.split.add(split);
    }

    /// A time off the CPU, with its own split.
    pub(crate) fn add_whole(&mut self, interval: &OffCpuInterval, names: &dyn StackNames) {
        self.add_split(interval.split());
        self.add(&Known::new(interval, names));
    }

    fn add(&mut self, known: &Known) {
        let split = known.interval.split();
        let (count, sum) = self.reasons.entry(known.reason.clone()).or_default();
        *count += 1;
        sum.add(split);
        if let Some(waker) = &known.waker {
            let woken = self.wakers.entry(waker.clone()).or_default();
            woken.all.add(split.blocked_ns);
            if !known.woken_from.is_empty() {
                woken.from.entry(known.woken_from.clone()).or_default().add(split.blocked_ns);
            }
        }
    }

    pub(crate) fn finish(self, told_by: ToldBy) -> OffCpuCauses {
        let reason = |(reason, (count, split))| ReasonRow { reason, count, split };
        let waker = |(waker, woken): (Waker, Woken)| {
            let CountAndTime { count, ns } = woken.all;
            WakerRow { waker, count, blocked_ns: ns, stacks: woken.stacks() }
        };
        let mut reasons: Vec<ReasonRow> = self.reasons.into_iter().map(reason).collect();
        let mut wakers: Vec<WakerRow> = self.wakers.into_iter().map(waker).collect();
        // Stable: equals stay in their own order.
        reasons.sort_by_key(|row| std::cmp::Reverse(row.split.total_ns()));
        wakers.sort_by_key(|row| std::cmp::Reverse(row.blocked_ns));
        OffCpuCauses { told_by, split: self.split, reasons, wakers }
    }
}

/// A time off the CPU, as one of the waits of a call. `knows_wakeups`: wake-ups are told.
pub(crate) fn wait(interval: &OffCpuInterval, names: &dyn StackNames, knows_wakeups: bool) -> RowWait {
    Known::new(interval, names).wait(knows_wakeups)
}

/// Each reason once, in their order, with all of its time.
pub(crate) fn by_reason(times: impl Iterator<Item = (Reason, OffCpuSplit)>) -> Vec<(Reason, OffCpuSplit)> {
    let mut sums: BTreeMap<Reason, OffCpuSplit> = BTreeMap::new();
    times.for_each(|(reason, split)| sums.entry(reason).or_default().add(split));
    sums.into_iter().collect()
}

/// The reason that took most of them; the first of equals.
pub(crate) fn longest(times: &[(Reason, OffCpuSplit)]) -> Option<&Reason> {
    times.iter().rev().max_by_key(|(_, split)| split.total_ns()).map(|(reason, _)| reason)
}

/// What a thread waited for.
pub(crate) fn reason(interval: &OffCpuInterval, names: &dyn StackNames) -> Reason {
    if interval.is_preempted {
        return Reason::Preempted;
    }
    if let Some(syscall) = interval.syscall {
        return Reason::Syscall(syscall);
    }
    let known = interval.stack.iter().filter_map(|address| names.kernel(*address));
    let function = known.into_iter().find(|name| !is_scheduler(name));
    function.map_or(Reason::Unknown, |name| Reason::Kernel(name.to_owned()))
}

/// The thread or interrupt that woke a thread.
pub(crate) fn waker(seen: &WakerSeen, names: &dyn StackNames) -> Waker {
    let mut named = seen.stack.iter().filter_map(|address| names.kernel(*address)).peekable();
    let is_interrupt = match named.peek() {
        None => seen.is_perhaps_interrupted,
        Some(_) => named.any(is_interrupt_entry),
    };
    if is_interrupt {
        return Waker::Interrupt;
    }
    Waker::Thread { pid: seen.pid, tid: seen.tid, name: seen.name.clone() }
}

/// The functions that the waker was in when it woke the thread, innermost first.
fn woken_from(interval: &OffCpuInterval, names: &dyn StackNames) -> Vec<FunctionId> {
    let (Some(seen), Some(time)) = (&interval.waker, interval.woken) else { return Vec::new() };
    // What is called from the last instruction of a function returns to the next one's first.
    let address = |(index, address): (usize, &Avma)| Avma(address.0.saturating_sub(u64::from(index > 0)));
    seen.user_stack.iter().enumerate().map(address).map(|at| names.user(seen.pid, time, at)).collect()
}

/// Where the processor goes when it is interrupted (arch/x86/include/asm/idtentry.h).
fn is_interrupt_entry(name: &str) -> bool {
    name.starts_with("asm_sysvec_") || name == "asm_common_interrupt" || name == "asm_exc_nmi"
}

/// What only switches, and our own program in front of it.
fn is_scheduler(name: &str) -> bool {
    const PREFIXES: [&str; 7] =
        ["bpf_", "__bpf_", "__traceiter_", "schedule", "__schedule", "io_schedule", "preempt_schedule"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use model::{Cpu, ProbedEnd};

    use super::*;

    struct Kernel;

    impl StackNames for Kernel {
        fn kernel(&self, address: Avma) -> Option<&str> {
            let names = [
                "bpf_trace_run4",
                "__schedule",
                "schedule",
                "folio_wait_bit",
                "try_to_wake_up",
                "asm_sysvec_apic_timer_interrupt",
                "do_syscall_64",
            ];
            names.get(address.0 as usize).copied()
        }

        fn user(&self, pid: Pid, _: Ns, address: Avma) -> FunctionId {
            FunctionId(if pid == Pid(8) { address.0 as u32 / 0x10 } else { 0 })
        }
    }

    fn interval(out: u64, woken: Option<u64>, back: u64) -> OffCpuInterval {
        OffCpuInterval {
            tid: Tid(7),
            out: Ns(out),
            woken: woken.map(Ns),
            back: Ns(back),
            is_preempted: woken.is_none(),
            outermost: 0,
            syscall: None,
            stack: vec![],
            waker: woken.map(|_| WakerSeen {
                pid: Pid(8),
                tid: Tid(9),
                name: "w".to_owned(),
                stack: vec![],
                user_stack: vec![],
                is_perhaps_interrupted: true,
            }),
        }
    }

    fn call(start: u64, end: u64, number: u64) -> ProbedCall {
        ProbedCall {
            function: 0,
            pid: Pid(7),
            tid: Tid(7),
            cpu: Cpu(0),
            start: Ns(start),
            end: Ns(end),
            off_cpu: OffCpuSplit { preempted_ns: 1, ..OffCpuSplit::default() },
            return_address: None,
            entry: Avma(0),
            number,
            parent: None,
            probes: 1,
            depth: 0,
            end_kind: ProbedEnd::Return,
        }
    }

    #[test]
    fn an_interval_is_in_the_calls_around_it() {
        let mut intervals = Intervals::default();
        let syscall = OffCpuInterval { syscall: Some(202), ..interval(20, Some(25), 30) };
        let fault = OffCpuInterval { stack: (0..4).map(Avma).collect(), ..interval(40, Some(48), 50) };
        for interval in [syscall, fault, interval(60, None, 61)] {
            intervals.add(&interval, &Kernel);
        }
        let (mut inner, mut outer) = (CauseSums::default(), CauseSums::default());
        let split =
            |blocked_ns, runnable_ns, preempted_ns| OffCpuSplit { blocked_ns, runnable_ns, preempted_ns };
        let wait = Reason::Kernel("folio_wait_bit".to_owned());
        assert_eq!(intervals.reasons_of(&call(35, 55, 1)), [(wait.clone(), split(8, 2, 0))]);
        let syscall = (Reason::Syscall(202), split(5, 5, 0));
        let all = [syscall, (wait, split(8, 2, 0)), (Reason::Preempted, split(0, 0, 1))];
        assert_eq!(intervals.reasons_of(&call(10, 70, 0)), all);
        intervals.of_call(&call(35, 55, 1), Some(&mut inner));
        intervals.of_call(&call(10, 70, 0), Some(&mut outer));
        assert!(intervals.threads.is_empty());
        let fault = ReasonRow {
            reason: Reason::Kernel("folio_wait_bit".to_owned()),
            count: 1,
            split: split(8, 2, 0),
        };
        assert_eq!(inner.finish(ToldBy::Scheduler).reasons, std::slice::from_ref(&fault));
        let outer = outer.finish(ToldBy::Scheduler);
        let futex = ReasonRow { reason: Reason::Syscall(202), count: 1, split: split(5, 5, 0) };
        let preempted = ReasonRow { reason: Reason::Preempted, count: 1, split: split(0, 0, 1) };
        assert_eq!(outer.reasons, [futex, fault, preempted]);
        assert_eq!(
            outer.wakers,
            [WakerRow { waker: Waker::Interrupt, count: 2, blocked_ns: 13, stacks: vec![] }]
        );
    }

    /// A timer goes off while another thread is in a system call, or the kernel's own threads run.
    #[test]
    fn the_stack_tells_an_interrupt_from_who_was_interrupted() {
        let seen = |stack: &[u64], is_perhaps_interrupted| WakerSeen {
            pid: Pid(8),
            tid: Tid(9),
            name: "w".to_owned(),
            stack: stack.iter().copied().map(Avma).collect(),
            user_stack: vec![],
            is_perhaps_interrupted,
        };
        let thread = Waker::Thread { pid: Pid(8), tid: Tid(9), name: "w".to_owned() };
        assert_eq!(waker(&seen(&[4, 5, 6], false), &Kernel), Waker::Interrupt);
        assert_eq!(waker(&seen(&[4, 6], true), &Kernel), thread);
        // Without names it is a guess.
        assert_eq!(waker(&seen(&[99], true), &Kernel), Waker::Interrupt);
        assert_eq!(waker(&seen(&[], false), &Kernel), thread);
    }

    /// A return address may be that of the next function's first instruction.
    #[test]
    fn where_a_thread_was_that_woke_another_one() {
        let mut sums = CauseSums::default();
        let woken_by = |user_stack: &[u64], slept: u64| {
            let mut interval = interval(100, Some(100 + slept), 200);
            let waker = interval.waker.as_mut().unwrap();
            waker.user_stack = user_stack.iter().copied().map(Avma).collect();
            waker.is_perhaps_interrupted = false;
            interval
        };
        for interval in [woken_by(&[0x10, 0x30], 5), woken_by(&[0x50], 20), woken_by(&[0x1f, 0x2f], 6)] {
            sums.add_whole(&interval, &Kernel);
        }
        let causes = sums.finish(ToldBy::Scheduler);
        let row = |functions: &[u32], count, blocked_ns| WakerStackRow {
            functions: functions.iter().copied().map(FunctionId).collect(),
            count,
            blocked_ns,
        };
        let [waker] = causes.wakers.as_slice() else { panic!("{:?}", causes.wakers) };
        assert_eq!((waker.count, waker.blocked_ns), (3, 31));
        assert_eq!(waker.stacks, [row(&[5], 1, 20), row(&[1, 2], 2, 11)]);
    }
}
