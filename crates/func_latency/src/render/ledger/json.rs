//! A ledger as JSON: what `explain` and `diff` have in common. Sums are over all calls of a group (`these`:
//! those that are asked about, `base`: those that they are compared with), differences are of the means;
//! those of the rows add up to the whole.

use analyzer::ledger::{End, LeftOut, Level, Row};
use serde::Serialize;

use super::split::{self, Parts};
use super::{Callee, LedgerView};

/// A row.
#[derive(Serialize)]
pub struct RowJson<'a> {
    name: &'a str,
    kind: &'static str,
    site: Option<&'a str>,
    line: Option<&'a str>,
    these_sum_ns: u64,
    /// The most by which the sum may differ from the true one.
    these_error_ns: u64,
    base_sum_ns: u64,
    base_error_ns: u64,
    /// Null: not counted.
    these_count: Option<u64>,
    base_count: Option<u64>,
    difference_ns: i64,
    difference_error_ns: u64,
    more_often_ns: Option<i64>,
    more_often_error_ns: Option<u64>,
    each_longer_ns: Option<i64>,
    each_longer_error_ns: Option<u64>,
    variance_share: Option<f64>,
    /// What running time became more by; not there if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<Parts>,
}

/// Where most of the difference arises.
#[derive(Serialize)]
pub struct CauseJson<'a> {
    /// Index of the row.
    row: usize,
    /// `more_often`, `own` or `several`: what is true of the last callee.
    why: &'static str,
    /// From the function down.
    path: Vec<OnPath<'a>>,
    /// `more_instructions`, `slower_instructions` or `lower_frequency`: what more than half of it is; not
    /// there if none is, or if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    nature: Option<&'static str>,
}

/// A callee on the way.
#[derive(Serialize)]
struct OnPath<'a> {
    name: &'a str,
    kind: &'static str,
    site: Option<&'a str>,
    line: Option<&'a str>,
    these_count: u64,
    base_count: u64,
    these_sum_ns: u64,
    these_error_ns: u64,
    base_sum_ns: u64,
    base_error_ns: u64,
    difference_ns: i64,
    difference_error_ns: u64,
    more_often_ns: i64,
    more_often_error_ns: u64,
    each_longer_ns: i64,
    each_longer_error_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<Parts>,
}

/// Calls that are not compared.
#[derive(Serialize)]
pub struct NotCompared {
    open_start: u64,
    open_end: u64,
    cut: u64,
    /// Too deep inside of others of their function.
    nested: u64,
}

impl From<LeftOut> for NotCompared {
    fn from(LeftOut { open_start, open_end, cut, nested }: LeftOut) -> Self {
        Self { open_start, open_end, cut, nested }
    }
}

/// All rows.
#[must_use]
pub fn rows(view: &LedgerView) -> Vec<RowJson<'_>> {
    view.comparison.rows.iter().zip(&view.callees).map(|(row, callee)| entry(row, callee)).collect()
}

fn entry<'a>(row: &Row, callee: &'a Callee) -> RowJson<'a> {
    RowJson {
        name: &callee.name,
        kind: callee.kind,
        site: callee.site.as_deref(),
        line: callee.line.as_deref(),
        these_sum_ns: row.sums_ns.0,
        these_error_ns: row.errors_ns.0,
        base_sum_ns: row.sums_ns.1,
        base_error_ns: row.errors_ns.1,
        these_count: row.counts.map(|counts| counts.0),
        base_count: row.counts.map(|counts| counts.1),
        difference_ns: row.difference.ns,
        difference_error_ns: row.difference.error_ns,
        more_often_ns: row.more_often.map(|part| part.ns),
        more_often_error_ns: row.more_often.map(|part| part.error_ns),
        each_longer_ns: row.each_longer.map(|part| part.ns),
        each_longer_error_ns: row.each_longer.map(|part| part.error_ns),
        variance_share: row.variance_share,
        split: row.split.as_ref().map(Parts::from),
    }
}

/// The cause.
#[must_use]
pub fn cause(view: &LedgerView) -> Option<CauseJson<'_>> {
    let super::Cause { row, descent, callees, nature } = view.cause.as_ref()?;
    let why = match descent.end {
        End::MoreOften => "more_often",
        End::Own => "own",
        End::Several => "several",
    };
    let path = descent.levels.iter().zip(callees).map(|(level, callee)| on_path(level, callee)).collect();
    let nature = nature.as_ref().map(|nature| split::name(nature.most));
    Some(CauseJson { row: *row, why, path, nature })
}

fn on_path<'a>(level: &Level, callee: &'a Callee) -> OnPath<'a> {
    OnPath {
        name: &callee.name,
        kind: callee.kind,
        site: callee.site.as_deref(),
        line: callee.line.as_deref(),
        these_count: level.counts.0,
        base_count: level.counts.1,
        these_sum_ns: level.sums_ns.0,
        these_error_ns: level.errors_ns.0,
        base_sum_ns: level.sums_ns.1,
        base_error_ns: level.errors_ns.1,
        difference_ns: level.difference.ns,
        difference_error_ns: level.difference.error_ns,
        more_often_ns: level.more_often.ns,
        more_often_error_ns: level.more_often.error_ns,
        each_longer_ns: level.each_longer.ns,
        each_longer_error_ns: level.each_longer.error_ns,
        split: level.split.as_ref().map(Parts::from),
    }
}
