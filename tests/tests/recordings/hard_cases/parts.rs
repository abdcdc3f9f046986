//! Functions that the compiler split. A part that is jumped to belongs to its function, one that is called is
//! a function.

use super::check;

const LOG: &str = "case-parts";

#[test]
fn a_part_is_called_by_those_whose_inlined_head_enters_it() {
    check(LOG, &["heavy", "heavy.part.0", "head_a", "head_tail"]);
}

#[test]
fn a_cold_part_with_a_number_that_is_called_is_a_function() {
    check(LOG, &["outlined", "outlined.cold.1"]);
}

#[test]
fn a_cold_part_with_a_number_that_is_jumped_to_is_a_tail_callee_until_it_jumps_back() {
    check(LOG, &["numbered", "numbered.cold.7"]);
}

#[test]
fn a_cold_part_calls_and_ends_as_its_function() {
    check(LOG, &["split", "split_end", "rare"]);
}

#[test]
fn a_cold_part_that_the_hot_one_runs_into_is_its_function() {
    check(LOG, &["joined"]);
}

#[test]
fn a_shared_sequence_is_a_function_that_is_called_or_jumped_to() {
    check(LOG, &["shares_a", "shares_b", "OUTLINED_FUNCTION_0"]);
}

#[test]
fn a_copy_is_a_function_beside_what_it_was_copied_from() {
    check(LOG, &["copies", "copied", "copied.constprop.0"]);
}
