//! The threads that ran on one CPU.
//!
//! Records get lost, and then two that follow one another contradict: a thread cannot leave a CPU on which
//! another one runs. Such a time is doubtful: it is no thread's for sure, and the entry of each thread that
//! may have run in it says so.
//!
//! ```text
//! in 5 .............. out 7        lost: out 5, in 7
//! |-- 5, doubtful ------|
//! |-- 7, doubtful ------|
//! ```

use crate::clock::Ns;
use crate::ids::{Pid, Tid};

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
    /// Switch records were lost here: the thread ran some of the time, and perhaps others did.
    pub doubtful: bool,
}

/// The threads that ran on one CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Timetable {
    /// By time; the last one is open (`to` is [`Ns::MAX`]) while its thread runs.
    pub(super) runs: Vec<OnCpu>,
    /// When the last record came from this CPU.
    pub(super) seen: Ns,
}

impl Timetable {
    /// The run of the thread that is on the CPU now.
    pub(super) fn open(&mut self) -> Option<&mut OnCpu> {
        self.runs.last_mut().filter(|last| last.to == Ns::MAX)
    }

    /// A thread goes.
    pub(super) fn leaves(&mut self, pid: Pid, tid: Tid, time: Ns) {
        let before = self.runs.last().map_or(Ns(0), |last| last.to);
        let run = match self.open() {
            Some(last) if last.tid == tid => {
                last.to = time;
                return;
            }
            Some(last) => {
                last.to = time;
                last.doubtful = true;
                OnCpu { from: last.from, to: time, pid, tid, doubtful: true }
            }
            // A thread that leaves without having been seen to come was there since the last leave.
            None => OnCpu { from: before, to: time, pid, tid, doubtful: false },
        };
        self.runs.push(run);
    }

    /// A thread comes.
    pub(super) fn comes(&mut self, pid: Pid, tid: Tid, time: Ns) {
        if let Some(last) = self.open() {
            last.to = time;
            last.doubtful = last.tid != tid;
        }
        self.runs.push(OnCpu { from: time, to: Ns::MAX, pid, tid, doubtful: false });
    }

    /// Forgets all but the runs from `time` on.
    pub(super) fn forget_before(&mut self, time: Ns) {
        let later = self.runs_from(time).len();
        self.runs.drain(..self.runs.len() - later);
    }

    /// The threads that had not left before `time`, and at least the last one: the next one may have come
    /// after it.
    pub(super) fn runs_from(&self, time: Ns) -> &[OnCpu] {
        let over = self.runs.partition_point(|run| run.to < time);
        self.runs.get(over.min(self.runs.len().saturating_sub(1))..).unwrap_or_default()
    }

    /// Records were lost between the last one and `time`.
    pub(super) fn lost(&mut self, time: Ns) {
        let seen = self.seen;
        let nobody = OnCpu { from: seen, to: Ns::MAX, pid: Pid(-1), tid: Tid(-1), doubtful: true };
        let run = match self.open() {
            Some(last) => {
                last.to = seen.max(last.from);
                OnCpu { from: last.to, doubtful: true, ..*last }
            }
            None => OnCpu { from: self.runs.last().map_or(seen, |last| last.to.max(seen)), ..nobody },
        };
        self.runs.push(OnCpu { to: time.max(run.from), ..run });
    }
}
