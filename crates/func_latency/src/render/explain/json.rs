//! The explanation as JSON: schema `func_latency_explain/1`.  Keys stand in the order of these structs; new ones may be
//! added.  Sums are over all calls of a group, differences are of the means; those of the rows add up to the whole.

use std::io::{self, Write};

use analyzer::ChildKind;
use analyzer::branch_path::{Parting, Trips};
use analyzer::ledger::{End, Level, Row, Spent, Typical};
use serde::Serialize;

use super::{Branches, Explanation};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency_explain/1";

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    function: String,
    object: Option<String>,
    /// Which calls are slow.
    asked: String,
    slow: Group,
    typical: Group,
    /// `same_callers` or `all_callers`: whose typical calls these are.
    typical_of: &'static str,
    not_compared: NotCompared,
    difference_ns: i64,
    outlying: Outlying,
    rows: Vec<Entry>,
    /// Null: the slow calls are no outliers.
    cause: Option<Cause>,
    /// Null: the branches of the calls were not found.
    branches: Option<Parted>,
}

/// A slow call's branches against those of typical calls.
#[derive(Serialize)]
struct Parted {
    slow: String,
    /// The one with which it has most in common.
    typical: String,
    typical_calls: usize,
    /// Branches were left out: the calls took too many.
    is_cut: bool,
    /// Null: the two took the same branches.
    first: Option<Branch>,
    /// Loops with other trip counts than in any of the typical calls.
    loops: Vec<Loop>,
}

#[derive(Serialize)]
struct Branch {
    site: String,
    line: Option<String>,
    common_branches: usize,
    slow: String,
    typical: String,
}

#[derive(Serialize)]
struct Loop {
    site: String,
    line: Option<String>,
    slow: u64,
    typical_min: u64,
    typical_max: u64,
}

#[derive(Serialize)]
struct Group {
    calls: u64,
    sum_ns: u64,
    mean_ns: f64,
    ids: Vec<String>,
}

#[derive(Serialize)]
struct NotCompared {
    open_start: u64,
    open_end: u64,
    cut: u64,
}

/// Whether the slow calls are farther from their callers' median than what is spread like the others reaches.
#[derive(Serialize)]
struct Outlying {
    is_so: bool,
    above_ns: f64,
    reach_ns: f64,
    others: u64,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    /// As in a report; of what is no callee, what the time was spent on.
    kind: &'static str,
    site: Option<String>,
    line: Option<String>,
    slow_sum_ns: u64,
    typical_sum_ns: u64,
    /// Null: not counted.
    slow_count: Option<u64>,
    typical_count: Option<u64>,
    difference_ns: i64,
    more_often_ns: Option<i64>,
    each_longer_ns: Option<i64>,
    variance_share: Option<f64>,
}

#[derive(Serialize)]
struct Cause {
    /// Index of the row.
    row: usize,
    /// `more_often`, `own` or `several`: what is true of the last callee.
    why: &'static str,
    /// From the function down to where the difference arises.
    path: Vec<Callee>,
}

#[derive(Serialize)]
struct Callee {
    name: String,
    kind: &'static str,
    site: Option<String>,
    line: Option<String>,
    slow_count: u64,
    typical_count: u64,
    slow_sum_ns: u64,
    typical_sum_ns: u64,
    difference_ns: i64,
    more_often_ns: i64,
    each_longer_ns: i64,
}

/// Writes the explanation as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, explanation: &Explanation<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(explanation))?;
    writeln!(out)
}

fn document(explanation: &Explanation<'_>) -> Document {
    let Explanation { names, groups, comparison, .. } = explanation;
    let group = |calls: u64, sum_ns: u64, rows: &[analyzer::CallRow]| Group {
        calls,
        sum_ns,
        mean_ns: sum_ns as f64 / calls as f64,
        ids: rows.iter().map(|row| row.id.to_string()).collect(),
    };
    let outlying = groups.outlying;
    Document {
        schema: SCHEMA,
        function: names.function(explanation.function),
        object: names.object_of(explanation.function),
        asked: explanation.asked.to_owned(),
        slow: group(comparison.calls.0, comparison.sums_ns.0, &groups.slow),
        typical: group(comparison.calls.1, comparison.sums_ns.1, &groups.typical),
        typical_of: match groups.whose {
            Typical::SameCallers => "same_callers",
            Typical::AllCallers => "all_callers",
        },
        not_compared: NotCompared {
            open_start: groups.left_out.open_start,
            open_end: groups.left_out.open_end,
            cut: groups.left_out.cut,
        },
        difference_ns: comparison.difference_ns,
        outlying: Outlying {
            is_so: outlying.is_so(),
            above_ns: outlying.above_ns,
            reach_ns: outlying.reach_ns,
            others: outlying.others,
        },
        rows: comparison.rows.iter().map(|row| entry(explanation, row)).collect(),
        cause: if outlying.is_so() { cause(explanation) } else { None },
        branches: explanation.parting.as_ref().map(|branches| parted(explanation, branches)),
    }
}

fn parted(explanation: &Explanation<'_>, branches: &Branches) -> Parted {
    let names = explanation.names;
    let first = |first: &Parting| Branch {
        site: names.site(first.at),
        line: names.line(first.at),
        common_branches: first.common,
        slow: explanation.way(first.these),
        typical: explanation.way(first.base),
    };
    let trips = |trips: &Trips| Loop {
        site: names.site(trips.from),
        line: names.line(trips.from),
        slow: trips.these,
        typical_min: trips.base.0,
        typical_max: trips.base.1,
    };
    Parted {
        slow: branches.slow.id.to_string(),
        typical: branches.typical.id.to_string(),
        typical_calls: branches.others,
        is_cut: branches.is_cut,
        first: branches.first.as_ref().map(first),
        loops: branches.loops.iter().map(trips).collect(),
    }
}

fn entry(explanation: &Explanation<'_>, row: &Row) -> Entry {
    let (site, line) = explanation.place(row.path);
    let kind = match (row.path, row.spent) {
        (0, Spent::Running) => ChildKind::Own.name(),
        (0, spent) => spent.name(),
        (path, _) => kind(explanation, path),
    };
    Entry {
        name: explanation.row_name(row),
        kind,
        site,
        line,
        slow_sum_ns: row.sums_ns.0,
        typical_sum_ns: row.sums_ns.1,
        slow_count: row.counts.map(|counts| counts.0),
        typical_count: row.counts.map(|counts| counts.1),
        difference_ns: row.difference_ns,
        more_often_ns: row.more_often_ns,
        each_longer_ns: row.more_often_ns.map(|more_often| row.difference_ns.saturating_sub(more_often)),
        variance_share: row.variance_share,
    }
}

fn kind(explanation: &Explanation<'_>, path: usize) -> &'static str {
    explanation.ledger.paths().get(path).map_or("", |path| path.kind.name())
}

fn cause(explanation: &Explanation<'_>) -> Option<Cause> {
    let (leading, descent) = explanation.cause()?;
    let row = explanation.comparison.rows.iter().position(|row| row == leading)?;
    let why = match descent.end {
        End::MoreOften => "more_often",
        End::Own => "own",
        End::Several => "several",
    };
    let path = descent.levels.iter().map(|level| callee(explanation, level)).collect();
    Some(Cause { row, why, path })
}

fn callee(explanation: &Explanation<'_>, level: &Level) -> Callee {
    let (site, line) = explanation.place(level.path);
    Callee {
        name: explanation.path_name(level.path),
        kind: kind(explanation, level.path),
        site,
        line,
        slow_count: level.counts.0,
        typical_count: level.counts.1,
        slow_sum_ns: level.sums_ns.0,
        typical_sum_ns: level.sums_ns.1,
        difference_ns: level.difference_ns,
        more_often_ns: level.more_often_ns,
        each_longer_ns: level.difference_ns.saturating_sub(level.more_often_ns),
    }
}
