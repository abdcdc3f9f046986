//! Exceptions in functions that are open more than once: the program's tables tell where control has landed.

use super::script::{analyse, check};
use crate::{Limits, Request};

/// f(1) is called by main, f(2) by f(1) at f+10, f(3) by f(2) at f+20; f(3) throws.
const THROWN: &str = "
        100 call main+10 f
        110 call f+10 f
        120 call f+20 f
        130 call f+30 throw";

/// The recording ends before a return could tell.
#[test]
fn control_is_in_the_innermost_frame_that_has_made_a_call_with_the_landing_pad() {
    let script = format!("born 0\n0 start main+4\n pad f+20 f+80\n{THROWN}\n150 ijmp throw+30 f+80");
    let rows = "
        100 >=50 open_end main+10
        110 >=40 open_end f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(&script, rows);
    assert_eq!(analyse(&script, Request::default()).limits, Limits::default());
}

#[test]
fn a_thread_that_was_found_running_has_no_older_call_that_stops_an_exception_first() {
    let script = format!("0 start main+4\n pad f+10 f+80\n pad f+20 f+80\n{THROWN}\n150 ijmp throw+30 f+80");
    let rows = "
        100 >=50 open_end main+10
        110 >=40 open_end f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(&script, rows);
}

/// Of a stripped program `f.cold` is a function.
#[test]
fn a_landing_pad_may_be_in_a_part_with_a_name_of_its_own() {
    let script = format!(
        "born 0\n0 start main+4\n pad f+10 g+80\n{THROWN}\n
        150 ijmp throw+30 g+80
        160 jmp g+90 f+40
        170 ret f+50 main+15"
    );
    let rows = "
        100 +70 complete main+10
        110 +40 unwound f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(&script, rows);
}

/// f(2) seemed to go on: it was the only call of f that was seen.
#[test]
fn where_no_call_has_the_landing_pad_the_frame_is_older_than_the_recording() {
    let script = "
        0 start g+4
        pad f+60 f+80
        100 call g+10 f
        120 call f+20 throw
        150 ijmp throw+30 f+80
        160 ret f+90 main+15";
    check(script, "100 +50 unwound g+10\n150 >=10 open_start [unknown]");
}

/// Code without a name may be many functions, and goes on where it is jumped to.
#[test]
fn so_it_is_in_code_without_a_name() {
    let script = "
        0 start unnamed+4
        pad g+60 unnamed+80
        100 call unnamed+10 f
        120 call f+20 throw
        150 ijmp throw+30 unnamed+80
        160 call unnamed+90 f
        170 ret f+40 unnamed+95";
    check(script, "100 +50 unwound unnamed+10\n160 +10 complete unnamed+90");
}

/// What throws does not return: behind its call the next landing pad may stand.
#[test]
fn a_landing_pad_behind_a_call_is_not_where_that_returns_to() {
    let script = "
        0 start k+4
        pad f+60 f+35
        100 call k+10 f
        120 call f+30 throw
        130 call throw+10 g
        150 ret g+20 f+35
        160 ret f+90 main+15";
    check(script, "100 +50 unwound k+10\n150 >=10 open_start [unknown]");
}

#[test]
fn the_landing_pad_of_a_later_exception_tells_where_longjmp_had_led() {
    // Where control lands first both calls may go on; only f(1) is in a call with the second landing pad.
    let script = "
        born 0
        0 start main+4
        pad f+10 f+80
        100 call main+10 f
        110 call f+10 f
        120 call f+20 throw
        130 ijmp throw+30 f+40
        140 call f+50 throw
        150 ijmp throw+30 f+80
        160 ret f+90 main+15";
    let rows = "
        100 +60 complete main+10
        110 +40 unwound f+10 depth 1";
    check(script, rows);
    assert_eq!(analyse(script, Request::default()).limits, Limits::default());
}

#[test]
fn where_code_out_of_sight_has_called_frames_they_may_have_ended_unseen() {
    // It may have caught an exception of f(2) before it called f(3): then f(1) goes on.
    let script = "
        filter
        born 0
        pad f+20 f+80
        100 start f
        105 out.call f+20 lib
        110 start f
        115 out.call f+20 lib
        120 start f
        125 out.call f+30 throw
        130 start f+80";
    let rows = "
        100 >=30 open_end [unknown]
        110 >=20 open_end [unknown] depth 1 undecided
        120 >=10 open_end [unknown] depth 2 undecided";
    check(script, rows);
    assert_eq!(analyse(script, Request::default()).limits.undecided_landings, 1);
}

/// Only what called it is seen: the library that throws is missing.
#[test]
fn what_throws_may_be_out_of_sight() {
    let script = "
        born 0
        0 start main+4
        pad f+20 f+80
        100 call main+10 f
        110 call f+20 f
        120 out.call f+30 throw
        120 gap 140 missing
        140 start f+80";
    let rows = "
        100 >=40 open_end main+10
        110 +30 unwound f+20 depth 1";
    check(script, rows);
}

#[test]
fn a_landing_pad_behind_a_call_of_a_missing_library_is_not_where_that_returns_to() {
    let script = "
        born 0
        0 start main+4
        pad f+10 f+35
        100 call main+10 f
        110 call f+10 f
        120 out.call f+30 throw
        120 gap 140 missing
        140 start f+35";
    check(script, "100 >=40 open_end main+10\n110 +30 unwound f+10 depth 1");
}

#[test]
fn a_frame_below_a_handler_may_be_where_control_lands() {
    // The handler throws; where f(2) was when it came, and so its landing pad, is not looked at.
    let script = "
        born 0
        0 start main+4
        pad f+10 g+80
        100 call main+10 f
        110 call f+10 f
        120 async f+20
        120 start handler
        130 call handler+10 throw
        150 ijmp throw+30 g+80";
    let rows = "
        100 >=50 open_end main+10 undecided
        110 +40 unwound f+10 depth 1 undecided";
    check(script, rows);
}
