//! `explain`, `modes` and `diff` against planted causes: `fixtures/programs/causes.c` says what makes the
//! slow calls of each function slow.

mod kinds;
mod planted;
mod steady;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use truth_tests::{Fixture, fixture};

/// Why the slow calls of a function are slow.
struct Planted {
    recording: &'static str,
    function: &'static str,
    /// The row that has most of the difference.
    row: &'static str,
    /// The callee at which the way down ends, and why there.
    end: (&'static str, &'static str),
}

const fn planted(
    recording: &'static str,
    function: &'static str,
    row: &'static str,
    end: (&'static str, &'static str),
) -> Planted {
    Planted { recording, function, row, end }
}

const CAUSES: [Planted; 11] = [
    planted("causes", "one_more_trip", "*self", ("one_more_trip", "own")),
    planted("causes", "another_branch", "*self", ("another_branch", "own")),
    planted("causes", "waits_for_lock", "[blocked]", ("__lll_lock_wait", "more_often")),
    planted("causes", "dear_child", "deep_1", ("deep_3", "own")),
    planted("causes", "more_calls", "piece", ("piece", "more_often")),
    planted("causes", "deeper", "descends", ("descends", "more_often")),
    planted("causes", "system_calls", "[kernel]", ("syscall", "more_often")),
    planted("causes", "signalled", "on_fault", ("on_fault", "more_often")),
    planted("causes", "faults", "[interrupts and faults]", ("[interrupt]", "more_often")),
    planted("causes-ticks", "disturbed", "[interrupts and faults]", ("[interrupt]", "more_often")),
    planted("causes-cpu1", "disturbed", "[preempted]", ("[interrupt]", "more_often")),
];

/// What `explain` says of a function, with more arguments.
fn explain(data: &Path, function: &str, arguments: &[&str]) -> Value {
    run("explain", data, function, arguments)
}

fn run(command: &str, data: &Path, function: &str, arguments: &[&str]) -> Value {
    let mut process = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    process.arg(command).arg("-i").arg(data).args(["-f", function, "--format", "json"]).args(arguments);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{function}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The rows are the whole: their sums are those of the groups, and their differences the difference, to the
/// nanosecond.
fn adds_up(function: &str, explained: &Value) {
    let sum = |key: &str| -> i64 {
        explained["rows"].as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap()).sum()
    };
    assert_eq!(sum("difference_ns"), explained["difference_ns"].as_i64().unwrap(), "{function}");
    assert_eq!(sum("these_sum_ns"), explained["slow"]["sum_ns"].as_i64().unwrap(), "{function}");
    assert_eq!(sum("base_sum_ns"), explained["typical"]["sum_ns"].as_i64().unwrap(), "{function}");
    let shares =
        explained["rows"].as_array().unwrap().iter().map(|row| row["variance_share"].as_f64().unwrap());
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9, "{function}");
}

/// The function's slow calls, by their place among its calls: one in fifty.
fn are_planted(explained: &Value) -> bool {
    let ids = explained["slow_ids"].as_array().unwrap();
    let numbers =
        ids.iter().map(|id| id.as_str().unwrap().rsplit_once('-').unwrap().1.parse::<u64>().unwrap());
    numbers.into_iter().all(|number| number % 50 == 25)
}

#[test]
fn every_planted_cause_is_named_first() {
    for Planted { recording, function, row, end } in CAUSES {
        let Some(Fixture { data, .. }) = fixture(recording) else { return };
        let explained = explain(&data, function, &[]);
        adds_up(function, &explained);
        let cause = &explained["cause"];
        let leading = &explained["rows"][cause["row"].as_u64().unwrap() as usize];
        let last = cause["path"].as_array().unwrap().last().unwrap();
        let found = (
            leading["name"].as_str().unwrap(),
            (last["name"].as_str().unwrap(), cause["why"].as_str().unwrap()),
        );
        assert_eq!(found, (row, end), "{function}: {explained:#}");
        let share = leading["difference_ns"].as_f64().unwrap() / explained["difference_ns"].as_f64().unwrap();
        assert!(share > 0.75, "{function}: {share}");
        if recording == "causes" {
            assert!(are_planted(&explained), "{function}: {explained:#}");
        }
    }
}

#[test]
fn the_text_says_it_in_a_sentence() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    for (function, line) in [
        ("more_calls", "Cause: piece, called at causes.c:"),
        ("more_calls", ", is called 30 times a call instead of 10"),
        ("deeper", ", is called 40 times a call instead of 8"),
        ("signalled", "Cause: on_fault is called 1 time a call instead of 0"),
        ("faults", "Cause: interrupts and faults take 20.0 us a call instead of 0 ns"),
        ("waits_for_lock", "most in waits_for_lock > pthread_mutex_lock > __lll_lock_wait"),
        ("dear_child", ", takes longer itself: "),
        ("no_cause", "No cause: the slow calls are no outliers"),
        ("no_cause", " took the same branches as the typical call "),
    ] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
        let output = process.arg("explain").arg("-i").arg(&data).args(["-f", function]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(line), "{function}: no `{line}` in\n{text}");
    }
}

/// A report with `--explain` goes on with what `explain` says.
#[test]
fn a_report_explains_its_slowest_calls() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    let run = |command: &[&str]| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
        let output = process.args(command).arg("-i").arg(&data).args(["-f", "more_calls"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let [report, explained, both] = [&["report"][..], &["explain"], &["report", "--explain"]].map(run);
    assert_eq!(both, format!("{report}\n{explained}"));
}

/// The line of the program with this mark.
fn marked(mark: &str) -> String {
    let mark = format!("/* cause: {mark} */");
    let at =
        include_str!("../../../../fixtures/programs/causes.c").lines().position(|line| line.ends_with(&mark));
    format!("causes.c:{}", at.unwrap() + 1)
}

#[test]
fn the_planted_line_is_where_branches_part_first() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    for (function, mark) in [("one_more_trip", "trip"), ("another_branch", "branch")] {
        let branches = &explain(&data, function, &[])["branches"];
        assert_eq!(branches["first"]["line"].as_str(), Some(&*marked(mark)), "{function}: {branches:#}");
    }
    let trips = &explain(&data, "one_more_trip", &[])["branches"]["loops"][0];
    let counts = ["slow", "typical_min", "typical_max"].map(|key| trips[key].as_u64());
    assert_eq!((trips["line"].as_str(), counts), (Some(&*marked("trip")), [Some(4), Some(3), Some(3)]));
    // What runs the same code has no such line.
    assert_eq!(explain(&data, "no_cause", &[])["branches"]["first"], Value::Null);
}

#[test]
fn without_a_cause_there_is_none() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    for (function, percentile) in steady::ASKED {
        let explained = explain(&data, function, &["--slow", percentile]);
        adds_up(function, &explained);
        assert_eq!(explained["cause"], Value::Null, "{function} {percentile}: {explained:#}");
    }
}

#[test]
fn slow_calls_are_those_that_were_asked_for() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    let of = |arguments: &[&str]| {
        let explained = explain(&data, "more_calls", arguments);
        adds_up("more_calls", &explained);
        explained
    };
    // All eight planted ones are far from the others.
    let all = of(&["--li", "2000,"]);
    assert_eq!(all["slow"]["calls"].as_u64(), Some(8));
    assert!(are_planted(&all));
    let id = all["slow_ids"][7].as_str().unwrap();
    let one = of(&[id]);
    assert_eq!(one["slow_ids"], serde_json::json!([id]));
    assert_eq!(one["cause"]["path"][1]["name"], "piece");
}

#[test]
fn calls_are_told_apart_by_the_way_that_they_go() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    for (function, with) in [
        ("signalled", Some("on_fault")),
        ("waits_for_lock", Some("__lll_lock_wait")),
        ("system_calls", Some("syscall")),
        // A callee that is called again and again is called, and what only takes longer goes no other way.
        ("more_calls", None),
        ("deeper", None),
        ("another_branch", None),
        ("no_cause", None),
    ] {
        let modes = run("modes", &data, function, &[]);
        let found: Vec<(u64, Option<&str>)> = modes["modes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mode| (mode["calls"].as_u64().unwrap(), mode["with"][0].as_str()))
            .collect();
        let expect = if with.is_some() { vec![(392, None), (8, with)] } else { vec![(400, None)] };
        assert_eq!(found, expect, "{function}");
    }
}

/// Calls that go the same way are told apart by the branches of the function's own code.
#[test]
fn calls_are_told_apart_by_their_loops_and_branches() {
    let Some(Fixture { data, .. }) = fixture("causes") else { return };
    for (function, mark, trips) in
        [("one_more_trip", "trip", Some((4, 3))), ("another_branch", "branch", None), ("no_cause", "", None)]
    {
        let modes = run("modes", &data, function, &[]);
        let kinds = modes["modes"][0]["kinds"].as_array().unwrap();
        let calls: Vec<u64> = kinds.iter().map(|kind| kind["calls"].as_u64().unwrap()).collect();
        let Some(other) = kinds.get(1) else {
            assert_eq!((calls, mark), (vec![400], ""), "{function}");
            continue;
        };
        assert_eq!(calls, [392, 8], "{function}: {modes:#}");
        let jumps = other["other"].as_array().unwrap();
        let is_marked = |jump: &&Value| jump["line"].as_str() == Some(&*marked(mark));
        let jump = jumps.iter().find(is_marked).expect(function);
        let found = jump["is_loop"]
            .as_bool()
            .unwrap()
            .then(|| (jump["times"].as_u64(), jump["usual_times"].as_u64()));
        assert_eq!(found, trips.map(|(times, usual)| (Some(times), Some(usual))), "{function}: {other:#}");
    }
}

/// What `diff` says of B against A.
fn diff(base: &Path, these: &Path, function: &str) -> Value {
    let mut process = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    process.arg("diff").args([base, these]).args(["-f", function, "--format", "json"]);
    let output = process.output().unwrap();
    assert!(output.status.success(), "{function}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is said of mean, p50, p90, p99 and p99.9.
fn verdicts(found: &Value) -> Vec<String> {
    let figures = found["figures"].as_array().unwrap();
    figures.iter().map(|figure| figure["verdict"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn recordings_differ_if_something_else_happened_in_them() {
    let names = ["causes", "causes-again", "causes-cpu1", "causes-slower"];
    let [Some(first), Some(again), Some(shared), Some(slower)] = names.map(fixture) else { return };
    let sum = |found: &Value, key: &str| -> i64 {
        found["rows"].as_array().unwrap().iter().map(|row| row[key].as_i64().unwrap()).sum()
    };
    for function in ["no_cause", "more_calls", "disturbed"] {
        let found = diff(&first.data, &again.data, function);
        assert_eq!(found["exceeds_spread"], Value::Bool(false), "{function}: {found:#}");
        assert_eq!(sum(&found, "difference_ns"), found["difference_ns"].as_i64().unwrap(), "{function}");
        let told = verdicts(&found).into_iter().filter(|verdict| verdict != "too_few");
        assert!(told.into_iter().all(|verdict| verdict == "may_be_chance"), "{function}: {found:#}");
    }
    // One call in twenty is slower, in all parts of the recording.
    let found = diff(&first.data, &slower.data, "disturbed");
    let told = verdicts(&found);
    assert_eq!([&*told[0], &*told[1], &*told[3]], ["slower", "may_be_chance", "slower"], "{found:#}");
    // Few calls are disturbed, and these for long: in how many of the 16 parts of the recording is chance.
    let found = diff(&first.data, &shared.data, "disturbed");
    let told = verdicts(&found);
    assert_eq!([&*told[1], &*told[4]], ["may_be_chance", "too_few"], "{found:#}");
    assert!(told.iter().all(|verdict| verdict != "faster"), "{found:#}");
    assert_eq!(found["rows"][0]["name"], "[preempted]", "{found:#}");
    assert_eq!(found["cause"]["path"][1]["name"], "[interrupt]", "{found:#}");
    for (side, sums) in [("these", "these_sum_ns"), ("base", "base_sum_ns")] {
        assert_eq!(sum(&found, sums), found[side]["sum_ns"].as_i64().unwrap(), "{found:#}");
    }
}
