//! Faults and signals at an exact instruction, handlers, and system calls of the function itself.

use super::check;

const LOG: &str = "case-signals";

#[test]
fn a_fault_at_the_first_instruction_is_a_resume_and_no_second_call() {
    check(LOG, &["fault_first", "counts_fault"]);
}

#[test]
fn a_fault_in_the_middle_is_a_child() {
    check(LOG, &["fault_middle"]);
}

#[test]
fn a_fault_at_the_return_is_a_child() {
    check(LOG, &["fault_last", "call_fault_last"]);
}

#[test]
fn a_handler_may_skip_the_instruction_that_faulted() {
    check(LOG, &["illegal_first", "illegal_middle", "on_illegal"]);
}

#[test]
fn a_handler_that_faults_at_its_first_instruction_is_one_handler() {
    check(LOG, &["faulting_handler", "counts_handler", "on_fault", "has_faulting_handler"]);
}

#[test]
fn a_system_call_of_the_function_is_a_child() {
    check(LOG, &["syscall_first", "three_syscalls"]);
}

#[test]
fn a_handler_after_a_system_call_is_a_child_beside_it() {
    check(LOG, &["kills_itself", "on_usr1"]);
}

#[test]
fn handlers_nest() {
    check(LOG, &["has_nested_handlers", "on_usr2", "has_recursive_handlers", "on_nest"]);
}

#[test]
fn pending_signals_are_handled_one_after_the_other() {
    check(LOG, &["has_pending_signals", "on_int"]);
}

#[test]
fn siglongjmp_out_of_nested_handlers_unwinds_all_of_them() {
    check(LOG, &["on_jump", "is_jumped_out_of", "catches_jump"]);
}

/// With an IP filter on the function ten calls of 2 ns were complete after 2 us: what their handlers had left
/// ended with the next call.
#[test]
fn what_a_handler_leaves_out_of_sight_does_not_end_with_the_next_call() {
    check("case-left", &["jumps"]);
}
