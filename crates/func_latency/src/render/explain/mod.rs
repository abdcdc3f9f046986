//! Why calls were slow: as text and as JSON.

pub mod json;
pub mod text;

use analyzer::branch_path::{BranchPath, Parting, To, Trips, Way};
use analyzer::ledger::{Comparison, Descent, Groups, Level, Row, Spent};
use analyzer::{CallRow, ChildKey, Ledger, Place};
use model::FunctionId;

use super::Names;
use super::names::callee_name;

/// What the ledger of slow and typical calls says.
#[derive(Clone)]
pub struct Explanation<'a> {
    /// What ids are called.
    pub names: &'a dyn Names,
    /// The recording's file, as it was named.
    pub input: &'a str,
    /// Whose calls.
    pub function: FunctionId,
    /// What makes the slow calls slow ones, in words.
    pub asked: &'a str,
    /// Which calls are compared.
    pub groups: &'a Groups,
    /// What they spent their time on.
    pub ledger: &'a Ledger<ChildKey>,
    /// What makes the difference.
    pub comparison: &'a Comparison,
    /// Where a slow call's branches part from those of typical ones; `None`: they were not found.
    pub parting: Option<Branches>,
}

/// The branches of a slow call against those of typical ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Branches {
    /// The slow call.
    pub slow: CallRow,
    /// The typical one with which it has most branches in common.
    pub typical: CallRow,
    /// How many typical ones there are.
    pub others: usize,
    /// Where the two part; `None`: they do not.
    pub first: Option<Parting>,
    /// Loops that the slow call went through more or less often than all of the typical ones.
    pub loops: Vec<Trips>,
    /// Not all branches were compared.
    pub is_cut: bool,
}

impl Branches {
    /// Compares the first of `paths` with the others; `rows`: whose they are.
    #[must_use]
    pub fn of(rows: &[CallRow], paths: &[Option<BranchPath>]) -> Option<Self> {
        let known = rows.iter().zip(paths).filter_map(|(row, path)| Some((row, path.as_ref()?)));
        let (mut slow, mut others): (Vec<_>, Vec<_>) = known.partition(|(row, _)| rows.first() == Some(row));
        let (slow_row, slow) = slow.pop()?;
        // The first of equals is the nearest to the median.
        others.sort_by_key(|(_, path)| std::cmp::Reverse(slow.common(path)));
        let (typical_row, typical) = others.first()?;
        let paths: Vec<&BranchPath> = others.iter().map(|(_, path)| *path).collect();
        Some(Self {
            slow: *slow_row,
            typical: **typical_row,
            others: others.len(),
            first: slow.parts_from(typical),
            loops: slow.other_trips(&paths),
            is_cut: slow.is_cut || paths.iter().any(|path| path.is_cut),
        })
    }
}

impl Explanation<'_> {
    /// The row that most of the difference comes from, and the way down to where it arises.
    fn cause(&self) -> Option<(&Row, Descent)> {
        self.comparison.leading().map(|row| (row, self.ledger.descend(row)))
    }

    fn row_name(&self, row: &Row) -> String {
        match (row.path, row.spent) {
            (0, Spent::Running) => "*self".to_owned(),
            (0, spent) => format!("[{}]", spent.name()),
            (path, _) => self.path_name(path),
        }
    }

    fn path_name(&self, path: usize) -> String {
        let key = self.ledger.paths().get(path).map(|path| path.key);
        key.map_or_else(String::new, |key| callee_name(self.names, key.kind, key.function))
    }

    /// Where a callee was called: `object+0xoffset`, and its line.
    fn place(&self, path: usize) -> (Option<String>, Option<String>) {
        let site = self.ledger.paths().get(path).and_then(|path| path.key.site);
        match site.filter(|_| path != 0) {
            Some(site) => (Some(self.names.site(site)), self.names.line(site)),
            None => (None, None),
        }
    }

    /// `file:line`, or else `object+0xoffset`.
    fn line_or_site(&self, place: Place) -> String {
        self.names.line(place).unwrap_or_else(|| self.names.site(place))
    }

    /// What a call did at a branch.
    fn way(&self, way: Way) -> String {
        match way {
            Way::On => "goes straight on".to_owned(),
            Way::To(To::Place(to)) => format!("goes to {}", self.line_or_site(to)),
            Way::To(To::Kernel) => "makes a system call".to_owned(),
            Way::To(To::Handler(to)) => {
                format!("is interrupted for a signal handler, {}", self.line_or_site(to))
            }
            Way::To(To::Outside) => "leaves the traced code".to_owned(),
        }
    }

    /// How often one call did this, on average: the slow ones, the typical ones.
    fn per_call(&self, counts: (u64, u64)) -> (f64, f64) {
        let (slow, typical) = self.comparison.calls;
        (counts.0 as f64 / slow as f64, counts.1 as f64 / typical as f64)
    }

    /// How long each took, on average; `None`: it was not called.
    fn each_ns(level: &Level) -> (Option<f64>, Option<f64>) {
        let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
        (mean(level.sums_ns.0, level.counts.0), mean(level.sums_ns.1, level.counts.1))
    }
}
