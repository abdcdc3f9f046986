//! The calls in trees are the calls of the oracle: every call of a function that it has inside of another
//! one's is a node there, and no others; their times are those of the functions' own rows, which are held
//! against the oracle's, too, and no farther from the oracle's than the nodes say.

use std::collections::BTreeMap;

use analyzer::{CallRow, CallTree, TreeSink, Trees};
use decoder::DecodeOptions;
use model::{FunctionId, Ns, Tid};
use tracegen::truth::File;
use tracegen::truth::calls::Oracle;
use truth_tests::{Opened, fixture, pipeline};

use crate::rows_match_oracle::CALLS;

/// Thread, function, start, total, off-CPU time, name of the status.
type Call = (Tid, FunctionId, Ns, u64, Option<u64>, &'static str);

/// The calls of some functions in the trees of another's calls that count.
struct Nodes {
    of: Vec<FunctionId>,
    /// The calls, with the errors of their nodes.
    calls: Vec<(Call, u64)>,
    own_ns: u64,
}

impl TreeSink for Nodes {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if !call.end.status.counted() {
            return;
        }
        for step in tree.walk() {
            let node = step.node;
            self.own_ns += step.own.sum_ns;
            if step.depth > 0 && self.of.contains(&node.function) {
                let total = node.total;
                let call = (
                    call.id.tid,
                    node.function,
                    node.start,
                    total.sum_ns,
                    total.off_cpu_ns,
                    node.status.name(),
                );
                self.calls.push((call, node.error_ns));
            }
        }
    }
}

/// `least`: so many there are in it, by the oracle.
fn check(name: &str, root: &str, names: &[&str], least: usize) {
    let Some(fixture) = fixture(name) else { return };
    let truth = File::load(&fixture.truth).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let root_id = opened.function(root).unwrap();
    let of: Vec<_> = names.iter().map(|name| opened.function(name).unwrap()).collect();
    let mut nodes = Nodes { of: of.clone(), calls: Vec::new(), own_ns: 0 };
    let report = opened.analyse_trees(&[root_id], &DecodeOptions::default(), &mut nodes);
    assert_eq!(nodes.own_ns, report.functions[0].outermost.total.sum_ns, "{name}: all time is some node's");
    let mut oracle = Oracle::new(&truth, &fixture.data).unwrap().with_scheduler(opened.scheduler());
    let roots = oracle.calls(root).unwrap().rows;
    let is_inside = |tid: Tid, start: Ns, ns: u64| {
        let around =
            |r: &tracegen::truth::calls::Row| r.start <= start && start.0 + ns <= r.start.0 + r.latency_ns;
        roots.iter().any(|r| r.tid == tid && r.status.is_whole() && around(r))
    };
    let rows = opened.analyse(&of, &DecodeOptions::default());
    let mut found = 0;
    let truth = oracle.calls_of_each(names).unwrap();
    for (((name_of, id), function), calls) in names.iter().zip(&of).zip(&rows.functions).zip(truth) {
        let mut mine: Vec<(Call, u64)> =
            nodes.calls.iter().filter(|(call, _)| call.1 == *id).copied().collect();
        let mut inside = calls.rows;
        inside.retain(|row| is_inside(row.tid, row.start, row.latency_ns));
        assert_eq!(mine.len(), inside.len(), "{name}: calls of {name_of} in {root}");
        mine.sort_by_key(|((tid, _, start, ..), _)| (*tid, *start));
        inside.sort_by_key(|row| (row.tid, row.start));
        for ((call, error_ns), truth) in mine.iter().zip(&inside) {
            let off_ns = call.3.abs_diff(truth.latency_ns);
            assert!(off_ns <= *error_ns, "{name}: {call:?} +- {error_ns} is {truth:?}");
        }
        let mut own_rows: BTreeMap<Call, u64> = BTreeMap::new();
        for row in &function.rows {
            let call = (row.id.tid, *id, row.start_ns, row.latency_ns, row.off_cpu_ns, row.end.status.name());
            *own_rows.entry(call).or_default() += 1;
        }
        for (call, _) in mine {
            let left = own_rows.entry(call).or_default();
            assert!(*left > 0, "{name}: {name_of} has no row like {call:?}");
            *left -= 1;
        }
        found += inside.len();
    }
    println!("{name}: {found} calls in {root}");
    assert!(found >= least, "{name}: {found} calls in {root}");
}

/// The function whose calls' trees are looked at; and handlers, whose nodes begin where they interrupted, and
/// rows at their first instruction.
const NOT_INSIDE: &[&str] = &["round_cc", "on_alarm", "on_usr1", "on_usr2"];

#[test]
fn calls() {
    let names: Vec<&str> = CALLS.iter().copied().filter(|name| !NOT_INSIDE.contains(name)).collect();
    check("calls", "round_cc", &names, 10_000);
    check("calls-cpu2", "round_cc", &names, 10_000);
    check("calls-clocks", "round_cc", &names, 10_000);
    check("calls-nocyc", "round_cc", &names, 10_000);
}

#[test]
fn sqlite() {
    let names = ["sqlite3VdbeExec", "sqlite3BtreeInsert", "sqlite3VdbeHalt", "sqlite3Malloc", "unixWrite"];
    check("sq1", "sqlite3_exec", &names, 1_644);
    check("sq1", "main", &names, 4_681);
}
