//! Rows of the analyzer against rows of the oracle.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use analyzer::{CallRow, Caller, FunctionReport, Place};
use model::{Avma, CodeSource as _, FunctionLookup as _, Ns, Pid, Tid};
use tracegen::truth::calls::{Calls, Entered, Row, Status};

use crate::pipeline::Opened;

/// What of the rows must be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// All rows.
    All,
    /// Those of complete and unwound calls: what lies around a loss is known to the oracle only.
    Whole,
}

/// Differences between the two, described; empty if there are none.
#[must_use]
pub fn differences(opened: &Opened<'_>, report: &FunctionReport, calls: &Calls, compare: Compare) -> String {
    let mut text = String::new();
    let mut threads: BTreeMap<Tid, (Vec<&CallRow>, Vec<&Row>)> = BTreeMap::new();
    for row in report.rows.iter().filter(|r| compare == Compare::All || r.status.counted()) {
        threads.entry(row.tid).or_default().0.push(row);
    }
    for row in calls.rows.iter().filter(|r| compare == Compare::All || r.status.is_whole()) {
        threads.entry(row.tid).or_default().1.push(row);
    }
    for (tid, (ours, truth)) in &mut threads {
        ours.sort_by_key(|r| (r.start_ns, r.depth));
        truth.sort_by_key(|r| (r.start, r.depth));
        for i in 0..ours.len().max(truth.len()) {
            let (mine, true_row) = (ours.get(i), truth.get(i));
            let difference = match (mine, true_row) {
                (Some(mine), Some(true_row)) => difference(opened, mine, true_row),
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

/// What is not the same in one call.
fn difference(opened: &Opened<'_>, ours: &CallRow, truth: &Row) -> Option<&'static str> {
    if ours.status.name() != truth.status.name() {
        return Some("status");
    }
    if site(opened, truth.caller_ip, truth.start) != ours.site {
        return Some("call site");
    }
    if !same_caller(ours.caller, truth) {
        return Some("kind of caller");
    }
    if ours.off_cpu_ns != truth.off_cpu_ns {
        return Some("off-CPU time");
    }
    if ours.depth != truth.depth {
        return Some("depth");
    }
    if ours.ended_by_jump != truth.by_jump {
        return Some("ended by jump");
    }
    // An open call's "at least" ends at an event of the thread, or with the recording.
    if ours.latency_ns.abs_diff(truth.latency_ns) > ours.error_ns && truth.status != Status::OpenEnd {
        return Some("latency");
    }
    None
}

fn same_caller(caller: Caller, truth: &Row) -> bool {
    match (truth.entered, truth.caller_ip) {
        (Entered::Signal, _) => caller == Caller::Signal,
        (_, Avma(0)) => caller == Caller::Unknown,
        (entered, _) => {
            matches!(caller, Caller::Function { tail, .. } if tail == (entered == Entered::Tail))
        }
    }
}

fn site(opened: &Opened<'_>, ip: Avma, at: Ns) -> Option<Place> {
    if ip == Avma(0) {
        return None;
    }
    let pid = opened.recording.first_pid.unwrap_or(Pid(0));
    let space = opened.image.space(pid, at);
    let (object, svma) = opened.image.place(space, ip)?;
    Some(Place { object, svma })
}
