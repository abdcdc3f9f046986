//! What is exported with `--counters` adds up to what the report counts, in each format.

use std::process::Command;

use serde_json::Value;

use super::pprof::has_go;
use super::{Case, cases, command, perfetto, text};

/// What the report says that all calls executed: instructions and cycles (null: unknown).
struct Sums {
    instructions: u64,
    cycles: Option<u64>,
}

/// Cases whose function does not call itself: its calls are the outermost ones.
fn counted_cases() -> Vec<(Case, Sums)> {
    let is_flat = |case: &Case| case.report.outermost.total.count == case.report.figures.latency.count;
    let sums = |case: &Case| {
        let mut report = command();
        report.args(["report", "--counters", "--format", "json", "-f", case.symbol, "-i"]).arg(&case.data);
        let report: Value = serde_json::from_slice(&report.output().unwrap().stdout).unwrap();
        let counters = &report["functions"][0]["counters"];
        let instructions = counters["instructions"]["sum"].as_u64().unwrap();
        Sums { instructions, cycles: counters["cycles"]["sum"].as_u64() }
    };
    let counted = cases().into_iter().filter(is_flat).map(|case| {
        let sums = sums(&case);
        (case, sums)
    });
    counted.collect()
}

/// Cycles are estimates, which events that a report leaves out narrow: both are within the error of one.
fn assert_cycles(found: u64, expected: Option<u64>, error: u64, case: &Case) {
    let expected = expected.unwrap();
    assert!(found.abs_diff(expected) <= error, "{}: {found}, not {expected} +- {error}", case.name);
    assert!(error < expected, "{}: {error}", case.name);
}

#[test]
fn perfettos_slices_have_them() {
    for (case, Sums { instructions, cycles }) in counted_cases() {
        let trace = perfetto::read(&case.export("perfetto", &["--counters", "--all"]));
        let outermost: Vec<_> = trace.calls().filter(|slice| slice.depth == 0).collect();
        let sum = |name: &str| outermost.iter().filter_map(|slice| slice.arguments[name]).sum::<u64>();
        assert_eq!(sum("instructions"), instructions, "{}", case.name);
        assert_cycles(sum("cycles"), cycles, sum("cycles_error"), &case);
        let known = outermost.iter().filter(|slice| slice.arguments["instructions"].is_some()).count() as u64;
        assert_eq!(known, case.report.figures.latency.count, "{}: of other calls it is unknown", case.name);
        // Not asked for, there are none.
        let trace = perfetto::read(&case.export("perfetto", &["--all"]));
        assert!(trace.calls().all(|slice| slice.arguments.is_empty()), "{}", case.name);
    }
}

#[test]
fn firefox_has_a_marker_of_each_outermost_call() {
    for (case, Sums { instructions, cycles }) in counted_cases() {
        let profile = case.export("firefox", &["--counters", "--all"]);
        let profile: Value = serde_json::from_str(&text(&profile)).unwrap();
        assert_eq!(profile["meta"]["markerSchema"][0]["name"], "call");
        let (mut markers, mut sums) = (0, [0; 3]);
        for thread in profile["threads"].as_array().unwrap() {
            let table = &thread["markers"];
            let column = |name: &str| table[name].as_array().unwrap();
            for name in ["category", "data", "endTime", "name", "phase", "startTime"] {
                assert_eq!(column(name).len() as u64, table["length"].as_u64().unwrap(), "{name}");
            }
            markers += column("data").len() as u64;
            for (data, name) in column("data").iter().zip(column("name")) {
                assert_eq!(thread["stringArray"][name.as_u64().unwrap() as usize], case.symbol);
                for (sum, what) in sums.iter_mut().zip(["instructions", "cycles", "cycles_error"]) {
                    *sum += data[what].as_u64().unwrap();
                }
            }
        }
        assert_eq!(markers, case.report.figures.latency.count, "{}", case.name);
        assert_eq!(sums[0], instructions, "{}", case.name);
        assert_cycles(sums[1], cycles, sums[2], &case);
    }
}

#[test]
fn pprof_has_sample_types_of_them() {
    if !has_go() {
        return;
    }
    for (case, Sums { instructions, .. }) in counted_cases() {
        let profile = case.export("pprof", &["--counters"]);
        let mut pprof = Command::new("go");
        pprof.args(["tool", "pprof", "-raw"]).arg(&profile);
        let raw = String::from_utf8(pprof.output().unwrap().stdout).unwrap();
        assert!(raw.contains(" instructions/count cycles/count"), "{raw}");
        // Samples: their values, and then `:` and their locations.
        let samples = raw.lines().skip_while(|line| !line.starts_with("calls/count")).skip(1);
        let samples = samples.take_while(|line| !line.starts_with("Locations"));
        let values = samples.filter_map(|line| line.split_once(':')?.0.split_whitespace().nth(3));
        let sum: u64 = values.map(|value| value.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, instructions, "{}", case.name);
    }
}
