//! What a recording does not tell is never 0: times without TSC packets, off-CPU time without switch records.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::path::{Path, PathBuf};

use program::{Made, check};
use serde_json::{Value, json};

fn json(directory: &Path, words: &[&str]) -> Value {
    let (stdout, stderr) = check(directory, &[words, &["--format", "json"]].concat(), 0);
    assert_eq!(stderr, "", "{words:?}");
    serde_json::from_str(&stdout).unwrap()
}

/// A directory with `perf.data`, of which something is not known, and `whole.data`.
fn recorded(test: &str, made: Made) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    program::write_made(&directory, "whole.data", Made::WHOLE);
    program::write_made(&directory, "perf.data", made);
    directory
}

const NO_TIMES: Made = Made { has_tsc: false, ..Made::WHOLE };
const NO_SWITCHES: Made = Made { has_switches: false, ..Made::WHOLE };

/// Each latency was "0 ns +- 0".
#[test]
fn a_trace_without_tsc_packets_has_counts_alone() {
    let directory = recorded("no_tsc_counts", NO_TIMES);
    let report = json(&directory, &["report", "-f", "f", "--check"]);
    let f = &report["functions"][0];
    assert_eq!(f["calls"]["complete"], 2);
    assert!(f["reason"].as_str().unwrap().contains("no TSC packet"), "{f}");
    for key in
        ["latency_ns", "off_cpu_ns", "cpu_percent", "histogram", "longest_open", "error_ns", "bounds_ns"]
    {
        assert_eq!(f.get(key), Some(&Value::Null), "{key}");
    }
    let own = &f["children"][0];
    assert_eq!((&own["count"], &own["sum"], &own["mean"]), (&json!(2), &Value::Null, &Value::Null));
    let caller = &f["callers"][0];
    assert_eq!((&caller["calls"], &caller["latency_ns"]), (&json!(1), &Value::Null));
    assert_eq!((&report["loss"]["lost_ns"], &report["loss"]["coverage"]), (&Value::Null, &Value::Null));
    let (text, _) = check(&directory, &["report", "-f", "f"], 0);
    assert!(text.contains("latency: not known: the trace has no TSC packet"), "{text}");
    assert!(text.contains("counted: 2 complete") && !text.contains("CPU percent"), "{text}");
    // Of one with times nothing of the kind is said.
    let whole = json(&directory, &["report", "whole.data", "-f", "f"]);
    assert_eq!(whole["functions"][0]["latency_ns"]["max"], 50);
    assert_eq!(whole["functions"][0].get("reason"), None);
}

#[test]
fn what_needs_times_says_so() {
    let directory = recorded("no_tsc_refused", NO_TIMES);
    let refused: [(&[&str], &str); 15] = [
        (&["report", "-f", "f", "-l"], "-l needs times: "),
        (&["report", "-f", "f", "--explain"], "--explain needs times: "),
        (&["report", "-f", "f", "--html", "page.html"], "--html needs times: "),
        (&["report", "-f", "f", "--rows", "rows.csv"], "--rows needs times: "),
        (&["report", "-f", "f", "--li", "1,2"], "--li needs times: "),
        (&["report", "-f", "f", "--ti", "1,2,3"], "--ti needs times: "),
        (&["report", "-f", "f", "-a", "outer#1,2"], "-a with a latency needs times: "),
        (&["report", "-F", "latency"], "-F needs times: "),
        (&["report", "-f", "f", "--max-loss", "1"], "--max-loss needs times: "),
        (&["explain", "-f", "f"], "explain needs times: "),
        (&["modes", "-f", "f"], "modes needs times: "),
        (&["graph", "-f", "f"], "graph needs times: "),
        (&["show", "77-0", "-f", "f"], "show needs times: "),
        (&["diff", "whole.data", "perf.data", "-f", "f"], "perf.data: diff needs times: "),
        (&["export", "-f", "f", "--format", "folded", "-o", "stacks"], "export needs times: "),
    ];
    for (words, says) in refused {
        let (stdout, stderr) = check(&directory, words, 4);
        assert!(stderr.contains(says) && stderr.contains("no TSC packet"), "{words:?}: {stderr}");
        assert_eq!(stdout, "", "{words:?}");
    }
    let files = std::fs::read_dir(&directory).unwrap().count();
    assert_eq!(files, 3, "nothing was written");
}

#[test]
fn branches_need_no_times() {
    let directory = recorded("no_tsc_branches", NO_TIMES);
    let (branches, _) = check(&directory, &["dump", "--branches"], 0);
    let (whole, _) = check(&directory, &["dump", "--branches", "whole.data"], 0);
    let flow = |text: &str| {
        text.lines().map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(flow(&branches), flow(&whole));
    assert!(branches.lines().all(|line| line.starts_with("77 - ~- ")), "{branches}");
    let (_, stderr) = check(&directory, &["dump", "--branches", "--ti", "1,2,3"], 4);
    assert!(stderr.contains("--ti needs times: "), "{stderr}");
}

#[test]
fn without_times_every_number_of_workers_says_the_same() {
    let directory = recorded("no_tsc_workers", NO_TIMES);
    for words in
        [&["report", "-f", "f"][..], &["report", "-f", "f", "--format=json"], &["dump", "--branches"]]
    {
        let with = |workers: &str| check(&directory, &[words, &["-w", workers]].concat(), 0).0;
        assert_eq!(with("1"), with("4"), "{words:?}");
    }
}

/// It was 0 everywhere.
#[test]
fn off_cpu_time_without_switch_records_is_null() {
    let directory = recorded("no_switches", NO_SWITCHES);
    let report = json(&directory, &["report", "-f", "f", "--check", "--rows", "rows.csv"]);
    assert!(report["trace"]["no_off_cpu"].as_str().unwrap().contains("no context-switch records"));
    let f = &report["functions"][0];
    assert_eq!(f["latency_ns"]["count"], 2);
    for key in ["off_cpu_ns", "cpu_percent"] {
        assert_eq!(f.get(key), Some(&Value::Null), "{key}");
    }
    assert_eq!(f["histogram"][0]["off_cpu_count"], Value::Null);
    let own = &f["children"][0];
    assert_eq!((&own["off_cpu_sum"], &own["cpu_percent"]), (&Value::Null, &Value::Null));
    assert_eq!(f["callers"][0]["off_cpu_ns"], Value::Null);
    let rows = std::fs::read_to_string(directory.join("rows.csv")).unwrap();
    let cells: Vec<_> = rows.lines().map(|line| line.split(',').nth(6).unwrap()).collect();
    assert_eq!(cells, ["off_cpu_ns", "", ""]);
    let (text, _) = check(&directory, &["report", "-f", "f"], 0);
    assert!(text.contains("off-CPU time and CPU percent: not known: "), "{text}");
    // A call is found by such a row, of either form, and shown without a time off the CPU.
    check(&directory, &["report", "-f", "f", "--rows", "rows.jsonl"], 0);
    for rows in ["rows.csv", "rows.jsonl"] {
        let shown = json(&directory, &["show", "77-1", "-f", "f", "--rows", rows]);
        assert_eq!((&shown["latency_ns"], &shown["off_cpu_ns"]), (&json!(25), &Value::Null), "{rows}");
        assert_eq!(shown["nodes"][0]["off_cpu_ns"], Value::Null, "{rows}");
    }
    let (shown, _) = check(&directory, &["show", "77-1", "-f", "f"], 0);
    assert!(shown.contains("off-CPU not known"), "{shown}");
}

/// All time was drawn as CPU time.
#[test]
fn cpu_time_without_switch_records_is_refused() {
    let directory = recorded("no_switches_cpu", NO_SWITCHES);
    for words in [
        &["report", "-F", "cpu"][..],
        &["graph", "-f", "f", "--weight", "cpu"],
        &["export", "-f", "f", "--format", "flamegraph", "--weight", "cpu", "-o", "graph.svg"],
    ] {
        let (_, stderr) = check(&directory, words, 4);
        assert!(stderr.contains("CPU time is not known: "), "{words:?}: {stderr}");
    }
}

/// A track without slices, and CPU time that was all of the time.
#[test]
fn exports_without_switch_records_have_no_off_cpu_time() {
    let directory = recorded("no_switches_exports", NO_SWITCHES);
    for (format, of_cpu) in [("perfetto", &b"off-CPU"[..]), ("pprof", b"cpu")] {
        let has = |input: &str| {
            check(&directory, &["export", input, "-f", "f", "--format", format, "-o", "exported"], 0);
            let bytes = std::fs::read(directory.join("exported")).unwrap();
            bytes.windows(of_cpu.len()).any(|window| window == of_cpu)
        };
        assert!(has("whole.data") && !has("perf.data"), "{format}");
    }
    check(&directory, &["export", "-f", "f", "--format", "jsonl", "-o", "rows.jsonl"], 0);
    let rows = std::fs::read_to_string(directory.join("rows.jsonl")).unwrap();
    assert_eq!(rows.matches("\"off_cpu_ns\":null").count(), 2, "{rows}");
}

/// It was all "running".
#[test]
fn an_explanation_says_that_off_cpu_time_is_not_known() {
    let directory = recorded("no_switches_explain", NO_SWITCHES);
    let words = ["explain", "77-0", "-f", "f"];
    let (text, _) = check(&directory, &words, 0);
    assert!(
        text.contains("off-CPU time is not known (the recording has no context-switch records"),
        "{text}"
    );
    assert!(json(&directory, &words)["no_off_cpu"].is_string());
    let (whole, _) = check(&directory, &["explain", "77-0", "-f", "f", "-i", "whole.data"], 0);
    assert!(!whole.contains("not known"), "{whole}");
}

#[test]
fn a_difference_says_which_side_does_not_know_off_cpu_time() {
    let directory = recorded("no_switches_diff", NO_SWITCHES);
    for (base, these, unknown) in [("whole.data", "perf.data", "these"), ("perf.data", "whole.data", "base")]
    {
        let difference = json(&directory, &["diff", base, these, "-f", "f"]);
        assert!(difference[unknown]["no_off_cpu"].is_string(), "{difference}");
        let (text, _) = check(&directory, &["diff", base, these, "-f", "f"], 0);
        assert!(text.contains("is not known (the recording has no context-switch records"), "{text}");
    }
}
