//! Why calls were slow, which ways they go and what makes two recordings differ, as text and JSON.

use analyzer::branch_path::{BranchPath, BranchStep, Kept, OwnBranches, To};
use analyzer::ledger::{AllCalls, Groups, LedgerOfCalls, OffCpuPart, Shift, Side, Slow};
use analyzer::modes::ModesOfCalls;
use analyzer::samples::{Figure, RunsComparison};
use analyzer::{
    CallRow, CallTree, Caller, ChildKind, CycleCount, LatencyRange, Ledger, Node, Place, Status, Total,
    TreeSink, Work,
};
use func_latency::render::compare::FailAbove;
use func_latency::render::explain::{Branches, ExplainedGroup, Explanation, json, text};
use func_latency::render::ledger::{Callee, LedgerView};
use func_latency::render::{diff, modes};
use model::{FunctionId, ObjectId, Schedule, Svma};

use super::golden::check_golden;
use super::report::{FakeNames, place, row};

/// A call: its own time, that of its calls of a callee, and that of a system call, if it makes one.
#[derive(Clone, Copy)]
struct Made {
    own_ns: u64,
    callees: u64,
    each_ns: u64,
    syscall_ns: u64,
}

const TYPICAL: Made = Made { own_ns: 1000, callees: 2, each_ns: 500, syscall_ns: 0 };

fn made(number: u64, call: Made) -> (CallRow, CallTree) {
    let callees_ns = call.callees * call.each_ns;
    let latency_ns = call.own_ns + callees_ns + call.syscall_ns;
    let row = row(
        number,
        Status::Complete,
        latency_ns,
        0,
        Caller::Function { function: FunctionId(3), tail: false },
    );
    let root = Node {
        kind: ChildKind::Call,
        status: Status::Complete,
        function: FunctionId(1),
        site: row.from.site,
        start: row.start_ns,
        total: Total { count: 1, sum_ns: latency_ns, off_cpu_ns: Some(0) },
        error_ns: row.error_ns,
        work: None,
        size: 2 + usize::from(call.syscall_ns > 0),
    };
    let below = |kind, function, svma, count, sum_ns| Node {
        kind,
        function: FunctionId(function),
        site: place(svma),
        total: Total { count, sum_ns, off_cpu_ns: Some(0) },
        error_ns: 2,
        size: 1,
        ..root
    };
    let mut nodes = vec![root, below(ChildKind::Call, 2, 0x20, call.callees, callees_ns)];
    if call.syscall_ns > 0 {
        nodes.push(below(ChildKind::Syscall, 0, 0x30, 1, call.syscall_ns));
    }
    (row, CallTree::new(nodes))
}

/// A call with `instructions` and `cycles` of its own code; each callee has 400 of either.
fn with_work(
    (row, tree): (CallRow, CallTree),
    instructions: u64,
    cycles: Option<u64>,
) -> (CallRow, CallTree) {
    let work = |instructions, cycles: Option<u64>| {
        let cycles = cycles.map(|count| CycleCount { count, error: 3 });
        Some(Work { instructions, cycles })
    };
    let callees = tree.nodes()[1].total.count * 400;
    let of_callees = cycles.map(|_| callees);
    let nodes = tree.nodes().iter().enumerate().map(|(number, node)| {
        let work = match number {
            0 => work(instructions + callees, cycles.map(|cycles| cycles + callees)),
            1 => work(callees, of_callees),
            _ => work(0, cycles.map(|_| 0)),
        };
        Node { work, ..*node }
    });
    (row, CallTree::new(nodes.collect()))
}

/// 200 calls, of which a few are slow.
fn calls(slow: &[(u64, Made)]) -> Vec<(CallRow, CallTree)> {
    let call = |number: u64| match slow.iter().find(|(slow, _)| *slow == number) {
        Some((_, slow)) => *slow,
        None => Made { own_ns: 1000 + number * 7 % 40, ..TYPICAL },
    };
    (0..200).map(|number| made(number, call(number))).collect()
}

/// Calls that take these branches.
fn branches(slow: &CallRow, typical: &CallRow, slow_trips: usize) -> Branches {
    let at = |svma| Place { object: ObjectId(0), svma: Svma(svma) };
    let jump =
        |from, to| BranchStep { from: at(from), to: To::Place(at(to)), is_jump: true, is_loop: to <= from };
    let path = |trips: usize| {
        let steps = [vec![jump(0x14, 0x20); 1], vec![jump(0x28, 0x20); trips]].concat();
        BranchPath { entry: at(0x10), steps: [steps, vec![jump(0x2c, 0x90)]].concat(), is_cut: false }
    };
    let (of_slow, of_typical) = (path(slow_trips), path(2));
    let mut branches = Branches::of(&[*slow, *typical], &[Some(&of_slow), Some(&of_typical)]).unwrap();
    if slow_trips > 8 {
        branches.loops = branches.loops.repeat(slow_trips); // more than are listed
    }
    branches
}

/// Explains the calls of so much and more, as text and as JSON; `trips`: of the example of each cluster.
fn explained(calls: &[(CallRow, CallTree)], min_ns: u64, trips: &[usize]) -> (String, Vec<u8>) {
    let rows: Vec<CallRow> = calls.iter().map(|(row, _)| *row).collect();
    let slow = Slow::Latency(LatencyRange { min_ns, max_ns: u64::MAX });
    let groups = Groups::choose(&rows, slow).unwrap();
    let schedule = Schedule::new(&[]);
    let mut ledger = LedgerOfCalls::new(&groups, &schedule);
    calls.iter().for_each(|(row, tree)| ledger.call(row, tree));
    let (ledger, clusters) = ledger.finish();
    let names = &FakeNames { lines: true };
    let example =
        |calls: &[CallRow], trips: usize| branches(&calls[calls.len() / 2], &groups.typical[0], trips);
    let parts: Vec<ExplainedGroup> = clusters
        .clusters
        .iter()
        .zip(trips)
        .map(|(cluster, trips)| {
            let branches = example(&cluster.calls, *trips);
            ExplainedGroup::new(names, &cluster.calls, cluster.outlying, &cluster.ledger, Some(branches))
                .unwrap()
        })
        .collect();
    assert_eq!(parts.len(), clusters.clusters.len());
    let first = parts.first().map_or_else(|| example(&groups.slow, 2), |part| part.branches.clone().unwrap());
    let explanation = Explanation {
        names,
        input: "perf.data",
        function: FunctionId(1),
        asked: &format!("of {min_ns} ns or more"),
        groups: &groups,
        whole: &ExplainedGroup::new(names, &groups.slow, groups.outlying, &ledger, Some(first)).unwrap(),
        clusters: &parts,
        others: &clusters.others,
        no_off_cpu: None,
    };
    let (mut out, mut as_json) = (vec![], vec![]);
    text::write(&mut out, &explanation, 100).unwrap();
    json::write(&mut as_json, &explanation).unwrap();
    (String::from_utf8(out).unwrap(), as_json)
}

#[test]
fn slow_calls_of_several_reasons_are_told_apart() {
    let often = Made { callees: 10, ..TYPICAL };
    let asks = Made { syscall_ns: 3000, ..TYPICAL };
    let own = Made { own_ns: 5000, ..TYPICAL };
    let slow = [(10, often), (50, asks), (90, often), (130, own), (150, often), (170, asks)];
    let (text, json) = explained(&calls(&slow), 2038, &[2, 3, 2]);
    check_golden("explain-clusters.txt", text.as_bytes());
    check_golden("explain-clusters.json", &json);
}

#[test]
fn the_same_path_that_only_takes_longer_is_called_that() {
    let own = Made { own_ns: 5000, ..TYPICAL };
    let slow: Vec<(u64, Made)> = [10, 50, 90, 130].map(|number| (number, own)).into();
    let (text, _) = explained(&calls(&slow), 3000, &[2]);
    check_golden("explain-only-slower.txt", text.as_bytes());
    let (text, _) = explained(&calls(&slow), 3000, &[9]);
    assert!(text.ends_with("\n  ... 1 more loop\n"), "{text}"); // not "and 1 loop"
}

/// It was said that a function "takes longer itself".
#[test]
fn slower_work_is_told_from_more_work_and_from_a_slower_clock() {
    let own = Made { own_ns: 5000, ..TYPICAL };
    let slow: Vec<(u64, Made)> = [10, 50, 90, 130].map(|number| (number, own)).into();
    let explained_with = |instructions: u64, cycles: Option<u64>, trips: usize| {
        let work = |(number, call)| match slow.iter().any(|(slow, _)| *slow == number) {
            true => with_work(call, instructions, cycles),
            false => with_work(call, 2000, cycles.map(|_| 3000)),
        };
        let calls: Vec<_> = (0..).zip(calls(&slow)).map(work).collect();
        explained(&calls, 3000, &[trips])
    };
    let (slower, json) = explained_with(2000, Some(14_700), 2);
    check_golden("explain-slower.txt", slower.as_bytes());
    check_golden("explain-slower.json", &json);
    let says = |text: &str, what: &str| assert!(text.contains(what), "{text}");
    says(&slower, "the same path, 4.9 times the cycles: caches, memory, a neighbour on the core");
    let (other_path, _) = explained_with(2000, Some(14_700), 3);
    says(&other_path, "  as many instructions, 4.9 times the cycles: caches, memory");
    let (more, _) = explained_with(9800, Some(14_700), 3);
    says(&more, "  more work: 4.9 times the instructions");
    let (clock, _) = explained_with(2000, Some(3000), 2);
    says(&clock, "  each cycle took 4.9 times as long: a lower frequency, or a core that was taken away");
    let (no_cyc, _) = explained_with(2000, None, 2);
    says(&no_cyc, "  the same path, 4.9 times the time: caches, memory");
    says(&no_cyc, "without CYC packets a lower frequency is among the slower instructions");
}

#[test]
fn the_tail_of_calls_that_are_alike_has_no_cause() {
    let (text, _) = explained(&calls(&[]), 2038, &[]);
    check_golden("explain-no-cause.txt", text.as_bytes());
}

/// The usual way has calls with one more round of a loop, and calls that take another branch.
fn kinds_of_ways() -> Vec<Vec<modes::AlikeCalls>> {
    let at = |svma| Place { object: ObjectId(0), svma: Svma(svma) };
    let took = |jumps: &[(u64, u64)]| {
        let mut branches = OwnBranches::entered(at(0x10));
        for (from, to) in jumps {
            let (from, place) = (at(*from), at(*to));
            let is_loop = place <= from;
            branches.took(BranchStep { from, to: To::Place(place), is_jump: true, is_loop }, 0);
        }
        branches
    };
    let usual = took(&[(0x28, 0x20), (0x2c, 0x90)]);
    let once_more = took(&[(0x28, 0x20), (0x28, 0x20), (0x2c, 0x90)]);
    let other = took(&[(0x28, 0x20), (0x24, 0x80)]);
    let rows: Vec<CallRow> = calls(&[]).iter().map(|(row, _)| *row).collect();
    let branches = |number: u64| match number {
        20 | 40 => &other,
        number if number % 10 == 1 => &once_more,
        _ => &usual,
    };
    let of_usual: Vec<_> = rows.iter().map(|row| (*row, branches(row.id.number))).collect();
    vec![modes::AlikeCalls::of_calls(&of_usual), Vec::new()]
}

#[test]
fn ways_of_a_handful_of_calls_have_no_p99() {
    let asks = Made { syscall_ns: 3000, ..TYPICAL };
    let mut found = ModesOfCalls::default();
    for (row, tree) in calls(&[(50, asks), (90, asks), (170, asks)]) {
        found.add(&row, &tree);
    }
    let names = &FakeNames { lines: false };
    let view =
        modes::ModesView { names, input: "perf.data", function: FunctionId(1), modes: &found.finish() };
    let kinds = kinds_of_ways();
    let (mut text, mut json) = (vec![], vec![]);
    modes::write_text(&mut text, &view, &kinds, 100).unwrap();
    modes::write_json(&mut json, &view, &kinds).unwrap();
    check_golden("modes.txt", &text);
    check_golden("modes.json", &json);
}

/// A recording's side of a comparison.
fn recorded(ledger: &mut Ledger<u32>, side: Side, calls: &[(CallRow, CallTree)]) -> diff::Recorded {
    let mut all = AllCalls::new(ledger, side, OffCpuPart::Inside, |node: &Node| node.function.0);
    calls.iter().for_each(|(row, tree)| all.call(row, tree));
    let input = if side == Side::Base { "a.data" } else { "b.data" }.to_owned();
    diff::Recorded { input, calls: all.finish(), no_off_cpu: None }
}

#[test]
fn two_recordings_of_a_few_calls_have_no_percentiles() {
    let mut ledger = Ledger::default();
    let often = Made { callees: 10, ..TYPICAL };
    let base = recorded(&mut ledger, Side::Base, &calls(&[])[..150]);
    let these: Vec<(CallRow, CallTree)> = (0..8).map(|number| made(number, often)).collect();
    let these = recorded(&mut ledger, Side::These, &these);
    let callee = |path: usize| Callee {
        name: super::report::FUNCTIONS[ledger.paths()[path].key as usize].to_owned(),
        ..Callee::default()
    };
    let difference = diff::Difference {
        function: "row_search_mvcc",
        these: &these,
        base: &base,
        ledger: &LedgerView::new(&ledger, ledger.compare().unwrap(), callee),
        shift: Shift::of(&these.calls.latencies_ns, &base.calls.latencies_ns),
        comparison: &RunsComparison::of(&[&these.calls.latencies_ns], &[&base.calls.latencies_ns]),
        fail_above: Some(FailAbove { figure: Figure::P99, percent: 5.0 }),
    };
    let (mut text, mut json) = (vec![], vec![]);
    diff::write_text(&mut text, &difference, 100).unwrap();
    diff::write_json(&mut json, &difference).unwrap();
    check_golden("diff.txt", &text);
    check_golden("diff.json", &json);
}

/// It was said to exceed the spread, by less than 290 ns.
#[test]
fn a_difference_below_its_error_is_none() {
    let mut ledger = Ledger::default();
    let base = recorded(&mut ledger, Side::Base, &calls(&[]));
    let longer = |number| made(number, Made { own_ns: 1003 + number * 7 % 40, ..TYPICAL });
    let these = recorded(&mut ledger, Side::These, &(0..2000).map(longer).collect::<Vec<_>>());
    let shift = Shift { p_value: 0.0007, smallest_p_value: 0.0001, blocks: (16, 16) };
    let view = LedgerView::new(&ledger, ledger.compare().unwrap(), |_| Callee::default());
    let difference = diff::Difference {
        function: "f",
        these: &these,
        base: &base,
        ledger: &view,
        shift,
        comparison: &RunsComparison::of(&[&these.calls.latencies_ns], &[&base.calls.latencies_ns]),
        fail_above: None,
    };
    let (mut text, mut json) = (vec![], vec![]);
    diff::write_text(&mut text, &difference, 100).unwrap();
    diff::write_json(&mut json, &difference).unwrap();
    let text = String::from_utf8(text).unwrap();
    // There were shares of it.
    assert!(
        text.lines().any(|line| line.starts_with("  [difference]  < 18") && line.ends_with(" -")),
        "{text}"
    );
    let line =
        "The difference of the means, < 18 ns, is within the errors of the times, so that it may be none:";
    assert!(text.contains(line) && !text.contains("Most of it"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&json["exceeds_spread"], &json["difference_ns"]), (&false.into(), &3.into()));
}
