//! What is straight code of a call, how often it ran, and what its time is.

use super::script::own_code;
use crate::CodeDetail::{self, Blocks, Instructions};

#[track_caller]
fn check(detail: CodeDetail, script: &str, expect: &[&str]) {
    assert_eq!(own_code(script, detail), expect, "{detail:?}: {script}");
}

const LOOP: &str = "
    0 start main+4
    100 call main+10 f
    110 jcc f+8 f+20
    120 jcc f+24 f+20
    130 jcc f+24 f+20
    150 call f+28 g
    180 ret g+8 f+2d
    195 ret f+30 main+15
    200 jmp main+18 main+30";

#[test]
fn taken_branches_end_straight_code() {
    let expect = [
        "f..f+8 x1 10 ns",
        "f+20..f+24 x2 20 ns",
        "f+20..f+28 x1 20 ns",
        "f+2d..f+30 x1 15 ns",
        "call g at f+28 x1 30 ns",
    ];
    check(Instructions, LOOP, &expect);
}

/// The decoder leaves their jumps out; if they are there, they change nothing.
#[test]
fn jumps_inside_of_the_function_end_no_block() {
    let expect = ["f..f+28 x1 50 ns", "f+2d..f+30 x1 15 ns", "call g at f+28 x1 30 ns"];
    check(Blocks, LOOP, &expect);
    let without: Vec<&str> = LOOP.lines().filter(|line| !line.contains("jcc")).collect();
    check(Blocks, &without.join("\n"), &expect);
}

#[test]
fn an_interrupt_ends_nothing_and_has_its_place() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 async f+8
        140 start f+8
        155 ret f+30 main+15
        160 jmp main+18 main+30";
    check(Instructions, script, &["f..f+30 x1 25 ns", "interrupt ? at f+8 x1 30 ns"]);
    check(Blocks, script, &["f..f+30 x1 25 ns", "interrupt ? at - x1 30 ns"]);
}

/// The handler leaves by `siglongjmp` to a caller of f: what f has executed up to there counts.
#[test]
fn code_that_does_not_go_on_after_an_interrupt_ends_before_it() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 async f+8
        125 start handler
        140 ijmp handler+20 main+40
        150 call main+50 g
        160 ret g+8 main+55";
    check(Instructions, script, &["f..<f+8 x1 10 ns", "signal handler at f+8 x1 30 ns"]);
}

#[test]
fn a_system_call_ends_straight_code_and_was_executed() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 syscall f+8
        140 start f+a
        155 ret f+30 main+15
        160 jmp main+18 main+30";
    let expect = ["f..f+8 x1 10 ns", "f+a..f+30 x1 15 ns", "syscall ? at f+8 x1 30 ns"];
    check(Instructions, script, &expect);
    check(Blocks, script, &expect);
}

/// Its code is none of the function's.
#[test]
fn the_time_of_a_stub_is_that_of_the_code_that_calls_it() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+8 plt+10
        114 ijmp plt+14 lib
        140 ret lib+8 f+d
        155 ret f+30 main+15
        160 jmp main+18 main+30";
    let expect = ["f..f+8 x1 14 ns", "f+d..f+30 x1 15 ns", "call lib at f+8 x1 26 ns"];
    check(Instructions, script, &expect);
    check(Blocks, script, &expect);
}

#[test]
fn each_call_of_a_recursion_has_its_own_code() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+8 f
        130 ret f+30 f+d
        135 ret f+30 main+15
        140 jmp main+18 main+30";
    let expect = ["f..f+8 x1 10 ns", "f..f+30 x1 20 ns", "f+d..f+30 x1 5 ns", "recursion f at f+8 x1 20 ns"];
    check(Instructions, script, &expect);
}

/// Jumps inside of h are not decoded: only the time in it is known, not the code that ran.
#[test]
fn executions_of_code_of_other_functions_are_not_known() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+8 h+20
        130 jmp h+40 f+50
        135 ret f+60 main+15
        140 jmp main+18 main+30";
    check(Instructions, script, &["f..f+8 x1 10 ns", "f+50..f+60 x1 5 ns", "h+20..? x1 20 ns"]);
}

#[test]
fn calls_that_a_gap_has_cut_do_not_count() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+8 f+20
        120 gap 130
        130 resume f+40
        140 ret f+60 main+15
        150 call main+20 f
        160 ret f+60 main+25
        170 jmp main+28 main+30";
    check(Instructions, script, &["f..f+60 x1 10 ns"]);
}

/// What f does outside of the filter, in a part of its own, has no place.
#[test]
fn time_outside_of_the_ip_filter_is_elsewhere() {
    let script = "
        filter
        100 start f
        110 out.jmp f+8 f+800
        140 start f+20
        155 out.ret f+30 main+15
        200 start f
        210 out.ret f+30 main+15";
    check(
        Instructions,
        script,
        &["f..f+8 x1 10 ns", "f..f+30 x1 10 ns", "f+20..f+30 x1 15 ns", "elsewhere 30 ns"],
    );
}
