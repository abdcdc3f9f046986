//! With an IP filter: jumps out of it, parts of a function outside, and stubs.

use super::script::{analyse, check, check_children, check_request, id};
use crate::{Limits, Request};

#[test]
fn a_call_that_leaves_by_a_hidden_tail_jump_ends_there_and_is_marked() {
    let script = "
        filter
        100 start f
        110 out.jmp f+10 g
        200 start f
        210 out.fall f+10 k+8";
    check(script, "100 +10 complete [unknown] by jump\n200 +10 complete [unknown] by jump");
}

#[test]
fn a_retpoline_out_of_the_filter_is_an_indirect_call_or_jump() {
    let call = "
        filter
        code call k+10 f
        100 start f
        110 call f+10 f+50
        111 call f+50 f+60
        112 out.ret f+68 g
        150 start f+15
        160 out.ret f+40 k+15";
    check_children(call, "100 +60 complete k+10", "call g at f+10 x1 38\nself x1 22");
    let jump = "
        filter
        100 start f
        110 call f+50 f+60
        112 out.ret f+68 g";
    check(jump, "100 +12 complete [unknown] by jump");
}

#[test]
fn a_return_to_an_entry_out_of_the_filter_is_a_jump() {
    // `push g; ret`, as in the whole trace: it does not return to f's caller.
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.ret f+40 g
        200 start f
        210 call f+10 h
        220 out.ret h+10 g
        240 start f+15
        250 out.ret f+40 k+15";
    let rows = "
        100 +10 complete [unknown] by jump
        200 +50 complete k+10";
    check_children(script, rows, "self x2 30\ntail g at h+10 x1 20\ncall h at f+10 x1 10");
}

#[test]
fn a_visible_caller_stays_when_its_callee_leaves_by_a_tail_jump() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 call f+10 h
        120 out.jmp h+10 g
        140 start f+15
        150 out.ret f+40 k+15";
    let children = "
        tail g at h+10 x1 20
        self x1 20
        call h at f+10 x1 10";
    check_children(script, "100 +50 complete k+10", children);
}

#[test]
fn a_jump_to_its_own_part_outside_does_not_end_a_call() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.jcc f+10 f+800
        130 start f+20
        150 out.ret f+40 k+15
        200 start f
        210 out.jcc f+10 f+800
        300 start f
        320 out.ret f+40 k+15";
    // The second one never comes back: all that is known is when it left.
    let rows = "
        100 +50 complete k+10
        200 +10 complete [unknown] by jump
        300 +20 complete k+10";
    check(script, rows);
}

#[test]
fn a_call_that_returns_from_its_own_part_outside_ends_if_its_caller_is_in_sight() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 call f+10 f
        120 out.jcc f+20 f+800
        150 start f+15
        160 out.ret f+40 k+15";
    check(script, "100 +60 complete k+10\n110 +40 complete f+10 depth 1");
}

#[test]
fn control_after_a_call_that_waits_there_is_not_back_from_an_own_part() {
    let script = "
        filter
        code call k+10 f
        code call main+10 f
        100 start f
        110 out.call f+10 k
        120 start f
        130 out.jcc f+20 f+800
        150 start f+15
        160 out.ret f+40 main+15";
    check(script, "100 +60 complete main+10\n120 +10 complete [unknown] depth 1 by jump");
}

#[test]
fn a_call_of_its_own_part_outside_is_neither_frame_nor_child() {
    // A subroutine of hand-written code, or of f.cold; g is called by f from there.
    let script = "
        filter
        code call k+10 f
        code call f+810 g
        100 start f
        110 out.call f+10 f+800
        115 start g
        118 out.ret g+40 f+815
        130 start f+15
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "self x1 47\ncall g at f+810 x1 3");
}

#[test]
fn a_target_of_a_hidden_stub_is_called_by_the_call_site() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.call f+10 plt+20
        114 start g
        120 ret g+20 f+15
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "self x1 44\ncall g at f+10 x1 6");
}

#[test]
fn what_a_hidden_stub_leads_to_is_a_child() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.call f+10 plt+20
        130 start f+15
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "self x1 30\ncall plt at f+10 x1 20");
}

#[test]
fn what_is_called_by_code_that_a_hidden_stub_leads_to_is_not_called_by_the_call_site() {
    // qsort, for one, through the PLT, and its callback.
    let script = "
        filter
        code call main+10 f
        code call k+10 g
        100 start f
        110 out.call f+10 plt+20
        114 start g
        116 out.ret g+40 k+15
        120 start g
        122 out.ret g+40 k+15
        130 start f+15
        150 out.ret f+40 main+15";
    check_children(script, "100 +50 complete main+10", "self x1 30\ncall plt at f+10 x1 20");
    let g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, g, "114 +2 complete k+10\n120 +2 complete k+10");
}

/// What `f` calls out of sight jumps to `g`, which so returns to `f` in sight.
#[test]
fn a_call_that_hidden_code_jumped_to_returns_in_sight_also_while_a_landing_is_undecided() {
    let script = "
        filter
        born 0
        code call k+10 f
        100 start f
        105 out.call f+20 k
        110 start g
        115 call g+10 f
        120 out.call f+20 k
        125 start g
        130 call g+10 f
        135 out.call f+30 throw
        150 start f+80
        155 ret f+90 g+15
        160 ret g+40 f+25
        170 out.ret f+90 k+15";
    let rows = "
        100 +70 complete k+10
        115 +40 complete g+10 depth 1
        130 +20 unwound g+10 depth 2";
    check(script, rows);
    assert_eq!(analyse(script, Request::default()).limits, Limits::default());
}

/// What jumped there returns in sight only if control has landed in the right frame.
#[test]
fn what_a_call_in_doubt_has_jumped_to_out_of_the_filter_is_in_doubt_too() {
    let script = "
        filter
        born 0
        100 start f
        105 call f+10 f
        110 call f+20 f
        115 out.call f+30 throw
        120 start f+80
        130 out.jmp f+90 g";
    let of_g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, of_g, "130 >=0 open_end jump f+90 hidden undecided");
}
