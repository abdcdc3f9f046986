//! The explanation as JSON: schema `func_latency_explain/1`. Keys stand in the order of these structs; new
//! ones may be added. In the rows `these` are the slow calls and `base` the typical ones.

use std::io::{self, Write};

use analyzer::CallRow;
use analyzer::branch_path::{Parting, Trips};
use analyzer::ledger::Typical;
use model::NoOffCpu;
use serde::Serialize;

use super::{Branches, ExplainedGroup, Explanation};
use crate::render::ledger;
use crate::render::ledger::json::{CauseJson, NotCompared, RowJson};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency_explain/1";

#[derive(Serialize)]
struct ExplainDocument<'a> {
    schema: &'static str,
    function: String,
    object: Option<String>,
    /// Which calls are slow.
    asked: String,
    slow: ExplainGroup,
    /// The slowest first.
    slow_ids: Vec<String>,
    typical: ExplainGroup,
    /// `same_callers` or `all_callers`: the callers of these typical calls.
    typical_of: &'static str,
    not_compared: NotCompared,
    difference_ns: i64,
    difference_error_ns: u64,
    outlying: Outlying,
    rows: Vec<RowJson<'a>>,
    /// Why off-CPU time is not known; then it is inside of the other rows.  Null: it is known.
    no_off_cpu: Option<&'static str>,
    /// Null: the slow calls are no outliers.
    cause: Option<CauseJson<'a>>,
    /// Null: the branches of the calls were not found.
    branches: Option<Parted>,
    /// Slow calls that are slow for the same reason; that of most calls first.
    clusters: Vec<Cluster<'a>>,
    /// Slow calls in no cluster: no farther above the median than chance takes their number of calls.
    other_ids: Vec<String>,
}

/// Slow calls with one reason, against the typical calls of all slow ones.
#[derive(Serialize)]
struct Cluster<'a> {
    slow: ExplainGroup,
    /// The slowest first.
    slow_ids: Vec<String>,
    difference_ns: i64,
    difference_error_ns: u64,
    outlying: Outlying,
    rows: Vec<RowJson<'a>>,
    cause: Option<CauseJson<'a>>,
    /// One call took the same branches as a typical one, and the code at the end of the cause's path takes
    /// longer itself.
    only_slower: bool,
    /// Of one of these calls. Null: they were not looked for (in the largest clusters alone), or not found.
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
    first: Option<CodeBranch>,
    /// Loops with other trip counts than in any of the typical calls.
    loops: Vec<Loop>,
}

#[derive(Serialize)]
struct CodeBranch {
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
struct ExplainGroup {
    calls: u64,
    sum_ns: u64,
    /// The most by which the sum may differ from the true one.
    error_sum: u64,
    mean_ns: f64,
}

/// Whether the slow calls are farther from their callers' median than calls that are spread like the others
/// reach.
#[derive(Serialize)]
struct Outlying {
    is_so: bool,
    above_ns: f64,
    reach_ns: f64,
    others: u64,
}

/// Writes the explanation as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, explanation: &Explanation<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(explanation))?;
    writeln!(out)
}

fn document<'a>(explanation: &Explanation<'a>) -> ExplainDocument<'a> {
    let Explanation { names, groups, whole, .. } = *explanation;
    let comparison = &whole.ledger.comparison;
    ExplainDocument {
        schema: SCHEMA,
        function: names.function(explanation.function),
        object: names.object_of(explanation.function),
        asked: explanation.asked.to_owned(),
        slow: group(comparison.calls.0, comparison.sums_ns.0, comparison.errors_ns.0),
        slow_ids: ids(&whole.calls),
        typical: group(comparison.calls.1, comparison.sums_ns.1, comparison.errors_ns.1),
        typical_of: match groups.whose {
            Typical::SameCallers => "same_callers",
            Typical::AllCallers => "all_callers",
        },
        not_compared: groups.left_out.into(),
        difference_ns: comparison.difference.ns,
        difference_error_ns: comparison.difference.error_ns,
        outlying: outlying(whole.outlying),
        rows: ledger::json::rows(&whole.ledger),
        no_off_cpu: explanation.no_off_cpu.map(NoOffCpu::reason),
        cause: ledger::json::cause(&whole.ledger).filter(|_| whole.outlying.is_so()),
        branches: whole.branches.as_ref().map(|branches| parted(explanation, branches)),
        clusters: explanation.clusters.iter().map(|part| cluster(explanation, part)).collect(),
        other_ids: ids(explanation.others),
    }
}

fn cluster<'a>(explanation: &Explanation<'a>, part: &'a ExplainedGroup) -> Cluster<'a> {
    let comparison = &part.ledger.comparison;
    Cluster {
        slow: group(comparison.calls.0, comparison.sums_ns.0, comparison.errors_ns.0),
        slow_ids: ids(&part.calls),
        difference_ns: comparison.difference.ns,
        difference_error_ns: comparison.difference.error_ns,
        outlying: outlying(part.outlying),
        rows: ledger::json::rows(&part.ledger),
        cause: ledger::json::cause(&part.ledger),
        only_slower: part.is_only_slower(),
        branches: part.branches.as_ref().map(|branches| parted(explanation, branches)),
    }
}

fn group(calls: u64, sum_ns: u64, error_sum: u64) -> ExplainGroup {
    ExplainGroup { calls, sum_ns, error_sum, mean_ns: sum_ns as f64 / calls as f64 }
}

fn ids(calls: &[CallRow]) -> Vec<String> {
    calls.iter().map(|row| row.id.to_string()).collect()
}

fn outlying(outlying: analyzer::ledger::Outlying) -> Outlying {
    let analyzer::ledger::Outlying { above_ns, reach_ns, others } = outlying;
    Outlying { is_so: outlying.is_so(), above_ns, reach_ns, others }
}

fn parted(explanation: &Explanation<'_>, branches: &Branches) -> Parted {
    let names = explanation.names;
    let first = |first: &Parting| CodeBranch {
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
