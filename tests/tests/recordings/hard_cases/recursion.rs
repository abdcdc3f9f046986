//! Recursion: every activation is a call of its own.

use super::check;

const LOG: &str = "case-recursion";

#[test]
fn every_activation_is_a_call_and_a_child_of_the_one_around_it() {
    check(LOG, &["direct", "fib"]);
}

#[test]
fn mutual_recursion_keeps_the_outer_calls() {
    check(LOG, &["ping", "pong"]);
}

#[test]
fn recursion_through_a_callback() {
    check(LOG, &["apply", "back"]);
}

#[test]
fn recursion_inside_a_child_is_one_child() {
    check(LOG, &["around", "inner"]);
}

#[test]
fn recursion_ten_thousand_deep() {
    check(LOG, &["deep"]);
}
