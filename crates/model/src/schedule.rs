//! Which thread ran on which CPU, and when a thread was off its CPU: the switch sideband, indexed.
//!
//! ```text
//! timetable   the threads that ran on one CPU
//! off_cpu     when one thread was off its CPU, and why
//! life        what is known of the threads that had one number
//! ended       threads of which nothing comes any more
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Ns;
use crate::ids::{Cpu, Pid, Tid};
use crate::sched::{Waiting, Waking};
use crate::sideband::{Sideband, SidebandRecord};

mod ended;
mod life;
mod off_cpu;
mod timetable;

use ended::Forgotten;
pub use life::{Attached, DeadTime, ThreadLife};
pub use off_cpu::{OffCpu, Reasons};
pub use timetable::OnCpu;
use timetable::Timetable;

/// The recording's switch records, by CPU and by thread.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    cpus: BTreeMap<Cpu, Timetable>,
    threads: BTreeMap<Tid, ThreadLife>,
    /// The earlier numbers of threads that executed a program, of processes of which the first thread lives.
    executors: BTreeMap<Pid, Vec<Tid>>,
    mapped: BTreeSet<Pid>,
    has_switches: bool,
    /// There are SWITCH records, which say more than samples of sched_switch.
    has_switch_records: bool,
    has_wakeups: bool,
    forgotten: Forgotten,
}

impl Schedule {
    /// Indexes sideband that is sorted by time.
    #[must_use]
    pub fn new(sideband: &[SidebandRecord]) -> Self {
        let is_switch = |record: &SidebandRecord| {
            matches!(record.body, Sideband::Switch { .. } | Sideband::SwitchCpuWide { .. })
        };
        let mut schedule = Self { has_switch_records: sideband.iter().any(is_switch), ..Self::default() };
        for record in sideband {
            schedule.add(record);
        }
        schedule
    }

    /// Of a recording that grows, and has or will have context switches: nothing yet.
    #[must_use]
    pub fn growing(has_switches: bool, has_switch_records: bool) -> Self {
        Self { has_switches, has_switch_records, ..Self::default() }
    }

    /// Adds the records that come next; sorted by time, and none is earlier than those before.
    pub fn grow(&mut self, sideband: &[SidebandRecord]) {
        sideband.iter().for_each(|record| self.add(record));
    }

    /// Forgets which threads ran where before `time`, but not that they existed, unless their numbers were
    /// given to others; of the `spared` ones all is kept. Threads that are not traced, and made way for one
    /// that is, are forgotten.
    pub fn forget_before(&mut self, time: Ns, spared: &BTreeSet<Tid>) {
        for table in self.cpus.values_mut() {
            table.forget_before(time);
        }
        for (_, life) in self.threads.iter_mut().filter(|(tid, _)| !spared.contains(tid)) {
            let is_over = |off: &OffCpu| off.to.is_some_and(|to| to < time);
            let over = life.off_cpu.partition_point(is_over);
            if let Some(last) = life.off_cpu.drain(..over).next_back() {
                life.reasons.forget(&last);
            }
            life.reasons.forget_before(time);
            let passed = life.dead.partition_point(|dead| dead.reborn < time);
            if let Some(last) = life.dead.drain(..passed).next_back() {
                life.born = Some(last.reborn);
            }
            let later = life.on_cpu.partition_point(|(from, _)| *from <= time);
            life.on_cpu.drain(..later.saturating_sub(1));
            if life.ended().is_some_and(|ended| ended < time) {
                life.shrink();
            }
        }
        self.threads.retain(|tid, life| spared.contains(tid) || !life.only_waited_long_before(time));
    }

    /// The recording has context-switch records: off-CPU time is known.
    #[must_use]
    pub fn has_switches(&self) -> bool {
        self.has_switches
    }

    /// The recording has events of threads being woken: how long they slept, and how long they waited for a
    /// CPU then, is known.
    #[must_use]
    pub fn has_wakeups(&self) -> bool {
        self.has_wakeups
    }

    /// The recording knows code of this process: it is one of those traced.
    #[must_use]
    pub fn has_code(&self, pid: Pid) -> bool {
        self.mapped.contains(&pid)
    }

    /// The threads that ran on a CPU, by time.
    #[must_use]
    pub fn on_cpu(&self, cpu: Cpu) -> &[OnCpu] {
        self.cpus.get(&cpu).map_or(&[], |table| &table.runs)
    }

    /// The threads that ran on each CPU, by time.
    pub fn cpus(&self) -> impl Iterator<Item = (Cpu, &[OnCpu])> {
        self.cpus.iter().map(|(cpu, table)| (*cpu, &table.runs[..]))
    }

    /// What is known of a thread.
    #[must_use]
    pub fn thread(&self, tid: Tid) -> Option<&ThreadLife> {
        self.threads.get(&tid)
    }

    /// All threads, by id.
    pub fn threads(&self) -> impl Iterator<Item = (Tid, &ThreadLife)> {
        self.threads.iter().map(|(tid, life)| (*tid, life))
    }

    /// The CPU a thread was last switched in on at or before `time`.
    #[must_use]
    pub fn cpu_of(&self, tid: Tid, time: Ns) -> Option<Cpu> {
        let runs = &self.threads.get(&tid)?.on_cpu;
        let next = runs.partition_point(|(from, _)| *from <= time);
        next.checked_sub(1).map(|i| runs[i].1)
    }

    /// The lives of a number that a thread has now or will have.
    fn number(&mut self, tid: Tid) -> &mut ThreadLife {
        self.threads.entry(tid).or_insert_with(|| self.forgotten.begin_life(tid))
    }

    /// The life that a record tells of. `None`: the thread is forgotten. A FORK tells of the next one with
    /// its number; if that was lost, the ITRACE_START does. Nothing else begins a life after a death.
    fn life(&mut self, pid: Pid, tid: Tid) -> Option<&mut ThreadLife> {
        if self.forgotten.is_dead(tid) {
            return None;
        }
        let life = self.threads.entry(tid).or_default();
        life.pid = pid;
        Some(life)
    }

    /// The last thread with this number has died.
    fn is_dead(&self, tid: Tid) -> bool {
        self.forgotten.is_dead(tid) || self.thread(tid).is_some_and(|life| life.died.is_some())
    }

    fn add(&mut self, record: &SidebandRecord) {
        let who = record.pid.zip(record.tid);
        match &record.body {
            Sideband::Comm { pid, tid, name, exec } => {
                if *exec && self.is_dead(*tid) {
                    self.takes_number(*pid, *tid, record);
                }
                if let Some(life) = self.life(*pid, *tid) {
                    life.name.clone_from(name);
                    life.executed = life.executed.or(record.time.filter(|_| *exec));
                }
            }
            Sideband::Mmap(mmap) if !mmap.kernel && mmap.executable => {
                self.mapped.insert(mmap.pid);
                self.life(mmap.pid, Tid(mmap.pid.0));
            }
            Sideband::Fork { pid, tid, parent_pid, .. } => {
                if self.mapped.contains(parent_pid) {
                    self.mapped.insert(*pid);
                }
                self.number(*tid).begin_life(*pid, record.time);
            }
            Sideband::Exit { pid, tid } => {
                if let Some(life) = self.life(*pid, *tid) {
                    life.died = record.time;
                    self.dies(*tid, record);
                }
                if tid.0 == pid.0 {
                    self.executors_die(*pid, record.time);
                }
            }
            Sideband::ItraceStart { pid, tid } => {
                if self.is_dead(*tid) {
                    self.number(*tid).begin_life(*pid, record.time);
                }
                if let Some(life) = self.life(*pid, *tid) {
                    life.trace_start = life.trace_start.or(record.time);
                    life.attached.started = life.attached.started.or(record.time);
                }
                // A thread that was running when it was attached to has no switch-in record.
                if let (Some(cpu), Some(time)) = (record.cpu, record.time) {
                    self.run(cpu, *pid, *tid, time);
                }
            }
            Sideband::Switch { out, preempted } | Sideband::SwitchCpuWide { out, preempted, .. } => {
                self.has_switches = true;
                if let (Some((pid, tid)), Some(time)) = (who, record.time) {
                    self.switch(record.cpu, pid, tid, time, *out, *preempted);
                }
            }
            Sideband::SchedSwitch { prev, preempted, next, waiting } => {
                if !self.has_switch_records {
                    self.sched_switch(record, *prev, *preempted, *next);
                }
                self.waits(record, *prev, waiting.as_deref());
            }
            Sideband::SchedWaking(waking) => {
                self.has_wakeups = true;
                self.wakes(waking, record.time);
            }
            Sideband::AttachedLate { tid } => {
                let life = self.number(*tid);
                // Its FORK may be read later.
                let of_next = life.ended().is_some();
                *(if of_next { &mut life.attached.is_next_late } else { &mut life.attached.is_late }) = true;
            }
            Sideband::Lost { .. } => self.lost(record),
            _ => (),
        }
        if let (Some(cpu), Some(time)) = (record.cpu, record.time) {
            self.cpus.entry(cpu).or_default().seen = time;
        }
    }

    /// A thread has left its CPU, and waits for something. It may be the first that is heard of the thread:
    /// samples come a little before switch records.
    fn waits(&mut self, record: &SidebandRecord, prev: Tid, waiting: Option<&Waiting>) {
        let (Some(waiting), Some(time)) = (waiting, record.time) else { return };
        if prev.0 == 0 || self.forgotten.is_dead(prev) {
            return;
        }
        let pid = record.pid.unwrap_or(Pid(prev.0));
        let life = self.threads.entry(prev).or_insert_with(|| ThreadLife { pid, ..ThreadLife::default() });
        life.reasons.waits_for(time, Box::new(waiting.clone()));
    }

    /// Adds a sample of the tracepoint (its `record` is of the thread that leaves).
    fn sched_switch(&mut self, record: &SidebandRecord, prev: Tid, preempted: bool, next: Tid) {
        let Some(time) = record.time else { return };
        // A tracepoint of threads does not see them come.  One of CPUs sees the idle task go.
        self.has_switches |= prev.0 == 0;
        let pid_of =
            |schedule: &Self, tid: Tid| schedule.threads.get(&tid).map_or(Pid(tid.0), |life| life.pid);
        let (prev_pid, next_pid) = (record.pid.unwrap_or(pid_of(self, prev)), pid_of(self, next));
        self.switch(record.cpu, prev_pid, prev, time, true, preempted);
        self.switch(record.cpu, next_pid, next, time, false, false);
    }

    fn wakes(&mut self, waking: &Waking, time: Option<Ns>) {
        let mut waking = Box::new(waking.clone());
        // The tracepoint names the woken, and not the waker.
        if let Some(name) = self.name(waking.waker.tid).filter(|_| waking.waker.name.is_empty()) {
            name.clone_into(&mut waking.waker.name);
        }
        if let (Some(life), Some(time)) = (self.threads.get_mut(&waking.tid), time) {
            life.wake(time, waking);
        }
    }

    /// Records of this CPU (if it is not said: of any) were lost since the last one.
    fn lost(&mut self, record: &SidebandRecord) {
        let Some(time) = record.time else { return };
        let of_cpu = |cpu: Cpu| record.cpu.is_none_or(|lost| lost == cpu);
        for (_, table) in self.cpus.iter_mut().filter(|(cpu, _)| of_cpu(**cpu)) {
            table.lost(time);
        }
    }

    /// A thread's own record of its death. Its events are gone by then, so it is not seen to leave its CPU;
    /// records of whole CPUs see it leave, but it may have no number any more.
    fn dies(&mut self, tid: Tid, record: &SidebandRecord) {
        let Some((cpu, time)) = record.cpu.zip(record.time) else { return };
        let open = self.cpus.entry(cpu).or_default().open();
        if let Some(run) = open.filter(|run| run.tid == tid) {
            run.to = time;
        }
    }

    /// A thread that is not the first of its process executes a program: the first one has died, and it has
    /// that one's number from now on (`de_thread` in fs/exec.c), without a FORK.
    fn takes_number(&mut self, pid: Pid, tid: Tid, record: &SidebandRecord) {
        self.number(tid).begin_life(pid, record.time);
        // The kernel has ended all others by then: what is left is its number so far.
        for (other, life) in &mut self.threads {
            if life.pid == pid && *other != tid && life.died.is_none() {
                life.renumbered = record.time;
                self.executors.entry(pid).or_default().push(*other);
            }
        }
        if let Some((cpu, time)) = record.cpu.zip(record.time) {
            self.run(cpu, pid, tid, time);
        }
    }

    /// The first thread of a process has died: so have those that executed a program in it, and had other
    /// numbers before.
    fn executors_die(&mut self, pid: Pid, time: Option<Ns>) {
        for tid in self.executors.remove(&pid).unwrap_or_default() {
            let Some(life) = self.threads.get_mut(&tid) else { continue };
            if life.pid == pid && life.renumbered.is_some() {
                life.died = time;
            }
            let is_its = |dead: &&mut DeadTime| dead.pid == pid && dead.thread_died.is_none();
            life.dead.iter_mut().filter(is_its).for_each(|dead| dead.thread_died = time);
        }
    }

    /// The thread runs on `cpu` from `time` on, unless it is known to run there already.
    fn run(&mut self, cpu: Cpu, pid: Pid, tid: Tid, time: Ns) {
        let table = self.cpus.entry(cpu).or_default();
        match table.open() {
            Some(last) if last.tid == tid => return,
            Some(last) => last.to = time,
            None => (),
        }
        table.runs.push(OnCpu { from: time, to: Ns::MAX, pid, tid, doubtful: false });
        self.life(pid, tid).into_iter().for_each(|life| life.on_cpu.push((time, cpu)));
    }

    fn switch(&mut self, cpu: Option<Cpu>, pid: Pid, tid: Tid, time: Ns, out: bool, preempted: bool) {
        // What a thread that has died still runs is the kernel's code for that.
        if let Some(cpu) = cpu.filter(|_| !self.is_dead(tid)) {
            let table = self.cpus.entry(cpu).or_default();
            if out { table.leaves(pid, tid, time) } else { table.comes(pid, tid, time) }
        }
        if tid.0 <= 0 {
            return; // the idle task
        }
        let Some(life) = self.life(pid, tid) else { return };
        if out {
            // A switch-in was lost (or this record is there twice): how long that was is not known.
            if let Some(last) = life.off_cpu.last_mut() {
                last.to = last.to.or(Some(last.from));
            }
            life.off_cpu.push(OffCpu { from: time, to: None, preempted, woken: None });
        } else {
            if let Some(last) = life.off_cpu.last_mut() {
                last.to = last.to.or(Some(time));
            }
            if let Some(cpu) = cpu {
                life.on_cpu.push((time, cpu));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_cpu(from: u64, to: u64, tid: i32, doubtful: bool) -> OnCpu {
        OnCpu { from: Ns(from), to: Ns(to), pid: Pid(1), tid: Tid(tid), doubtful }
    }

    pub(super) fn record(ns: u64, cpu: u32, body: Sideband) -> SidebandRecord {
        let (pid, tid) = (Some(Pid(1)), Some(Tid(0)));
        SidebandRecord { time: Some(Ns(ns)), cpu: Some(Cpu(cpu)), pid, tid, file_offset: 0, body }
    }

    #[test]
    fn who_leaves_while_another_runs_is_a_contradiction() {
        let s = Schedule::new(&[switch(10, 0, 5, false), switch(20, 0, 7, true), switch(30, 0, 5, false)]);
        assert_eq!(
            s.on_cpu(Cpu(0)),
            [on_cpu(10, 20, 5, true), on_cpu(10, 20, 7, true), on_cpu(30, u64::MAX, 5, false)]
        );
        let s = Schedule::new(&[switch(10, 0, 5, false), switch(20, 0, 7, false)]);
        assert_eq!(s.on_cpu(Cpu(0)), [on_cpu(10, 20, 5, true), on_cpu(20, u64::MAX, 7, false)]);
    }

    #[test]
    fn a_thread_that_has_died_is_not_seen_to_leave() {
        let exit = record(15, 0, Sideband::Exit { pid: Pid(1), tid: Tid(5) });
        let s = Schedule::new(&[switch(10, 0, 5, false), exit, switch(20, 0, 7, false)]);
        assert_eq!(s.on_cpu(Cpu(0)), [on_cpu(10, 15, 5, false), on_cpu(20, u64::MAX, 7, false)]);
    }

    #[test]
    fn what_a_thread_runs_after_its_death_is_not_its_own_until_the_number_is_given_again() {
        let exit = record(15, 0, Sideband::Exit { pid: Pid(1), tid: Tid(5) });
        let fork = Sideband::Fork { pid: Pid(1), tid: Tid(5), parent_pid: Pid(1), parent_tid: Tid(7) };
        let s = Schedule::new(&[
            switch(10, 0, 5, false),
            exit,
            switch(20, 0, 5, true),
            switch(30, 0, 5, false),
            switch(40, 0, 7, false),
            record(45, 0, fork),
            switch(50, 0, 7, true),
            switch(50, 0, 5, false),
        ]);
        assert_eq!(
            s.on_cpu(Cpu(0)),
            [on_cpu(10, 15, 5, false), on_cpu(40, 50, 7, false), on_cpu(50, u64::MAX, 5, false)]
        );
    }

    /// Thread 9 executes a program, and is 5 from then on.
    #[test]
    fn who_executes_a_program_takes_the_number_of_the_first_thread() {
        let exit = record(15, 0, Sideband::Exit { pid: Pid(1), tid: Tid(5) });
        let name = || "new".to_owned();
        let exec = record(30, 1, Sideband::Comm { pid: Pid(1), tid: Tid(5), name: name(), exec: true });
        let s = Schedule::new(&[
            switch(10, 0, 5, false),
            switch(10, 1, 9, false),
            exit,
            exec,
            switch(40, 1, 5, true),
            switch(50, 0, 5, false),
        ]);
        let life = s.thread(Tid(5)).unwrap();
        assert_eq!((life.died, life.dead[0].died, life.dead[0].reborn), (None, Ns(15), Ns(30)));
        assert_eq!(s.on_cpu(Cpu(1)), [on_cpu(10, 30, 9, false), on_cpu(30, 40, 5, false)]);
        assert_eq!(s.on_cpu(Cpu(0)), [on_cpu(10, 15, 5, false), on_cpu(50, u64::MAX, 5, false)]);
    }

    /// In records of whole CPUs it leaves, but has no number any more.
    #[test]
    fn a_thread_that_has_died_leaves_without_a_name() {
        let exit = record(15, 0, Sideband::Exit { pid: Pid(1), tid: Tid(5) });
        let gone = switch(20, 0, -1, true);
        let s = Schedule::new(&[switch(10, 0, 5, false), exit, gone, switch(30, 0, 7, false)]);
        assert_eq!(
            s.on_cpu(Cpu(0)),
            [on_cpu(10, 15, 5, false), on_cpu(15, 20, -1, false), on_cpu(30, u64::MAX, 7, false)]
        );
    }

    #[test]
    fn what_was_lost_is_doubtful_since_the_last_record() {
        let lost = |ns| record(ns, 0, Sideband::Lost { count: 3 });
        let s = Schedule::new(&[switch(10, 0, 5, false), lost(40), switch(50, 0, 7, true)]);
        assert_eq!(
            s.on_cpu(Cpu(0)),
            [on_cpu(10, 10, 5, false), on_cpu(10, 40, 5, true), on_cpu(40, 50, 7, false)]
        );
        assert!(
            Schedule::new(&[switch(10, 1, 5, false), lost(40)])
                .on_cpu(Cpu(1))
                .iter()
                .all(|run| !run.doubtful)
        );
        let s = Schedule::new(&[switch(10, 0, 5, false), switch(20, 0, 5, true), lost(40)]);
        let nobody = OnCpu { pid: Pid(-1), ..on_cpu(20, 40, -1, true) };
        assert_eq!(s.on_cpu(Cpu(0)), [on_cpu(10, 20, 5, false), nobody]);
        // A CPU that nothing was heard of before.
        let s = Schedule::new(&[switch(10, 1, 5, false), lost(20), lost(40)]);
        assert_eq!(s.on_cpu(Cpu(0)), [nobody]);
    }

    #[test]
    fn tracepoints_stand_in_for_switch_records() {
        let sample = |ns, prev, preempted, next| {
            record(
                ns,
                0,
                Sideband::SchedSwitch { prev: Tid(prev), preempted, next: Tid(next), waiting: None },
            )
        };
        let comm = Sideband::Comm { pid: Pid(1), tid: Tid(7), name: String::new(), exec: false };
        let samples =
            [record(1, 0, comm), sample(10, 0, true, 7), sample(20, 7, true, 0), sample(30, 0, true, 7)];
        let s = Schedule::new(&samples);
        assert!(s.has_switches());
        let runs: Vec<_> = s.on_cpu(Cpu(0)).iter().map(|run| (run.from.0, run.to.0, run.tid.0)).collect();
        assert_eq!(runs, [(0, 10, 0), (10, 20, 7), (20, 30, 0), (30, u64::MAX, 7)]);
        let off = OffCpu { from: Ns(20), to: Some(Ns(30)), preempted: true, woken: None };
        assert_eq!(s.thread(Tid(7)).unwrap().off_cpu, [off]);
        // They say less than SWITCH records.
        let both = [sample(10, 0, true, 7), switch(11, 0, 7, false)];
        assert_eq!(Schedule::new(&both).on_cpu(Cpu(0)), [on_cpu(11, u64::MAX, 7, false)]);
        // A tracepoint of threads does not see them come.
        assert!(!Schedule::new(&[sample(10, 7, false, 9)]).has_switches());
    }

    pub(super) fn switch(ns: u64, cpu: u32, tid: i32, out: bool) -> SidebandRecord {
        SidebandRecord {
            time: Some(Ns(ns)),
            cpu: Some(Cpu(cpu)),
            pid: Some(Pid(1)),
            tid: Some(Tid(tid)),
            file_offset: 0,
            body: Sideband::Switch { out, preempted: false },
        }
    }

    /// Threads come and go for days.
    #[test]
    fn a_thread_that_has_died_has_no_room_for_more() {
        let naps =
            (0..1000).flat_map(|nap| [switch(20 * nap + 10, 0, 7, true), switch(20 * nap + 20, 0, 7, false)]);
        let exit = record(30_000, 0, Sideband::Exit { pid: Pid(1), tid: Tid(7) });
        let mut schedule = Schedule::new(&naps.chain([exit, switch(30_001, 0, 7, true)]).collect::<Vec<_>>());
        schedule.forget_before(Ns(40_000), &BTreeSet::new());
        let life = schedule.thread(Tid(7)).unwrap();
        assert_eq!((life.off_cpu.len(), life.on_cpu.len()), (1, 1));
        assert_eq!((life.off_cpu.capacity(), life.on_cpu.capacity()), (1, 1));
    }

    #[test]
    fn migration_is_off_cpu_time_and_two_runs() {
        let s = Schedule::new(&[switch(10, 0, 7, false), switch(20, 0, 7, true), switch(35, 1, 7, false)]);
        assert_eq!(s.on_cpu(Cpu(0)), [on_cpu(10, 20, 7, false)]);
        assert_eq!(s.on_cpu(Cpu(1)), [on_cpu(35, u64::MAX, 7, false)]);
        let life = s.thread(Tid(7)).unwrap();
        assert_eq!(life.off_cpu, [OffCpu { from: Ns(20), to: Some(Ns(35)), preempted: false, woken: None }]);
        assert_eq!(s.cpu_of(Tid(7), Ns(34)), Some(Cpu(0)));
        assert_eq!(s.cpu_of(Tid(7), Ns(35)), Some(Cpu(1)));
        assert_eq!(s.cpu_of(Tid(7), Ns(9)), None);
    }

    #[test]
    fn a_lost_switch_in_leaves_no_interval_open() {
        let s = Schedule::new(&[switch(10, 0, 7, true), switch(20, 0, 7, true), switch(35, 0, 7, false)]);
        let ends: Vec<_> = s.thread(Tid(7)).unwrap().off_cpu.iter().map(|off| (off.from, off.to)).collect();
        assert_eq!(ends, [(Ns(10), Some(Ns(10))), (Ns(20), Some(Ns(35)))]);
    }

    #[test]
    fn a_thread_that_leaves_first_was_there_before() {
        let s = Schedule::new(&[switch(10, 0, 7, true)]);
        assert_eq!(s.on_cpu(Cpu(0)), [on_cpu(0, 10, 7, false)]);
    }
}
