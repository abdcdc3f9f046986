//! Why traced calls were off the CPU.
//!
//! ```text
//!   the thread's off-CPU time so far   0     5          12     20
//!   intervals                             |--|     |-----|  |---|
//!   a call from 5 to 20                      |__________________|     the last two
//! ```
//! A frame has the thread's off-CPU time at its begin and at its end; so the intervals in between are those
//! with sums in between, and a call's split is exactly its off-CPU time.

use std::collections::BTreeMap;

use model::{Avma, FunctionId, Ns, OffCpuInterval, OffCpuSplit, Pid, Schedule, Tid};
use rustc_hash::FxHashMap;

use crate::call_row::{CallId, CallRow};
use crate::off_cpu_causes::{CauseSums, Reason, StackNames, ToldBy, by_reason, longest, reason, waker};
use crate::request::{Request, Surroundings};
use crate::row_sink::RowWait;
use crate::sparse::Sparse;

/// Gathers them for all wanted functions.
pub(crate) struct TracedCauses<'a> {
    around: Surroundings<'a>,
    /// Those with calls that were off the CPU.
    threads: FxHashMap<Tid, Vec<Interval>>,
    /// By wanted function.
    functions: Sparse<OfFunction>,
    /// What each single call waited for is asked for, too.
    of_rows: bool,
    /// Reasons are not asked for.
    is_silent: bool,
}

/// What single calls waited for.
pub(crate) type ReasonsOfCalls = BTreeMap<CallId, Vec<(Reason, OffCpuSplit)>>;

#[derive(Default)]
struct OfFunction {
    sums: CauseSums,
    rows: ReasonsOfCalls,
}

/// Functions, as far as the recording names them.
impl StackNames for Surroundings<'_> {
    fn kernel(&self, address: Avma) -> Option<&str> {
        self.functions.kernel_function(address)
    }

    fn user(&self, pid: Pid, time: Ns, address: Avma) -> FunctionId {
        self.functions.function_at(self.code.space(pid, time), address).id
    }
}

struct Interval {
    /// The thread's off-CPU time up to its end.
    so_far_ns: u64,
    why: OffCpuInterval,
}

impl<'a> TracedCauses<'a> {
    pub(crate) fn new(around: Surroundings<'a>, request: &Request) -> Self {
        Self {
            around,
            threads: FxHashMap::default(),
            functions: Sparse::default(),
            of_rows: request.row_children,
            is_silent: false,
        }
    }

    /// Gathers nothing: the times off the CPU that are long past are not kept.
    pub(crate) fn silent(self) -> Self {
        Self { is_silent: true, ..self }
    }

    /// A call that is reported, and its thread's off-CPU time at its begin and end.
    pub(crate) fn add(&mut self, wanted: u32, row: &CallRow, (from_ns, to_ns): (u64, u64)) {
        let is_summed = row.status.counted() && row.depth == 0;
        if self.is_silent || from_ns == to_ns || !is_summed && !self.of_rows {
            return;
        }
        let schedule = self.around.schedule;
        let names = &self.around;
        let Some(function) = self.functions.meet(wanted) else { return };
        let intervals = self.threads.entry(row.tid).or_insert_with(|| intervals(schedule, row.tid));
        let inside = || inside(intervals, (from_ns, to_ns));
        if is_summed {
            inside().for_each(|interval| function.sums.add_whole(&interval.why, names));
        }
        if self.of_rows {
            let times = inside().map(|Interval { why, .. }| (reason(why, names), why.split()));
            function.rows.insert(row.id, by_reason(times));
        }
    }

    /// What a call waited for longest, by its thread's off-CPU time at its begin and end; `None`: for
    /// nothing, or the recording does not tell.
    pub(crate) fn longest(&mut self, tid: Tid, (from_ns, to_ns): (u64, u64)) -> Option<Reason> {
        let schedule = self.around.schedule;
        if self.is_silent || from_ns == to_ns || !schedule.has_switches() {
            return None;
        }
        let names = &self.around;
        let intervals = self.threads.entry(tid).or_insert_with(|| intervals(schedule, tid));
        let times =
            inside(intervals, (from_ns, to_ns)).map(|Interval { why, .. }| (reason(why, names), why.split()));
        longest(&by_reason(times)).cloned()
    }

    /// The waits of a call, by its thread's off-CPU time at its begin and end: they add up to that of the
    /// call. None where the recording has no context switches.
    pub(crate) fn waits(&mut self, tid: Tid, (from_ns, to_ns): (u64, u64)) -> Vec<RowWait> {
        let schedule = self.around.schedule;
        if self.is_silent || from_ns == to_ns || !schedule.has_switches() {
            return Vec::new();
        }
        let names = &self.around;
        let intervals = self.threads.entry(tid).or_insert_with(|| intervals(schedule, tid));
        let wait = |Interval { why, .. }: &Interval| RowWait {
            from: why.out,
            to: why.back,
            split: why.split(),
            knows_wakeups: schedule.has_wakeups(),
            reason: reason(why, names),
            waker: why.waker.as_ref().map(|seen| waker(seen, names)),
        };
        inside(intervals, (from_ns, to_ns)).map(wait).collect()
    }

    /// The records that tell of the causes; `None`: the recording has no context switches.
    pub(crate) fn told_by(&self) -> Option<ToldBy> {
        let schedule = self.around.schedule;
        let told_by = if schedule.has_wakeups() { ToldBy::Scheduler } else { ToldBy::SwitchRecords };
        (schedule.has_switches() && !self.is_silent).then_some(told_by)
    }

    /// The sums of the first `len` functions, and what each single call waited for.
    pub(crate) fn finish(self, len: usize) -> impl Iterator<Item = (CauseSums, ReasonsOfCalls)> {
        self.functions.into_all(len).map(|OfFunction { sums, rows }| (sums, rows))
    }
}

/// Those of a thread between two sums of its off-CPU time.
fn inside(intervals: &[Interval], (from_ns, to_ns): (u64, u64)) -> impl Iterator<Item = &Interval> {
    let first = intervals.partition_point(|interval| interval.so_far_ns <= from_ns);
    intervals.iter().skip(first).take_while(move |interval| interval.so_far_ns <= to_ns)
}

fn intervals(schedule: &Schedule, tid: Tid) -> Vec<Interval> {
    let Some(life) = schedule.thread(tid) else { return Vec::new() };
    let mut so_far_ns: u64 = 0;
    let why = life.why_off_cpu(tid).into_iter();
    let interval = |why: OffCpuInterval| {
        so_far_ns = so_far_ns.saturating_add(why.split().total_ns());
        Interval { so_far_ns, why }
    };
    why.map(interval).collect()
}
