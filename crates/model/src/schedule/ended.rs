//! Threads of which nothing comes any more: a recording that grows for days has no room for all that ever
//! lived.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Schedule, ThreadLife};
use crate::clock::Ns;
use crate::ids::{Pid, Tid};

/// A thread leaves its CPU for the last time after its EXIT, and times of its trace are known to be within
/// bounds: after this time nothing of it comes any more.
const LINGERS_NS: u64 = 1_000_000_000;

fn is_long_before(end: Option<Ns>, time: Ns) -> bool {
    end.is_some_and(|end| time.since(end) > LINGERS_NS)
}

impl ThreadLife {
    /// All that is known of the thread is what it went to wait for, so long before `time` that its switch
    /// record would have come: it is none of those that are traced.
    pub(super) fn only_waited_long_before(&self, time: Ns) -> bool {
        is_long_before(self.reasons.last_wait(), time)
            && *self == Self { pid: self.pid, reasons: self.reasons.clone(), ..Self::default() }
    }
}

/// What is left of threads that were forgotten.
#[derive(Clone, Debug, Default)]
pub(super) struct Forgotten {
    /// Some were of traced processes.
    had_code: bool,
    /// The numbers of those after which no thread has had it.
    dead: BTreeSet<Tid>,
    /// The last name of each number.
    names: BTreeMap<Tid, Arc<str>>,
    /// Each name once.
    different: BTreeSet<Arc<str>>,
}

impl Forgotten {
    /// The last thread with this number has died.
    pub(super) fn is_dead(&self, tid: Tid) -> bool {
        self.dead.contains(&tid)
    }

    /// A thread with this number begins.
    pub(super) fn begin_life(&mut self, tid: Tid) -> ThreadLife {
        self.dead.remove(&tid);
        ThreadLife::default()
    }

    fn keep_name(&mut self, tid: Tid, name: &str) {
        if name.is_empty() {
            return;
        }
        let shared = self.different.get(name).cloned().unwrap_or_else(|| Arc::from(name));
        self.different.insert(Arc::clone(&shared));
        // Besides the set itself only this number had that name.
        let before = self.names.insert(tid, shared).filter(|before| Arc::strong_count(before) == 2);
        before.iter().for_each(|before| _ = self.different.remove(before));
    }
}

impl Schedule {
    /// The thread died so long before `time` that a buffer of its own has no trace from then on.
    #[must_use]
    pub fn is_over_by(&self, tid: Tid, time: Ns) -> bool {
        self.thread(tid).is_some_and(|life| is_long_before(life.died, time))
    }

    /// The threads that ended so long before `time` that no record and no trace from then on is theirs, by
    /// id. The trace of an idle CPU may end in a gap of the thread that it ran last: that one is not among
    /// them. Nor is the first thread of a process that has others, for one of these may take its number.
    #[must_use]
    pub fn ended_before(&self, time: Ns) -> Vec<Tid> {
        let has_ended = |life: &ThreadLife| is_long_before(life.died, time);
        if !self.threads.values().any(has_ended) {
            return Vec::new();
        }
        let later_runs = self.cpus.values().flat_map(|table| table.runs_from(time));
        let on_cpus: BTreeSet<Tid> = later_runs.map(|run| run.tid).collect();
        let (mut ended, left): (Vec<_>, Vec<_>) =
            self.threads().partition(|(tid, life)| has_ended(life) && !on_cpus.contains(tid));
        let processes: BTreeSet<Pid> = left.iter().map(|(_, life)| life.pid).collect();
        ended.retain(|(tid, life)| tid.0 != life.pid.0 || !processes.contains(&life.pid));
        ended.into_iter().map(|(tid, _)| tid).collect()
    }

    /// Forgets threads that have ended ([`Self::ended_before`]). Their numbers may be given to others.
    pub fn forget_threads(&mut self, ended: &[Tid]) {
        for tid in ended {
            let Some(life) = self.threads.remove(tid) else { continue };
            self.forgotten.dead.insert(*tid);
            self.forgotten.had_code |= self.has_code(life.pid);
            self.forgotten.keep_name(*tid, &life.name);
        }
    }

    /// The only thread of traced processes that there ever was; `None`: there is none, or there were several.
    #[must_use]
    pub fn only_traced_thread(&self) -> Option<(Tid, &ThreadLife)> {
        let mut traced = self.threads().filter(|(_, life)| self.has_code(life.pid));
        let only = traced.next().filter(|_| !self.forgotten.had_code)?;
        traced.next().is_none().then_some(only)
    }

    /// The last name of each thread that has one, by id; those of forgotten threads, too.
    #[must_use]
    pub fn names(&self) -> BTreeMap<Tid, &str> {
        let forgotten = self.forgotten.names.iter().map(|(tid, name)| (*tid, &**name));
        let named = self.threads().filter(|(_, life)| !life.name.is_empty());
        forgotten.chain(named.map(|(tid, life)| (tid, &*life.name))).collect()
    }

    pub(super) fn name(&self, tid: Tid) -> Option<&str> {
        let of_life = self.thread(tid).map(|life| &*life.name).filter(|name| !name.is_empty());
        of_life.or_else(|| self.forgotten.names.get(&tid).map(|name| &**name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::tests::{record, switch};
    use crate::{Avma, Cpu, FileOffset, Mmap, Sideband};

    const LATER: u64 = LINGERS_NS + 100;

    #[test]
    fn a_thread_is_forgotten_when_nothing_of_it_may_come_any_more() {
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(7), parent_pid: Pid(1), parent_tid: Tid(1) };
        let exit = |tid| Sideband::Exit { pid: Pid(1), tid: Tid(tid) };
        let mut s = Schedule::growing(true, true);
        s.grow(&[
            record(5, 0, fork.clone()),
            switch(10, 0, 1, false),
            switch(20, 0, 1, true),
            switch(20, 0, 7, false),
            record(30, 0, exit(7)),
            record(30, 1, exit(1)),
        ]);
        let ended = |s: &Schedule, time| s.ended_before(Ns(time)).iter().map(|tid| tid.0).collect::<Vec<_>>();
        // The last thread of an idle CPU, and the first one of its process.
        assert_eq!(ended(&s, LATER), []);
        s.grow(&[switch(40, 0, 8, false)]);
        assert_eq!((ended(&s, LATER), ended(&s, 30 + LINGERS_NS)), (vec![7], vec![]));
        s.grow(&[record(50, 0, exit(8)), switch(60, 0, -1, true)]);
        assert_eq!(ended(&s, LATER), [1, 7, 8]);
        s.forget_threads(&[Tid(1), Tid(7)]);
        assert_eq!(s.threads().map(|(tid, _)| tid.0).collect::<Vec<_>>(), [8]);
        s.grow(&[record(LATER, 0, fork)]);
        let life = s.thread(Tid(7)).unwrap();
        assert_eq!((life.born, life.died, life.dead.len()), (Some(Ns(LATER)), None, 0));
    }

    /// It had begun a life that nothing ended.
    #[test]
    fn what_a_thread_does_long_after_its_exit_is_of_no_life() {
        let exit = record(10, 0, Sideband::Exit { pid: Pid(1), tid: Tid(7) });
        let waits = Sideband::SchedSwitch {
            prev: Tid(7),
            preempted: false,
            next: Tid(0),
            waiting: Some(Box::default()),
        };
        let of_dead =
            [switch(LATER, 0, 7, false), switch(LATER + 20, 0, 7, true), record(LATER + 20, 0, waits)];
        let mut s = Schedule::growing(true, true);
        s.grow(&[switch(5, 0, 7, false), exit, switch(20, 0, 8, false)]);
        s.forget_threads(&s.ended_before(Ns(LATER)));
        let runs = s.on_cpu(Cpu(0)).to_vec();
        s.grow(&of_dead);
        assert_eq!(s.threads().map(|(tid, _)| tid.0).collect::<Vec<_>>(), [8]);
        assert_eq!(s.on_cpu(Cpu(0)), runs);
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(7), parent_pid: Pid(1), parent_tid: Tid(1) };
        s.grow(&[record(LATER + 30, 0, fork), switch(LATER + 40, 0, 7, false)]);
        assert_eq!(s.threads().count(), 2);
        assert_ne!(s.on_cpu(Cpu(0)), runs);
    }

    #[test]
    fn no_record_but_those_of_a_birth_begins_a_life_after_a_death() {
        let (pid, tid) = (Pid(7), Tid(7));
        let exit = |time| record(time, 0, Sideband::Exit { pid, tid });
        let names = |exec| Sideband::Comm { pid, tid, name: "x".into(), exec };
        let mut told = vec![exit(LATER), record(LATER, 0, names(false)), record(LATER, 0, mapped(pid))];
        told.push(switch(LATER, 0, 7, true));
        let mut s = Schedule::growing(true, true);
        s.grow(&[switch(5, 0, 7, false), exit(10), switch(20, 0, 8, false)]);
        s.forget_threads(&s.ended_before(Ns(LATER)));
        s.grow(&told);
        assert_eq!(s.thread(tid), None);
        // Its FORK was lost; and that of one that executes a program after its first thread was forgotten.
        for birth in [Sideband::ItraceStart { pid, tid }, names(true)] {
            let mut of_forgotten = s.clone();
            of_forgotten.grow(&[record(LATER + 10, 0, birth.clone())]);
            assert!(of_forgotten.thread(tid).is_some_and(|life| life.died.is_none()), "{birth:?}");
            let s = Schedule::new(&[exit(10), record(20, 0, birth)]);
            let life = s.thread(tid).unwrap();
            assert_eq!((life.died, life.dead.len()), (None, 1));
        }
    }

    /// Its events are opened, and its FORK may be read later: it had no switches then.
    #[test]
    fn a_thread_that_is_attached_to_has_a_life_where_its_number_was_forgotten() {
        let exit = record(10, 0, Sideband::Exit { pid: Pid(1), tid: Tid(7) });
        let mut s = Schedule::growing(true, true);
        s.grow(&[switch(5, 0, 7, false), exit, switch(20, 0, 8, false)]);
        s.forget_threads(&s.ended_before(Ns(LATER)));
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(7), parent_pid: Pid(1), parent_tid: Tid(1) };
        s.grow(&[
            record(LATER, 0, Sideband::AttachedLate { tid: Tid(7) }),
            record(LATER + 10, 0, fork),
            record(LATER + 20, 0, Sideband::ItraceStart { pid: Pid(1), tid: Tid(7) }),
            switch(LATER + 30, 0, 7, true),
        ]);
        let life = s.thread(Tid(7)).unwrap();
        assert_eq!(
            (life.off_cpu.len(), life.not_yet_attached()),
            (1, Some((Ns(LATER + 10), Ns(LATER + 20))))
        );
    }

    /// Number 9 is free from then on: it is 1, which was the first thread's. But a buffer of its own goes on,
    /// and may have had no trace: its process was not known.
    #[test]
    fn the_number_of_a_thread_that_executes_a_program_is_forgotten_with_the_thread() {
        let exec = Sideband::Comm { pid: Pid(1), tid: Tid(1), name: String::new(), exec: true };
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(9), parent_pid: Pid(1), parent_tid: Tid(1) };
        let mut s = Schedule::growing(true, true);
        s.grow(&[
            record(5, 0, fork),
            switch(10, 0, 9, false),
            record(20, 1, Sideband::Exit { pid: Pid(1), tid: Tid(1) }),
            record(30, 0, exec),
            switch(40, 0, 1, true),
            switch(50, 0, 8, false),
        ]);
        assert_eq!(s.thread(Tid(9)).map(|life| life.ended()), Some(Some(Ns(30))));
        assert_eq!((s.ended_before(Ns(LATER)), s.is_over_by(Tid(9), Ns(LATER))), (vec![], false));
        s.grow(&[record(LATER, 0, Sideband::Exit { pid: Pid(1), tid: Tid(1) })]);
        assert!(s.is_over_by(Tid(9), Ns(2 * LATER)));
        assert_eq!(s.ended_before(Ns(2 * LATER)), [Tid(9)], "1 is the first of 8's process");
        s.forget_threads(&[Tid(1)]);
        assert!(s.is_over_by(Tid(9), Ns(2 * LATER)));
    }

    fn mapped(pid: Pid) -> Sideband {
        Sideband::from(Mmap {
            pid,
            start: Avma(0x1000),
            len: 0x1000,
            file_offset: FileOffset(0),
            path: String::new(),
            build_id: None,
            inode: None,
            executable: true,
            kernel: false,
        })
    }

    #[test]
    fn a_thread_is_not_the_only_one_after_others_were_forgotten() {
        let exit = Sideband::Exit { pid: Pid(1), tid: Tid(7) };
        let only = |s: &Schedule| s.only_traced_thread().map(|(tid, _)| tid.0);
        let mut s = Schedule::new(&[record(1, 0, mapped(Pid(1)))]);
        assert_eq!(only(&s), Some(1));
        s.grow(&[record(2, 0, exit)]);
        assert_eq!(only(&s), None);
        s.forget_threads(&s.ended_before(Ns(LATER)));
        assert_eq!((s.threads().count(), only(&s)), (1, None));
    }

    #[test]
    fn a_thread_without_a_name_has_the_one_of_its_number() {
        let named = |time, name: &str| {
            record(time, 0, Sideband::Comm { pid: Pid(1), tid: Tid(7), name: name.to_owned(), exec: false })
        };
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(7), parent_pid: Pid(1), parent_tid: Tid(1) };
        let exit = Sideband::Exit { pid: Pid(1), tid: Tid(7) };
        let records = [
            named(10, "first"),
            record(20, 0, exit.clone()),
            record(LATER, 0, fork),
            record(LATER + 10, 0, exit),
        ];
        let mut s = Schedule::growing(true, true);
        for record in records.clone() {
            s.grow(&[record]);
            assert_eq!(s.names(), [(Tid(7), "first")].into());
            s.forget_threads(&s.ended_before(Ns(LATER)));
        }
        s.forget_threads(&s.ended_before(Ns(3 * LATER)));
        assert_eq!((s.threads().count(), s.names()), (0, Schedule::new(&records).names()));
    }
}
