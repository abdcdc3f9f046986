//! What can be known when only code inside the IP filter is traced.

use super::script::{check, check_children};

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
fn a_call_unwound_out_of_sight_for_good_is_open() {
    let script = "
        filter
        100 start f
        120 out.call f+10 throw
        200 start f
        210 out.ret f+40 k+30";
    check(script, "100 >=110 open_end [unknown]\n200 +10 complete [unknown] depth 1");
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
fn a_target_behind_a_hidden_stub_is_called_by_the_call_site() {
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
