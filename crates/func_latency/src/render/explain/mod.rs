//! Why calls were slow: as text and as JSON.

pub mod json;
pub mod open_calls;
pub mod text;

use analyzer::branch_path::{BranchPath, Parting, To, Trips, Way};
use analyzer::ledger::{End, Groups, Outlying, Spent};
use analyzer::{CallRow, ChildKey, Ledger, Place};
use model::{FunctionId, NoOffCpu};

use super::Names;
use super::ledger::{Callee, LedgerView};
use super::names::callee_name;

/// What the ledger of slow and typical calls says.
#[derive(Clone, Copy)]
pub struct Explanation<'a> {
    /// What ids are called.
    pub names: &'a dyn Names,
    /// The recording's file, as it was named.
    pub input: &'a str,
    /// The function of the calls.
    pub function: FunctionId,
    /// What makes the slow calls slow ones, in words.
    pub asked: &'a str,
    /// Which calls are compared.
    pub groups: &'a Groups,
    /// All slow calls. Their branches are those of one call of the largest cluster, if there is one.
    pub whole: &'a ExplainedGroup,
    /// Slow calls that are slow for the same reason; that of most calls first.
    pub clusters: &'a [ExplainedGroup],
    /// Slow calls in no cluster.
    pub others: &'a [CallRow],
    /// Why off-CPU time is not known; then it is inside of the time of the code that went off the CPU.
    pub no_off_cpu: Option<NoOffCpu>,
}

/// Clusters that are listed one by one in the text, with a call of each opened.
pub const CLUSTERS: usize = 4;

/// Some slow calls against the typical ones.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedGroup {
    /// The slow calls, the slowest first.
    pub calls: Vec<CallRow>,
    /// Whether they are slow.
    pub outlying: Outlying,
    /// What makes the difference.
    pub ledger: LedgerView,
    /// Where a slow call's branches part from those of typical ones; `None`: they were not looked for, or
    /// not found.
    pub branches: Option<Branches>,
}

impl ExplainedGroup {
    /// `None`: there is nothing to compare.
    #[must_use]
    pub fn new(
        names: &dyn Names,
        calls: &[CallRow],
        outlying: Outlying,
        ledger: &Ledger<ChildKey>,
        branches: Option<Branches>,
    ) -> Option<Self> {
        let ledger = LedgerView::new(ledger, ledger.compare()?, |path| callee(names, ledger, path));
        Some(Self { calls: calls.to_vec(), outlying, ledger, branches })
    }

    /// Code takes longer itself, and a call took the same branches as a typical one.
    #[must_use]
    pub fn is_only_slower(&self) -> bool {
        let is_own = self.ledger.cause.as_ref().is_some_and(|cause| {
            let row = self.ledger.comparison.rows.get(cause.row);
            cause.descent.end == End::Own && row.is_some_and(|row| row.spent == Spent::Running)
        });
        is_own && self.branches.as_ref().is_some_and(|branches| branches.first.is_none() && !branches.is_cut)
    }
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
    /// Compares the first of `paths` with the others; `rows`: their calls.
    #[must_use]
    pub fn of(rows: &[CallRow], paths: &[Option<&BranchPath>]) -> Option<Self> {
        let known = rows.iter().zip(paths).filter_map(|(row, path)| Some((row, (*path)?)));
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

impl<'a> Explanation<'a> {
    /// Clusters that the text lists.
    fn listed(&self) -> &'a [ExplainedGroup] {
        self.clusters.get(..CLUSTERS).unwrap_or(self.clusters)
    }

    /// `file:line`, or else `object+0xoffset`.
    fn line_or_site(&self, place: Place) -> String {
        self.names.line(place).unwrap_or_else(|| self.names.site(place))
    }

    /// `file:line` of a place, or else its site, without where the line was inlined.
    fn short_place(&self, place: Place) -> String {
        let line = self.line_or_site(place);
        line.split_once(" inlined at ").map_or(line.clone(), |(line, _)| format!("{line} (inlined)"))
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
}

/// A callee of one recording's ledger; the first is the function itself, without a site: its callers differ.
#[must_use]
pub fn callee(names: &dyn Names, ledger: &Ledger<ChildKey>, path: usize) -> Callee {
    let Some(known) = ledger.paths().get(path) else { return Callee::default() };
    let site = known.key.site.filter(|_| path != 0);
    Callee {
        name: callee_name(names, known.kind, known.key.function),
        kind: known.kind.name(),
        site: site.map(|site| names.site(site)),
        line: site.and_then(|site| names.line(site)),
    }
}
