//! Why calls were slow: as text and as JSON.

pub mod json;
pub mod text;

use analyzer::ledger::{Comparison, Descent, Groups, Level, Row, Spent};
use analyzer::{ChildKey, Ledger};
use model::FunctionId;

use super::Names;
use super::names::callee_name;

/// What the ledger of slow and typical calls says.
#[derive(Clone, Copy)]
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
