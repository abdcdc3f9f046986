//! Tail calls: a jump to the first address of a different function.

use super::check;

const LOG: &str = "case-tails";

#[test]
fn a_direct_tail_call_is_a_child_and_ends_with_its_caller() {
    check(LOG, &["direct", "direct_leaf"]);
}

#[test]
fn a_function_may_have_no_exit_but_tail_calls() {
    check(LOG, &["every_exit", "exit_a", "exit_b"]);
}

#[test]
fn only_the_taken_way_is_a_tail_call() {
    check(LOG, &["sometimes", "sometimes_leaf"]);
}

#[test]
fn a_conditional_jump_is_a_tail_call() {
    check(LOG, &["cond", "cond_leaf"]);
}

#[test]
fn an_indirect_jump_is_a_tail_call() {
    check(LOG, &["indirect", "indirect_a", "indirect_b"]);
}

#[test]
fn one_return_ends_a_chain_of_tail_calls() {
    check(LOG, &["chain_a", "chain_b", "chain_c", "chain_d"]);
}

#[test]
fn mutual_tail_calls_are_calls_of_their_own() {
    check(LOG, &["even", "odd"]);
}

#[test]
fn a_tail_call_of_a_function_that_is_open_is_recursion() {
    check(LOG, &["outer", "bounce"]);
}

#[test]
fn a_tail_call_through_the_plt_is_a_child() {
    check(LOG, &["plt", "labs"]);
}

#[test]
fn a_jump_to_the_own_entry_is_a_loop() {
    check(LOG, &["loop"]);
}

#[test]
fn a_tail_call_out_of_the_filter_ends_the_call_at_the_jump() {
    check(LOG, &["seen_a", "seen_b"]);
}
