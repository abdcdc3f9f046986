//! The ledger of two groups of calls of one recording.

use model::Schedule;
use rustc_hash::FxHashMap;

use super::{Groups, Ledger, Side};
use crate::children::ChildKey;
use crate::report::{CallId, CallRow};
use crate::tree::{CallTree, TreeSink, Trees};

/// Takes the trees of a function's calls into a ledger; the variance is that of all that were seen from entry to end.
pub struct LedgerOfCalls<'a> {
    sides: FxHashMap<CallId, Side>,
    schedule: &'a Schedule,
    ledger: Ledger<ChildKey>,
}

impl<'a> LedgerOfCalls<'a> {
    /// A ledger of these calls, with nothing in it yet.
    #[must_use]
    pub fn new(groups: &Groups, schedule: &'a Schedule) -> Self {
        let side = |rows: &[CallRow], side| rows.iter().map(move |row| (row.id, side)).collect::<Vec<_>>();
        let sides = [side(&groups.slow, Side::These), side(&groups.typical, Side::Base)].concat();
        Self { sides: sides.into_iter().collect(), schedule, ledger: Ledger::default() }
    }

    /// What was gathered.
    #[must_use]
    pub fn finish(self) -> Ledger<ChildKey> {
        self.ledger
    }
}

impl TreeSink for LedgerOfCalls<'_> {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if call.status.counted() {
            let side = self.sides.get(&call.id).copied();
            self.ledger.add(side, (call.tid, tree), self.schedule, |node| node.key());
        }
    }
}
