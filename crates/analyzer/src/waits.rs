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

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Avma, Cpu, FunctionId, Pid, Sideband, SidebandRecord, Waiting, WakerSeen, Waking};

    struct NoNames;

    impl StackNames for NoNames {
        fn kernel(&self, _: Avma) -> Option<&str> {
            None
        }

        fn user(&self, _: Pid, _: Ns, _: Avma) -> FunctionId {
            FunctionId::UNKNOWN
        }
    }

    fn record(ns: u64, tid: i32, body: Sideband) -> SidebandRecord {
        let (pid, tid) = (Some(Pid(1)), Some(Tid(tid)));
        SidebandRecord { time: Some(Ns(ns)), cpu: Some(Cpu(0)), pid, tid, file_offset: 0, body }
    }

    fn switch(ns: u64, out: bool, preempted: bool) -> SidebandRecord {
        record(ns, 7, Sideband::Switch { out, preempted })
    }

    /// Asleep in a system call from 100 to 200, preempted from 300 to 400, and never back from 500 on.
    fn schedule() -> Schedule {
        let waiting = Some(Box::new(Waiting { syscall: Some(202), stack: vec![] }));
        let leaves = Sideband::SchedSwitch { prev: Tid(7), preempted: false, next: Tid(0), waiting };
        let waker = WakerSeen {
            pid: Pid(1),
            tid: Tid(8),
            name: "worker".to_owned(),
            stack: vec![],
            user_stack: vec![],
            is_perhaps_interrupted: false,
        };
        let wakes = Sideband::SchedWaking(Box::new(Waking { tid: Tid(7), waker }));
        Schedule::new(&[
            switch(10, false, false),
            record(100, 7, leaves),
            switch(100, true, false),
            record(150, 8, wakes),
            switch(200, false, false),
            switch(300, true, true),
            switch(400, false, false),
            switch(500, true, false),
        ])
    }

    #[test]
    fn waits_are_clipped_to_the_call() {
        let schedule = schedule();
        let mut waits = Waits::new(&schedule, &NoNames);
        let mut between = |from, to| {
            let wait = |wait: Wait| (wait.from.0, wait.to.0, wait.is_preempted);
            waits.between(Tid(7), Ns(from), Ns(to)).into_iter().map(wait).collect::<Vec<_>>()
        };
        assert_eq!(between(0, 600), [(100, 200, false), (300, 400, true), (500, 600, false)]);
        assert_eq!(between(150, 350), [(150, 200, false), (300, 350, true)]);
        assert_eq!(between(200, 300), []);
        assert_eq!(waits.between(Tid(9), Ns(0), Ns(600)), []);
    }

    #[test]
    fn a_wait_has_its_reason_and_its_waker() {
        let schedule = schedule();
        let found = Waits::new(&schedule, &NoNames).between(Tid(7), Ns(0), Ns(600));
        let reasons: Vec<&Reason> = found.iter().map(|wait| &wait.reason).collect();
        assert_eq!(reasons, [&Reason::Syscall(202), &Reason::Preempted, &Reason::Unknown]);
        let worker = Waker::Thread { pid: Pid(1), tid: Tid(8), name: "worker".to_owned() };
        let wakers: Vec<Option<&Waker>> = found.iter().map(|wait| wait.waker.as_ref()).collect();
        assert_eq!(wakers, [Some(&worker), None, None]);
    }
}
