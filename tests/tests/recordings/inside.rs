//! What a page says of calls from inside is what the rows and trees of the recording say.

use analyzer::{Caller, FunctionReport};
use decoder::DecodeOptions;
use func_latency::inside::{Inside, InsideOfCalls, Picks, PrunedTree, Way, What};
use truth_tests::{Opened, fixture, pipeline};

fn check(name: &str, function: &str) {
    let Some(fixture) = fixture(name) else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let functions = [opened.function(function).unwrap()];
    let options = DecodeOptions::default();
    let report = opened.analyse(&functions, &options);
    let mut calls = InsideOfCalls::new(&report, &opened.schedule);
    let again = opened.analyse_trees(&functions, &options, &mut calls);
    assert_eq!(again.functions[0].rows, report.functions[0].rows, "{name}");
    let inside = calls.finish().remove(0);
    check_trees(name, &report.functions[0], &inside);
    check_ways(name, &report.functions[0], &inside);
}

/// Those that are picked have one, and no time of a call is lost in it.
fn check_trees(name: &str, function: &FunctionReport, inside: &Inside) {
    let picks = Picks::of(function);
    let p999_ns = function.latency.spread.unwrap().p999_ns;
    for (at, row) in function.rows.iter().enumerate() {
        let is_single = !row.status.counted() || row.latency_ns > p999_ns;
        assert!(picks.has(at) || !is_single, "{name}: {}", row.id);
        let Some(tree) = inside.trees.get(&at) else {
            assert!(!picks.has(at), "{name}: {} has no tree", row.id);
            continue;
        };
        assert!(picks.has(at), "{name}: {}", row.id);
        let root = tree.nodes[0];
        assert_eq!((root.total.sum_ns, root.total.off_cpu_ns), (row.latency_ns, row.off_cpu_ns), "{name}");
        assert_eq!(own_ns(tree), row.latency_ns, "{name}: {}", row.id);
        let spans: u64 = tree.off_cpu.longest.iter().map(|(_, ns, _)| ns).sum();
        if row.status.counted() {
            assert_eq!(Some(spans + tree.off_cpu.more_ns), row.off_cpu_ns, "{name}: {}", row.id);
        }
    }
    for (caller, at) in &picks.typical {
        let row = &function.rows[*at];
        assert_eq!((row.caller, row.site), *caller, "{name}");
        assert!(inside.trees.contains_key(at), "{name}: {} is typical", row.id);
    }
}

/// All that is nobody else's, what was left out with it.
fn own_ns(tree: &PrunedTree) -> u64 {
    let mut own = 0;
    for (at, node) in tree.nodes.iter().enumerate() {
        let below = tree.nodes[at + 1..].iter().take_while(|below| below.depth > node.depth);
        let children: u64 = below.filter(|b| b.depth == node.depth + 1).map(|b| b.total.sum_ns).sum();
        own += node.total.sum_ns.checked_sub(children).unwrap();
        assert!(node.what != What::More(0), "what was left out is something");
    }
    own
}

/// As many calls went each way as `modes` counts, and each was called by its caller.
fn check_ways(name: &str, function: &FunctionReport, inside: &Inside) {
    let mut counts = vec![0; inside.modes.modes.len()];
    for (at, row) in function.rows.iter().enumerate() {
        if let Way::Mode(mode) = inside.way(at) {
            counts[mode] += 1;
        }
        let mut chain = inside.chains.of(at);
        let mut nearest = None;
        while chain > 0 {
            let link = inside.chains.all()[chain - 1];
            (nearest, chain) = (Some(link.function), link.nearer);
        }
        if let Caller::Function { function: caller, .. } = row.caller {
            assert_eq!(nearest, Some(caller), "{name}: {}", row.id);
        }
    }
    let expected: Vec<usize> = inside.modes.modes.iter().map(|mode| mode.latencies_ns.len()).collect();
    assert_eq!(counts, expected, "{name}");
}

#[test]
fn trees_ways_and_callers_are_those_of_the_rows() {
    check("causes", "dear_child");
    check("causes", "waits_for_lock");
    check("causes", "deeper");
    check("sq1", "sqlite3VdbeExec");
    check("demo-sleep", "fib");
}
