//! What makes the difference between two groups of calls: as text and as JSON.

pub mod json;
pub(crate) mod split;
pub mod text;

use std::hash::Hash;

use analyzer::ledger::{Comparison, Descent, Difference, End, Level, MostOf, Row, Spent};
use analyzer::{ChildKind, Ledger};

use super::units::{mean_duration_within, signed_within};

/// Rows that are listed one by one; of more, those that have least of the difference are one row.
const ROWS: usize = 20;

/// A callee, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callee {
    /// Its name.
    pub name: String,
    /// What it is: [`ChildKind::name`], or what time was spent on.
    pub kind: &'static str,
    /// Where it was called, `object+0xoffset`.
    pub site: Option<String>,
    /// Where it was called, `file:line`.
    pub line: Option<String>,
}

impl Callee {
    /// Its line, or else its site.
    fn place(&self) -> &str {
        self.line.as_deref().or(self.site.as_deref()).unwrap_or_default()
    }

    /// Its line, or else its site, without where the line was inlined.
    pub(crate) fn short_place(&self) -> String {
        let place = self.place();
        place.split_once(" inlined at ").map_or(place.to_owned(), |(line, _)| format!("{line} (inlined)"))
    }
}

/// A ledger with its names.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerView {
    /// The difference.
    pub comparison: Comparison,
    /// The callees that its rows are of.
    pub callees: Vec<Callee>,
    /// Where most of it arises; `None`: there is no row.
    pub cause: Option<Cause>,
}

/// Where a difference arises.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Index of the row.
    pub row: usize,
    /// The way there.
    pub descent: Descent,
    /// The callees on it.
    pub callees: Vec<Callee>,
    /// What most of it is: more work, slower work, a slower clock; `None`: none of these alone, or not known.
    pub nature: Option<Nature>,
}

/// What more than half of a cause is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nature {
    /// The part.
    pub most: MostOf,
    /// Calls execute as many instructions in both groups, but for one in a hundred.
    pub as_many_instructions: bool,
}

impl LedgerView {
    /// Of a ledger; `callee` names the callee of a path.
    pub fn new<K: Copy + Eq + Hash>(
        ledger: &Ledger<K>,
        comparison: Comparison,
        callee: impl Fn(usize) -> Callee,
    ) -> Self {
        let of_row = |row: &Row| match (row.path, row.spent) {
            (0, Spent::Running) => {
                Callee { name: "*self".to_owned(), kind: ChildKind::Own.name(), ..Callee::default() }
            }
            (0, spent) => {
                Callee { name: format!("[{}]", spent.name()), kind: spent.name(), ..Callee::default() }
            }
            (path, _) => callee(path),
        };
        let callees = comparison.rows.iter().map(of_row).collect();
        let cause = comparison.leading().map(|leading| {
            let descent = ledger.descend(leading);
            let callees = descent.levels.iter().map(|level| callee(level.path)).collect();
            let row = comparison.rows.iter().position(|row| row == leading).unwrap_or(0);
            let nature = match (descent.end, descent.levels.last()) {
                (End::MoreOften, _) => None,
                // The function's own code: its level has what it called, too.
                (_, Some(last)) if last.path != 0 => last.split.as_ref().and_then(|split| {
                    split::nature(split, last.difference.ns, comparison.calls, last.sums_ns)
                }),
                _ => split::nature_of(leading, comparison.calls),
            };
            Cause { row, descent, callees, nature }
        });
        Self { comparison, callees, cause }
    }

    /// How often one call did this, on average: these, base.
    fn per_call(&self, counts: (u64, u64)) -> (f64, f64) {
        let (these, base) = self.comparison.calls;
        (counts.0 as f64 / these as f64, counts.1 as f64 / base as f64)
    }
}

/// How long each took, on average; `None`: it was not called.
fn each(level: &Level) -> (Option<String>, Option<String>) {
    let Level { counts, sums_ns, errors_ns, .. } = *level;
    let mean = |sum_ns, error_ns, count| (count > 0).then(|| mean_within(sum_ns, error_ns, count));
    (mean(sums_ns.0, errors_ns.0, counts.0), mean(sums_ns.1, errors_ns.1, counts.1))
}

/// In ns, with no digit below its error.
#[must_use]
pub fn difference(Difference { ns, error_ns }: Difference) -> String {
    signed_within(ns, error_ns)
}

/// The mean of `count` durations, with no digit below its error.
#[must_use]
pub fn mean_within(sum_ns: u64, error_ns: u64, count: u64) -> String {
    mean_duration_within(sum_ns as f64 / count as f64, error_ns as f64 / count as f64)
}
