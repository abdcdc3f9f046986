//! The list of functions says of each what the report on it does.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use truth_tests::{Fixture, fixture};

/// Functions of each recording that are compared.
const COMPARED: usize = 12;

fn json(data: &Path, words: &[&str]) -> Value {
    said(data, words).unwrap()
}

/// What is printed, or said on errors.
fn said(data: &Path, words: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    let output = command.args(words).args(["--format", "json", "-i"]).arg(data).output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The report on the function of this name that has as many calls: versions of a symbol have one name.
fn report(data: &Path, function: &str, object: &str, calls: &Value) -> Option<Value> {
    let words = ["report", "-f", function, "-b", object];
    let has_calls = |report: &Value| report["functions"][0]["calls"] == *calls;
    match said(data, &words) {
        Ok(report) => Some(report).filter(has_calls),
        Err(error) => {
            assert!(error.contains(" fits "), "{error}");
            let numbered = ["#1", "#2", "#3"].map(|number| [&words[..], &["-I", number]].concat());
            numbered.iter().filter_map(|words| said(data, words).ok()).find(has_calls)
        }
    }
}

/// The sums of the children that are the function's own time, whole calls and open ones.
fn own_ns(function: &Value) -> u64 {
    let own = |rows: &Value| -> u64 {
        let rows = rows.as_array().unwrap().iter().filter(|row| row["kind"] == "self");
        rows.map(|row| row["sum"].as_u64().unwrap()).sum()
    };
    own(&function["children"]) + own(&function["open"]["children"])
}

#[test]
fn functions_have_the_calls_and_times_of_their_reports() {
    for name in ["sq1", "calls", "causes", "calls-cpu2", "calls-cpu2-ovf"] {
        let Some(Fixture { data, .. }) = fixture(name) else { return };
        for by in ["time", "calls"] {
            let list = json(&data, &["top", "--by", by]);
            for listed in &list["functions"].as_array().unwrap()[..COMPARED] {
                let (function, object) =
                    (listed["name"].as_str().unwrap(), listed["object"].as_str().unwrap());
                let Some(report) = report(&data, function, object, &listed["calls"]) else {
                    panic!("{name}: no {function} of {object} has {}", listed["calls"])
                };
                let reported = &report["functions"][0];
                assert_eq!(listed["self"]["ns"], own_ns(reported), "{name}: {function}");
            }
        }
    }
}

#[test]
fn the_list_is_the_same_for_every_number_of_workers() {
    for name in ["calls-cpu2-ovf", "case-unwind-cpu2"] {
        let Some(Fixture { data, .. }) = fixture(name) else { return };
        let [one, many] = ["1", "5"].map(|workers| json(&data, &["top", "-w", workers]));
        assert_eq!(one, many, "{name}");
    }
}
