//! With an IP filter: handlers, landings and resumes that were out of sight.

use super::script::{analyse, check, check_children, check_request, id};
use crate::{Limits, Request};

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
fn a_return_that_only_an_older_call_can_make_tells_what_was_unwound_out_of_sight() {
    // `h` jumps to f. Control that comes in at f+25 seems to be in the last call; but that was entered from g
    // and cannot return to f+15, as the call at 140 can, or the one at 120.
    let script = "
        filter
        born 0
        code call k+10 f
        code call f+10 h
        0 start main
        90 out.call main+10 k
        100 start f
        110 out.call f+10 h
        120 start f
        130 out.call f+10 h
        140 start f
        150 out.call f+20 k
        160 start g
        170 out.call g+10 k
        180 start f
        190 out.call f+20 k
        200 start f+25
        210 ret f+40 f+15
        220 ret f+40 f+15
        230 out.ret f+40 k+15";
    let rows = "
        100 +130 complete k+10
        120 +100 complete f+10 depth 1
        140 +70 complete f+10 depth 2
        180 +30 unwound [unknown] depth 3 undecided";
    check(script, rows);
    // With one of the returns only it may be either call: the innermost is taken, as a guess.
    let rows = "
        100 >=130 open_end [unknown] undecided
        120 +110 complete k+10 depth 1 undecided
        140 +70 complete f+10 depth 2 undecided
        180 +30 unwound [unknown] depth 3 undecided";
    check(&script.replace("220 ret f+40 f+15", ""), rows);
}

/// Seed 9755423: no call that is open waits there, so it is not the one on top that goes on.
#[test]
fn what_hidden_code_jumped_to_may_return_for_a_call_that_is_older_than_the_recording() {
    let script = "
        filter
        100 start f+4
        110 out.call f+10 k
        120 start g
        130 ret g+8 f+35
        140 out.jmp f+50 h";
    let of_h = Request { functions: vec![id("h")], ..Request::default() };
    check_request(script, of_h, "");
    check(
        script,
        "
        100 >=40 open_start [unknown] undecided
        130 >=10 open_start [unknown] depth 1",
    );
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

#[test]
fn a_return_out_of_sight_that_no_call_in_sight_makes_shows_that_calls_were_left_unseen() {
    // What k called has thrown to k: the calls of 120 and 130 are gone when control seems to be back in the
    // last. Random program 9321639.
    let script = "
        filter
        born 0
        code call h+10 f
        100 start f
        110 out.call f+30 k
        120 start f
        130 call f+10 f
        140 out.call f+30 k
        150 start f+35
        160 out.ret f+40 h+15
        170 start f+35
        180 out.ret f+40 h+15";
    let rows = "
        100 +80 complete h+10 undecided
        120 +40 complete h+10 depth 1 undecided
        130 +30 unwound f+10 depth 2 undecided";
    check(script, rows);
}

#[test]
fn what_goes_on_after_a_choice_that_left_it_is_a_guess() {
    // The return at 160 told that control had landed in the call of 100. But then it is in another one.
    // Random programs 9408034 and 9421809.
    let script = "
        filter
        born 0
        code call k+10 f
        100 start f
        105 call f+10 f
        120 out.call f+20 throw
        150 start f+80
        160 out.ret f+40 k+15
        170 start f+15
        180 out.ret f+40 k+15";
    let rows = "
        100 +60 complete k+10
        105 +45 unwound f+10 depth 1
        170 >=10 open_start [unknown] undecided";
    check(script, rows);
}
