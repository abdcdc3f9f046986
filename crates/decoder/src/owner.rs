//! The threads that a buffer's trace is of, at a given time.

use model::schedule::OnCpu;
use model::{AuxBuffer, AuxOwner, Cpu, Ns, Pid, Schedule, Tid};

use crate::Context;
use crate::pieces::first_time;

/// A thread, and how long it stays on the buffer's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Since when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
}

impl Running {
    /// A thread that is not known.
    pub const UNKNOWN: Self = Self { pid: Pid(-1), tid: Tid(-1), from: Ns(0), to: Ns::MAX };

    /// The thread is known.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.tid != Self::UNKNOWN.tid
    }
}

/// A thread that a loss hides, and which part of the loss is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// The thread.
    pub running: Running,
    /// Since when; `None`: since the loss began.
    pub from: Option<Ns>,
    /// Until when, if it left before the loss ended.
    pub not_after: Option<Ns>,
}

impl LostPart {
    /// All of the loss is one thread's.
    #[must_use]
    pub fn all_of(running: Running) -> Self {
        Self { running, from: None, not_after: None }
    }
}

/// A thread runs no code of its own in this time after its switch-in record.
const SWITCH_NS: u64 = 400;

/// The threads of one buffer.
pub enum Owner<'a> {
    /// One thread alone.
    Thread {
        /// The thread.
        running: Running,
        /// Its trace does not go on after this.
        until: Ns,
    },
    /// Those that the switch records name.
    Cpu {
        /// The traced threads.
        schedule: &'a Schedule,
        /// The threads that came and left, by time.
        runs: &'a [OnCpu],
        /// The buffer's CPU.
        cpu: Cpu,
    },
}

impl<'a> Owner<'a> {
    /// Those of a buffer.
    #[must_use]
    pub fn new(context: &Context<'a>, buffer: &AuxBuffer<'_>) -> Self {
        let always = |pid, tid, until| {
            let running = Running { pid, tid, from: Ns(0), to: Ns::MAX };
            Self::Thread { running, until: context.last_of(running).min(until) }
        };
        let schedule = context.schedule;
        match buffer.owner {
            AuxOwner::Thread(tid) => {
                let life = schedule.thread(tid);
                // A thread after it may have the number.
                let of_earlier = life.filter(|life| !life.dead.is_empty());
                let at = of_earlier.and_then(|life| Some(life.at(first_time(context, &buffer.pieces)?)));
                let (pid, died) = at.unzip();
                let pid = pid.or(life.map(|life| life.pid)).or(context.recording.first_pid);
                always(pid.unwrap_or(Pid(tid.0)), tid, died.flatten().unwrap_or(Ns::MAX))
            }
            AuxOwner::Cpu(cpu) => {
                let runs = schedule.on_cpu(cpu);
                // Without times, switch records do not say which thread the trace is of.
                let runs = if context.has_times() { runs } else { &[] };
                match (runs, schedule.only_traced_thread()) {
                    // Without switch records only a single thread is certain.
                    ([], Some((tid, life))) if context.has_times() || is_alone(context) => {
                        always(life.pid, tid, Ns::MAX)
                    }
                    _ => Self::Cpu { schedule, runs, cpu },
                }
            }
        }
    }

    /// The trace of a thread in this buffer does not go on after this.
    #[must_use]
    pub fn last_of(&self, context: &Context<'_>, who: Running) -> Ns {
        match self {
            Self::Thread { until, .. } => *until,
            Self::Cpu { .. } => context.last_of(who),
        }
    }

    /// The thread that a segment begins with, before it says when that is.
    #[must_use]
    pub fn at_start(&self, first: bool) -> Running {
        match self {
            Self::Thread { running, .. } => *running,
            Self::Cpu { .. } => {
                let running = self.at(Ns(0));
                if first && running.from == Ns(0) { running } else { Running::UNKNOWN }
            }
        }
    }

    /// The thread that enters user code at a time that is at least `lo`.
    ///
    /// The thread at `lo` is the one: trace and switch are never closer than a return from the kernel takes.
    /// If none is there, tracing was enabled before the switch record was written: the next thread is.
    #[must_use]
    pub fn at(&self, lo: Ns) -> Running {
        let (schedule, runs) = match self {
            Self::Thread { running, .. } => return *running,
            Self::Cpu { schedule, runs, .. } => (schedule, runs),
        };
        let first = runs.partition_point(|run| run.to <= lo);
        let next = runs.iter().skip(first).find(|run| run.doubtful || is_traced(schedule, run));
        next.filter(|run| !run.doubtful).map_or(Running::UNKNOWN, Running::from)
    }

    /// The thread that runs traced kernel code at a time that is at least `lo`.
    ///
    /// The kernel writes its switch records inside of what it traces: a thread's trace goes on after its
    /// switch-out record, and the next one's begins before its switch-in record. Between the two records the
    /// nearer one tells.
    ///
    /// ```text
    ///   trace of A -----------|      |----------- trace of B
    ///              A out ^                ^ B in
    /// ```
    #[must_use]
    pub fn in_kernel_at(&self, lo: Ns) -> Running {
        let next = self.at(lo);
        let Self::Cpu { schedule, runs, .. } = self else { return next };
        let left = runs.partition_point(|run| run.to <= lo).checked_sub(1).map(|last| &runs[last]);
        match left.filter(|run| is_traced(schedule, run) && !run.doubtful) {
            Some(last) if lo < next.from && lo.since(last.to) < next.from.since(lo) => last.into(),
            _ => next,
        }
    }

    /// The traced threads that may have run between `from` and `to`, where switch records were lost.
    pub fn doubtful(&self, from: Ns, to: Ns) -> impl Iterator<Item = Running> + '_ {
        let (schedule, runs) = match self {
            Self::Thread { .. } => (None, &[][..]),
            Self::Cpu { schedule, runs, .. } => (Some(schedule), *runs),
        };
        let first = runs.partition_point(|run| run.to <= from);
        let traced =
            move |run: &&OnCpu| schedule.is_some_and(|schedule| run.doubtful && is_traced(schedule, run));
        runs.iter().skip(first).take_while(move |run| run.from < to).filter(traced).map(Running::from)
    }

    /// A thread that came to this CPU at `from`, and at `to`, was on no other in between, as far as records
    /// tell.
    pub fn stayed(&self, tid: Tid, from: Ns, to: Ns) -> bool {
        let Self::Cpu { schedule, cpu: here, .. } = self else { return true };
        let Some(life) = schedule.thread(tid) else { return from == to };
        let first = life.on_cpu.partition_point(|(came, _)| *came <= from);
        let since = life.on_cpu.iter().skip(first).take_while(|(came, _)| *came < to);
        since.into_iter().all(|(_, cpu)| cpu == here)
    }

    /// The threads that a loss hides, if it began while `before` ran and ended, not before `end`, while `now`
    /// runs.
    pub fn lost(&self, before: Running, now: Running, end: Ns) -> Vec<LostPart> {
        if (before.tid, before.from) == (now.tid, now.from) {
            return vec![LostPart::all_of(before)];
        }
        if !before.is_known() && now.is_known() {
            return vec![LostPart::all_of(now)];
        }
        let mut parts = vec![LostPart { not_after: Some(before.to), ..LostPart::all_of(before) }];
        let until = if now.is_known() { now.from } else { end };
        let others = self.between(before.to, until).filter(|other| end.since(other.from) > SWITCH_NS);
        parts.extend(others.map(|running| LostPart {
            running,
            from: Some(running.from),
            not_after: Some(running.to),
        }));
        if now.is_known() && end.since(now.from) > SWITCH_NS {
            parts.push(LostPart { running: now, from: Some(now.from), not_after: None });
        }
        parts
    }

    /// The traced threads that came to the CPU after `after` and left it before `until`.
    pub fn between(&self, after: Ns, until: Ns) -> impl Iterator<Item = Running> + '_ {
        let (schedule, runs) = match self {
            Self::Thread { .. } => (None, &[][..]),
            Self::Cpu { schedule, runs, .. } => (Some(schedule), *runs),
        };
        let first = runs.partition_point(|run| run.from < after);
        let traced = move |run: &&OnCpu| schedule.is_some_and(|schedule| is_traced(schedule, run));
        runs.iter().skip(first).take_while(move |run| run.to <= until).filter(traced).map(Running::from)
    }
}

/// Only one buffer has a trace: without times nothing says in which order those of several are.
fn is_alone(context: &Context<'_>) -> bool {
    context.recording.buffers.iter().filter(|buffer| !buffer.is_empty()).count() == 1
}

/// Its code is known, and it is not the idle task.
pub(crate) fn is_traced(schedule: &Schedule, run: &OnCpu) -> bool {
    run.tid.0 > 0 && schedule.has_code(run.pid)
}

impl From<&OnCpu> for Running {
    fn from(run: &OnCpu) -> Self {
        let OnCpu { from, to, pid, tid, .. } = *run;
        Self { pid, tid, from, to }
    }
}
