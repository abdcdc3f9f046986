//! When a thread was off its CPU, and why: switch records say when, the scheduler's own events why.

use crate::clock::Ns;
use crate::ids::Tid;
use crate::probed::{OffCpuInterval, OffCpuSplit};
use crate::sched::{Waiting, Waking};

/// A thread off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// Switched out.
    pub from: Ns,
    /// Switched in again; `None` if it never was.
    pub to: Option<Ns>,
    /// It was taken off while it could run.
    pub preempted: bool,
    /// When it was woken, inside; `None`: never, or no event of the scheduler says so.
    pub woken: Option<Ns>,
}

impl OffCpu {
    /// What it did there; nothing, if it never came back.
    #[must_use]
    pub fn split(&self) -> OffCpuSplit {
        let total_ns = self.to.map_or(0, |to| to.since(self.from));
        if self.preempted {
            return OffCpuSplit { preempted_ns: total_ns, ..OffCpuSplit::default() };
        }
        // Where no wake-up was seen it cannot be told how long it waited for a CPU.
        let blocked_ns = self.woken.map_or(total_ns, |woken| woken.since(self.from).min(total_ns));
        OffCpuSplit { blocked_ns, runnable_ns: total_ns - blocked_ns, preempted_ns: 0 }
    }
}

/// What the scheduler's own events say of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// What it went to wait for: each a little before its [`OffCpu`].
    waits: Vec<(Ns, Box<Waiting>)>,
    /// The threads that woke it, where an [`OffCpu`] says when.
    wakers: Vec<(Ns, Box<Waking>)>,
}

impl Reasons {
    /// It leaves its CPU, asleep.
    pub(super) fn waits_for(&mut self, time: Ns, waiting: Box<Waiting>) {
        self.waits.push((time, waiting));
    }

    /// Gives back the room that more of them had.
    pub(super) fn shrink(&mut self) {
        self.waits.shrink_to_fit();
        self.wakers.shrink_to_fit();
    }

    /// Forgets those of times off the CPU up to this one.
    pub(super) fn forget(&mut self, last: &OffCpu) {
        let end = last.to.unwrap_or(last.from);
        self.waits.drain(..self.waits.partition_point(|(at, _)| *at < end));
        let is_over = |at: Ns| at < end || Some(at) <= last.woken;
        self.wakers.drain(..self.wakers.partition_point(|(at, _)| is_over(*at)));
    }

    /// Forgets the waits before `time` that no time off the CPU has, where each that ended before is
    /// forgotten: the first one that is left, or will come, has the last of them.
    pub(super) fn forget_before(&mut self, time: Ns) {
        let before = self.waits.partition_point(|(at, _)| *at < time);
        self.waits.drain(..before.saturating_sub(1));
    }

    /// When it went to wait for the last time.
    pub(super) fn last_wait(&self) -> Option<Ns> {
        self.waits.last().map(|(at, _)| *at)
    }

    /// The thread, which was off its CPU last at `last`, is woken. The first wake-up of a thread that sleeps
    /// is the one: others find it awake.
    pub(super) fn wake(&mut self, last: &mut OffCpu, time: Ns, waking: Box<Waking>) {
        if last.to.is_none() && last.woken.is_none() && !last.preempted {
            last.woken = Some(time);
            self.wakers.push((time, waking));
        }
    }

    /// Why a thread was off its CPU each time, in the order of `off_cpu`.
    ///
    /// The scheduler's event of a switch comes a little before the record of it. The two may have been taken
    /// by different clocks, so that it may also seem to come a little after, while the thread is off its
    /// CPU: it cannot have left that then.
    pub(super) fn of_times(&self, tid: Tid, off_cpu: &[OffCpu]) -> Vec<OffCpuInterval> {
        let mut waits = self.waits.iter().peekable();
        let mut wakers = self.wakers.iter().peekable();
        let intervals = off_cpu.iter().map(|off| {
            let mut waiting = None;
            while let Some((_, wait)) = waits.next_if(|(time, _)| *time < off.to.unwrap_or(Ns::MAX)) {
                waiting = Some(wait);
            }
            let waker = wakers.next_if(|(time, _)| Some(*time) == off.woken);
            OffCpuInterval {
                tid,
                out: off.from,
                woken: off.woken,
                back: off.to.unwrap_or(off.from),
                is_preempted: off.preempted,
                outermost: 0,
                syscall: waiting.and_then(|waiting| waiting.syscall),
                stack: waiting.map(|waiting| waiting.stack.clone()).unwrap_or_default(),
                waker: waker.map(|(_, waking)| waking.waker.clone()),
            }
        });
        intervals.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::Pid;
    use crate::probed::WakerSeen;
    use crate::schedule::Schedule;
    use crate::schedule::tests::{record, switch};
    use crate::sideband::{Sideband, SidebandRecord};

    /// The scheduler's own events explain the switch records, by a clock that is a little off.
    #[test]
    fn what_a_thread_waits_for_and_who_wakes_it() {
        let leaves = |ns, syscall| {
            let waiting = Some(Box::new(Waiting { syscall, stack: vec![] }));
            let body =
                Sideband::SchedSwitch { prev: Tid(7), preempted: syscall.is_none(), next: Tid(0), waiting };
            record(ns, 0, body)
        };
        let wakes = |ns, tid: i32| {
            let waker = WakerSeen {
                pid: Pid(1),
                tid: Tid(tid),
                name: String::new(),
                stack: vec![],
                user_stack: vec![],
                is_perhaps_interrupted: false,
            };
            record(ns, 1, Sideband::SchedWaking(Box::new(Waking { tid: Tid(7), waker })))
        };
        let comm = Sideband::Comm { pid: Pid(1), tid: Tid(8), name: "w".to_owned(), exec: false };
        let preempted = Sideband::Switch { out: true, preempted: true };
        let s = Schedule::new(&[
            record(1, 0, comm),
            switch(5_000, 0, 7, false),
            leaves(9_990, Some(202)),
            switch(10_000, 0, 7, true),
            wakes(14_000, 8), // the first one counts: it is awake then
            wakes(14_500, 9),
            switch(16_000, 0, 7, false),
            SidebandRecord { tid: Some(Tid(7)), ..record(20_000, 0, preempted) },
            leaves(20_400, None), // taken by a clock that is 0.4 us late
            wakes(21_000, 8),     // does not sleep
            switch(23_000, 0, 7, false),
            switch(30_000, 0, 7, true),
            switch(39_000, 0, 7, false),
        ]);
        assert!(s.has_wakeups());
        let life = s.thread(Tid(7)).unwrap();
        let why = life.why_off_cpu(Tid(7));
        let seen: Vec<_> = why.iter().map(|off| (off.out.0, off.woken.map(|ns| ns.0), off.syscall)).collect();
        assert_eq!(seen, [(10_000, Some(14_000), Some(202)), (20_000, None, None), (30_000, None, None)]);
        assert_eq!(why[0].waker.as_ref().map(|waker| &*waker.name), Some("w"));
        let splits: Vec<_> = life.off_cpu.iter().map(OffCpu::split).collect();
        let split =
            |blocked_ns, runnable_ns, preempted_ns| OffCpuSplit { blocked_ns, runnable_ns, preempted_ns };
        assert_eq!(splits, [split(4_000, 2_000, 0), split(0, 0, 3_000), split(9_000, 0, 0)]);
        assert_eq!(why.iter().map(OffCpuInterval::split).collect::<Vec<_>>(), splits);
    }

    /// What is forgotten takes its waits and wakers along, and no others.
    #[test]
    fn what_is_left_has_its_own_reasons() {
        let leaves = |ns, syscall| {
            let waiting = Some(Box::new(Waiting { syscall: Some(syscall), stack: vec![] }));
            record(ns, 0, Sideband::SchedSwitch { prev: Tid(7), preempted: false, next: Tid(0), waiting })
        };
        let wakes = |ns: u64| {
            let (user_stack, stack, is_perhaps_interrupted) = (vec![], vec![], false);
            let (pid, tid, name) = (Pid(1), Tid(8), ns.to_string());
            let waker = WakerSeen { pid, tid, name, stack, user_stack, is_perhaps_interrupted };
            record(ns, 1, Sideband::SchedWaking(Box::new(Waking { tid: Tid(7), waker })))
        };
        let records = [
            switch(5, 0, 7, false),
            leaves(9, 1),
            switch(10, 0, 7, true),
            wakes(20), // as it comes back
            switch(20, 0, 7, false),
            leaves(29, 2),
            switch(30, 0, 7, true),
            wakes(35), // its switch-in is lost
            switch(40, 0, 7, true),
            leaves(49, 3),
            switch(50, 0, 7, false),
            leaves(59, 4),
            switch(60, 0, 7, true),
            wakes(65),
            switch(70, 0, 7, false),
        ];
        let whole = Schedule::new(&records).thread(Tid(7)).unwrap().why_off_cpu(Tid(7));
        for time in 0..80 {
            let mut schedule = Schedule::new(&records);
            schedule.forget_before(Ns(time), &BTreeSet::new());
            let left = schedule.thread(Tid(7)).unwrap().why_off_cpu(Tid(7));
            let expected = whole.iter().filter(|off| off.back.0 >= time).cloned().collect::<Vec<_>>();
            assert_eq!(left, expected, "from {time}");
        }
    }

    /// The recording begins as it goes to sleep: nothing else was heard of it before.
    #[test]
    fn the_first_that_is_heard_of_a_thread_is_what_it_waits_for() {
        let waiting = Some(Box::new(Waiting { syscall: Some(202), stack: vec![] }));
        let body = Sideband::SchedSwitch { prev: Tid(7), preempted: false, next: Tid(0), waiting };
        let samples = [record(9_990, 0, body), switch(10_000, 0, 7, true), switch(12_000, 0, 7, false)];
        let s = Schedule::new(&samples);
        let life = s.thread(Tid(7)).unwrap();
        assert_eq!(life.pid, Pid(1));
        let why = life.why_off_cpu(Tid(7));
        assert_eq!(why.iter().map(|off| (off.out.0, off.syscall)).collect::<Vec<_>>(), [(10_000, Some(202))]);
    }

    /// Each time that it made way for a traced thread was kept for ever.
    #[test]
    fn a_thread_that_is_not_traced_takes_no_room() {
        const EACH_NS: u64 = 1_000_000;
        let times = 1..=10_000;
        let leaves = |time: u64| {
            let waiting = Some(Box::<Waiting>::default());
            let body = Sideband::SchedSwitch { prev: Tid(9), preempted: false, next: Tid(7), waiting };
            record(time * EACH_NS, 0, body)
        };
        let comes = |time: u64| switch(time * EACH_NS + 10, 0, 7, false);
        let mut s = Schedule::growing(true, true);
        for time in times {
            s.grow(&[leaves(time), comes(time)]);
            s.forget_before(Ns(time * EACH_NS), &BTreeSet::new());
            assert!(s.thread(Tid(9)).is_some_and(|life| life.reasons.waits.len() <= 2));
        }
        // Its next switch record may still come.
        s.forget_before(Ns(10_500 * EACH_NS), &BTreeSet::new());
        assert!(s.thread(Tid(9)).is_some());
        s.forget_before(Ns(11_001 * EACH_NS), &BTreeSet::new());
        assert_eq!(s.threads().map(|(tid, _)| tid.0).collect::<Vec<_>>(), [7]);
    }
}
