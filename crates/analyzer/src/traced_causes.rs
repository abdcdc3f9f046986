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
use crate::off_cpu_causes::{
    CauseSums, Reason, RowWait, StackNames, ToldBy, by_reason, longest, reason, wait,
};
use crate::request::{Request, Surroundings};
use crate::sparse::Sparse;

/// Gathers them for all wanted functions.
pub(crate) struct TracedCauses<'a> {
    around: Surroundings<'a>,
    /// Those with calls that were off the CPU.
    threads: FxHashMap<Tid, ThreadWaits>,
    /// By wanted function.
    functions: Sparse<OfFunction>,
    /// What each single call waited for is asked for, too.
    of_rows: bool,
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

/// A thread's times off the CPU that its calls may need.
#[derive(Default)]
struct ThreadWaits {
    /// By time.
    intervals: Vec<Interval>,
    /// The thread's off-CPU time up to the end of the last one.
    so_far_ns: u64,
    /// The last one's begin and end; `None`: there was none yet.
    last: Option<(Ns, Ns)>,
    /// It has all that the schedule has now.
    is_current: bool,
}

struct Interval {
    /// The thread's off-CPU time up to its end.
    so_far_ns: u64,
    why: OffCpuInterval,
}

impl ThreadWaits {
    /// Those of the schedule, and what is left of those that it had before.
    fn current(&mut self, schedule: &Schedule, tid: Tid) -> &[Interval] {
        let life = schedule.thread(tid).filter(|_| !std::mem::replace(&mut self.is_current, true));
        if let Some(life) = life {
            let back = life.off_cpu.iter().map(|off| off.to);
            for (why, _) in life.why_off_cpu(tid).into_iter().zip(back).filter(|(_, back)| back.is_some()) {
                let at = Some((why.out, why.back));
                if at > self.last {
                    self.last = at;
                    self.so_far_ns = self.so_far_ns.saturating_add(why.split().total_ns());
                    self.intervals.push(Interval { so_far_ns: self.so_far_ns, why });
                }
            }
        }
        &self.intervals
    }
}

impl<'a> TracedCauses<'a> {
    pub(crate) fn new(around: Surroundings<'a>, request: &Request) -> Self {
        Self {
            around,
            threads: FxHashMap::default(),
            functions: Sparse::default(),
            of_rows: request.row_children,
        }
    }

    /// The schedule will grow, and forget what has passed. Calls of this thread that end from now on have
    /// begun at this off-CPU time of it, or later.
    pub(crate) fn keep_from(&mut self, tid: Tid, from_ns: u64) {
        let waits = self.threads.entry(tid).or_default();
        let passed = waits.current(self.around.schedule, tid).partition_point(|it| it.so_far_ns <= from_ns);
        waits.intervals.drain(..passed);
    }

    /// The thread has ended.
    pub(crate) fn forget(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// Goes on with a recording that has grown.
    pub(crate) fn grown(self, around: Surroundings<'_>) -> TracedCauses<'_> {
        let Self { mut threads, functions, of_rows, .. } = self;
        threads.values_mut().for_each(|waits| waits.is_current = false);
        TracedCauses { around, threads, functions, of_rows }
    }

    /// A thread's off-CPU time that has ended by then, as its switch records have it.
    pub(crate) fn off_cpu_before(&mut self, tid: Tid, time: Ns) -> u64 {
        let intervals = self.threads.entry(tid).or_default().current(self.around.schedule, tid);
        let ended = intervals.partition_point(|interval| interval.why.back <= time);
        let last = ended.checked_sub(1).and_then(|last| intervals.get(last));
        last.map_or(0, |last| last.so_far_ns)
    }

    /// The sums of functions that were met since they were taken last.
    pub(crate) fn take_met(&mut self) -> Sparse<CauseSums> {
        std::mem::take(&mut self.functions).map(|function| function.sums)
    }

    /// Adds sums of calls that are reported.
    pub(crate) fn merge(&mut self, wanted: u32, sums: &CauseSums) {
        self.functions.meet(wanted).into_iter().for_each(|function| function.sums.merge(sums));
    }

    /// The sums of the first `len` functions since they were taken last, and what each single call waited
    /// for.
    pub(crate) fn take(&mut self, len: usize) -> impl Iterator<Item = (CauseSums, ReasonsOfCalls)> + use<> {
        std::mem::take(&mut self.functions).into_all(len).map(|OfFunction { sums, rows }| (sums, rows))
    }

    /// A call that is reported, and its thread's off-CPU time at its begin and end.
    pub(crate) fn add(&mut self, wanted: u32, row: &CallRow, (from_ns, to_ns): (u64, u64)) {
        let is_summed = row.end.status.counted() && row.depth == 0;
        if from_ns == to_ns || !is_summed && !self.of_rows {
            return;
        }
        let schedule = self.around.schedule;
        let names = &self.around;
        let Some(function) = self.functions.meet(wanted) else { return };
        let intervals = self.threads.entry(row.id.tid).or_default().current(schedule, row.id.tid);
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
        if from_ns == to_ns || !schedule.has_switches() {
            return None;
        }
        let names = &self.around;
        let intervals = self.threads.entry(tid).or_default().current(schedule, tid);
        let times =
            inside(intervals, (from_ns, to_ns)).map(|Interval { why, .. }| (reason(why, names), why.split()));
        longest(&by_reason(times)).cloned()
    }

    /// The waits of a call, by its thread's off-CPU time at its begin and end: they add up to that of the
    /// call. None where the recording has no context switches.
    pub(crate) fn waits(&mut self, tid: Tid, (from_ns, to_ns): (u64, u64)) -> Vec<RowWait> {
        let schedule = self.around.schedule;
        if from_ns == to_ns || !schedule.has_switches() {
            return Vec::new();
        }
        let names = &self.around;
        let intervals = self.threads.entry(tid).or_default().current(schedule, tid);
        let knows_wakeups = schedule.has_wakeups();
        let wait = |of: &Interval| wait(&of.why, names, knows_wakeups);
        inside(intervals, (from_ns, to_ns)).map(wait).collect()
    }

    /// The records that tell of the causes; `None`: the recording has no context switches.
    pub(crate) fn told_by(&self) -> Option<ToldBy> {
        ToldBy::of(self.around.schedule)
    }
}

/// Those of a thread between two sums of its off-CPU time.
fn inside(intervals: &[Interval], (from_ns, to_ns): (u64, u64)) -> impl Iterator<Item = &Interval> {
    let first = intervals.partition_point(|interval| interval.so_far_ns <= from_ns);
    intervals.iter().skip(first).take_while(move |interval| interval.so_far_ns <= to_ns)
}
