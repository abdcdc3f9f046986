//! Code that is not one function after the other, and returns that are none.

use std::process::Command;

use super::check;

const LOG: &str = "case-layout";

#[test]
fn an_entry_with_a_symbol_is_a_function_and_running_into_it_is_none_of_its_calls() {
    check(LOG, &["entries", "entries_low", "entries_jump"]);
}

#[test]
fn an_entry_without_a_symbol_is_a_child_but_no_call_of_the_function() {
    check(LOG, &["nameless", "nameless_second"]);
}

#[test]
fn a_function_that_falls_through_into_the_next_goes_on() {
    check(LOG, &["falls", "next_one"]);
}

#[test]
fn a_jump_into_the_middle_of_another_function_and_back_changes_no_frame() {
    check(LOG, &["strays", "borrows", "lender"]);
}

#[test]
fn aliases_are_one_function() {
    check(LOG, &["alias_one"]);
    check(LOG, &["alias_two"]);
}

#[test]
fn folded_functions_are_one_function() {
    check("case-icf", &["folded_one"]);
    check("case-icf", &["folded_two"]);
}

#[test]
fn who_asks_for_one_name_is_told_of_the_others() {
    for (recording, asked, also) in [
        ("case-layout", "alias_two", "alias_one is the same code as alias_two"),
        ("case-icf", "folded_one", "folded_two"),
    ] {
        let Some(fixture) = truth_tests::fixture(recording) else { continue };
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
        let output = command.arg("report").arg("-i").arg(&fixture.data).args(["-f", asked]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(also), "{said}");
    }
}

#[test]
fn calls_of_an_ifunc_are_calls_of_what_was_chosen() {
    check(LOG, &["chosen_a", "chosen_b"]);
}

#[test]
fn the_lazy_binder_is_a_child_of_the_first_call_through_the_plt() {
    check(LOG, &["far", "labs"]);
}

#[test]
fn without_lazy_binding_the_plt_leaves_no_trace() {
    check("case-layout-now", &["far", "labs", "chosen_b"]);
}

#[test]
fn a_call_that_gets_the_program_counter_is_no_frame() {
    check(LOG, &["pc_next", "pc_over"]);
}

#[test]
fn a_subroutine_inside_a_function_is_part_of_it() {
    check(LOG, &["has_subroutine"]);
}

#[test]
fn a_return_to_an_entry_is_a_jump() {
    check(LOG, &["push_ret", "push_ret_loop"]);
}

#[test]
fn a_retpoline_is_the_call_or_jump_that_it_stands_for() {
    check(LOG, &["inline_call", "inline_jump", "thunk_call", "thunk_jump", "__x86_indirect_thunk_rax"]);
}

#[test]
fn a_return_through_a_thunk_is_a_return() {
    check(LOG, &["inline_return", "thunk_return"]);
}

#[test]
fn a_return_past_its_call_unwinds() {
    check(LOG, &["calls_skip", "skip_one", "calls_drop", "drop_frame"]);
}

#[test]
fn a_hook_that_a_changed_return_address_runs_is_a_tail_callee() {
    check(LOG, &["hooked", "run_hook"]);
}
