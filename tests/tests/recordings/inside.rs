//! What a page says of calls from inside is what the rows and trees of the recording say.

use analyzer::{CallRow, Caller, FunctionReport, Surroundings, Waits};
use decoder::DecodeOptions;
use func_latency::inside::{Inside, InsideOfCalls, Picks, PrunedTree, Way, What, typical};
use truth_tests::{Opened, fixture, pipeline};

fn check(name: &str, function: &str) {
    let Some(fixture) = fixture(name) else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let functions = [opened.function(function).unwrap()];
    let seen = |workers: usize| {
        let options = DecodeOptions { workers, ..DecodeOptions::default() };
        let mut calls = InsideOfCalls::new(&functions);
        let report = opened.analyse_trees(&functions, &options, &mut calls);
        let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
        let inside = calls.finish(&report, &mut Waits::new(&opened.schedule, &around)).remove(0);
        (report, inside)
    };
    let (report, inside) = seen(1);
    let without_trees = opened.analyse(&functions, &DecodeOptions::default());
    assert_eq!(report.functions[0], without_trees.functions[0], "{name}: the report is the same");
    let (_, again) = seen(4);
    assert_eq!((&again.trees, &again.typical), (&inside.trees, &inside.typical), "{name}");
    check_trees(name, &report.functions[0], &inside);
    check_ways(name, &report.functions[0], &inside);
}

/// Those that are picked have one, and no time of a call is lost in it.
fn check_trees(name: &str, function: &FunctionReport, inside: &Inside) {
    let picks = Picks::of(function, |at| inside.trees.contains_key(&at));
    assert!(picks.rows().iter().eq(inside.trees.keys()), "{name}: all trees are picked");
    assert_eq!(*picks.typical(), inside.typical, "{name}");
    check_typical(name, function, inside);
    // The slowest have one whatever room there is.
    let of_all = Picks::of(function, |_| true);
    let typical: Vec<&usize> = of_all.typical().values().collect();
    let slowest = of_all.rows().iter().filter(|at| !typical.contains(at));
    assert!(slowest.into_iter().all(|at| inside.trees.contains_key(at)), "{name}: the slowest");
    let p999_ns = function.figures.latency.spread.unwrap().p999_ns;
    for (at, row) in function.rows.iter().enumerate() {
        let is_single = !row.end.status.counted() || row.latency_ns > p999_ns;
        assert!(picks.rows().contains(&at) || !is_single, "{name}: {}", row.id);
        let Some(tree) = inside.trees.get(&at) else {
            assert!(!picks.rows().contains(&at), "{name}: {} has no tree", row.id);
            continue;
        };
        assert!(picks.rows().contains(&at), "{name}: {}", row.id);
        let root = tree.nodes[0];
        assert_eq!((root.total.sum_ns, root.total.off_cpu_ns), (row.latency_ns, row.off_cpu_ns), "{name}");
        assert_eq!(own_ns(tree), row.latency_ns, "{name}: {}", row.id);
        let spans: u64 = tree.waits.longest.iter().map(|wait| wait.to.since(wait.from)).sum();
        if row.end.status.counted() {
            assert_eq!(Some(spans + tree.waits.more_ns), row.off_cpu_ns, "{name}: {}", row.id);
        }
    }
    for (caller, at) in picks.typical() {
        let row = &function.rows[*at];
        assert_eq!(row.from, *caller, "{name}");
        assert!(inside.trees.contains_key(at), "{name}: {} is typical", row.id);
    }
}

/// The typical call of each caller stands within 1 % of its calls from their median: it is the median itself
/// where every call has a kept tree, and else the nearest call of a sample.
fn check_typical(name: &str, function: &FunctionReport, inside: &Inside) {
    let medians = typical(&function.rows, &|_| true);
    assert!(medians.keys().eq(inside.typical.keys()), "{name}: each caller has a typical call");
    for (caller, at) in &inside.typical {
        let of_caller = |row: &&CallRow| row.end.status.counted() && row.from == *caller;
        let mut order: Vec<_> = function.rows.iter().zip(0..).filter(|(row, _)| of_caller(row)).collect();
        order.sort_unstable_by_key(|(row, at)| (row.latency_ns, *at));
        let rank = |at: usize| order.iter().position(|(_, ordered)| *ordered == at).unwrap();
        let off = rank(*at).abs_diff(rank(medians[caller]));
        assert!(off <= order.len() / 100, "{name}: {off} ranks of {} off the median", order.len());
    }
}

/// Sum of the own times of all nodes, with those of the calls that were left out.
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

/// Checks that each way has the number of calls that `modes` counts, and that each call was called by its
/// caller.
fn check_ways(name: &str, function: &FunctionReport, inside: &Inside) {
    let mut counts = vec![0; inside.modes.modes.len()];
    for (at, row) in function.rows.iter().enumerate() {
        if let Way::Mode(mode) = inside.way(at) {
            counts[mode] += 1;
        }
        let mut chain = inside.chain(at);
        let mut nearest = None;
        while chain > 0 {
            let link = inside.chains.all()[chain - 1];
            (nearest, chain) = (Some(link.function), link.nearer);
        }
        if let Caller::Function { function: caller, .. } = row.from.caller {
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
