//! Calls of code with a missing file: the caller goes on where control comes back.

use super::script::{analyse, check, check_children, check_request, id};
use crate::Request;

#[test]
fn what_calls_missing_code_goes_on_where_that_returns() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 out.call f+10 lib+8
        112 gap 150 missing
        150 resume f+15
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 60\ncall lib at f+10 x1 40");
    let report = analyse(script, Request::default());
    assert_eq!((report.loss.lost_ns, report.loss.by_cause[0].calls), (38, 0), "it is lost all the same");
}

/// A PSB, and a system call in it, end one gap and begin another.
#[test]
fn missing_code_may_be_several_gaps() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 out.call f+10 lib+8
        110 gap 120 missing
        120 gap 130 missing
        140 gap 150 missing
        150 resume f+15
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 60\ncall lib at f+10 x1 40");
}

#[test]
fn what_a_stub_leads_to_has_the_name_of_the_stub() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 plt+10
        112 out.ijmp plt+14 lib+8
        112 gap 150 missing
        150 resume f+15
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 62\ncall plt at f+10 x1 38");
}

/// The first call of a stub goes by the first entry of the table to the loader, which jumps to the function.
#[test]
fn a_stub_that_is_bound_has_its_name() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 plt+10
        111 jmp plt+1b plt
        112 out.ijmp plt+8 loader+8
        112 gap 150 missing
        150 resume f+15
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 62\ncall plt at f+10 x1 38");
}

#[test]
fn a_jump_to_missing_code_is_a_tail_call() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 out.ijmp f+10 lib+8
        110 gap 150 missing
        150 resume main+15";
    check_children(script, "100 +50 complete main+10", "tail lib at f+10 x1 40\nself x1 10");
    let by_stub = "
        0 start main+4
        100 call main+10 f
        110 jmp f+10 plt+10
        112 out.ijmp plt+14 lib+8
        112 gap 150 missing
        150 resume main+15";
    check_children(by_stub, "100 +50 complete main+10", "tail plt at f+10 x1 38\nself x1 12");
}

/// Where it returns to is not known, and so not seen.
#[test]
fn what_missing_code_has_called_ends_where_it_jumps_back() {
    let script = "
        0 start main+4
        50 out.call main+10 lib+8
        50 gap 100 missing
        100 resume f
        110 out.ijmp f+10 lib+80
        110 gap 150 missing
        150 resume main+15";
    check(script, "100 +10 complete [unknown] by jump");
}

#[test]
fn missing_code_calls_back() {
    let script = "
        0 start main+4
        50 out.call main+10 lib+8
        50 gap 100 missing
        100 resume f
        110 call f+10 g
        120 ret g+20 f+15
        130 out.ret f+40 lib+20
        130 gap 140 missing
        140 resume f
        150 out.ret f+40 lib+20
        150 gap 160 missing
        160 resume main+15
        200 call main+20 f
        210 ret f+40 main+25";
    let rows = "
        100 +30 complete [unknown]
        140 +10 complete [unknown]
        200 +10 complete main+20";
    check(script, rows);
}

/// Missing code may leave `f` out of sight (a `longjmp` of its own), and then call it anew: until control is
/// back in the first call, both accounts fit.
#[test]
fn what_calls_back_above_a_call_by_missing_code_may_have_been_made_after_it() {
    let script = "
        0 start main+4
        50 out.call main+10 lib+8
        50 gap 100 missing
        100 resume f
        110 out.call f+10 lib+40
        110 gap 120 missing
        120 resume f
        130 out.ret f+40 lib+50
        130 gap 140 missing";
    let goes_on = format!(
        "{script}
        140 resume f+15
        150 out.ret f+40 lib+20
        150 gap 160 missing
        160 resume main+15"
    );
    check(&goes_on, "100 +50 complete [unknown]\n120 +10 complete [unknown] depth 1");
    let is_left = format!("{script}\n140 resume main+15");
    check(&is_left, "100 +40 unwound [unknown] undecided\n120 +10 complete [unknown] depth 1");
}

/// The loader has bound a stub to a function of the program itself.
#[test]
fn missing_code_that_jumps_back_by_a_stub_was_only_in_the_way() {
    let script = "
        0 start main+4
        50 call main+10 plt+10
        52 out.ijmp plt+14 loader+8
        52 gap 100 missing
        100 resume f
        130 ret f+40 main+15
        200 call main+20 f
        210 ret f+40 main+25";
    check(script, "100 +30 complete main+10\n200 +10 complete main+20");
}

#[test]
fn an_exception_out_of_missing_code_unwinds() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 out.call g+10 lib+8
        120 gap 140 missing
        140 resume main+30
        200 call main+40 f
        210 ret f+40 main+45";
    check(script, "100 +40 unwound main+10\n200 +10 complete main+40");
}

/// Only the following returns tell which call of `f` has caught it, and missing code may run before.
#[test]
fn a_landing_is_decided_after_missing_code() {
    let script = "
        born 0
        0 start main
        100 call main+10 f
        110 call f+10 f
        120 out.call f+18 lib+8
        120 gap 140 missing
        140 resume f+30
        150 out.call f+34 lib+8
        150 gap 160 missing
        160 resume f+39
        170 ret f+40 main+15";
    check(script, "100 +70 complete main+10\n110 +30 unwound f+10 depth 1");
}

#[test]
fn packets_that_are_lost_in_missing_code_cut() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 out.call f+10 lib+8
        110 gap 120 missing
        120 gap 150 overflow
        150 resume f+15
        200 ret f+40 main+15";
    check(script, "100 >=20 cut main+10");
}

/// The code that was at hand did not fit the packets, because of what missing code had called.
#[test]
fn a_gap_that_begins_in_code_at_hand_cuts() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 out.call f+10 lib+8
        110 gap 120 missing
        120 resume f+15
        120 gap 150 missing
        150 resume f+20
        200 ret f+40 main+15";
    check(script, "100 >=20 cut main+10");
}

/// Missing code may switch stacks as any other does: what runs next was not called by what ran before.
#[test]
fn missing_code_of_programs_that_switch_stacks_cuts() {
    let script = "
        stack_switches
        0 start main+4
        100 call main+10 f
        110 out.call f+10 lib+8
        110 gap 150 missing
        150 resume f+15
        200 ret f+40 main+15";
    check(script, "100 >=10 cut main+10");
    let returns_elsewhere = "
        0 start main+4
        100 call main+10 f
        110 out.ret f+40 lib+8
        110 gap 150 missing
        150 resume main+15";
    check(returns_elsewhere, "100 >=10 cut main+10");
}

/// A handler in sight returns to the restorer, which is the library's.
#[test]
fn a_handler_returns_by_missing_code() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 async f+10
        115 start handler
        120 out.ret handler+20 lib+8
        120 gap 130 missing
        135 start f+10
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 75\nsignal handler x1 25");
}

/// The loader runs first: nothing is older than what it calls.
#[test]
fn a_thread_may_begin_in_missing_code() {
    let script = "
        10 gap 50 missing
        50 resume main
        60 call main+10 f
        90 ret f+40 main+15
        95 out.ret main+40 lib+8";
    let born = format!("born 5\n{script}");
    check(&born, "60 +30 complete main+10");
    let of_main = Request { functions: vec![id("main")], ..Request::default() };
    check_request(&born, of_main.clone(), "50 +45 complete [unknown]");
    check_request(&format!("executed 5\n{script}"), of_main.clone(), "50 +45 complete [unknown]");
    check_request(script, of_main, "50 >=45 open_start [unknown]");
}

/// What the kernel has started there is not known.
#[test]
fn missing_code_after_a_stay_in_the_kernel_cuts() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 async f+10
        115 gap 130 missing
        135 start f+10
        200 ret f+40 main+15";
    check(script, "100 >=15 cut main+10");
}

/// Of what an IP filter hides it is not known how it was left.
#[test]
fn missing_code_inside_of_an_ip_filter_cuts() {
    let script = "
        filter
        code call k+10 f
        100 start f
        110 out.call f+10 lib+8
        110 gap 150 missing
        150 resume f+15
        200 out.ret f+40 k+15";
    check(script, "100 >=10 cut [unknown]");
}
