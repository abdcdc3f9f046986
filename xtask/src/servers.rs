//! `servers`: the tests of servers under load alone, which the full run has among all others.

use crate::cargo;
use crate::process::{self, Result};
use crate::setup;

/// `servers [TEST]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    setup::servers()?;
    let mut test = cargo::command();
    test.args(["test", "--package", "func_latency", "--test", "servers", "--", "--nocapture"]);
    process::run(test.args(arguments).env("FUNC_LATENCY_FULL", "1"))
}
