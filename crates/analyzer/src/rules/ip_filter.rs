//! What can be known when only code inside the IP filter is traced: calls, callers and children.

use super::script::{analyse, check, check_children, check_request, id};
use crate::{Ancestor, LatencyRange, Request};

#[test]
fn the_caller_is_known_by_the_address_that_is_returned_to() {
    let script = "
        filter
        code call k+10 f
        100 start f
        150 out.ret f+40 k+15
        200 start f
        220 out.ret f+40 k+30";
    let rows = "
        100 +50 complete k+10
        200 +20 complete [unknown]";
    check(script, rows);
}

#[test]
fn a_hidden_callee_is_a_child() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.call f+10 g
        130 start f+15
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "self x1 30\ncall g at f+10 x1 20");
}

#[test]
fn hidden_callees_without_names_are_children_and_no_recursion() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.call f+10 ?+100
        130 start f+15
        135 out.call f+20 ?+200
        140 start f+25
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "self x1 25\ncall at f+10 x1 20\ncall at f+20 x1 5");
}

#[test]
fn a_hidden_callee_that_calls_back_is_the_caller() {
    let script = "
        filter
        code call k+10 f
        code call g+10 f
        100 start f
        110 out.call f+10 g
        115 start f
        118 out.ret f+40 g+15
        130 start f+15
        150 out.ret f+40 k+15";
    let rows = "
        100 +50 complete k+10
        115 +3 complete g+10 depth 1";
    check_children(script, rows, "self x2 33\ncall g at f+10 x1 20");
}

#[test]
fn a_call_in_front_of_an_entry_returns_there() {
    // The call is the last instruction of g: what it returns to is the first of h, and no jump there.
    let script = "
        filter
        100 call g+ffb f
        110 out.ret f+40 h";
    check(script, "100 +10 complete g+ffb");
}

/// The target is `f` and the ancestor `g`: functions between them are hidden.
const TARGET_AND_ANCESTOR: &str = "
    filter
    code call k+10 f
    code call main+10 g
    100 start g
    110 out.call g+10 k
    120 start f
    130 out.ret f+40 k+15
    140 start f
    145 out.ret f+40 k+15
    150 start g+15
    200 out.ret g+40 main+15
    300 start f
    310 out.ret f+40 k+15
    400 start g
    405 out.call g+10 k
    410 start f
    412 out.ret f+40 k+15
    415 start g+15
    420 out.ret g+40 main+15";

#[test]
fn a_target_below_an_ancestor_is_found_through_hidden_callers() {
    let below = |min_ns, max_ns| {
        let latency = LatencyRange { min_ns, max_ns };
        Request { ancestor: Some(Ancestor { function: id("g"), latency }), ..Request::default() }
    };
    let in_the_long_one = "120 +10 complete k+10\n140 +5 complete k+10";
    let in_both = format!("{in_the_long_one}\n410 +2 complete k+10");
    check_request(TARGET_AND_ANCESTOR, below(0, u64::MAX), &in_both);
    check_request(TARGET_AND_ANCESTOR, below(50, 1000), in_the_long_one);
    check_request(TARGET_AND_ANCESTOR, below(0, 50), "410 +2 complete k+10");
    check_request(TARGET_AND_ANCESTOR, below(200, 1000), "");
}

#[test]
fn time_outside_the_filter_is_not_lost_and_said_to_be_invisible() {
    let thread = &analyse(TARGET_AND_ANCESTOR, Request::default()).loss.threads[0];
    // 100 before, 10 + 10 + 5 in k, 100, 90, 5 + 3 in k, and 580 at the end.
    assert_eq!((thread.window_ns, thread.observed_ns, thread.outside_ns), (1000, 1000, Some(903)));
}

#[test]
fn two_functions_in_the_filter_that_call_each_other() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 call f+10 g
        120 call g+10 f
        130 ret f+40 g+15
        140 ret g+40 f+15
        150 out.ret f+40 k+15";
    let rows = "
        100 +50 complete k+10
        120 +10 complete g+10 depth 1";
    check_children(script, rows, "call g at f+10 x1 30\nself x2 30");
    let g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, g, "110 +30 complete f+10");
}

#[test]
fn two_functions_in_the_filter_that_call_each_other_through_hidden_code() {
    let script = "
        filter
        code call k+10 f
        code call k+20 g
        code call k+30 f
        100 start f
        110 out.call f+10 k
        115 start g
        120 out.call g+10 k
        125 start f
        130 out.ret f+40 k+35
        135 start g+15
        140 out.ret g+40 k+25
        145 start f+15
        150 out.ret f+40 k+15";
    let rows = "
        100 +50 complete k+10
        125 +5 complete k+30 depth 1";
    check_children(script, rows, "call k at f+10 x1 35\nself x2 20");
    let g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, g, "115 +25 complete k+20");
}

#[test]
fn a_gap_inside_the_filter_cuts_and_outside_of_it_too() {
    // What fell into the second gap may have been another call of f: the open one is not guessed to have
    // ended.
    let script = "
        filter
        code call k+10 f
        100 start f
        110 gap 120
        120 resume f+8
        150 out.ret f+40 k+15
        200 start f
        210 out.call f+10 g
        220 gap 230
        240 start f+15
        250 out.ret f+40 k+15
        300 start f
        310 out.ret f+40 k+15";
    check(script, "100 >=10 cut [unknown]\n200 >=20 cut [unknown]\n300 +10 complete k+10");
}

#[test]
fn a_hidden_function_that_is_called_in_sight_has_calls() {
    let script = "
        filter
        code call f+10 h
        100 start main
        110 out.call main+10 f
        150 start main+15
        160 out.icall main+20 f
        170 start main+25
        180 out.call main+30 f+50
        190 start main+35
        200 out.call main+40 f
        220 start h
        230 out.ret h+10 f+15
        240 start main+45";
    // Control that comes to its middle is no call of it. Of what it calls only code inside the filter is
    // seen.
    let rows = "
        110 +40 complete main+10 hidden
        160 +10 complete main+20 hidden
        200 +40 complete main+40 hidden";
    check_children(script, rows, "self x3 80\ncall h at f+10 x1 10");
    assert_eq!(analyse(script, Request::default()).functions[0].calls.hidden, 3);
}

#[test]
fn a_hidden_function_that_is_called_through_a_stub_or_a_tail_jump_has_calls() {
    let script = "
        filter
        100 start main
        110 call main+10 plt
        112 out.jmp plt+4 f
        150 start main+15
        160 call main+20 k
        165 out.jmp k+10 f
        190 start main+25
        200 call main+30 k
        205 out.fall k+10 f
        220 start main+35";
    // Code that runs into the function does not call it.
    let rows = "
        112 +38 complete main+10 hidden
        165 +25 complete jump k+10 hidden";
    check(script, rows);
}

#[test]
fn a_hidden_function_that_is_left_by_an_exception_is_unwound_and_one_that_does_not_return_is_open() {
    let script = "
        filter
        100 start main
        110 call main+10 k
        120 out.call k+10 f
        150 start main+80
        200 out.call main+90 f";
    let rows = "
        120 +30 unwound k+10 hidden
        200 >=0 open_end main+90 hidden";
    check(script, rows);
}

/// What control does out of the filter is not seen, but that its thread came back to a CPU.
#[test]
fn a_call_out_of_the_filter_is_open_up_to_the_last_switch() {
    let script = "
        filter
        off 300 400
        100 start f
        110 out.call f+10 g";
    check(script, "100 >=300 open_end [unknown] off 100");
    let sleeps_on = script.replace("off 300 400", "off 300");
    check(&sleeps_on, "100 >=900 open_end [unknown] off 700");
}
