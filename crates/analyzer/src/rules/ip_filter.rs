//! What can be known when only code inside the IP filter is traced.

use super::script::{analyse, check, check_children, check_request, id};
use crate::{Ancestor, LatencyRange, Limits, Request};

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
    // `push g; ret`, as in the whole trace: by who called f it is not left.
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
fn a_call_unwound_out_of_sight_ends_when_control_is_next_seen_in_an_outer_frame() {
    let script = "
        filter
        code call k+10 g
        100 start g
        110 call g+10 f
        120 out.call f+10 throw
        150 start g+80
        160 out.ret g+90 k+15";
    check(script, "110 +40 unwound g+10");
}

#[test]
fn a_landing_out_of_hidden_code_is_one_also_while_the_one_before_is_undecided() {
    // Thrown and rethrown, as in the whole trace: the returns tell where it landed last, and nothing where
    // first.
    let script = "
        filter
        code call k+10 f
        100 start f
        105 call f+10 f
        110 call f+10 f
        120 out.call f+20 throw
        150 start f+80
        155 out.call f+90 throw
        180 start f+80
        190 out.ret f+40 k+15";
    let rows = "
        100 +90 complete k+10 undecided
        105 +75 unwound f+10 depth 1 undecided
        110 +70 unwound f+10 depth 2 undecided";
    check(script, rows);
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

#[test]
fn whether_the_kernel_or_hidden_code_entered_a_call_is_unknown_until_it_returns() {
    let entered = "
        filter
        code sigreturn restorer
        code call k+10 g
        100 start f
        110 async f+10
        120 start g";
    let of_g = || Request { functions: vec![id("g")], ..Request::default() };
    check_request(&format!("{entered}\n 130 out.ret g+20 restorer"), of_g(), "120 +10 complete [signal]");
    check_request(&format!("{entered}\n 130 out.ret g+20 k+15"), of_g(), "120 +10 complete k+10");
    check_request(&format!("{entered}\n 130 out.jmp g+20 k"), of_g(), "120 +10 complete [unknown] by jump");
}

#[test]
fn what_hidden_code_calls_while_a_landing_is_undecided_returns_there() {
    let script = "
        filter
        born 0
        code call k+10 f
        100 start f
        105 call f+10 f
        110 call f+10 f
        120 out.call f+20 throw
        150 start f+80
        160 out.call f+90 k
        165 start g
        170 out.ret g+20 k+35
        180 start f+95
        190 ret f+40 f+15
        200 out.ret f+40 k+15";
    check(script, "100 +100 complete k+10\n105 +85 complete f+10 depth 1\n110 +40 unwound f+10 depth 2");
    assert_eq!(analyse(script, Request::default()).limits, Limits::default());
}

#[test]
fn a_call_unwound_out_of_sight_for_good_is_open() {
    let script = "
        filter
        100 start f
        120 out.call f+10 throw
        200 start f
        210 out.ret f+40 k+30";
    check(script, "100 >=110 open_end [unknown] undecided\n200 +10 complete [unknown] depth 1");
}

#[test]
fn after_a_loss_an_entry_may_be_a_resume() {
    // The kernel may have been lost, which had interrupted f there.
    let script = "
        filter
        born 0
        0 start h
        10 out.ret h+10 k+15
        20 gap 90
        100 start f
        120 out.ret f+20 k+15
        200 start f
        230 out.ret f+20 k+15";
    check(script, "100 +20 complete [unknown] undecided\n200 +30 complete [unknown]");
}

#[test]
fn a_resume_at_the_entry_after_an_interrupt_is_no_entry() {
    let script = "
        filter
        code call k+10 f
        100 start f
        105 async f
        110 start f
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "self x1 45\ninterrupt x1 5");
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

#[test]
fn what_a_hidden_handler_calls_is_not_called_by_the_kernel() {
    let script = "
        filter
        code call k+10 f
        code call handler+10 f
        100 start f
        110 async f+20
        120 start f
        130 out.ret f+40 handler+15
        140 start f+20
        150 out.ret f+40 k+15";
    check(script, "100 +50 complete k+10\n120 +10 complete handler+10 depth 1");
}

#[test]
fn a_call_interrupted_at_its_entry_goes_on_after_what_a_hidden_handler_called() {
    let script = "
        filter
        code call k+10 f
        code call handler+10 g
        100 start f
        101 async f
        120 start g
        130 out.ret g+40 handler+15
        140 start g
        145 out.ret g+40 handler+15
        150 start f
        160 out.ret f+40 k+15
        200 start f
        210 out.ret f+40 k+15";
    // The handler may as well have left it, and what begins then is the next call.
    let rows = "100 +60 complete k+10 undecided\n200 +10 complete k+10";
    check_children(script, rows, "signal x1 49\nself x2 21");
}

#[test]
fn a_handler_in_the_filter_is_called_by_the_kernel() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 async f+20
        120 start handler
        130 out.ret handler+40 restorer+1
        140 start f+20
        150 out.ret f+40 k+15";
    check_children(script, "100 +50 complete k+10", "signal handler x1 30\nself x1 20");
}

#[test]
fn a_handler_that_interrupted_hidden_code_returns_to_the_restorer() {
    let script = "
        filter
        code sigreturn restorer
        100 start f
        130 out.ret f+40 restorer
        200 start f
        210 call f+10 g
        215 ret g+10 f+15
        230 out.ret f+40 restorer";
    check(script, "100 +30 complete [unknown]\n200 +30 complete [unknown]");
}

/// The target is `f` and the ancestor `g`: what is between them is hidden.
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
    assert_eq!(analyse(script, Request::default()).functions[0].hidden, 3);
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

/// `f` is interrupted, the handler `k` calls it again and leaves by `siglongjmp`; `main` goes on calling it.
const LEFT_OUT_OF_SIGHT: &str = "
    filter
    code call main+10 f
    code call k+10 f
    50 start f
    60 out.ret f+40 main+15
    100 start f
    110 async f+15
    120 start f
    130 out.ret f+40 k+15
    200 start f
    202 out.call f+10 g
    208 start f+15
    210 out.ret f+40 main+15
    300 start f
    305 out.ret f+40 main+15";

/// It took 110 ns, complete, and what had called `g` was unwound.
#[test]
fn a_call_left_out_of_sight_does_not_return_for_one_that_comes_back_where_it_was_interrupted() {
    let rows = "
        50 +10 complete main+10
        100 >=205 open_end [unknown] undecided
        120 +10 complete k+10 depth 1
        200 +10 complete main+10 depth 1
        300 +5 complete main+10 depth 1";
    check(LEFT_OUT_OF_SIGHT, rows);
}

/// What ends it may be the return of a call that came in at a place that is taken for another.
#[test]
fn a_call_that_ends_like_those_that_came_and_went_above_it_is_a_guess() {
    let script = "
        filter
        code call main+10 f
        100 start f
        105 out.call f+10 g
        200 start f
        210 out.ret f+40 main+15
        300 start f+15
        310 out.ret f+40 main+15";
    check(script, "100 +210 complete main+10 undecided\n200 +10 complete main+10 depth 1");
}

#[test]
fn a_call_whose_callers_were_not_seen_meanwhile_is_no_guess() {
    let script = "
        filter
        code call main+10 f
        code call k+10 f
        100 start f
        110 async f+15
        120 start f
        130 out.ret f+40 k+15
        140 start f+15
        150 out.ret f+40 main+15";
    check(script, "100 +50 complete main+10\n120 +10 complete k+10 depth 1");
}
