//! What is known of the threads that had one number, one after the other.
//!
//! ```text
//!   FORK   ITRACE_START      EXIT     FORK         EXIT
//!   born   trace_start       died     reborn       died
//!   |------|-----------------|        |------------|
//!    not yet attached          dead
//! ```

use super::off_cpu::{OffCpu, Reasons};
use crate::clock::Ns;
use crate::ids::{Cpu, Pid, Tid};
use crate::probed::OffCpuInterval;
use crate::sched::Waking;

/// From a thread's death until another one has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadTime {
    /// The process of the one that died.
    pub pid: Pid,
    /// EXIT; or when it executed a program, and got another number.
    pub died: Ns,
    /// EXIT of the thread, under whatever number: a buffer of its own ends then. `None`: it lives.
    pub thread_died: Option<Ns>,
    /// FORK, or what first tells of the next one if that was lost.
    pub reborn: Ns,
    /// Of the one that died, see [`ThreadLife::not_yet_attached`].
    pub not_yet_attached: Option<(Ns, Ns)>,
}

/// How the tracing of the present thread with a number began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Its first ITRACE_START; [`ThreadLife::trace_start`] is that of the first thread with the number.
    pub(super) started: Option<Ns>,
    /// It may have run before that, inside the recording.
    pub(super) is_late: bool,
    /// The next thread with the number may have, too: it was not born yet.
    pub(super) is_next_late: bool,
}

/// What the sideband says of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadLife {
    /// Process.
    pub pid: Pid,
    /// FORK inside the recording, of the first thread with the number that is not forgotten.
    pub born: Option<Ns>,
    /// It executed a new program inside the recording: the first time.
    pub executed: Option<Ns>,
    /// ITRACE_START of the first thread with the number that has any.
    pub trace_start: Option<Ns>,
    /// Of the last thread with the number.
    pub attached: Attached,
    /// EXIT; of one that was `renumbered` that of its process's first thread.
    pub died: Option<Ns>,
    /// It executed a program, and has the number of its process's first thread since then. A buffer of its
    /// own goes on until it has `died`.
    pub renumbered: Option<Ns>,
    /// The number was given to another thread. What is before `died` and after `born` but in none of these
    /// times is the life of one or the other.
    pub dead: Vec<DeadTime>,
    /// Off-CPU intervals by time; empty if there are no switch records.
    pub off_cpu: Vec<OffCpu>,
    /// CPUs it was switched in on, by time.
    pub on_cpu: Vec<(Ns, Cpu)>,
    /// Last COMM name.
    pub name: String,
    /// What it went to wait for, and which threads woke it.
    pub reasons: Reasons,
}

impl ThreadLife {
    /// The thread has no such number any more since then.
    #[must_use]
    pub fn ended(&self) -> Option<Ns> {
        self.renumbered.or(self.died)
    }

    /// The process and the death of the thread that had the number at `time`. It may have died under another
    /// number.
    #[must_use]
    pub fn at(&self, time: Ns) -> (Pid, Option<Ns>) {
        let earlier = self.dead.iter().find(|dead| dead.died >= time);
        earlier.map_or((self.pid, self.died), |dead| (dead.pid, dead.thread_died))
    }

    /// A thread of the process begins with this number.
    pub(super) fn begin_life(&mut self, pid: Pid, time: Option<Ns>) {
        let ended = self.ended();
        let not_yet_attached = self.not_yet_attached();
        let before = std::mem::replace(&mut self.pid, pid);
        let thread_died = self.died.take();
        self.renumbered = None;
        match (ended, time) {
            (Some(died), Some(reborn)) => {
                self.dead.push(DeadTime { pid: before, died, thread_died, reborn, not_yet_attached });
                let is_late = self.attached.is_next_late;
                self.attached = Attached { is_late, ..Attached::default() };
                // The one that died never came back to a CPU.
                if let Some(last) = self.off_cpu.last_mut() {
                    last.to = last.to.or(Some(died.max(last.from)));
                }
            }
            _ => self.born = time,
        }
    }

    /// Some thread wakes it.
    pub(super) fn wake(&mut self, time: Ns, waking: Box<Waking>) {
        if let Some(last) = self.off_cpu.last_mut() {
            self.reasons.wake(last, time, waking);
        }
    }

    /// Why it was off its CPU each time, in the order of `off_cpu`.
    #[must_use]
    pub fn why_off_cpu(&self, tid: Tid) -> Vec<OffCpuInterval> {
        self.reasons.of_times(tid, &self.off_cpu)
    }

    /// Gives back the room that more of its times had.
    pub(super) fn shrink(&mut self) {
        self.dead.shrink_to_fit();
        self.off_cpu.shrink_to_fit();
        self.on_cpu.shrink_to_fit();
        self.reasons.shrink();
    }

    /// From the birth of the last thread with the number until it was traced (or its number ended), where it
    /// may have run without.
    #[must_use]
    pub fn not_yet_attached(&self) -> Option<(Ns, Ns)> {
        let reborn = self.dead.last().map(|dead| dead.reborn);
        let born = self.born.max(reborn).filter(|_| self.attached.is_late)?;
        Some((born, self.attached.started.or(self.ended())?.max(born)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Sideband;
    use crate::schedule::Schedule;
    use crate::schedule::tests::{record, switch};

    fn dead(died: u64, reborn: u64) -> DeadTime {
        let (died, reborn) = (Ns(died), Ns(reborn));
        DeadTime { pid: Pid(1), died, thread_died: Some(died), reborn, not_yet_attached: None }
    }

    #[test]
    fn a_number_that_is_used_again_has_two_lives_and_is_not_off_the_cpu_between() {
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(7), parent_pid: Pid(1), parent_tid: Tid(1) };
        let exit = Sideband::Exit { pid: Pid(1), tid: Tid(7) };
        let s = Schedule::new(&[
            record(10, 0, fork.clone()),
            switch(11, 0, 7, false),
            record(20, 0, exit.clone()),
            switch(21, 0, 7, true),
            record(50, 1, fork),
            switch(52, 1, 7, false),
            record(60, 1, exit),
        ]);
        let life = s.thread(Tid(7)).unwrap();
        assert_eq!((life.born, life.died), (Some(Ns(10)), Some(Ns(60))));
        assert_eq!(life.dead, [dead(20, 50)]);
        assert_eq!(life.off_cpu, [OffCpu { from: Ns(21), to: Some(Ns(21)), preempted: false, woken: None }]);
    }

    #[test]
    fn each_thread_with_a_number_is_attached_to_by_itself() {
        let (pid, tid) = (Pid(1), Tid(7));
        let fork = |ns| record(ns, 0, Sideband::Fork { pid, tid, parent_pid: pid, parent_tid: Tid(1) });
        let late = |ns| record(ns, 0, Sideband::AttachedLate { tid });
        let start = |ns| record(ns, 0, Sideband::ItraceStart { pid, tid });
        let exit = |ns| record(ns, 0, Sideband::Exit { pid, tid });
        // The second one is never attached to; the third one before its birth is read.
        let records = [
            fork(10),
            late(11),
            start(12),
            exit(20),
            fork(30),
            exit(40),
            late(41),
            fork(50),
            start(54),
            exit(60),
        ];
        let s = Schedule::new(&records);
        let life = s.thread(tid).unwrap();
        let mut gaps: Vec<_> = life.dead.iter().map(|dead| dead.not_yet_attached).collect();
        gaps.push(life.not_yet_attached());
        assert_eq!(gaps, [Some((Ns(10), Ns(12))), None, Some((Ns(50), Ns(54)))]);
    }

    /// Its process's first thread has died, and it has that one's number: it is never attached to under 9.
    #[test]
    fn a_thread_that_executes_before_it_is_attached_to_was_not_traced_until_then() {
        let (pid, tid) = (Pid(1), Tid(9));
        let fork = |ns| record(ns, 0, Sideband::Fork { pid, tid, parent_pid: pid, parent_tid: Tid(1) });
        let exec = Sideband::Comm { pid, tid: Tid(1), name: String::new(), exec: true };
        let mut s = Schedule::new(&[
            fork(10),
            record(11, 0, Sideband::AttachedLate { tid }),
            record(20, 0, Sideband::Exit { pid, tid: Tid(1) }),
            record(30, 0, exec),
        ]);
        let late = Some((Ns(10), Ns(30)));
        assert_eq!(s.thread(tid).unwrap().not_yet_attached(), late);
        s.grow(&[fork(40)]);
        let life = s.thread(tid).unwrap();
        assert_eq!((life.dead[0].not_yet_attached, life.not_yet_attached()), (late, None));
    }

    /// It is 1 from 30 on; its own buffer, of number 9, ends with its death, and not with its number.
    #[test]
    fn a_thread_that_executed_dies_under_the_number_that_it_has_then() {
        let (pid, tid) = (Pid(1), Tid(9));
        let fork = |ns| record(ns, 0, Sideband::Fork { pid, tid, parent_pid: pid, parent_tid: Tid(1) });
        let exit = |ns, tid| record(ns, 0, Sideband::Exit { pid, tid });
        let exec = Sideband::Comm { pid, tid: Tid(1), name: String::new(), exec: true };
        let mut s = Schedule::new(&[fork(10), exit(20, Tid(1)), record(30, 0, exec)]);
        let life = |s: &Schedule| s.thread(tid).cloned().unwrap();
        assert_eq!((life(&s).ended(), life(&s).at(Ns(15))), (Some(Ns(30)), (pid, None)));
        let mut given_again = s.clone();
        for (s, records) in
            [(&mut s, vec![exit(50, Tid(1))]), (&mut given_again, vec![fork(40), exit(50, Tid(1))])]
        {
            s.grow(&records);
            assert_eq!(life(s).at(Ns(15)), (pid, Some(Ns(50))));
        }
        assert_eq!((life(&s).ended(), life(&s).died), (Some(Ns(30)), Some(Ns(50))));
        let DeadTime { died, reborn, .. } = life(&given_again).dead[0];
        assert_eq!((died, reborn, life(&given_again).died), (Ns(30), Ns(40), None), "the next one lives");
    }

    #[test]
    fn of_those_that_had_a_number_one_after_the_other_the_last_ones_are_known() {
        let (pid, tid) = (Pid(1), Tid(7));
        let fork = |ns| record(ns, 0, Sideband::Fork { pid, tid, parent_pid: pid, parent_tid: Tid(1) });
        let exit = |ns| record(ns, 0, Sideband::Exit { pid, tid });
        let lives = (1..=100).flat_map(|life| [fork(10 * life), exit(10 * life + 5)]);
        let mut s = Schedule::new(&lives.collect::<Vec<_>>());
        s.forget_before(Ns(990), &[tid].into());
        assert_eq!(s.thread(tid).unwrap().dead.len(), 99);
        s.forget_before(Ns(990), &BTreeSet::new());
        let life = s.thread(tid).unwrap();
        assert_eq!((life.born, &life.dead[..]), (Some(Ns(980)), &[dead(985, 990), dead(995, 1000)][..]));
    }
}
