//! Why traced calls were off the CPU.
//!
//! ```text
//!   the thread's off-CPU time so far   0     5          12     20
//!   intervals                             |--|     |-----|  |---|
//!   a call from 5 to 20                      |__________________|     the last two
//! ```
//! What a frame knows is the thread's off-CPU time at its begin and at its end; so the intervals in between are those whose
//! sums lie in between, and a call's split is exactly its off-CPU time.

use model::{Avma, FunctionLookup, OffCpuInterval, Schedule, Tid};
use rustc_hash::FxHashMap;

use crate::off_cpu_causes::{CauseSums, KernelNames, OffCpuCauses, ToldBy};
use crate::request::Surroundings;

/// Gathers them for all wanted functions.
pub(crate) struct TracedCauses<'a> {
    around: Surroundings<'a>,
    /// Those with calls that were off the CPU.
    threads: FxHashMap<Tid, Vec<Interval>>,
    /// By wanted function.
    sums: Vec<CauseSums>,
}

/// The kernel's functions, as far as the recording names them.
struct Recorded<'a>(&'a dyn FunctionLookup);

impl KernelNames for Recorded<'_> {
    fn name(&self, address: Avma) -> Option<&str> {
        self.0.kernel_function(address)
    }
}

struct Interval {
    /// The thread's off-CPU time up to its end.
    so_far_ns: u64,
    why: OffCpuInterval,
}

impl<'a> TracedCauses<'a> {
    pub(crate) fn new(around: Surroundings<'a>, wanted: usize) -> Self {
        let sums = (0..wanted).map(|_| CauseSums::default()).collect();
        Self { around, threads: FxHashMap::default(), sums }
    }

    /// An outermost call that counts, and its thread's off-CPU time at its begin and end.
    pub(crate) fn add(&mut self, wanted: u32, tid: Tid, (from_ns, to_ns): (u64, u64)) {
        if from_ns == to_ns {
            return;
        }
        let Surroundings { schedule, functions, .. } = self.around;
        let intervals = self.threads.entry(tid).or_insert_with(|| intervals(schedule, tid));
        let first = intervals.partition_point(|interval| interval.so_far_ns <= from_ns);
        let inside = intervals.iter().skip(first).take_while(|interval| interval.so_far_ns <= to_ns);
        if let Some(sums) = self.sums.get_mut(wanted as usize) {
            inside.for_each(|interval| sums.add_whole(&interval.why, &Recorded(functions)));
        }
    }

    /// By wanted function; `None`: the recording has no context switches.
    pub(crate) fn finish(self) -> Vec<Option<OffCpuCauses>> {
        let told_by = match self.around.schedule.has_wakeups() {
            true => ToldBy::Scheduler,
            false => ToldBy::SwitchRecords,
        };
        let is_known = self.around.schedule.has_switches();
        self.sums.into_iter().map(|sums| is_known.then(|| sums.finish(told_by))).collect()
    }
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
