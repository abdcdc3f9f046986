//! Children and callers of calls that were not seen from entry to end.

use super::script::{analyse, analyse_trees, open_text, tree_text};
use crate::{FunctionReport, LatencyRange, Paths, Request, StartWindow};

fn function(script: &str) -> FunctionReport {
    analyse(script, Request::default()).functions.remove(0)
}

#[track_caller]
fn check(script: &str, expect: &str) {
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(open_text(&function(script).open), expect, "{script}");
}

/// `f` waits and works, and is never left.
const EVENT_LOOP: &str = "
    off 120 150
    50 start f+4
    60 call f+10 g
    100 ret g+20 f+15
    110 syscall f+20
    160 start f+22
    170 call f+10 g
    190 ret g+20 f+15
    200 call f+30 h
    230 async h+10";

#[test]
fn a_function_that_does_not_return_has_children_over_the_observed_part() {
    let children = "
        1 call 180 off 30
        call g at f+10 x2 60
        syscall at f+20 x1 50 off 30
        self x1 40
        call h at f+30 x1 30
        from [unknown] x1 180";
    check(EVENT_LOOP, children);
    let f = function(EVENT_LOOP);
    assert_eq!((f.figures.children.len(), f.callers.len(), f.figures.latency.count), (0, 0, 0));
}

#[test]
fn an_open_call_whose_entry_was_seen_has_a_caller() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        140 ret g+20 f+15
        145 async f+15";
    check(script, "1 call 45\ncall g at f+10 x1 30\nself x1 15\nfrom main+10 x1 45");
}

#[test]
fn counted_and_open_calls_are_apart() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        115 ret g+20 f+15
        120 ret f+40 main+15
        200 call main+20 f
        210 call f+10 g
        250 ret g+20 f+15
        260 async f+15";
    check(script, "1 call 60\ncall g at f+10 x1 40\nself x1 20\nfrom main+20 x1 60");
    let f = function(script);
    assert_eq!((f.figures.latency.sum_ns, f.figures.children.len(), f.callers.len()), (20, 2, 1));
}

#[test]
fn what_goes_on_after_a_gap_is_seen_of_the_same_call() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 gap 150
        150 resume g+8
        160 ret g+20 f+15
        170 call f+20 h
        190 ret h+20 f+25
        200 gap 250
        250 resume f+30
        260 call f+20 h
        265 ret h+20 f+25
        280 async f+25";
    // The cut call up to the gap, and two pieces after gaps, which are no calls of their own.
    let children = "
        1 call 90 resumed 70
        self x1 55
        call h at f+20 x2 25
        call g at f+10 x1 10
        from [unknown] x0 70
        from main+10 x1 20";
    check(script, children);
}

#[test]
fn of_open_calls_in_one_another_the_outermost_counts() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 call g+10 f
        130 call f+10 h
        140 ret h+20 f+15
        150 async f+15";
    check(script, "1 call 50\ncall g at f+10 x1 40\nself x1 10\nfrom main+10 x1 50");
    let direct = "
        0 start main+4
        100 call main+10 f
        120 call f+10 f
        150 async f+15";
    check(direct, "1 call 50\nrecursion f at f+10 x1 30\nself x1 20\nfrom main+10 x1 50");
}

#[test]
fn a_call_that_a_restriction_leaves_out_is_in_no_table() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 gap 150
        150 resume g+8
        160 ret g+20 f+15
        200 gap 250";
    let restricted = [
        Request { latency: LatencyRange { min_ns: 0, max_ns: 10 }, ..Request::default() },
        Request {
            starts: Some(StartWindow { start: model::Ns(150), min_ns: 0, max_ns: 150 }),
            ..Request::default()
        },
    ];
    for request in restricted {
        let f = analyse(script, request).functions.remove(0);
        assert_eq!(open_text(&f.open), Vec::<String>::new());
    }
}

#[test]
fn without_a_counted_call_paths_are_those_of_the_observed_part() {
    let mut paths = Paths::of_calls();
    let report = analyse_trees(EVENT_LOOP, Request::default(), &mut paths);
    let found = paths.finish();
    let expect = [
        "call f 50 +180 self 40 off 30 self 0 open_start",
        "  call g at f+10 60 +60 x2",
        "  syscall at f+20 110 +50 off 30 self 30",
        "  call h at f+30 200 +30 open_end",
    ];
    assert_eq!(tree_text(&found.tree), expect);
    assert_eq!(found.open, [super::script::id("f")]);
    let roots: u64 = found.tree.roots().map(|root| root.total.sum_ns).sum();
    assert_eq!(roots, report.functions[0].open.observed.sum_ns);
}

#[test]
fn with_a_counted_call_paths_are_those_of_counted_calls() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 ret f+40 main+15
        200 call main+20 f
        260 async f+15";
    let mut paths = Paths::of_calls();
    analyse_trees(script, Request::default(), &mut paths);
    let found = paths.finish();
    assert_eq!(tree_text(&found.tree), ["call f at main+10 100 +20"]);
    assert_eq!(found.open, []);
}

#[test]
fn paths_of_an_open_call_go_on_after_a_gap() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 gap 150
        150 resume f+15
        160 call f+10 g
        190 ret g+20 f+15
        200 async f+15";
    let mut paths = Paths::of_calls();
    let report = analyse_trees(script, Request::default(), &mut paths);
    let found = paths.finish();
    let roots: u64 = found.tree.roots().map(|root| root.total.sum_ns).sum();
    assert_eq!((roots, report.functions[0].open.observed.sum_ns), (70, 70), "{:?}", tree_text(&found.tree));
}
