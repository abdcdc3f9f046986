//! Functions that make processes and threads, and threads that come, go and move.

use super::check;

const LOG: &str = "case-processes";

#[test]
fn a_call_that_forks_is_one_call_of_the_parent() {
    check(LOG, &["forks", "waits"]);
}

#[test]
fn a_call_that_executes_another_program_by_vfork_is_one_call() {
    check(LOG, &["spawns"]);
}

#[test]
fn a_call_that_clones_is_one_call() {
    check(LOG, &["clones"]);
}

#[test]
fn threads_that_are_born_and_gone_inside_the_window_have_all_their_calls() {
    check(LOG, &["makes_thread", "thread_body"]);
}

/// In `case-processes-cpu2` three threads share two CPUs.
#[test]
fn a_call_goes_on_when_its_thread_migrates() {
    check(LOG, &["spin"]);
}

#[test]
fn a_call_of_a_thread_that_never_wakes_is_open() {
    check(LOG, &["never_ends"]);
}
