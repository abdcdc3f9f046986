//! The ledger of two groups of calls, of one recording or of two.

use std::hash::Hash;

use model::{Ns, Schedule, Tid};
use rustc_hash::FxHashMap;

use super::clusters::SpentByCall;
use super::{Clusters, Groups, Ledger, LeftOut, Parts, Side};
use crate::call_row::{CallId, CallRow};
use crate::children::ChildKey;
use crate::place::ChildKind;
use crate::report::{ErrorBound, FunctionReport, RowDetails};
use crate::row_children::RowChild;
use crate::total::Total;
use crate::tree::{CallTree, Node, Step, TreeSink, Trees};

/// Takes the trees of a function's calls into a ledger; the variance is that of all that were seen from entry
/// to end.
pub struct LedgerOfCalls<'a> {
    groups: &'a Groups,
    sides: FxHashMap<CallId, Side>,
    schedule: &'a Schedule,
    ledger: Ledger<ChildKey>,
    by_call: SpentByCall,
}

impl<'a> LedgerOfCalls<'a> {
    /// A ledger of these calls, with nothing in it yet.
    #[must_use]
    pub fn new(groups: &'a Groups, schedule: &'a Schedule) -> Self {
        let (ledger, by_call) = (Ledger::default(), SpentByCall::new(groups));
        Self { groups, sides: sides(groups), schedule, ledger, by_call }
    }

    /// What was gathered, of all slow calls and of those with one reason.
    #[must_use]
    pub fn finish(self) -> (Ledger<ChildKey>, Clusters<ChildKey>) {
        let clusters = self.ledger.clusters(self.groups, &self.by_call);
        (self.ledger, clusters)
    }
}

fn sides(groups: &Groups) -> FxHashMap<CallId, Side> {
    let side = |rows: &[CallRow], side| rows.iter().map(move |row| (row.id, side)).collect::<Vec<_>>();
    [side(&groups.slow, Side::These), side(&groups.typical, Side::Base)].concat().into_iter().collect()
}

/// The ledger of calls with known direct callees and waits only: those of each row of `function`.
#[must_use]
pub fn ledger_of_rows(groups: &Groups, function: &FunctionReport) -> (Ledger<ChildKey>, Clusters<ChildKey>) {
    let sides = sides(groups);
    let FunctionReport { rows, row_details: RowDetails { children, reasons }, .. } = function;
    let (mut ledger, mut by_call) = (Ledger::default(), SpentByCall::new(groups));
    let is_known = |row: &CallRow| row.end.status.counted() && function.has_children_of(row);
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| is_known(row)) {
        let tree = shallow_tree(row, children.of(at), &children.keys);
        let waited = Parts::off_cpu(reasons.split_of(at), row.off_cpu_ns.unwrap_or_default());
        // In which callee it waited is in no row.
        let spent = |step: &Step<'_>| {
            let mut parts = Parts::on_cpu(step);
            if step.depth == 0 {
                parts.add(waited);
            }
            parts
        };
        let side = sides.get(&row.id).copied();
        by_call.add(&mut ledger, (row.id, side), &tree, spent, |node| node.key());
    }
    let clusters = ledger.clusters(groups, &by_call);
    (ledger, clusters)
}

impl TreeSink for LedgerOfCalls<'_> {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if call.end.status.counted() {
            let side = self.sides.get(&call.id).copied();
            let spent = |step: &Step<'_>| Parts::of(step, call.id.tid, self.schedule);
            self.by_call.add(&mut self.ledger, (call.id, side), tree, spent, |node| node.key());
        }
    }
}

/// A call and its direct callees, those that are alike in one node.
fn shallow_tree(row: &CallRow, children: &[RowChild], keys: &[ChildKey]) -> CallTree {
    let root = Node {
        kind: ChildKind::Call,
        status: row.end.status,
        function: row.function,
        site: row.from.site,
        start: row.start_ns,
        total: Total { count: 1, sum_ns: row.latency_ns, off_cpu_ns: row.off_cpu_ns },
        error_ns: row.error_ns,
        work: None,
        size: 1 + children.len(),
    };
    let callee = |child: &RowChild| {
        let ChildKey { kind, function, site } = *keys.get(child.key as usize)?;
        let RowChild { total, error_ns, .. } = *child;
        Some(Node { kind, function, site, total, error_ns, size: 1, ..root })
    };
    CallTree::new(std::iter::once(root).chain(children.iter().filter_map(callee)).collect())
}

/// What becomes of off-CPU time in a ledger of two recordings.
#[derive(Clone, Copy, Debug)]
pub enum OffCpuPart<'a> {
    /// It has rows of its own: both recordings know it, and this is the one's schedule.
    Apart(&'a Schedule),
    /// It stays in the time of the code that went off the CPU: one of the recordings does not know it.
    Inside,
}

/// Takes all calls of a recording into one side of a ledger.
pub struct AllCalls<'a, K, F> {
    ledger: &'a mut Ledger<K>,
    side: Side,
    off_cpu: OffCpuPart<'a>,
    key: F,
    /// Starts, threads, latencies and errors.
    calls: Vec<(Ns, Tid, u64, u64)>,
    left_out: LeftOut,
}

/// The calls of a recording that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Latencies in the order of the calls' starts.
    pub latencies_ns: Vec<u64>,
    /// How far these may be from the truth.
    pub error: ErrorBound,
    /// Calls that are not compared.
    pub left_out: LeftOut,
}

impl<'a, K, F> AllCalls<'a, K, F> {
    /// `key` names the callee of a node as it is named in the other recording.
    pub fn new(ledger: &'a mut Ledger<K>, side: Side, off_cpu: OffCpuPart<'a>, key: F) -> Self {
        Self { ledger, side, off_cpu, key, calls: Vec::new(), left_out: LeftOut::default() }
    }

    /// The calls.
    #[must_use]
    pub fn finish(mut self) -> Compared {
        self.calls.sort_unstable();
        let calls: Vec<(u64, u64)> =
            self.calls.into_iter().map(|(.., ns, error_ns)| (ns, error_ns)).collect();
        Compared::of(&calls, self.left_out)
    }
}

impl Compared {
    /// Of calls in the order of their starts: latencies and errors.
    #[must_use]
    pub fn of(calls: &[(u64, u64)], left_out: LeftOut) -> Self {
        let latencies_ns = calls.iter().map(|(ns, _)| *ns).collect();
        Self { latencies_ns, error: ErrorBound::of_calls(calls), left_out }
    }
}

impl<K: Copy + Eq + Hash, F: FnMut(&Node) -> K> TreeSink for AllCalls<'_, K, F> {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if self.left_out.compares(call) {
            let spent = |step: &Step<'_>| match self.off_cpu {
                OffCpuPart::Apart(schedule) => Parts::of(step, call.id.tid, schedule),
                OffCpuPart::Inside => Parts::whole(step),
            };
            self.ledger.add(Some(self.side), tree, spent, &mut self.key);
            self.calls.push((call.start_ns, call.id.tid, call.latency_ns, call.error_ns));
        }
    }

    fn too_deep(&mut self, call: &CallRow) {
        self.left_out.compares(call);
    }
}
