//! Which thread ran on which CPU, and when a thread was off its CPU: the switch sideband, indexed.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Ns;
use crate::sideband::{Cpu, Pid, Sideband, SidebandRecord, Tid};

/// A thread on a CPU, from `from` until `to` (exclusive; [`Ns::MAX`] if it was never seen to leave).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// Switched in.
    pub from: Ns,
    /// Switched out.
    pub to: Ns,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
}

/// A thread off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// Switched out.
    pub from: Ns,
    /// Switched in again; `None` if it never was.
    pub to: Option<Ns>,
    /// It was taken off while it could run.
    pub preempted: bool,
}

/// What the sideband says of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadLife {
    /// Process.
    pub pid: Pid,
    /// FORK inside the recording.
    pub born: Option<Ns>,
    /// First ITRACE_START.
    pub trace_start: Option<Ns>,
    /// EXIT.
    pub died: Option<Ns>,
    /// Off-CPU intervals by time; empty if there are no switch records.
    pub off_cpu: Vec<OffCpu>,
    /// CPUs it was switched in on, by time.
    pub on_cpu: Vec<(Ns, Cpu)>,
    /// Last COMM name.
    pub name: String,
}

/// The recording's switch records, by CPU and by thread.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    cpus: BTreeMap<Cpu, Vec<OnCpu>>,
    threads: BTreeMap<Tid, ThreadLife>,
    mapped: BTreeSet<Pid>,
    has_switches: bool,
}

impl Schedule {
    /// Indexes sideband that is sorted by time.
    #[must_use]
    pub fn new(sideband: &[SidebandRecord]) -> Self {
        let mut schedule = Self::default();
        for record in sideband {
            schedule.add(record);
        }
        schedule
    }

    /// The recording has context-switch records: off-CPU time is known.
    #[must_use]
    pub fn has_switches(&self) -> bool {
        self.has_switches
    }

    /// The recording knows code of this process: it is one of those traced.
    #[must_use]
    pub fn has_code(&self, pid: Pid) -> bool {
        self.mapped.contains(&pid)
    }

    /// The threads that ran on a CPU, by time.
    #[must_use]
    pub fn on_cpu(&self, cpu: Cpu) -> &[OnCpu] {
        self.cpus.get(&cpu).map_or(&[], Vec::as_slice)
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

    fn life(&mut self, pid: Pid, tid: Tid) -> &mut ThreadLife {
        let life = self.threads.entry(tid).or_default();
        life.pid = pid;
        life
    }

    fn add(&mut self, record: &SidebandRecord) {
        let who = record.pid.zip(record.tid);
        match &record.body {
            Sideband::Comm { pid, tid, name, .. } => self.life(*pid, *tid).name.clone_from(name),
            Sideband::Mmap(mmap) if !mmap.kernel && mmap.executable => {
                self.mapped.insert(mmap.pid);
                self.life(mmap.pid, Tid(mmap.pid.0));
            }
            Sideband::Fork { pid, tid, parent_pid, .. } => {
                if self.mapped.contains(parent_pid) {
                    self.mapped.insert(*pid);
                }
                let born = record.time;
                self.life(*pid, *tid).born = born;
            }
            Sideband::Exit { pid, tid } => {
                let died = record.time;
                self.life(*pid, *tid).died = died;
            }
            Sideband::ItraceStart { pid, tid } => {
                let life = self.life(*pid, *tid);
                life.trace_start = life.trace_start.or(record.time);
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
            _ => (),
        }
    }

    /// The thread runs on `cpu` from `time` on, unless it is known to run there already.
    fn run(&mut self, cpu: Cpu, pid: Pid, tid: Tid, time: Ns) {
        let runs = self.cpus.entry(cpu).or_default();
        match runs.last_mut().filter(|last| last.to == Ns::MAX) {
            Some(last) if last.tid == tid => return,
            Some(last) => last.to = time,
            None => (),
        }
        runs.push(OnCpu { from: time, to: Ns::MAX, pid, tid });
        self.life(pid, tid).on_cpu.push((time, cpu));
    }

    fn switch(&mut self, cpu: Option<Cpu>, pid: Pid, tid: Tid, time: Ns, out: bool, preempted: bool) {
        if let Some(cpu) = cpu {
            let runs = self.cpus.entry(cpu).or_default();
            if let Some(last) = runs.last_mut().filter(|last| last.to == Ns::MAX) {
                last.to = time;
                // Whoever leaves without having been seen to come was there since the last leave.
                if out && last.tid != tid {
                    runs.push(OnCpu { from: time, to: time, pid, tid });
                }
            } else if out {
                let from = runs.last().map_or(Ns(0), |last| last.to);
                runs.push(OnCpu { from, to: time, pid, tid });
            }
            if !out {
                runs.push(OnCpu { from: time, to: Ns::MAX, pid, tid });
            }
        }
        if tid.0 <= 0 {
            return; // the idle task
        }
        let life = self.life(pid, tid);
        if out {
            // A switch-in was lost (or this record is there twice): how long that was is not known.
            if let Some(last) = life.off_cpu.last_mut() {
                last.to = last.to.or(Some(last.from));
            }
            life.off_cpu.push(OffCpu { from: time, to: None, preempted });
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

    fn switch(ns: u64, cpu: u32, tid: i32, out: bool) -> SidebandRecord {
        SidebandRecord {
            time: Some(Ns(ns)),
            cpu: Some(Cpu(cpu)),
            pid: Some(Pid(1)),
            tid: Some(Tid(tid)),
            file_offset: 0,
            body: Sideband::Switch { out, preempted: false },
        }
    }

    #[test]
    fn migration_is_off_cpu_time_and_two_runs() {
        let s = Schedule::new(&[switch(10, 0, 7, false), switch(20, 0, 7, true), switch(35, 1, 7, false)]);
        assert_eq!(s.on_cpu(Cpu(0)), [OnCpu { from: Ns(10), to: Ns(20), pid: Pid(1), tid: Tid(7) }]);
        assert_eq!(s.on_cpu(Cpu(1)), [OnCpu { from: Ns(35), to: Ns::MAX, pid: Pid(1), tid: Tid(7) }]);
        let life = s.thread(Tid(7)).unwrap();
        assert_eq!(life.off_cpu, [OffCpu { from: Ns(20), to: Some(Ns(35)), preempted: false }]);
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
        assert_eq!(s.on_cpu(Cpu(0)), [OnCpu { from: Ns(0), to: Ns(10), pid: Pid(1), tid: Tid(7) }]);
    }
}
