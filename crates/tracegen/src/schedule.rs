//! Which thread runs next, and where.

use crate::clock::Time;
use crate::thread::ReplayedThread;

/// What the switch itself takes.
const SWITCH_US: f64 = 0.8;

/// The thread that runs next, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Index of the thread.
    pub(crate) thread: usize,
    pub(crate) cpu: usize,
    pub(crate) start: Time,
    /// No thread ran on this CPU before.
    pub(crate) first_on_cpu: bool,
}

#[derive(Debug)]
pub(crate) struct Schedule {
    /// When each CPU is free; `None` if it never was used.
    free: Vec<Option<Time>>,
}

impl Schedule {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { free: vec![None; cpus] }
    }

    /// The thread that has waited longest, on its last CPU if that is free, else on the one that is free
    /// first.
    pub(crate) fn next(&self, threads: &[ReplayedThread<'_>]) -> Option<Turn> {
        let (index, thread) = runnable(threads).min_by_key(|(_, thread)| thread.ready)?;
        let last = thread.cpu.filter(|&cpu| self.free_at(cpu) <= thread.ready);
        let cpu = last.or_else(|| (0..self.free.len()).min_by_key(|&cpu| self.free_at(cpu)))?;
        let start = thread.ready.max(self.free_at(cpu)).plus_us(SWITCH_US);
        Some(Turn { thread: index, cpu, start, first_on_cpu: self.free.get(cpu)?.is_none() })
    }

    fn free_at(&self, cpu: usize) -> Time {
        self.free.get(cpu).copied().flatten().unwrap_or(Time::START)
    }

    pub(crate) fn occupy(&mut self, cpu: usize, until: Time) {
        if let Some(free) = self.free.get_mut(cpu) {
            *free = Some(until);
        }
    }

    /// Nothing happens before this any more; `None` if nothing happens at all.
    pub(crate) fn horizon(threads: &[ReplayedThread<'_>]) -> Option<Time> {
        runnable(threads).map(|(_, thread)| thread.ready).min()
    }
}

fn runnable<'a, 'p>(
    threads: &'a [ReplayedThread<'p>],
) -> impl Iterator<Item = (usize, &'a ReplayedThread<'p>)> {
    threads.iter().enumerate().filter(|(_, thread)| thread.runnable && !thread.done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Log, ThreadLog};

    fn logs(count: usize) -> Vec<ThreadLog> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cmd.txt"), "1\n").unwrap();
        for name in ["maps0.txt", "maps.txt", "blocks.bin"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        (1..=count).for_each(|tid| std::fs::write(dir.path().join(format!("t{tid}.log")), "").unwrap());
        Log::open(dir.path()).unwrap().threads
    }

    /// Thread and CPU of each of the first turns; every turn takes 10 us, and then 5 us of sleep.
    fn turns(logs: &[ThreadLog], cpus: usize, count: usize) -> Vec<(usize, usize)> {
        let mut threads: Vec<ReplayedThread<'_>> =
            logs.iter().map(|log| ReplayedThread::new(log, true)).collect();
        let mut schedule = Schedule::new(cpus);
        (0..count)
            .map(|_| {
                let turn = schedule.next(&threads).unwrap();
                let end = turn.start.plus_us(10.0);
                schedule.occupy(turn.cpu, end);
                let thread = &mut threads[turn.thread];
                (thread.cpu, thread.ready) = (Some(turn.cpu), end.plus_us(5.0));
                (turn.thread, turn.cpu)
            })
            .collect()
    }

    #[test]
    fn three_threads_share_two_cpus_and_migrate() {
        let logs = logs(3);
        let expect = [(0, 0), (1, 1), (2, 0), (0, 1), (1, 0), (2, 1)];
        assert_eq!(turns(&logs, 2, 6), expect);
        assert_eq!(turns(&logs, 2, 6), expect);
    }

    #[test]
    fn a_thread_stays_where_it_was_if_it_can() {
        assert_eq!(turns(&logs(2), 4, 4), [(0, 0), (1, 1), (0, 0), (1, 1)]);
    }

    #[test]
    fn nobody_runs_when_all_are_done() {
        let logs = logs(1);
        let mut threads = vec![ReplayedThread::new(&logs[0], true)];
        let schedule = Schedule::new(1);
        assert!(schedule.next(&threads).unwrap().first_on_cpu);
        assert_eq!(Schedule::horizon(&threads), Some(Time::START));
        threads[0].done = true;
        assert_eq!(schedule.next(&threads), None);
        assert_eq!(Schedule::horizon(&threads), None);
    }
}
