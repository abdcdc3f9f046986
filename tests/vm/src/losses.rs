//! What was lost: the report's section of losses, held against the trace's gaps and the module's log, in
//! number and in time.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use model::schedule::ThreadLife;
use model::{AuxOffset, Gap, GapCause, Ns, Schedule, Tid};
use serde_json::Value;
use tracegen::truth::{Event, File, Kind};
use truth_tests::Opened;

use crate::case::Losses;

/// A kind of loss: its name in the report, in the log, in the trace, and the cases that have it.
struct Of {
    name: &'static str,
    kind: Kind,
    cause: GapCause,
    cases: &'static [Losses],
}

const ALL: [Of; 3] = [
    Of { name: "overflows", kind: Kind::Overflow, cause: GapCause::Overflow, cases: &[Losses::Overflows] },
    Of {
        name: "truncated",
        kind: Kind::Truncated,
        cause: GapCause::Truncated,
        cases: &[Losses::Full, Losses::Stalled],
    },
    Of { name: "errors", kind: Kind::Damaged, cause: GapCause::DamagedPacket, cases: &[Losses::Damage] },
];

/// The gaps of a recording, by the name of their cause. A loss is a gap in each stay of a thread on its CPU
/// while it lasts.
#[derive(Debug, Default)]
pub(crate) struct Gaps(BTreeMap<&'static str, Vec<(Tid, Gap)>>);

impl Gaps {
    pub(crate) fn add(&mut self, tid: Tid, gap: Gap) {
        self.0.entry(gap.cause.name()).or_default().push((tid, gap));
    }

    /// All of them.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|gaps| gaps.len() as u64).sum()
    }

    fn of(&self, cause: GapCause) -> &[(Tid, Gap)] {
        self.0.get(cause.name()).map_or(&[], Vec::as_slice)
    }

    /// All gaps of a loss are at one place of the trace.
    fn losses(&self, cause: GapCause) -> u64 {
        let mut places: Vec<AuxOffset> = self.of(cause).iter().map(|(_, gap)| gap.at).collect();
        places.sort_unstable();
        places.dedup();
        places.len() as u64
    }
}

/// The trace has the losses of the log, of the kind that was asked for only, and the report's section of
/// losses has the gaps, and their time.
pub(crate) fn same(
    report: &Value,
    losses: Losses,
    gaps: &Gaps,
    opened: &Opened<'_>,
    truth: &File,
) -> Result<()> {
    for Of { name, kind, cause, cases } in ALL {
        let logged = logged(truth, &opened.schedule, kind);
        let (reported, found) = (report["loss"][name].as_u64(), gaps.losses(cause));
        ensure!(found == logged.count, "the trace has {found} losses by {name}, the log {}", logged.count);
        let count = gaps.of(cause).len() as u64;
        ensure!(reported == Some(count), "the report has {reported:?} {name}, the trace {count} gaps");
        ensure!(
            (logged.count > 0) == cases.contains(&losses),
            "{} {name} in a case of {losses:?}",
            logged.count
        );
        if logged.count > 0 {
            same_time(report, gaps.of(cause), logged).with_context(|| format!("time of {name}"))?;
        }
    }
    let late = lost_ns(report, GapCause::NotYetAttached).is_some();
    ensure!(late == (losses == Losses::Births), "threads attached late: {late}, in a case of {losses:?}");
    Ok(())
}

/// The time of a cause in the report is that of its gaps, and between the log's two, as far as the bounds of
/// these tell.
fn same_time(report: &Value, gaps: &[(Tid, Gap)], logged: Logged) -> Result<()> {
    let sum = |of: fn(&Gap) -> u64| gaps.iter().map(|(_, gap)| of(gap)).sum::<u64>();
    let found_ns = sum(|gap| gap.to.point.since(gap.from.point));
    let reported = gaps.first().and_then(|(_, gap)| lost_ns(report, gap.cause));
    ensure!(reported == Some(found_ns), "{reported:?} in the report, {found_ns} ns in its gaps");
    let bounds_ns = sum(|gap| gap.from.hi.since(gap.from.lo) + gap.to.hi.since(gap.to.lo));
    let Logged { least_ns, most_ns, .. } = logged;
    ensure!(
        (least_ns.saturating_sub(bounds_ns)..=most_ns + bounds_ns).contains(&found_ns),
        "{found_ns} ns in the report, give or take {bounds_ns}, {least_ns} to {most_ns} in the log"
    );
    Ok(())
}

fn lost_ns(report: &Value, cause: GapCause) -> Option<u64> {
    let causes = report["loss"]["by_cause"].as_array().map_or(&[][..], Vec::as_slice);
    causes.iter().find(|loss| loss["cause"] == cause.name()).and_then(|loss| loss["lost_ns"].as_u64())
}

/// Losses of one kind in the log.
#[derive(Clone, Copy, Debug, Default)]
struct Logged {
    count: u64,
    /// From the first event that is lost to the first one that is not again, of threads on their CPUs.
    least_ns: u64,
    /// From the last event that is not lost.
    most_ns: u64,
}

fn logged(truth: &File, schedule: &Schedule, kind: Kind) -> Logged {
    let mut sum = Logged::default();
    for thread in truth.threads() {
        let events: Vec<Event> = truth.events(thread).collect();
        let life = schedule.thread(thread.tid);
        let end = life.and_then(|life| life.died).unwrap_or_else(|| truth.ns(thread.last));
        for (at, loss) in events.iter().enumerate().filter(|(_, event)| event.kind == kind) {
            let before = events.get(..at).unwrap_or_default().iter().rfind(|event| !event.is_lost());
            let after = events.get(at + 1..).unwrap_or_default().iter().find(|event| !event.is_lost());
            let to = after.map_or(end, |event| truth.ns(event.tsc));
            sum.count += 1;
            sum.least_ns += on_cpu_ns(life, truth.ns(loss.tsc), to);
            sum.most_ns += on_cpu_ns(life, truth.ns(before.unwrap_or(loss).tsc), to);
        }
    }
    sum
}

/// How much of a time a thread was on a CPU.
fn on_cpu_ns(life: Option<&ThreadLife>, from: Ns, to: Ns) -> u64 {
    let off = life.map_or(&[][..], |life| &life.off_cpu).iter();
    let off_ns = off.map(|off| off.to.unwrap_or(Ns::MAX).min(to).since(off.from.max(from)));
    to.since(from).saturating_sub(off_ns.sum())
}
