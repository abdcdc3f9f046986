//! What a landing leaves undecided, and what tells later.

use super::script::{check, check_request, complete_by_the_end, id};
use crate::Request;

#[test]
fn a_landing_that_may_have_been_in_an_older_call_leaves_ends_that_are_guesses() {
    // Nothing is known of what ran before: f may have been open then, too.
    let landed = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 call g+10 throw
        130 ijmp throw+30 f+80";
    check(&format!("{landed}\n 150 gap 160"), "100 >=50 cut main+10 undecided");
    check(&format!("{landed}\n 150 ret f+90 main+15"), "100 +50 complete main+10");
    check(&format!("born 0\n{landed}\n 150 gap 160"), "100 >=50 cut main+10");
}

#[test]
fn what_it_leaves_undecided_no_other_landing_decides() {
    // Where k jumped to, h may have been running all along; and then it has returned to another main.
    let script = "
        0 start main+4
        100 call main+10 k
        110 ijmp k+8 h+80
        120 jmp h+90 f
        130 ret f+40 main+25
        150 gap 160";
    check(script, "120 +10 unwound jump h+90 undecided");
    check(&format!("born 0\n{script}"), "120 +10 unwound jump h+90");
}

#[test]
fn so_does_one_out_of_sight_in_a_function_that_is_not_open() {
    // What f called has thrown to an older g, or has jumped into the middle of g and will come back.
    let script = "
        100 start f
        110 out.call f+10 k
        120 start g+80";
    check(&format!("filter\n{script}\n 150 gap 160"), "100 >=50 cut [unknown] undecided");
    check(&format!("filter\n born 0\n{script}\n 150 gap 160"), "100 >=50 cut [unknown]");
    let back = "130 out.ret g+90 k+80\n 140 start f+15\n 150 out.ret f+40 h+15";
    check(&format!("filter\n code call h+10 f\n{script}\n{back}"), "100 +50 complete h+10");
}

#[test]
fn so_does_one_in_a_function_that_is_open_more_than_once() {
    let landed = "
        0 start main+4
        100 call main+10 f
        110 call f+10 h
        120 call h+10 h
        130 call h+20 throw
        140 ijmp throw+30 h+80";
    check(&format!("{landed}\n 150 gap 160"), "100 >=50 cut main+10 undecided");
    check(&format!("born 0\n{landed}\n 150 gap 160"), "100 >=50 cut main+10");
}

#[test]
fn who_may_return_anywhere_is_not_told_by_where_it_returns() {
    let script = "
        100 start f
        110 call f+20 f
        120 out.call f+30 k
        130 start f+80
        140 out.ret f+90 h+15";
    let rows = |end| format!("100 +40 complete -{end}\n110 +20 unwound f+20 depth 1");
    check(&format!("filter\n code call h+10 f\n{script}"), &rows(" undecided").replace(" -", " h+10"));
    check(&format!("filter\n code call h+10 f\n born 0\n{script}"), &rows("").replace(" -", " h+10"));
}

#[test]
fn in_recursion_a_return_does_not_tell_which_of_two_calls_was_landed_in() {
    // g calls h, and h g: before the recording g may have called f, as it does now.
    let script = "
        0 start main+4
        10 call main+10 g
        20 call g+20 h
        30 call h+10 g
        100 call g+10 f
        110 call f+10 throw
        130 ijmp throw+30 f+80
        150 ret f+90 g+15";
    check(script, "100 +50 complete g+10 undecided");
    check(&format!("born 0\n{script}"), "100 +50 complete g+10");
}

#[test]
fn nor_does_it_after_a_loss_in_recursion() {
    let script = "
        born 0
        0 start main+4
        10 call main+10 g
        20 call g+20 h
        30 call h+10 g
        50 gap 60
        90 resume g+8
        100 call g+10 f
        110 call f+10 throw
        130 ijmp throw+30 f+80
        150 ret f+90 g+15";
    check(script, "100 +50 complete g+10 undecided");
    check(&script.replace("30 call h+10 g", "30 call h+10 k"), "100 +50 complete g+10");
}

#[test]
fn nor_does_it_where_several_calls_of_the_function_are_open() {
    let script = "
        0 start main+4
        10 call main+10 f
        100 call f+20 g
        110 call g+10 f
        120 call f+30 throw
        130 ijmp throw+30 f+80
        150 ret f+90 g+15
        160 gap 170";
    let rows = |end| format!("10 >=150 cut main+10{end}\n110 +40 complete g+10 depth 1{end}");
    check(script, &rows(" undecided"));
    check(&format!("born 0\n{script}"), &rows(""));
}

#[test]
fn what_an_undecided_frame_returns_to_may_have_been_entered_in_sight() {
    let script = "
        0 start g+4
        10 call g+10 h
        20 call h+10 throw
        30 ijmp throw+30 g+80
        40 ret g+90 f+15
        60 ret f+20 main+15";
    check(script, "40 >=20 open_start [unknown] undecided");
    let no_throw = "0 start g+4\n 40 ret g+90 f+15\n 60 ret f+20 main+15";
    check(no_throw, "40 >=20 open_start [unknown]");
}

#[test]
fn where_a_handler_s_return_leads_tells_whose_it_was() {
    let nested = "
        100 call main+10 f
        105 call f+10 g
        110 async g+20
        120 start handler
        130 call handler+10 f
        135 call f+10 g
        140 async g+10
        150 start handler
        160 ret handler+50 restorer
        160 syscall restorer+5
        170 start g+20
        180 ret g+90 f+15
        190 gap 200";
    let rows = "100 >=90 cut main+10\n130 +40 unwound handler+10 depth 1";
    check(&format!("0 start main+4\n{nested}"), rows);
    // Where it had to be found out before which frame was landed in, it shows that it was another one.
    let landed = "
        0 start main+4
        50 call main+8 h
        55 call h+10 h
        60 call h+30 throw
        65 ijmp throw+30 h+80
        70 ret h+90 main+d";
    let guesses = "100 >=90 cut main+10 undecided\n130 +40 unwound handler+10 depth 1 undecided";
    check(&format!("{landed}\n{nested}"), guesses);
}

#[test]
fn calls_after_an_undecided_landing_have_ended_when_no_more_events_come() {
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+20 throw
        130 ijmp throw+30 f+80
        140 call f+85 f
        150 ret f+40 f+8a";
    assert_eq!(complete_by_the_end(script), (0, 1));
}

#[test]
fn what_an_undecided_call_jumps_to_is_undecided() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+10 throw
        130 ijmp throw+30 f+80
        140 jmp f+90 g
        150 gap 160";
    let of_g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, of_g, "140 >=10 cut jump f+90 undecided");
}

#[test]
fn control_where_no_frame_leads_shows_that_a_landing_was_elsewhere() {
    let script = "
        born 0
        0 start main
        100 call main+10 f
        110 call f+10 f
        120 call f+20 f
        130 call f+30 throw
        150 ijmp throw+30 f+80
        160 ret f+90 f+15
        170 ret f+90 k+5";
    let rows = "
        100 >=70 cut main+10 undecided
        110 +50 complete f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(script, rows);
}

#[test]
fn code_that_is_found_running_may_be_of_another_call_than_its_function_s() {
    // The function that jumps back into f's middle may be g, called by a frame that had jumped there.
    let script = "
        10 gap 20
        20 resume f+8
        30 jmp f+20 g
        40 jmp g+10 f+50";
    let of_g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, of_g, "30 +10 complete jump f+20 undecided");
    // Or f has jumped to h and goes on: then g ends at 40, and not at 60.
    let script = "
        10 gap 20
        20 resume h+8
        25 jmp h+20 f+8
        30 jmp f+20 g
        40 jmp g+10 f+50
        60 ret f+60 main+15";
    let of_g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, of_g, "30 +30 complete jump f+20 undecided");
}

#[test]
fn a_handler_that_seems_to_come_where_another_returns_is_a_guess() {
    // Control has landed in the outer handler, which had interrupted f at its first instruction, and not in
    // the inner one. Random programs 4007868 and 6001398.
    let script = "
        10 gap 90
        90 resume handler+8
        100 call handler+10 g
        110 async g+8
        120 start handler
        130 call handler+10 throw
        140 ijmp throw+30 handler+80
        150 ret handler+90 restorer+1
        151 syscall restorer+8
        160 start f
        170 ret f+40 main+15";
    check(script, "160 +10 complete [signal] undecided");
    // Without a landing it is certain.
    let no_landing = script.replace("140 ijmp throw+30 handler+80", "140 ret throw+30 handler+15");
    check(&no_landing, "160 +10 complete [signal]");
}

/// Seed 9833405: a trace may begin at the entry of a signal handler.
#[test]
fn where_the_first_function_returns_calls_are_older_than_the_recording() {
    let script = "
        100 start h
        110 ret h+8 f+35
        120 call f+40 g
        130 ret g+8 k+25
        140 ret k+30 f+65";
    check(
        script,
        "
        110 >=20 open_start [unknown]
        140 >=0 open_start [unknown]",
    );
    let of_g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, of_g, "120 +10 unwound f+40");
}
