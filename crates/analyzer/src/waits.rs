//! When a thread was off its CPU inside of one call, what it waited for there, and what woke it.

use model::{Ns, OffCpuInterval, Schedule, Tid};
use rustc_hash::FxHashMap;

use crate::off_cpu_causes::{Reason, StackNames, Waker, reason, waker};

/// A time off the CPU, as far as it lies inside of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Switched out, or the call's begin.
    pub from: Ns,
    /// Switched in again, or the call's end.
    pub to: Ns,
    /// The CPU was taken away: the thread could run.
    pub is_preempted: bool,
    /// What it waited for.
    pub reason: Reason,
    /// What woke it; `None`: it was preempted, or the recording does not tell.
    pub waker: Option<Waker>,
}

/// Finds the waits of single calls in a schedule.
pub struct Waits<'a> {
    schedule: &'a Schedule,
    names: &'a dyn StackNames,
    /// Of the threads that were asked about.
    threads: FxHashMap<Tid, Vec<OffCpuInterval>>,
}

impl<'a> Waits<'a> {
    /// Those of a recording.
    #[must_use]
    pub fn new(schedule: &'a Schedule, names: &'a dyn StackNames) -> Self {
        Self { schedule, names, threads: FxHashMap::default() }
    }

    /// The schedule that they are found in.
    #[must_use]
    pub fn schedule(&self) -> &'a Schedule {
        self.schedule
    }

    /// The waits of a thread between two times, in their order; clipped to these times.
    pub fn between(&mut self, tid: Tid, from: Ns, to: Ns) -> Vec<Wait> {
        let Some(life) = self.schedule.thread(tid) else { return Vec::new() };
        let why = self.threads.entry(tid).or_insert_with(|| life.why_off_cpu(tid));
        let first = life.off_cpu.partition_point(|span| span.to.is_some_and(|end| end <= from));
        let known = life.off_cpu.iter().zip(why.iter()).skip(first);
        let inside = known.take_while(|(span, _)| span.from < to);
        let wait = |(span, why): (&model::schedule::OffCpu, &OffCpuInterval)| Wait {
            from: span.from.max(from),
            to: span.to.map_or(to, |end| end.min(to)),
            is_preempted: span.preempted,
            reason: reason(why, self.names),
            waker: why.waker.as_ref().map(|seen| waker(seen, self.names)),
        };
        inside.map(wait).collect()
    }
}
