//! `servers`: the tests of servers under load alone, which the full run has among all others.

use crate::process::{self, Result, cargo};
use crate::setup;

/// `servers [TEST]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    setup::servers()?;
    let mut test = cargo();
    test.args(["test", "--package", "func_latency", "--test", "servers", "--", "--nocapture"]);
    process::run(test.args(arguments).env("FUNC_LATENCY_FULL", "1"))
}
