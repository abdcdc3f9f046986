//! Summaries add up: the report of one is the report of its recording, and that of several does not depend on
//! the order in which they were merged, or on how that was bracketed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use truth_tests::dice::Dice;
use truth_tests::fixture;

/// With losses, an IP filter, signals, exceptions, recursion, waits, calls that were not seen whole, a
/// scheduler in the filter, and without switch records.
const RECORDINGS: [(&str, &str); 14] = [
    ("demo", "round_fn"),
    ("demo-cpu2-ovf", "round_fn"),
    ("demo-cpu2-trunc", "leaf"),
    ("demo-filter2", "mid"),
    ("demo-noswitch", "round_fn"),
    ("demo-offcpu", "worker"),
    ("calls", "fact_rec"),
    ("calls-cpu8", "round_cc"),
    ("sq1", "sqlite3VdbeExec"),
    ("causes-cpu1", "waits_for_lock"),
    ("case-recursion-ovf", "deep"),
    ("case-signals", "main"),
    ("case-unwind", "main"),
    ("regions", "main"),
];

/// Those that are merged: of one program, but for the last.
const PARTS: [(&str, &str); 5] = [
    ("demo", "round_fn"),
    ("demo-cpu2-ovf", "round_fn"),
    ("demo-noswitch", "round_fn"),
    ("demo-filter2", "mid"),
    ("causes-cpu1", "waits_for_lock"),
];

fn run(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_func_latency_under_test")).args(words).args(paths).output().unwrap()
}

fn done(words: &[&str], paths: &[&Path]) -> String {
    let output = run(words, paths);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?} {paths:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `report` prints of a recording, and the summary that it writes.
fn summarise(data: &Path, function: &str, summary: &Path) -> String {
    done(&["report", "--format", "json", "-f", function], &["--summary".as_ref(), summary, data])
}

#[test]
fn the_report_of_one_is_that_of_its_recording() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    for (name, function) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let data = fixture.data.as_path();
        let summary = of(name);
        let report = |more: &[&str]| done(&[&["report", "-f", function], more].concat(), &[data]);
        assert_eq!(summarise(data, function, &summary), report(&["--format", "json"]), "{name}");
        let again = of("again");
        let merge = |words: &[&str], more: &[&Path]| done(words, &[&[summary.as_path()], more].concat());
        let json = merge(&["merge", "--format", "json"], &["--summary".as_ref(), &again]);
        assert_eq!(json, report(&["--format", "json"]), "{name}");
        assert_eq!(merge(&["merge"], &[]), report(&[]), "{name}");
        assert_eq!(merge(&["merge", "--all", "-U"], &[]), report(&["--all", "-U"]), "{name}");
        assert!(std::fs::read(&summary).unwrap() == std::fs::read(&again).unwrap(), "{name}");
    }
}

/// Merges files two or three at a time, those that the dice choose, until one is left.
fn merged(dice: &mut Dice, mut files: Vec<PathBuf>, directory: &Path) -> PathBuf {
    let mut number = 0;
    while files.len() > 1 {
        let count = 2 + dice.below(2).min(files.len() - 2);
        let chosen: Vec<PathBuf> = (0..count).map(|_| files.remove(dice.below(files.len()))).collect();
        let to = directory.join(format!("merged-{number}"));
        number += 1;
        let paths: Vec<&Path> = chosen.iter().map(PathBuf::as_path).collect();
        done(&["merge"], &[&paths[..], &["--summary".as_ref(), &to]].concat());
        files.push(to);
    }
    files.remove(0)
}

#[test]
fn neither_order_nor_brackets_matter() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let mut calls = 0;
    for (name, function) in PARTS {
        let Some(fixture) = fixture(name) else { return };
        let summary = directory.path().join(name);
        let report: Value = serde_json::from_str(&summarise(&fixture.data, function, &summary)).unwrap();
        calls += report["functions"][0]["latency_ns"]["count"].as_u64().unwrap();
        files.push(summary);
    }
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let all = directory.path().join("all");
    let json = done(&["merge", "--format", "json"], &[&paths[..], &["--summary".as_ref(), &all]].concat());
    let expect = std::fs::read(&all).unwrap();
    let mut dice = Dice::new(1);
    for round in 0..8 {
        let merged = merged(&mut dice, files.clone(), directory.path());
        assert!(std::fs::read(&merged).unwrap() == expect, "round {round}");
        assert_eq!(done(&["merge", "--format", "json"], &[&merged]), json, "round {round}");
    }
    let report: Value = serde_json::from_str(&json).unwrap();
    let counts = report["functions"].as_array().unwrap().iter();
    let counts = counts.map(|function| function["latency_ns"]["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), calls);
    assert_eq!(report["trace"]["no_off_cpu"].as_str().map(|why| why.contains("context-switch")), Some(true));
}

/// What has no summary is named among the losses, in every bracketing.
#[test]
fn what_is_missing_is_a_loss_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    for name in ["demo", "demo-cpu2-ovf"] {
        let Some(fixture) = fixture(name) else { return };
        summarise(&fixture.data, "round_fn", &of(name));
    }
    let (demo, other, part, all) = (of("demo"), of("demo-cpu2-ovf"), of("part"), of("all"));
    let missing = ["--missing", "c.data: cannot open it", "--missing", "b.data: host is down"];
    let json = ["merge", "--format", "json"];
    let at_once = done(&[&json[..], &missing].concat(), &["--summary".as_ref(), &all, &demo, &other]);
    let report: Value = serde_json::from_str(&at_once).unwrap();
    let problems = report["loss"]["problems"].as_array().unwrap().iter();
    let problems: Vec<&str> = problems.filter_map(Value::as_str).collect();
    let expect = ["b.data: host is down", "c.data: cannot open it"];
    assert_eq!(problems, expect.map(|what| format!("missing: {what}; its calls are not counted")));
    done(&[&json[..], &missing[2..]].concat(), &["--summary".as_ref(), &part, &other]);
    let words = [&json[..], &missing[..2]].concat();
    let again = of("again");
    assert_eq!(done(&words, &["--summary".as_ref(), &again, &part, &demo]), at_once);
    assert!(std::fs::read(&again).unwrap() == std::fs::read(&all).unwrap());
    let text = done(&["merge"], &[&again]);
    assert!(text.contains("  missing: b.data: host is down; its calls are not counted\n"), "{text}");
}

/// Recordings with one label against those with another: what `diff` says of their rows, run by run.
#[test]
fn a_difference_by_label_is_that_of_the_runs() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    let builds = [
        (
            "v1",
            [
                "demo",
                "demo-cpu2-ovf",
                "demo-cpu2-trunc",
                "demo-window",
                "demo-ovf",
                "demo-trunc",
                "demo-skew",
            ],
        ),
        (
            "v2",
            [
                "demo-lag64",
                "demo-cpu2",
                "demo-nomtc",
                "demo-cpu2-defer",
                "demo-lag0",
                "demo-defer",
                "demo-cpu8",
            ],
        ),
    ];
    let mut summaries = Vec::new();
    for (build, names) in builds {
        std::fs::create_dir(of(build)).unwrap();
        for (number, name) in names.iter().enumerate() {
            let Some(fixture) = fixture(name) else { return };
            let (summary, rows) = (of(name), of(build).join(format!("run-{number}.jsonl")));
            let words =
                ["report", "--format", "json", "-f", "round_fn", "--label", &format!("build={build}")];
            let paths = ["--summary".as_ref(), summary.as_path(), "--rows".as_ref(), &rows, &fixture.data];
            done(&words, &paths);
            summaries.push(summary);
        }
    }
    let paths: Vec<&Path> = summaries.iter().map(PathBuf::as_path).collect();
    let diff = |words: &[&str], paths: &[&Path]| -> Value {
        serde_json::from_str(&done(&[&["diff", "--format", "json"], words].concat(), paths)).unwrap()
    };
    let by_rows = diff(&["-f", "round_fn"], &[&of("v1"), &of("v2")]);
    let by_label = diff(&["--by", "build"], &paths);
    assert_eq!(by_label["figures"], by_rows["figures"]);
    assert_eq!(by_label["figures"].as_array().unwrap().len(), 5);
    assert!(by_label["figures"][0]["change_percent"].is_number(), "seven runs have an interval");
    let text = done(&["diff", "--by", "build=v2,v1"], &paths);
    assert!(
        text.starts_with("[round_fn]: B, build=v1 (7 recordings), against A, build=v2 (7 recordings)"),
        "{text}"
    );

    // Two hosts of each: a host is a run with the calls of all its recordings.
    for (number, summary) in summaries.iter().enumerate() {
        let host = format!("\"{}\"", if number % 7 < 3 { "h1" } else { "h2" });
        let text = std::fs::read_to_string(summary).unwrap().replace("\"tracegen\"", &host);
        std::fs::write(summary, text).unwrap();
    }
    let by_host = diff(&["--by", "build"], &paths);
    assert_eq!(by_host["a"]["runs"].as_array().unwrap().len(), 2);
    let merged = of("merged");
    done(&["merge"], &[&paths[..7], &["--summary".as_ref(), &merged]].concat());
    let of_merged = diff(&["--by", "build"], &[&[merged.as_path()], &paths[7..]].concat());
    assert_eq!(of_merged["figures"], by_host["figures"]);

    let error = |words: &[&str], paths: &[&Path]| {
        let output = run(&[&["diff"], words].concat(), paths);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&["--by", "rack"], &paths).contains("report --label rack=VALUE"));
    assert!(error(&["--by", "build"], &paths[..7]).contains("1 value of build"));
    assert!(error(&["--by", "build"], &[&paths[..], &paths[..1]].concat()).contains("name it once"));
    assert!(error(&["--by", "build=v1,v3"], &paths).contains("no summary has build=v3"));
}

/// It was accepted, and nothing had the label.
#[test]
fn a_label_of_nothing_is_an_error() {
    let Some(fixture) = fixture("demo") else { return };
    let output = run(&["report", "-f", "round_fn", "--label", "build=v2"], &[&fixture.data]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("add --rows or --summary"), "{errors}");
}

/// The figures of two recordings together are those of all their calls in one list.
#[test]
fn figures_are_those_of_all_calls() {
    let directory = tempfile::tempdir().unwrap();
    let (mut latencies, mut summaries) = (Vec::new(), Vec::new());
    let (mut lost_ns, mut slowest) = (0, Vec::new());
    for name in ["demo", "demo-cpu2-ovf"] {
        let Some(fixture) = fixture(name) else { return };
        let (summary, rows) = (directory.path().join(name), directory.path().join("rows.jsonl"));
        let words = ["report", "--format", "json", "-f", "round_fn"];
        let paths = ["--summary".as_ref(), summary.as_path(), "--rows".as_ref(), &rows, &fixture.data];
        let report: Value = serde_json::from_str(&done(&words, &paths)).unwrap();
        lost_ns += report["loss"]["lost_ns"].as_u64().unwrap();
        for line in std::fs::read_to_string(&rows).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            if ["complete", "unwound"].contains(&row["status"].as_str().unwrap()) {
                latencies.push(row["latency_ns"].as_u64().unwrap());
                slowest.push(row);
            }
        }
        summaries.push(summary);
    }
    latencies.sort_unstable();
    let rank = |per_mille: usize| latencies[(per_mille * latencies.len()).div_ceil(1000) - 1];
    let all = directory.path().join("all");
    let paths = [summaries[0].as_path(), &summaries[1], "--summary".as_ref(), &all];
    let report: Value = serde_json::from_str(&done(&["merge", "--format", "json"], &paths)).unwrap();
    let of = &report["functions"][0]["latency_ns"];
    for (key, value) in [
        ("count", latencies.len() as u64),
        ("sum", latencies.iter().sum()),
        ("p50", rank(500)),
        ("p99", rank(990)),
        ("p999", rank(999)),
        ("max", latencies[latencies.len() - 1]),
    ] {
        assert_eq!(of[key].as_u64(), Some(value), "{key}");
    }
    assert_eq!(report["loss"]["lost_ns"].as_u64(), Some(lost_ns));
    // Its slowest calls are those of the rows, as they stand there.
    let file: Value = serde_json::from_slice(&std::fs::read(&all).unwrap()).unwrap();
    let kept: Vec<&Value> = file["slowest"].as_array().unwrap().iter().map(|slow| &slow["row"]).collect();
    assert_eq!(kept.len(), 100);
    assert_eq!(kept[0]["latency_ns"].as_u64(), latencies.last().copied());
    assert_eq!(kept[99]["latency_ns"].as_u64(), Some(latencies[latencies.len() - 100]));
    assert!(kept.iter().all(|row| slowest.contains(row)));
}

/// Where recordings are of several hosts, each host has the figures of its own.
#[test]
fn each_host_has_its_figures() {
    let directory = tempfile::tempdir().unwrap();
    let (mut reports, mut files) = (Vec::new(), Vec::new());
    for (name, host) in [("demo", "db1"), ("demo-cpu2-ovf", "db\u{1b}2")] {
        let Some(fixture) = fixture(name) else { return };
        let path = directory.path().join(name);
        reports.push(serde_json::from_str::<Value>(&summarise(&fixture.data, "round_fn", &path)).unwrap());
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        file["recordings"]
            .as_object_mut()
            .unwrap()
            .values_mut()
            .for_each(|facts| facts["host"] = host.into());
        let hosts = file["hosts"].as_object_mut().unwrap();
        let sums = std::mem::take(hosts).into_iter().next().unwrap().1;
        hosts.insert(host.to_owned(), sums);
        std::fs::write(&path, file.to_string()).unwrap();
        files.push(path);
    }
    let (one, other) = (files[0].as_path(), files[1].as_path());
    let json = done(&["merge", "--format", "json"], &[one, other]);
    assert_eq!(done(&["merge", "--format", "json"], &[other, one]), json);
    let merged: Value = serde_json::from_str(&json).unwrap();
    let hosts = merged["hosts"].as_array().unwrap();
    // "\u{1b}" is before "1".
    for (host, name, report) in [(&hosts[0], "db\u{1b}2", &reports[1]), (&hosts[1], "db1", &reports[0])] {
        assert_eq!((host["host"].as_str(), host["recordings"].as_u64()), (Some(name), Some(1)));
        assert_eq!(host["coverage"], report["loss"]["coverage"]);
        let functions = [&host["functions"], &report["functions"]].map(|all| all.as_array().unwrap());
        assert_eq!(functions.map(Vec::len), [1, 1]);
        for key in ["name", "object", "calls", "latency_ns", "off_cpu_ns"] {
            assert_eq!(functions[0][0][key], functions[1][0][key], "{name} {key}");
        }
    }
    let text = done(&["merge"], &[one, other]);
    let table = text.split_once("round_fn by host, the longest p99 first\n").unwrap().1;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("  db1 ") && table.contains("  db\\u{1b}2 "), "{table}");
    assert!(!done(&["merge"], &[one]).contains("by host"));
}

/// Files that no report writes. Of one with two years of calls the deviation was added up call by call.
#[test]
fn what_no_report_writes_is_refused() {
    let Some(fixture) = fixture("demo") else { return };
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    let changed = of("changed");
    summarise(&fixture.data, "round_fn", &changed);
    let written: Value = serde_json::from_slice(&std::fs::read(&changed).unwrap()).unwrap();
    let host = written["hosts"].as_object().unwrap().keys().next().unwrap().clone();
    let recording = written["recordings"].as_object().unwrap().keys().next().unwrap().clone();
    let write = |change: &dyn Fn(&mut Value)| {
        let mut file = written.clone();
        change(&mut file);
        std::fs::write(&changed, file.to_string()).unwrap();
    };
    let count = |file: &mut Value, calls: u64| {
        let of = file["hosts"][&host]["functions"].as_object_mut().unwrap().values_mut().next().unwrap();
        of["calls"]["alone"]["callers"][0][1]["latency_ns"][0][1] = calls.into();
    };
    let refused = |files: &[&Path], why: &str| {
        let output = run(&["merge"], files);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{why}: {errors}");
        assert!(errors.contains(why) && output.stdout.is_empty(), "{why}: {errors}");
    };
    write(&|file| file["hosts"]["another"] = file["hosts"][&host].clone());
    refused(&[&changed], "its sums are not those of its recordings");
    write(&|file| {
        let functions = file["names"]["functions"].as_array_mut().unwrap();
        functions.push(functions[0].clone());
    });
    refused(&[&changed], "it gives two numbers to one function or object");
    write(&|file| file["names"]["functions"] = Value::Array(Vec::new()));
    refused(&[&changed], "it has sums of a function that it does not name");
    for calls in [0, 1 << 53, u64::MAX] {
        write(&|file| count(file, calls));
        refused(&[&changed], "its counts of calls are none that there can be");
    }
    write(&|file| {
        let of = file["hosts"][&host]["functions"].as_object_mut().unwrap().values_mut().next().unwrap();
        let latencies = of["calls"]["alone"]["callers"][0][1]["latency_ns"].as_array_mut().unwrap();
        latencies.push(latencies[0].clone());
    });
    refused(&[&changed], "a key is there twice");
    write(&|file| count(file, 1 << 52));
    let report: Value = serde_json::from_str(&done(&["merge", "--format", "json"], &[&changed])).unwrap();
    assert!(report["functions"][0]["latency_ns"]["count"].as_u64() > Some(1 << 52));
    let text = std::fs::read_to_string(&changed).unwrap();
    std::fs::write(of("another"), text.replace(&recording, "r0000000000000001")).unwrap();
    refused(&[&changed, &of("another")], "together count more calls than there can be");
}

#[test]
fn what_does_not_add_up_is_refused() {
    let Some(fixture) = fixture("demo") else { return };
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    let (all, some) = (of("all"), of("some"));
    summarise(&fixture.data, "round_fn", &all);
    let words = ["report", "-f", "round_fn", "--li", "0,5000"];
    done(&words, &["--summary".as_ref(), &some, &fixture.data]);
    std::fs::write(of("junk"), "{\"schema\":\"func_latency.summary/1\",\"recordings\":{}}").unwrap();
    std::fs::write(of("later"), "{\"schema\":\"func_latency.summary/99\"}").unwrap();
    let refused = |words: &[&str], paths: &[&Path], status: i32, why: &str| {
        let output = run(words, paths);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(errors.contains(why) && output.stdout.is_empty(), "{errors}");
    };
    refused(&["merge"], &[&all, &all], 2, "is in another summary, too: name it once");
    refused(&["merge"], &[&all, &some], 2, "make both with the same -a, --li and --ti");
    refused(&["merge", "-f", "no_such"], &[&all], 2, "no summary has 'no_such': they have round_fn");
    refused(&["merge"], &[&of("junk")], 4, "is no summary (report --summary) and no part");
    refused(&["merge"], &[&of("later")], 4, "has schema 'func_latency.summary/99'");
    refused(&["merge"], &[&of("no-such")], 4, "cannot read ");
    refused(&["merge"], &[directory.path()], 4, "cannot read ");
    refused(&["merge"], &[&all, "--summary".as_ref(), &all], 2, "would be written over");
}
