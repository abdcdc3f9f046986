//! Functions that are left by an exception, a panic, `longjmp` or the end of their thread.

use super::check;

const LOG: &str = "case-unwind";

/// The same, with cold parts named as GCC 8 did.
const NUMBERED: &str = "case-unwind-gcc8";
const RECURSIVE: &str = "case-thrown";
const LIBRARIES: &str = "case-libraries";
const RUST: &str = "case-panics";

#[test]
fn an_exception_unwinds_each_frame_that_it_passes() {
    check(LOG, &["one_frame", "catch_one"]);
}

#[test]
fn an_exception_passes_through_twenty_frames() {
    check(LOG, &["frame20", "catch_twenty"]);
}

#[test]
fn an_exception_that_is_rethrown_unwinds_the_frame_that_caught_it() {
    check(LOG, &["rethrows", "catch_rethrown"]);
}

#[test]
fn an_exception_that_is_caught_inside_leaves_the_call_complete() {
    check(LOG, &["catches_inside"]);
}

/// By the events alone seven in ten of its calls were undecided.
#[test]
fn the_tables_of_landing_pads_say_which_of_many_open_calls_an_exception_comes_to() {
    check(RECURSIVE, &["walk", "descend"]);
}

#[test]
fn an_exception_passes_through_calls_of_three_libraries_in_a_ring() {
    check(LIBRARIES, &["walk1", "descend1", "walk2", "descend2", "walk3", "descend3"]);
}

#[test]
fn a_frame_whose_clean_up_runs_ends_after_it() {
    check(LOG, &["has_cleanup", "clean_up", "catch_cleanup"]);
}

#[test]
fn a_destructor_may_throw() {
    check(LOG, &["dtor_throws", "catch_dtor"]);
}

#[test]
fn an_exception_may_come_and_go_in_a_destructor_that_runs_because_of_one() {
    check(LOG, &["dtor_catches", "catch_two"]);
}

#[test]
fn longjmp_unwinds_every_frame_up_to_its_setjmp() {
    check(LOG, &["jump_out", "jumped_over", "set_jump"]);
}

#[test]
fn longjmp_into_the_function_itself_leaves_the_call_complete() {
    check(LOG, &["jump_inside"]);
}

#[test]
fn siglongjmp_out_of_a_handler_unwinds_it_and_what_it_interrupted() {
    check(LOG, &["jumping_handler", "interrupted", "set_sigjump"]);
}

#[test]
fn siglongjmp_out_of_a_handler_into_what_it_interrupted_leaves_that_complete() {
    check(LOG, &["keeps_after_handler"]);
}

#[test]
fn pthread_exit_unwinds_all_frames_of_the_thread() {
    check(LOG, &["exits_thread", "exit_caller"]);
}

#[test]
fn cancellation_unwinds_all_frames_of_the_thread() {
    check(LOG, &["is_cancelled", "cancel_caller", "tests_cancel"]);
}

#[test]
fn a_call_in_which_its_thread_or_process_ends_is_open() {
    check(LOG, &["dies_in_syscall", "dying_caller", "never_returns"]);
}

#[test]
fn a_coroutine_is_called_at_each_resumption() {
    check(LOG, &["generate", "resumes", "_Z8count_upPZ8count_upjE18_Z8count_upj.Frame.actor"]);
}

#[test]
fn an_exception_leaves_a_coroutine() {
    let actor = "_Z11throws_soonPZ11throws_soonvE22_Z11throws_soonv.Frame.actor";
    check(LOG, &["throws_in_coroutine", actor]);
}

#[test]
fn coroutines_that_pass_control_to_each_other_are_tail_calls() {
    let actors = ["_Z4pingPZ4pingjE14_Z4pingj.Frame.actor", "_Z4pongPZ4pongjE14_Z4pongj.Frame.actor"];
    check(LOG, &["ping_pong", actors[0], actors[1]]);
}

#[test]
fn a_panic_unwinds_up_to_catch_unwind() {
    check(RUST, &["panics", "holds", "drop_counted", "catches"]);
}

#[test]
fn a_panic_that_is_resumed_unwinds_the_frame_that_caught_it() {
    check(RUST, &["passes_on", "catches_passed_on"]);
}

#[test]
fn a_panic_ends_its_thread() {
    check(RUST, &["kills_thread"]);
}

#[test]
fn a_landing_in_a_numbered_cold_part_is_one_in_its_function() {
    let functions = ["one_frame", "catch_one", "frame20", "catch_twenty", "rethrows", "catch_rethrown"];
    check(NUMBERED, &functions);
    check(
        NUMBERED,
        &["catches_inside", "has_cleanup", "catch_cleanup", "dtor_throws", "catch_dtor", "catch_two"],
    );
}
