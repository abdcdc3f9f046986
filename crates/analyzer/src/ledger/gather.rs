//! The ledger of two groups of calls, of one recording or of two.

use std::hash::Hash;

use model::{Ns, Schedule, Tid};
use rustc_hash::FxHashMap;

use super::{Groups, Ledger, LeftOut, Side};
use crate::children::ChildKey;
use crate::report::{CallId, CallRow};
use crate::tree::{CallTree, Node, TreeSink, Trees};

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

/// Takes all calls of a recording into one side of a ledger.
pub struct AllCalls<'a, K, F> {
    ledger: &'a mut Ledger<K>,
    side: Side,
    schedule: &'a Schedule,
    key: F,
    calls: Vec<(Ns, Tid, u64)>,
    left_out: LeftOut,
}

impl<'a, K, F> AllCalls<'a, K, F> {
    /// `key` names the callee of a node as it is named in the other recording.
    pub fn new(ledger: &'a mut Ledger<K>, side: Side, schedule: &'a Schedule, key: F) -> Self {
        Self { ledger, side, schedule, key, calls: Vec::new(), left_out: LeftOut::default() }
    }

    /// The latencies of the calls, in the order of their starts, and calls that are not compared.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u64>, LeftOut) {
        self.calls.sort_unstable();
        (self.calls.into_iter().map(|(.., latency_ns)| latency_ns).collect(), self.left_out)
    }
}

impl<K: Copy + Eq + Hash, F: FnMut(&Node) -> K> TreeSink for AllCalls<'_, K, F> {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if self.left_out.compares(call) {
            self.ledger.add(Some(self.side), (call.tid, tree), self.schedule, &mut self.key);
            self.calls.push((call.start_ns, call.tid, call.latency_ns));
        }
    }

    fn too_deep(&mut self, call: &CallRow) {
        self.left_out.compares(call);
    }
}
