//! Stack switches. PT has no stack pointer: what is open when control comes out at a place that no frame
//! explains is cut, once, and whatever begins and ends between two switches is complete.

use super::check;

const FIBERS: &str = "case-fibers";
const GO: &str = "case-goroutines";

#[test]
fn what_begins_and_ends_between_switches_is_complete() {
    check(FIBERS, &["fiber_step", "hand_step", "plain"]);
}

#[test]
fn swapcontext_cuts_what_is_open_on_both_stacks() {
    check(FIBERS, &["fiber_yield", "fiber_resume", "fiber_task", "run_fiber", "main"]);
}

#[test]
fn a_switch_by_hand_cuts_what_is_open_on_both_stacks() {
    check(FIBERS, &["hand_yield", "hand_resume", "hand_task", "run_hand_fiber"]);
}

#[test]
fn a_call_is_counted_once_however_often_goroutines_switch() {
    check(GO, &["main.quiet", "main.asks"]);
}

#[test]
fn a_panic_of_go_is_recovered_in_an_outer_function() {
    check(GO, &["main.panics", "main.recovers"]);
}

#[test]
fn a_call_whose_stack_is_moved_to_a_larger_one_is_one_call() {
    check(GO, &["main.grows"]);
}
