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
    differences_of_rows(opened, &report.rows, calls, compare)
}

fn differences_of_rows(opened: &Opened<'_>, rows: &[CallRow], calls: &Calls, compare: Compare) -> String {
    let has_filter = opened.recording.pt.has_ip_filter;
    let mut text = String::new();
    let mut threads: BTreeMap<Tid, (Vec<&CallRow>, Vec<&Row>)> = BTreeMap::new();
    let at_entry = already_at_entry(opened, rows, calls);
    let may_differ = |tid, number| number == 0 && at_entry.contains(&tid);
    for row in rows.iter().filter(|row| !may_differ(row.id.tid, row.id.number)) {
        if compare == Compare::All || row.end.status != analyzer::Status::OpenStart {
            threads.entry(row.id.tid).or_default().0.push(row);
        }
    }
    // Whether a handler was entered there, or goes on at its first instruction, ours may not know.
    let may_be_found = |row: &Row| {
        let is_near = |ours: &CallRow| ours.start_ns.0.abs_diff(row.start.0) <= ours.error_ns.min(NEAR_NS);
        let is_there = |ours: &&CallRow| ours.id.tid == row.tid && is_near(ours);
        let mut there = rows.iter().filter(is_there).peekable();
        let is_found = |ours: &CallRow| ours.end.undecided && ours.end.status == analyzer::Status::OpenStart;
        let is_guess = compare == Compare::Entered && row.entered == Entered::Signal;
        is_guess && there.peek().is_some() && there.all(is_found)
    };
    let is_guess = |row: &Row| row.unsure || may_be_found(row);
    for row in calls.rows.iter().filter(|row| !may_differ(row.tid, row.number)) {
        if compare == Compare::All || is_entered(row) {
            threads.entry(row.tid).or_default().1.push(row);
        }
    }
    for (tid, (ours, truth)) in &mut threads {
        // By entry: starts are estimates, and may be equal.
        ours.sort_by_key(|r| r.id.number);
        truth.sort_by_key(|r| r.number);
        // From there on a call may be on one that has ended: its depth is a guess, too.
        let guesses = ours.iter().filter(|row| row.end.undecided).map(|row| row.start_ns);
        let of_truth = truth.iter().filter(|row| row.unsure).map(|row| row.start);
        let first_guess = guesses.chain(of_truth).min();
        let doubts: Vec<RangeInclusive<Ns>> =
            ours.iter().filter(|row| row.end.undecided).map(lifetime).collect();
        let what = |mine: &CallRow, true_row: &Row| {
            let is_on_guess = first_guess.is_some_and(|first| first <= mine.start_ns.max(true_row.start));
            difference(opened, mine, true_row, if is_on_guess { Compare::Entered } else { compare })
        };
        let may_be = |mine: &CallRow, row: &Row| {
            // With an IP filter the caller is known if the call returns, and when that is is a guess.
            is_entry_of(mine, row) && (has_filter || has_site(opened, mine, row))
        };
        let pairs = Pairs { ours, truth, doubts: &doubts, is_guess: &is_guess, may_be: &may_be, what: &what };
        if let Some((i, j)) = pairs.first_without_partner() {
            let (mine, true_row) = (ours.get(i), truth.get(j));
            let what = match (mine, true_row) {
                (Some(mine), Some(true_row)) => what(mine, true_row).unwrap_or("start"),
                (Some(_), None) => "not in the truth",
                _ => "missing",
            };
            let (function, tid, counts) = (&calls.function, tid.0, (ours.len(), truth.len()));
            let _ = writeln!(text, "{function} thread {tid} row {i} of {counts:?} differs in: {what}");
            let _ = writeln!(text, "  truth    {true_row:x?}\n  analyzer {mine:x?}");
        }
    }
    text
}

/// Threads that were at the first instruction of the function when tracing of them began: after an IP filter
/// that looks as if they had just come there.
fn already_at_entry(opened: &Opened<'_>, rows: &[CallRow], calls: &Calls) -> Vec<Tid> {
    let looks_entered = |found: &&Row| {
        let is_it = |row: &&CallRow| (row.id.tid, row.id.number) == (found.tid, found.number);
        let first = rows.iter().find(is_it);
        first.is_some_and(|row| row.end.status != analyzer::Status::OpenStart && starts_at(row, found))
    };
    let found = calls.rows.iter().filter(|row| row.number == 0 && row.status == Status::OpenStart);
    let has_filter = opened.recording.pt.has_ip_filter;
    found.filter(|_| has_filter).filter(looks_entered).map(|row| row.tid).collect()
}

/// The rows of both in order. All rows can be paired if each that neither side guesses has its partner in
/// some choice of partners for the guesses. A guess may have no partner: where times are far off many calls
/// may be it, and only all others tell which. A call of the truth that is found running while ours has one
/// that may have ended, or not, may be that one, and has no partner either.
struct Pairs<'r, 'a> {
    ours: &'r [&'a CallRow],
    truth: &'r [&'a Row],
    /// When ours has calls in doubt: for each it may have one of the truth that is found running.
    doubts: &'r [RangeInclusive<Ns>],
    /// The truth is guessing, or ours cannot know if the call is one.
    is_guess: &'r dyn Fn(&Row) -> bool,
    /// The two may be one call, of which one side guesses.
    may_be: &'r dyn Fn(&CallRow, &Row) -> bool,
    /// What is not the same in a call of both.
    what: &'r dyn Fn(&CallRow, &Row) -> Option<&'static str>,
}

impl Pairs<'_, '_> {
    /// How many rows of each can be paired, as far as that goes, if not all rows can.
    fn first_without_partner(&self) -> Option<(usize, usize)> {
        let first_ours = first_starts(self.ours.iter().map(|row| *lifetime(row).start()));
        let first_true = first_starts(self.truth.iter().map(|row| row.start));
        // The rows of the truth that may be next when this one of ours is; with how many calls in doubt that
        // were taken for rows of the truth before.
        let mut reached = BTreeMap::from([(0, 0)]);
        let mut farthest = (0, 0);
        for (i, next_ours) in first_ours.into_iter().enumerate() {
            let mine = self.ours.get(i);
            let mut next = BTreeMap::new();
            while let Some((j, absorbed)) = reached.pop_first() {
                let row = self.truth.get(j);
                if mine.is_none() && row.is_none() {
                    return None;
                }
                farthest = farthest.max((i, j));
                if let Some(mine) = mine.filter(|mine| mine.end.undecided) {
                    reach(&mut next, j, absorbed);
                    if first_true[j].0 > mine.start_ns.0.saturating_add(mine.error_ns) {
                        continue; // all that it may be is earlier
                    }
                }
                let Some(row) = row else { continue };
                let is_guess = (self.is_guess)(row);
                if is_guess {
                    reach(&mut reached, j + 1, absorbed);
                    if row.start < next_ours {
                        continue;
                    }
                } else if absorbed < self.doubts.len() && self.may_be_in_doubt(row) {
                    reach(&mut reached, j + 1, absorbed + 1);
                }
                if mine.is_some_and(|mine| self.may_be_one(mine, row, is_guess)) {
                    reach(&mut next, j + 1, absorbed);
                }
            }
            reached = next;
        }
        Some(farthest)
    }

    fn may_be_one(&self, mine: &CallRow, row: &Row, is_guess: bool) -> bool {
        if mine.end.undecided || is_guess {
            return (self.may_be)(mine, row);
        }
        starts_at(mine, row) && (self.what)(mine, row).is_none()
    }

    /// The call may be one of ours that is in doubt.
    fn may_be_in_doubt(&self, row: &Row) -> bool {
        row.status == Status::OpenStart && self.doubts.iter().any(|lifetime| lifetime.contains(&row.start))
    }
}

fn reach(reached: &mut BTreeMap<usize, usize>, truth: usize, absorbed: usize) {
    reached.entry(truth).and_modify(|least| *least = absorbed.min(*least)).or_insert(absorbed);
}

/// The earliest start of each row and those after it; of none after the last.
fn first_starts(starts: impl DoubleEndedIterator<Item = Ns>) -> Vec<Ns> {
    let mut first = vec![Ns(u64::MAX)];
    for start in starts.rev() {
        first.push(start.min(first[first.len() - 1]));
    }
    first.reverse();
    first
}

/// Both were entered by the same instruction.
fn has_site(opened: &Opened<'_>, ours: &CallRow, truth: &Row) -> bool {
    truth.status == Status::OpenStart || site(opened, truth.caller_ip, truth.start) == ours.from.site
}

fn is_entry_of(ours: &CallRow, truth: &Row) -> bool {
    let is_found = ours.end.status == analyzer::Status::OpenStart;
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
    if ours.end.status.name() != truth.status.name() {
        Some("status")
    } else if site(opened, caller_ip, truth.start) != ours.from.site {
        Some("call site")
    } else if !same_caller(ours.from.caller, entered, caller_ip) {
        Some("kind of caller")
    } else if ours.depth != truth.depth && compare == Compare::All {
        Some("depth")
    } else if ours.end.by_jump != truth.by_jump {
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
        ours.counted().and_then(|counted| counted_difference(counted, truth.ran))
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
    let off_cpu = opened.schedule.thread(row.id.tid).map_or(&[][..], |life| &life.off_cpu);
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

#[cfg(test)]
mod tests {
    use analyzer::{CallEnd, CallId, CalledFrom, Evidence, TracedRow};
    use image::{Image, ImageOptions};
    use model::{FunctionId, Recording, Schedule};
    use tracegen::truth::calls::Ran;
    use tracegen::truth::verify::KernelText;

    use super::*;

    const TID: Tid = Tid(1);

    /// A call, its site a number; its time is as far off as that of all others.
    fn ours(number: u64, start: u64, latency_ns: u64, undecided: bool) -> CallRow {
        CallRow {
            id: CallId { tid: TID, number },
            pid: None,
            cpu: None,
            start_ns: Ns(start),
            latency_ns,
            error_ns: 30,
            off_cpu_ns: None,
            end: CallEnd { undecided, ..CallEnd::of(analyzer::Status::Complete) },
            from: CalledFrom::UNKNOWN,
            function: FunctionId(1),
            depth: 0,
            evidence: Evidence::Traced(TracedRow::default()),
        }
    }

    fn of_truth(number: u64, start: u64, latency_ns: u64, unsure: bool) -> Row {
        Row {
            tid: TID,
            number,
            start: Ns(start),
            latency_ns,
            off_cpu_ns: 0,
            ran: Ran::default(),
            status: Status::Complete,
            caller_ip: Avma(0),
            entered: Entered::Call,
            depth: 0,
            by_jump: false,
            entry_lost: false,
            unsure,
        }
    }

    /// What has no partner; calls are the same if their latency is.
    fn check(ours: &[CallRow], truth: &[Row]) -> Option<(usize, usize)> {
        let (ours, truth): (Vec<_>, Vec<_>) = (ours.iter().collect(), truth.iter().collect());
        let what = |mine: &CallRow, row: &Row| (mine.latency_ns != row.latency_ns).then_some("latency");
        let is_guess = |row: &Row| row.unsure;
        let pairs = Pairs {
            ours: &ours,
            truth: &truth,
            doubts: &[],
            is_guess: &is_guess,
            may_be: &is_entry_of,
            what: &what,
        };
        pairs.first_without_partner()
    }

    /// Seeds 9716121 and 9717961.
    #[test]
    fn a_call_that_may_be_a_guess_of_the_other_is_the_one_that_is_known() {
        let guess = |number, start| of_truth(number, start, 2, true);
        let truth = [guess(0, 1000), guess(1, 1005), of_truth(2, 1010, 1, false), guess(3, 1015)];
        assert_eq!(check(&[ours(0, 1000, 1, false)], &truth), None);
        let guess = |number, start| ours(number, start, 2, true);
        let mine = [guess(0, 1000), guess(1, 1005), ours(2, 1010, 1, false), guess(3, 1015)];
        assert_eq!(check(&mine, &[of_truth(0, 1000, 1, false)]), None);
    }

    /// Seed 9702515: behind a loss a handler is entered where ours finds one running, with times that are far
    /// off.
    #[test]
    fn a_handler_that_may_be_found_running_may_be_a_call_of_ours() {
        let truth = [of_truth(0, 1_000, 1, false), of_truth(1, 9_000, 1, false)];
        let truth = truth.map(|row| Row { entered: Entered::Signal, ..row });
        let mine = |number, start| {
            let row = ours(number, start, 1, false);
            CallRow { error_ns: 20_000, from: CalledFrom { caller: Caller::Signal, site: None }, ..row }
        };
        let found = |number, start| {
            let end = CallEnd { undecided: true, ..CallEnd::of(analyzer::Status::OpenStart) };
            CallRow { end, ..mine(number, start) }
        };
        let rows = [mine(0, 1_000), mine(1, 7_000), found(2, 9_500)];
        assert_eq!(differ(&rows, &truth), "");
        assert_eq!(differ(&[rows[0], rows[2]], &truth), "");
        let text = differ(&[rows[0], rows[1], rows[2], mine(3, 9_700)], &truth);
        assert!(text.contains("not in the truth"), "{text}");
    }

    fn differ(rows: &[CallRow], truth: &[Row]) -> String {
        let opened = Opened {
            recording: Recording::default(),
            schedule: Schedule::default(),
            image: Image::load(&[], &ImageOptions::default()),
            kernel: KernelText::default(),
        };
        let calls = Calls {
            function: "f".into(),
            object: String::new(),
            entry: None,
            rows: truth.to_vec(),
            hidden: 0,
            odd_flow: 0,
            children: vec![],
            callers: vec![],
            open_children: vec![],
        };
        differences_of_rows(&opened, rows, &calls, Compare::Entered)
    }

    #[test]
    fn a_call_that_neither_guesses_has_a_partner() {
        let truth = [of_truth(0, 1000, 1, false), of_truth(1, 1010, 2, true), of_truth(2, 1020, 3, false)];
        assert_eq!(check(&[ours(0, 1000, 1, false)], &truth), Some((1, 2)));
        assert_eq!(check(&[ours(0, 1000, 1, false), ours(1, 1020, 4, false)], &truth), Some((2, 2)));
        let far = [ours(0, 1000, 1, false), ours(1, 1010, 2, true), ours(2, 1060, 3, false)];
        assert_eq!(check(&far, &truth), Some((2, 3)));
    }
}
