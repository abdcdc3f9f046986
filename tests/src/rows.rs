//! Rows of the analyzer against rows of the oracle.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

use analyzer::{CallRow, Caller, FunctionReport, Place};
use model::{Avma, CodeSource as _, FunctionLookup as _, Ns, Pid, Tid};
use tracegen::truth::calls::{Calls, Entered, Row, Status};

use crate::pipeline::Opened;
use crate::ran::counted_difference;

/// The kernel's time from a thread's last traced instruction until it has left the CPU: the truth has no
/// event of it.
pub(crate) const LEAVING_NS: u64 = 2_000;

/// How far off the estimate of a stay in the scheduler may be.
const SCHEDULER_NS: u64 = 200;

/// However wide its bounds are, what starts farther away is no entry that was taken for another one.
const NEAR_NS: u64 = 1_000;

/// Calls after a guess that tell which row is its own: in a loop all are alike, and only its end tells.
const FORESIGHT: usize = 1 << 12;

/// What of the rows must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// All rows.
    All,
    /// Those whose entry was seen, without their depth: what was open before a loss, or ran on after it, is
    /// known to the oracle only.
    Entered,
}

/// Differences between the two, described; empty if there are none.
#[must_use]
pub fn differences(opened: &Opened<'_>, report: &FunctionReport, calls: &Calls, compare: Compare) -> String {
    let mut text = String::new();
    let mut threads: BTreeMap<Tid, (Vec<&CallRow>, Vec<&Row>)> = BTreeMap::new();
    let at_entry = already_at_entry(opened, report, calls);
    let may_differ = |tid, number| number == 0 && at_entry.contains(&tid);
    for row in report.rows.iter().filter(|row| !may_differ(row.tid, row.id.number)) {
        if compare == Compare::All || row.status != analyzer::Status::OpenStart {
            threads.entry(row.tid).or_default().0.push(row);
        }
    }
    // Whether a handler was entered there, or goes on at its first instruction, ours may not know.
    let may_be_found = |row: &Row| {
        let is_near = |ours: &CallRow| ours.start_ns.0.abs_diff(row.start.0) <= ours.error_ns.min(NEAR_NS);
        let is_there = |ours: &&CallRow| ours.tid == row.tid && is_near(ours);
        let mut there = report.rows.iter().filter(is_there).peekable();
        let is_found = |ours: &CallRow| ours.undecided && ours.status == analyzer::Status::OpenStart;
        row.entered == Entered::Signal && there.peek().is_some() && there.all(is_found)
    };
    for row in calls.rows.iter().filter(|row| !may_differ(row.tid, row.number)) {
        if compare == Compare::All || is_entered(row) && !may_be_found(row) {
            threads.entry(row.tid).or_default().1.push(row);
        }
    }
    for (tid, (ours, truth)) in &mut threads {
        // By entry: starts are estimates, and may be equal.
        ours.sort_by_key(|r| r.id.number);
        truth.sort_by_key(|r| r.number);
        // From there on a call may be on one that has ended: its depth is a guess, too.
        let guesses = ours.iter().filter(|row| row.undecided).map(|row| row.start_ns);
        let of_truth = truth.iter().filter(|row| row.unsure).map(|row| row.start);
        let first_guess = guesses.chain(of_truth).min();
        let doubts: Vec<RangeInclusive<Ns>> = ours.iter().filter(|row| row.undecided).map(lifetime).collect();
        for (i, (mine, true_row)) in Pairs::new(opened, ours, truth, &doubts).enumerate() {
            let difference = match (mine, true_row) {
                (Some(mine), Some(true_row)) => {
                    let is_on_guess =
                        first_guess.is_some_and(|first| first <= mine.start_ns.max(true_row.start));
                    difference(opened, mine, true_row, if is_on_guess { Compare::Entered } else { compare })
                }
                (Some(_), None) => Some("not in the truth"),
                _ => Some("missing"),
            };
            if let Some(what) = difference {
                let (function, tid, counts) = (&calls.function, tid.0, (ours.len(), truth.len()));
                let _ = writeln!(text, "{function} thread {tid} row {i} of {counts:?} differs in: {what}");
                let _ = writeln!(text, "  truth    {true_row:x?}\n  analyzer {mine:x?}");
                break; // what follows is shifted
            }
        }
    }
    text
}

/// Threads that were at the first instruction of the function when tracing of them began: after an IP filter
/// that looks as if they had just come there.
fn already_at_entry(opened: &Opened<'_>, report: &FunctionReport, calls: &Calls) -> Vec<Tid> {
    let looks_entered = |found: &&Row| {
        let is_it = |row: &&CallRow| (row.tid, row.id.number) == (found.tid, found.number);
        let first = report.rows.iter().find(is_it);
        first.is_some_and(|row| row.status != analyzer::Status::OpenStart && starts_at(row, found))
    };
    let found = calls.rows.iter().filter(|row| row.number == 0 && row.status == Status::OpenStart);
    let has_filter = opened.recording.pt.has_ip_filter;
    found.filter(|_| has_filter).filter(looks_entered).map(|row| row.tid).collect()
}

/// The rows of both in order, without those of which one of them says that it is guessing. Such a one may
/// have none in the other: it is known by its start, and where that may be the next call's as well, by what
/// is the same after it. Neither has a call of the truth that is found running while ours has one that may
/// have ended, or not: it may be that one.
#[derive(Clone, Copy)]
struct Pairs<'r, 'a> {
    opened: &'r Opened<'r>,
    ours: &'r [&'a CallRow],
    truth: &'r [&'a Row],
    /// When ours has calls in doubt, and for how many of the truth they have stood.
    doubts: &'r [RangeInclusive<Ns>],
    absorbed: usize,
    foresees: bool,
}

impl<'r, 'a> Pairs<'r, 'a> {
    fn new(
        opened: &'r Opened<'r>,
        ours: &'r [&'a CallRow],
        truth: &'r [&'a Row],
        doubts: &'r [RangeInclusive<Ns>],
    ) -> Self {
        Self { opened, ours, truth, doubts, absorbed: 0, foresees: true }
    }

    /// The call may be one of ours that is in doubt.
    fn may_be_in_doubt(&self, row: &Row) -> bool {
        let has_started_in = |lifetime: &RangeInclusive<Ns>| lifetime.contains(&row.start);
        let is_found = row.status == Status::OpenStart;
        is_found && self.absorbed < self.doubts.len() && self.doubts.iter().any(has_started_in)
    }

    /// Of the two ways to go on after a guess that may have a row in the other, the one after which more is
    /// the same.
    fn after_guess(self, alone: Self, both: Option<Self>) -> Self {
        match both {
            Some(both) if !self.foresees || both.alike() >= alone.alike() => both,
            _ => alone,
        }
    }

    /// How many of the next pairs are the same call.
    fn alike(self) -> usize {
        // Where times are far off many calls begin at the same time: what else is the same tells more.
        let is_same = |pair: &(Option<&CallRow>, Option<&Row>)| match pair {
            (Some(mine), Some(truth)) => {
                is_entry_of(mine, truth) && difference(self.opened, mine, truth, Compare::Entered).is_none()
            }
            _ => false,
        };
        Self { foresees: false, ..self }.take(FORESIGHT).take_while(is_same).count()
    }
}

impl<'a> Iterator for Pairs<'_, 'a> {
    type Item = (Option<&'a CallRow>, Option<&'a Row>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (mine, true_row) = (self.ours.first().copied(), self.truth.first().copied());
            let is_one = mine.zip(true_row).is_some_and(|(mine, row)| is_entry_of(mine, row));
            let without_mine = Self { ours: self.ours.get(1..).unwrap_or_default(), ..*self };
            let without_true = Self { truth: self.truth.get(1..).unwrap_or_default(), ..*self };
            let without_both = Self { ours: without_mine.ours, ..without_true };
            let both = is_one.then_some(without_both);
            if mine.is_some_and(|mine| mine.undecided) {
                *self = self.after_guess(without_mine, both);
            } else if true_row.is_some_and(|row| row.unsure) {
                *self = self.after_guess(without_true, both);
            } else if !is_one && true_row.is_some_and(|row| self.may_be_in_doubt(row)) {
                *self = Self { absorbed: self.absorbed + 1, ..without_true };
            } else {
                *self = without_both;
                return (mine.is_some() || true_row.is_some()).then_some((mine, true_row));
            }
        }
    }
}

fn is_entry_of(ours: &CallRow, truth: &Row) -> bool {
    let is_found = ours.status == analyzer::Status::OpenStart;
    is_found == (truth.status == Status::OpenStart) && starts_at(ours, truth)
}

/// From its first instant to its last, as far as its error tells.
fn lifetime(row: &&CallRow) -> RangeInclusive<Ns> {
    let (start, error) = (row.start_ns.0, row.error_ns);
    Ns(start.saturating_sub(error))..=Ns(start.saturating_add(row.latency_ns).saturating_add(error))
}

fn starts_at(ours: &CallRow, truth: &Row) -> bool {
    truth.start.0.abs_diff(ours.start_ns.0) <= ours.error_ns
}

fn is_entered(row: &Row) -> bool {
    row.status != Status::OpenStart && !row.entry_lost
}

/// What is not the same in one call.
fn difference(opened: &Opened<'_>, ours: &CallRow, truth: &Row, compare: Compare) -> Option<&'static str> {
    let has_filter = opened.recording.pt.has_ip_filter;
    let (caller_ip, entered) = visible_caller(truth, has_filter);
    let too_long = |ours: u64, truth: u64, error: u64| ours > truth.saturating_add(error);
    if ours.status.name() != truth.status.name() {
        Some("status")
    } else if site(opened, caller_ip, truth.start) != ours.site {
        Some("call site")
    } else if !same_caller(ours.caller, entered, caller_ip) {
        Some("kind of caller")
    } else if ours.depth != truth.depth && compare == Compare::All {
        Some("depth")
    } else if ours.ended_by_jump != truth.by_jump {
        Some("ended by jump")
    } else if !truth.status.is_whole() {
        // "At least": how long the thread sleeps on after its last event is not always known, and what
        // follows a loss never is.
        let known_ns = |off_cpu_ns: u64| ours.off_cpu_ns.map_or(0, |_| off_cpu_ns);
        let on_cpu = ours.latency_ns.saturating_sub(ours.off_cpu_ns.unwrap_or_default());
        let most = truth.latency_ns.saturating_sub(known_ns(truth.off_cpu_ns)) + LEAVING_NS;
        let wrong = too_long(on_cpu, most, ours.error_ns);
        wrong.then_some("at least")
    } else if ours.off_cpu_ns.is_some_and(|ns| ns.abs_diff(truth.off_cpu_ns) > off_cpu_error(opened, ours)) {
        Some("off-CPU time")
    } else if ours.latency_ns.abs_diff(truth.latency_ns) > ours.error_ns {
        Some("latency")
    } else {
        ours.counted.and_then(|counted| counted_difference(&counted, truth.ran))
    }
}

/// Switch records have exact times; where the scheduler was entered and left is an estimate. A switch that
/// may have been before the call's start, or after it, or likewise its end, can be in its time or not.
pub(crate) fn off_cpu_error(opened: &Opened<'_>, row: &CallRow) -> u64 {
    let of_scheduler = if opened.scheduler().is_some() { SCHEDULER_NS } else { 0 };
    let (start, error) = (row.start_ns.0, row.error_ns);
    let ends = [start, start + row.latency_ns];
    let may_be_either =
        |from: u64, to: u64| ends.iter().any(|end| from < end + error && end - error.min(*end) < to);
    let off_cpu = opened.schedule.thread(row.tid).map_or(&[][..], |life| &life.off_cpu);
    // A thread that ends is switched out for good, and the truth has no record of that.
    let last = ends[1] + error;
    let stretches = off_cpu.iter().map(|off| (off.from.0, off.to.map_or(last, |to| to.0)));
    let unsure = stretches.filter(|&(from, to)| may_be_either(from, to));
    of_scheduler + unsure.map(|(from, to)| to.saturating_sub(from)).sum::<u64>()
}

/// The instruction that entered a call, and how, as far as the trace can tell: with an IP filter only the
/// return to the caller does, or to the restorer of signals.
fn visible_caller(truth: &Row, has_filter: bool) -> (Avma, Entered) {
    let returned = truth.status == Status::Complete && !truth.by_jump;
    let is_hidden = truth.entered == Entered::Filter || has_filter && truth.entered == Entered::Signal;
    if is_hidden && !returned { (Avma(0), Entered::Filter) } else { (truth.caller_ip, truth.entered) }
}

fn same_caller(caller: Caller, entered: Entered, caller_ip: Avma) -> bool {
    match caller {
        Caller::Signal => entered == Entered::Signal,
        Caller::Interrupt => entered == Entered::Interrupt,
        Caller::Unknown => !matches!(entered, Entered::Signal | Entered::Interrupt) && caller_ip == Avma(0),
        Caller::Function { tail, .. } => caller_ip != Avma(0) && tail == (entered == Entered::Tail),
    }
}

/// The instruction at `ip`, as it was mapped then.
#[must_use]
pub fn site(opened: &Opened<'_>, ip: Avma, at: Ns) -> Option<Place> {
    if ip == Avma(0) {
        return None;
    }
    let pid = opened.recording.first_pid.unwrap_or(Pid(0));
    let space = opened.image.space(pid, at);
    let (object, svma) = opened.image.place(space, ip)?;
    Some(Place { object, svma })
}
