//! Regions: code between two places, in the frame in which the first one was reached.

use super::script::{
    analyse, analyse_trees, check, check_children, check_region, children_text, id, row_text, tree_text,
};
use crate::{CallRow, CallTree, CutCause, Request, TreeSink, Trees};

#[test]
fn a_region_lasts_from_its_begin_to_its_end_in_one_frame() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 call f+20 g
        125 call g+10 h
        129 ret h+20 g+15
        130 ret g+20 f+25
        150 jcc f+30 f+40
        160 call f+50 g
        170 ret g+20 f+55
        180 ret f+60 main+15";
    check_region(script, "110 +40 complete f+10", "self x1 30\ncall g at f+20 x1 10");
    let of_f = "self x1 60\ncall g at f+20 x1 10\ncall g at f+50 x1 10";
    check_children(script, "100 +80 complete main+10", of_f);
}

#[test]
fn from_entry_to_return_address_a_region_is_its_function() {
    let script = "
        region f main+15
        0 start main+4
        100 call main+10 f
        105 async f
        107 start f
        110 jmp f+30 f
        120 call f+20 g
        130 ret g+20 f+25
        140 jmp f+30 g
        150 ret g+20 main+15
        200 call main+10 f
        210 ret f+60 main+15";
    let rows = "
        100 >=10 cut main+10
        110 +40 complete f
        200 +10 complete main+10";
    // The jump to its own entry begins it anew; of a function that is a loop.
    check_region(script, rows, "self x2 30\ncall g at f+20 x1 10\ntail g at f+30 x1 10");
    check(script, "100 +50 complete main+10\n200 +10 complete main+10");
}

#[test]
fn the_frame_is_left_first() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        150 ret f+60 main+15
        200 call main+10 f
        210 on f+c f+10
        220 call f+20 throw
        250 ijmp throw+10 main+50";
    let rows = "
        110 +40 unwound f+10
        210 +40 unwound f+10";
    check_region(script, rows, "self x2 50\ncall throw at f+20 x1 30");
}

#[test]
fn what_unwinds_to_its_end_completes_it() {
    let script = "
        region f+10 main+50
        0 start main+4
        200 call main+10 f
        210 on f+c f+10
        220 call f+20 throw
        250 ijmp throw+10 main+50";
    check_region(script, "210 +40 complete f+10", "call throw at f+20 x1 30\nself x1 10");
}

#[test]
fn an_exception_that_its_own_frame_handles_does_not_end_it() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 call f+20 throw
        130 ijmp throw+10 f+80
        150 on f+3c f+40
        160 ret f+60 main+15";
    check_region(script, "110 +40 complete f+10", "self x1 30\ncall throw at f+20 x1 10");
}

#[test]
fn begun_anew_the_old_one_is_cut() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        130 jmp f+30 f+10
        150 on f+3c f+40
        160 on f+3c f+40
        170 ret f+60 main+15";
    check_region(script, "110 >=20 cut f+10\n130 +20 complete f+10", "self x1 20");
    let request = Request { functions: vec![id("region")], ..Request::default() };
    let report = analyse(script, request);
    assert_eq!(report.functions[0].rows[0].end.cut_by.map(|cut| cut.cause), Some(CutCause::BegunAnew));
}

#[test]
fn where_begin_and_end_are_one_it_is_a_period() {
    let script = "
        region f+10 f+10
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 jmp f+30 f+10
        150 jcc f+30 f+10
        170 ret f+60 main+15";
    check_region(script, "110 +10 complete f+10\n120 +30 complete f+10\n150 +20 unwound f+10", "self x3 60");
}

#[test]
fn each_frame_has_its_own() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 call f+20 f
        130 on f+c f+10
        135 on f+3c f+40
        140 ret f+60 f+25
        150 on f+3c f+40
        160 ret f+60 main+15";
    check_region(
        script,
        "110 +40 complete f+10\n130 +5 complete f+10 depth 1",
        "self x2 25\nrecursion f at f+20 x1 20",
    );
    let other_frame = "
        region f+10 g+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 call f+20 g
        130 on g+3c g+40
        140 ret g+60 f+25
        150 ret f+60 main+15";
    check_region(other_frame, "110 +40 unwound f+10", "call g at f+20 x1 20\nself x1 20");
}

/// A tail call has the frame of its caller: by the stack alone the two are one.
#[test]
fn its_end_may_be_in_what_its_function_tail_calls() {
    let script = "
        region f+10 g
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        130 jmp f+20 g
        150 ret g+60 main+15
        200 call main+10 f
        210 on f+c f+10
        220 jmp f+24 h
        230 jmp h+20 g
        250 ret g+60 main+15";
    check_region(script, "110 +20 complete f+10\n210 +20 complete f+10", "self x2 40");
}

#[test]
fn several_places_may_begin_and_end_it() {
    let script = "
        region f+10,f+14 f+40,f+48
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 jcc f+20 f+48
        130 jcc f+50 f+14
        170 on f+3c f+40
        180 ret f+60 main+15";
    check_region(script, "110 +10 complete f+10\n130 +40 complete f+14", "self x2 50");
}

/// An instruction that an interrupt or a handler came before is reached once.
#[test]
fn what_goes_on_at_its_begin_does_not_begin_it_again() {
    let script = "
        region f+10 f+40
        code sigreturn restorer
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        111 async f+10
        115 start f+10
        120 async f+10
        125 start handler
        130 ret handler+10 restorer
        131 syscall restorer+7
        135 start f+10
        150 on f+3c f+40
        160 ret f+60 main+15";
    check_region(script, "110 +40 complete f+10", "self x1 21\nsignal handler x1 15\ninterrupt x1 4");
    let after_syscall = "
        region f+12 f+12
        0 start main+4
        100 call main+10 f
        110 syscall f+10
        120 start f+12
        130 syscall f+10
        150 start f+12
        160 ret f+60 main+15";
    check_region(
        after_syscall,
        "120 +30 complete f+12\n150 +10 unwound f+12",
        "syscall at f+10 x1 20\nself x2 20",
    );
}

#[test]
fn what_is_lost_cuts_it_and_what_was_not_seen_to_begin_does_not_end() {
    let script = "
        region f+10 f+40
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 gap 140
        140 resume f+10
        150 on f+3c f+40
        160 on f+c f+10";
    check_region(script, "110 >=10 cut f+10\n160 >=0 open_end f+10", "");
}

/// Nothing is known of what led there: of its function, too, the start is not known.
#[test]
fn of_a_frame_that_is_found_at_its_begin_the_start_is_open() {
    let script = "
        region f main+15
        0 start main+4
        10 gap 20
        50 async main+20
        60 start f
        70 ret f+60 main+15
        80 call main+10 f
        90 ret f+60 main+15";
    let rows = "60 >=10 open_start [unknown]\n80 +10 complete main+10";
    check(script, rows);
    check_region(script, rows, "self x1 10");
}

#[test]
fn with_an_ip_filter_it_begins_where_control_comes_in() {
    let script = "
        filter
        region f f+25
        10 start f
        20 out.call f+20 k
        30 start f+25
        40 out.ret f+60 main+15";
    check_region(script, "10 +20 complete [unknown]", "call k at f+20 x1 10\nself x1 10");
}

/// Rows that overlap, and the trees of both.
#[test]
fn two_regions_of_a_frame_may_overlap() {
    let script = "
        region f+10 f+40
        region2 f+30 f+50
        0 start main+4
        100 call main+10 f
        110 on f+c f+10
        120 call f+20 g
        130 ret g+20 f+25
        140 on f+2c f+30
        145 call f+34 h
        155 ret h+20 f+39
        160 on f+3c f+40
        170 call f+44 k
        175 ret k+20 f+49
        190 on f+4c f+50
        200 ret f+60 main+15";
    let request = Request { functions: ["f", "region", "region2"].map(id).to_vec(), ..Request::default() };
    let report = analyse(script, request.clone());
    let rows: Vec<String> = report.functions.iter().flat_map(|f| &f.rows).map(row_text).collect();
    assert_eq!(rows, ["100 +100 complete main+10", "110 +50 complete f+10", "140 +50 complete f+30"]);
    let children: Vec<_> = report.functions.iter().map(|f| children_text(f).join(", ")).collect();
    let expected = [
        "self x1 75, call g at f+20 x1 10, call h at f+34 x1 10, call k at f+44 x1 5",
        "self x1 30, call g at f+20 x1 10, call h at f+34 x1 10",
        "self x1 35, call h at f+34 x1 10, call k at f+44 x1 5",
    ];
    assert_eq!(children, expected);

    let mut found = Found::default();
    analyse_trees(script, request, &mut found);
    let expected = [
        "call region at f+10 110 +50 self 30 | g 120 | h 145",
        "call region2 at f+30 140 +50 self 35 | h 145 | k 170",
        "call f at main+10 100 +100 self 75 | g 120 | h 145 | k 170",
    ];
    assert_eq!(found.trees, expected);
}

/// Trees of calls: the root, and the function and start of each node.
#[derive(Default)]
struct Found {
    trees: Vec<String>,
}

impl TreeSink for Found {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, _: &CallRow, tree: &CallTree) {
        let mut lines = tree_text(tree).into_iter();
        let root = lines.next().unwrap_or_default();
        let short = |line: String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {}", words[1], words[4])
        };
        let nodes: Vec<String> = lines.map(short).collect();
        self.trees.push([vec![root], nodes].concat().join(" | "));
    }
}
