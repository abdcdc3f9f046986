//! Recordings of repeated runs: a slower command is told from the other one, and a command not from itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tracegen::Options;
use truth_tests::dice::Dice;
use truth_tests::{Fixture, fixture, is_full_run};

/// What each block of `disturbed` takes more, in cycles. A call takes 1,579 ns without them, and 33.6 ns for
/// each: so 5 of them are 5 %.
const TYPICAL_CYCLES: f64 = 53.0;
const FIVE_PERCENT: f64 = 5.0;

/// Runs of a command, as many as `compare` makes of each.
const RUNS: u64 = 10;

/// Makes the recordings of a command's runs, which differ by 1.5 % by themselves.
fn make_runs(log: &Path, directory: &Path, dice: &mut Dice, cycles: f64) {
    fs::create_dir(directory).unwrap();
    let truth = directory.with_extension("truth");
    for number in 0..RUNS {
        let cycles = (cycles + 1.5 * dice.noise()).round();
        let options = [
            "--tick-us=1000000000".to_owned(),
            "--fixed-cbr".to_owned(),
            format!("--miss=disturbed,1,{cycles}"),
            format!("--seed={}", dice.seed()),
        ];
        let options = Options::from_args(options.iter().map(String::as_str)).unwrap();
        tracegen::encode(log, &directory.join(format!("run-{number:02}.data")), &truth, &options).unwrap();
    }
}

/// What `diff` says of the median.
fn verdict(a: &Path, b: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    command.arg("diff").args([a, b]).args(["-f", "disturbed", "--format", "json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["samples"], "runs");
    let figures = document["figures"].as_array().unwrap();
    let median = figures.iter().find(|entry| entry["figure"] == "p50").unwrap();
    median["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn a_command_that_is_five_percent_slower_is_found_and_the_same_one_is_not() {
    let Some(Fixture { data, log, .. }) = fixture("causes") else { return };
    let log = data.with_file_name("logs").join(log);
    let mut dice = Dice::new(27);
    let times = if is_full_run() { 50 } else { 1 };
    let (mut found, mut alarms) = (0, 0);
    for _ in 0..times {
        let scratch = tempfile::tempdir().unwrap();
        let [a, same, slower] = ["a", "same", "slower"].map(|name| scratch.path().join(name));
        make_runs(&log, &a, &mut dice, TYPICAL_CYCLES);
        make_runs(&log, &same, &mut dice, TYPICAL_CYCLES);
        make_runs(&log, &slower, &mut dice, TYPICAL_CYCLES + FIVE_PERCENT);
        found += u32::from(verdict(&a, &slower) == "slower");
        alarms += u32::from(verdict(&a, &same) != "may_be_chance");
    }
    println!("{found} of {times} found, {alarms} false alarms");
    assert!(10 * found >= 9 * times && 50 * alarms <= times, "{found} of {times} found, {alarms} alarms");
}
