//! Threads on CPUs that were not traced. Only switch records tell of them, and only those make a thread that
//! works there another one than a thread that sleeps.
//!
//! ```text
//! CPU 0, traced    |-- f( ... --|                |-- ... ) g() --|
//! CPU 1, not                      |-- ??? --|
//! events             call f         gap            return, call g, return
//! ```

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use model::schedule::OnCpu;
use model::{AuxOffset, EventTime, Gap, GapCause, Ns, Schedule, SpaceId, Tid, TraceEvent};

use crate::Context;
use crate::owner::{Running, is_traced};
use crate::stretch::Stretch;

/// Stays of threads, by their begin; each is a gap.
pub(crate) struct Stays {
    /// Numbered, so that the order is always the same.
    left: Peekable<IntoIter<(u64, Running)>>,
}

impl Stays {
    /// There are none.
    pub(crate) fn none() -> Self {
        Self { left: Vec::new().into_iter().peekable() }
    }

    /// The stays on untraced CPUs of all threads that were on a traced one at some time: of other threads
    /// nothing was asked for.
    pub(crate) fn on_untraced_cpus(context: &Context<'_>) -> Self {
        let (schedule, coverage) = (context.schedule, &context.recording.coverage);
        let (untraced, traced): (Vec<_>, Vec<_>) =
            schedule.cpus().partition(|(cpu, _)| coverage.is_untraced(*cpu));
        let seen: BTreeSet<Tid> =
            traced.iter().flat_map(|(_, runs)| runs.iter().map(|run| run.tid)).collect();
        let first = context.recording.time_span.map_or(Ns(0), |(first, _)| first);
        let runs = untraced.iter().flat_map(|(_, runs)| runs.iter());
        let known = runs.clone().filter(|run| is_traced(schedule, run) && seen.contains(&run.tid));
        let doubtful = runs.filter(|run| run.doubtful).flat_map(|lost| may_have_run(schedule, &seen, lost));
        let runs = known.map(Running::from).chain(doubtful);
        let stays = runs.map(|run| Running { from: run.from.max(first), to: context.last_of(run), ..run });
        let mut stays: Vec<Running> = stays.filter(|stay| stay.from < stay.to).collect();
        stays.sort_by_key(|stay| (stay.from, stay.tid));
        let numbered: Vec<(u64, Running)> = (0..).zip(stays).collect();
        Self { left: numbered.into_iter().peekable() }
    }

    /// Takes those that begin before `end`.
    pub(crate) fn that_begin_before(&mut self, end: Ns) -> impl Iterator<Item = (u64, Stretch)> + '_ {
        std::iter::from_fn(move || {
            let (number, stay) = self.left.next_if(|(_, stay)| stay.from < end)?;
            let (from, to) = (EventTime::exact(stay.from), EventTime::exact(stay.to));
            let gap = Gap { from, to, bytes: 0, at: AuxOffset(0), cause: GapCause::UntracedCpu };
            let mut stretch = Stretch::new(stay, SpaceId::default(), stay.from);
            stretch.push(TraceEvent::Gap(gap));
            Some((number, stretch))
        })
    }
}

/// Records of a CPU were lost: threads that were off the others meanwhile may have been there.
fn may_have_run<'a>(
    schedule: &'a Schedule,
    seen: &'a BTreeSet<Tid>,
    lost: &'a OnCpu,
) -> impl Iterator<Item = Running> + 'a {
    let lives = seen.iter().filter_map(|tid| Some((*tid, schedule.thread(*tid)?)));
    let others = lives.filter(|(tid, life)| *tid != lost.tid && schedule.has_code(life.pid));
    others.flat_map(move |(tid, life)| {
        let before = life.off_cpu.partition_point(|off| off.to.is_some_and(|to| to <= lost.from));
        let meanwhile = life.off_cpu.iter().skip(before).take_while(|off| off.from < lost.to);
        meanwhile.map(move |off| Running {
            pid: life.pid,
            tid,
            from: off.from.max(lost.from),
            to: off.to.unwrap_or(Ns::MAX).min(lost.to),
        })
    })
}
