//! Exceptions, `longjmp`, stack switches.

use super::script::{analyse, check, check_children, check_request, id};
use crate::{Limits, Request};

#[test]
fn an_exception_unwinds_all_frames_above_the_one_it_lands_in() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        115 call g+10 throw
        150 ijmp throw+30 main+80
        160 call main+90 f
        170 ret f+40 main+95";
    check(script, "100 +50 unwound main+10\n160 +10 complete main+90");
}

#[test]
fn a_call_ends_when_control_lands_outside_even_if_first_in_a_cleanup() {
    let script = "
        0 start main+4
        100 call main+10 g
        105 call g+10 f
        110 call f+10 throw
        150 ijmp throw+30 g+80
        155 call g+90 throw
        170 ret throw+40 main+80
        180 ret main+90 k+5";
    check(script, "105 +45 unwound g+10");
}

#[test]
fn control_may_land_in_a_frame_that_has_jumped_into_the_middle_of_the_function() {
    // What g runs of f's code has f's landing pads; where it returns to tells that it was g.
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 jmp g+20 f+60
        130 call f+70 throw
        150 ijmp throw+30 f+80
        160 ret f+90 f+15
        200 ret f+99 main+15";
    let rows = "100 +100 complete main+10 undecided";
    check_children(script, rows, "call g at f+10 x1 50\nself x1 50");
    assert_eq!(analyse(script, Request::default()).limits.undecided_landings, 1, "it is a guess");
}

#[test]
fn an_aborted_transaction_unwinds_what_it_had_called() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        130 abort g+20 f+40
        140 call f+50 g
        150 ret g+90 f+55
        160 ret f+90 main+15";
    let children = "self x1 30\ncall g at f+10 x1 20\ncall g at f+50 x1 10";
    check_children(script, "100 +60 complete main+10", children);
}

#[test]
fn a_call_inside_code_without_a_name_is_a_call_while_a_landing_is_undecided_too() {
    // Such code may be many functions: the one that jumps to g by `push; ret` is the one that was called.
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+20 f
        130 call f+30 throw
        150 ijmp throw+30 f+80
        155 call f+90 unnamed+4
        160 call unnamed+10 unnamed+50
        165 ret unnamed+58 g
        170 ret g+20 unnamed+15
        175 ret unnamed+20 f+95
        180 ret f+a0 f+15
        190 ret f+a0 main+15";
    let rows = "
        100 +90 complete main+10
        110 +70 complete f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(script, rows);
    assert_eq!(analyse(script, Request::default()).limits, Limits::default());
}

#[test]
fn a_landing_in_the_function_itself_ends_its_callees_only() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        115 call g+10 throw
        150 ret throw+30 f+80
        160 ret f+90 main+15";
    check_children(script, "100 +60 complete main+10", "call g at f+10 x1 40\nself x1 20");
}

#[test]
fn a_landing_in_a_recursive_function_is_settled_by_the_following_returns() {
    // f(1) is called by main, f(2) by f+10, f(3) by f+20.
    let open = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+20 f
        130 call f+30 throw
        150 ijmp throw+30 f+80
        155 call f+90 g
        160 ret g+20 f+95";
    let in_the_middle = format!("{open}\n 170 ret f+a0 f+15\n 180 ret f+a0 main+15");
    let rows = "
        100 +80 complete main+10
        110 +60 complete f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(&in_the_middle, rows);
    let in_the_outermost = format!("{open}\n 170 ret f+a0 main+15");
    let rows = "
        100 +70 complete main+10
        110 +40 unwound f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(&in_the_outermost, rows);
    let in_the_innermost = format!("{open}\n 170 ret f+a0 f+25\n 180 ret f+a0 f+15\n 190 ret f+a0 main+15");
    let rows = "
        100 +90 complete main+10
        110 +70 complete f+10 depth 1
        120 +50 complete f+20 depth 2";
    check(&in_the_innermost, rows);
}

#[test]
fn several_returns_may_be_needed_to_settle_a_landing() {
    // All inner activations return to the same place: only how many returns follow tells.
    let open = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+10 f
        130 call f+10 f
        140 call f+30 throw
        150 ijmp throw+30 f+80
        160 ret f+a0 f+15";
    let one_unwound = format!("{open}\n 170 ret f+a0 f+15\n 180 ret f+a0 main+15");
    let rows = "
        100 +80 complete main+10
        110 +60 complete f+10 depth 1
        120 +40 complete f+10 depth 2
        130 +20 unwound f+10 depth 3";
    check(&one_unwound, rows);
    let two_unwound = format!("{open}\n 170 ret f+a0 main+15");
    let rows = "
        100 +70 complete main+10
        110 +50 complete f+10 depth 1
        120 +30 unwound f+10 depth 2
        130 +20 unwound f+10 depth 3";
    check(&two_unwound, rows);
}

#[test]
fn a_handler_that_interrupts_a_first_instruction_does_not_disturb_a_landing() {
    // The handler returns to g, where it interrupted: that is g going on, not another handler. The restorer
    // that it returns to by itself may have a symbol.
    for restorer in ["restorer+1", "restorer"] {
        let script = format!(
            "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+10 f
        130 call f+30 throw
        150 ijmp throw+30 f+80
        155 call f+90 g
        156 async g
        157 start handler
        158 ret handler+30 {restorer}
        159 syscall restorer+8
        160 start g
        165 ret g+20 f+95
        170 ret f+a0 f+15
        180 ret f+a0 main+15"
        );
        let rows = "
        100 +80 complete main+10
        110 +60 complete f+10 depth 1
        120 +30 unwound f+10 depth 2";
        check(&script, rows);
    }
}

#[test]
fn the_innermost_activation_is_taken_when_nothing_settles_it() {
    let open = "
        born 0
        0 start main
        100 call main+10 f
        110 call f+10 f
        130 call f+30 throw
        150 ijmp throw+30 f+80";
    check(
        &format!("{open}\n 160 call f+90 g"),
        "100 >=60 open_end main+10\n110 >=50 open_end f+10 depth 1 undecided",
    );
    check(&format!("{open}\n 160 gap 170"), "100 >=60 cut main+10\n110 >=50 cut f+10 depth 1 undecided");
}

#[test]
fn what_is_looked_ahead_at_is_bounded() {
    let mut script = String::from(
        "0 start main+4
         100 call main+10 f
         110 call f+10 f
         130 call f+30 throw
         150 ijmp throw+30 f+80\n",
    );
    for i in 0..40_000 {
        script += &format!("{} call f+90 g\n{} ret g+20 f+95\n", 200 + 2 * i, 201 + 2 * i);
    }
    script += "90000 ret f+a0 main+15";
    let report = analyse(&script, Request::default());
    assert_eq!(report.limits.undecided_landings, 1);
    // The innermost was assumed, and the next event was a return past it.
    let statuses: Vec<_> = report.functions[0].rows.iter().map(|r| r.end.status.name()).collect();
    assert_eq!(statuses, ["complete", "unwound"]);
}

#[test]
fn landings_in_what_is_looked_ahead_at_are_settled_in_turn() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+10 f
        130 call f+30 throw
        140 ijmp throw+30 f+80
        150 call f+30 throw
        160 ijmp throw+30 f+80
        170 ret f+a0 f+15
        180 ret f+a0 main+15";
    // One of the three was unwound.  Both landings fit the innermost or the middle one; the first takes
    // the innermost that later returns do not rule out.
    let rows = "
        100 +80 complete main+10 undecided
        110 +60 complete f+10 depth 1 undecided
        120 +40 unwound f+10 depth 2 undecided";
    check(script, rows);
}

#[test]
fn where_a_handler_had_come_tells_which_activation_of_it_was_landed_in() {
    // Two handlers h, the second in the first; control lands in one of them, which returns: to f, where the
    // first had come, or to g, where the second had.
    let open = "
        born 0
        0 start main+4
        100 call main+10 f
        110 async f+20
        111 start h
        115 call h+10 g
        120 async g+20
        121 start h
        125 call h+10 throw
        130 ijmp throw+30 h+80
        140 ret h+90 restorer
        140 syscall restorer+5";
    let first = format!("{open}\n 150 start f+20\n 160 ret f+40 main+15");
    let second = format!("{open}\n 150 start g+20\n 155 ret g+30 h+15\n 160 ret h+90 restorer");
    let of_g = || Request { functions: vec![id("g")], ..Request::default() };
    check_request(&first, of_g(), "115 +15 unwound h+10");
    check_request(&second, of_g(), "115 +40 complete h+10");
}

#[test]
fn a_landing_in_a_handler_is_no_return_of_the_handler() {
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+10 f
        130 call f+30 throw
        150 ijmp throw+30 f+80
        155 async f+84
        156 start h
        157 call h+10 throw
        158 ret throw+30 h+80
        159 ret h+90 restorer+1
        159 syscall restorer+5
        160 start f+84
        170 ret f+a0 f+15
        180 ret f+a0 main+15";
    let rows = "
        100 +80 complete main+10
        110 +60 complete f+10 depth 1
        120 +30 unwound f+10 depth 2";
    check(script, rows);
    assert_eq!(analyse(script, Request::default()).limits.undecided_landings, 0);
}

#[test]
fn a_landing_that_waits_for_too_many_others_is_a_guess() {
    let landings = |count: u64| {
        let open = "0 start main+4\n100 call main+10 f\n110 call f+10 f\n120 call f+10 f\n";
        let landing = |i| format!("{} call f+30 throw\n{} ijmp throw+30 f+80\n", 200 + 2 * i, 201 + 2 * i);
        let script = open.to_owned() + &(0..count).map(landing).collect::<String>();
        analyse(&script, Request::default()).limits.undecided_landings
    };
    // The first ones wait for too many, the last ones for events after the recording's end.
    assert_eq!((landings(1), landings(5), landings(8)), (1, 5, 8));
}

#[test]
fn siglongjmp_out_of_a_handler_unwinds_it_and_what_it_interrupted() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        135 call handler+10 throw
        140 ijmp throw+30 main+80
        150 call main+90 f
        160 ret f+40 main+95";
    check_children(
        script,
        "100 +40 unwound main+10\n150 +10 complete main+90",
        "self x2 30\nsignal handler x1 20",
    );
}

#[test]
fn a_stack_switch_cuts_the_open_frames() {
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 lib
        150 ijmp lib+30 h+80
        160 ret h+90 k+15
        170 call k+20 f
        180 ret f+40 k+25";
    check(script, "100 >=50 cut main+10\n170 +10 complete k+20");
    assert_eq!(analyse(script, Request::default()).limits.stack_switches, 1);
}

#[test]
fn a_jump_to_where_a_call_returns_to_is_a_stack_switch_also_in_one_object() {
    // As hand-written switches do; whether h is asked for changes nothing.
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        150 ijmp g+30 h+85
        160 ret h+90 k+15
        170 call k+20 f
        180 ret f+40 k+25";
    check(&format!("code call h+80 g\n{script}"), "100 >=50 cut main+10\n170 +10 complete k+20");
    // Without a call there it is code that functions share, and h goes on for g.
    let shared = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        150 ijmp g+30 h+85
        160 ret h+90 f+15
        180 ret f+40 main+15";
    check_children(shared, "100 +80 complete main+10", "call g at f+10 x1 50\nself x1 30");
}

#[test]
fn a_landing_in_a_frame_older_than_the_recording_is_unwinding_unless_the_program_switches_stacks() {
    let script = "
        90 start main+4
        100 call main+10 f
        110 call f+10 lib
        150 ijmp lib+30 h+80
        170 call h+90 f
        180 ret f+40 h+95";
    check(script, "100 +50 unwound main+10\n170 +10 complete h+90");
    let switches = format!("stack_switches\n{script}");
    check(&switches, "100 >=50 cut main+10\n170 +10 complete h+90");
}

#[test]
fn a_fiber_that_comes_back_is_not_counted_again() {
    let script = "
        stack_switches
        0 start main+4
        100 call main+10 f
        110 call f+10 lib
        150 ret lib+30 k+80
        160 call k+90 lib
        170 ret lib+30 f+15
        180 ret f+40 main+15";
    check(script, "100 >=50 cut main+10");
}

#[test]
fn each_call_on_a_fiber_is_cut_once_wherever_control_goes_on() {
    // k resumes a fiber; its function f yields: twice.  All of it is on stacks that are switched.
    let script = "
        born 0
        0 start main+4
        100 call main+10 k
        110 call k+10 lib
        120 ret lib+30 h
        130 call h+10 f
        140 call f+10 lib
        150 ret lib+30 k+15
        160 ret k+40 main+15
        170 call main+10 k
        180 call k+10 lib
        190 ret lib+30 f+15
        200 ret f+40 h+15
        210 call h+10 f
        220 ret f+40 h+15
        230 ret h+40 g+5";
    check(script, "130 >=20 cut h+10\n210 +10 complete h+10");
}

#[test]
fn fibers_that_wait_at_the_same_place_look_like_one() {
    // Two fibers run h, which calls f, which yields: nothing tells which f it is that returns.
    let script = "
        born 0
        0 start main+4
        100 call main+10 h
        110 call h+10 f
        120 call f+10 lib
        130 ret lib+30 f+15
        140 ret f+40 h+15";
    check(script, "110 +30 complete h+10");
}

#[test]
fn a_second_landing_does_not_settle_the_first() {
    // f(1) is called by main, f(2) by g, f(3) by h: the exception is caught in f(2), and thrown on to f(1).
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 call g+10 f
        130 call f+20 h
        140 call h+10 f
        150 call f+30 throw
        160 ijmp throw+30 f+80
        165 ret f+90 g+15
        170 call g+20 throw
        180 ijmp throw+30 f+80
        190 ret f+90 main+15";
    let rows = "
        100 +90 complete main+10
        120 +45 complete g+10 depth 1
        140 +20 unwound h+10 depth 2";
    check(script, rows);
    let again = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 call g+10 f
        150 call f+30 throw
        160 ijmp throw+30 f+80
        170 call f+90 throw
        180 ijmp throw+30 f+80
        190 ret f+90 main+15";
    check(again, "100 +90 complete main+10 undecided\n120 +60 unwound g+10 depth 1 undecided");
}

#[test]
fn a_tail_call_after_a_landing_leaves_the_frame_landed_in() {
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        150 call f+30 throw
        160 ijmp throw+30 f+80
        170 jmp f+90 g
        180 ret g+20 f+15
        190 ret f+90 main+15";
    check(script, "100 +90 complete main+10\n110 +70 complete f+10 depth 1");
}

#[test]
fn a_handler_that_is_landed_in_returns_to_what_it_interrupted() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 async f+10
        120 start handler
        130 call handler+10 g
        140 async g+10
        150 start handler
        160 call handler+20 throw
        170 ijmp throw+30 handler+40
        180 ret handler+50 restorer
        180 syscall restorer+5
        190 start g+10
        200 ret g+20 handler+15
        210 ret handler+50 restorer
        210 syscall restorer+5
        220 start f+10
        230 ret f+20 main+15";
    let handlers = Request { functions: vec![id("handler")], ..Request::default() };
    let report = analyse(script, handlers);
    assert_eq!(report.functions[0].calls.complete, 2);
}

/// The ground truth's oracle took the handler that returns for the one that was open before the landing.
#[test]
fn a_handler_entered_after_a_landing_may_return_to_where_an_older_one_came() {
    // f(2) catches, calls k and is interrupted; f(3) catches in that handler. Both handlers came
    // at one instruction of k: which one returns first, only where k returns to tells.
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 k
        120 async k+20
        120 start h
        130 call h+10 f
        140 call f+10 throw
        150 ijmp throw+30 f+80
        160 call f+84 k
        170 async k+20
        170 start h
        180 call h+10 f
        190 call f+10 throw
        200 ijmp throw+30 f+80
        210 ret f+90 h+15
        220 ret h+90 restorer
        220 syscall restorer+5
        230 start k+20
        240 ret k+30 f+89
        250 ret f+90 h+15
        260 ret h+90 restorer
        260 syscall restorer+5
        270 start k+20
        280 ret k+30 f+15
        290 ret f+90 main+15";
    let rows = "
        100 +190 complete main+10
        130 +120 complete h+10 depth 1
        180 +30 complete h+10 depth 2";
    check(script, rows);
}

#[test]
fn a_thread_that_executes_a_program_later_has_older_frames_until_then() {
    let script = |executed| {
        format!(
            "
        executed {executed}
        10 start main+8
        50 call main+10 f
        60 call f+10 throw
        80 ijmp throw+4 k+30
        90 ret k+40 h+5"
        )
    };
    check(&script(900), "50 +30 unwound main+10");
    check(&script(5), "50 >=30 cut main+10");
}

#[test]
fn a_jump_out_of_the_filter_is_followed_while_a_landing_is_undecided() {
    // What f jumps to returns for it: to f+15, from where f(2) was called.
    let script = "
        filter
        born 0
        code call k+10 f
        100 start f
        105 call f+10 f
        110 call f+20 f
        115 out.call f+30 throw
        120 start f+80
        130 out.jmp f+90 lib
        140 start f+15
        150 out.ret f+40 k+15";
    let rows = "
        100 +50 complete k+10
        105 +25 complete f+10 depth 1 by jump
        110 +10 unwound f+20 depth 2";
    check(script, rows);
    assert_eq!(analyse(script, Request::default()).limits, Limits::default());
}
