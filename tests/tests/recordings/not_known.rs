//! Of a recording without TSC packets or switch records, what can be known is as true as ever, and the rest
//! is not a number.

use std::collections::BTreeMap;
use std::process::Command;

use analyzer::{CallCounts, Report};
use decoder::DecodeOptions;
use model::{NoOffCpu, NoTimes};
use serde_json::Value;
use tracegen::truth::{File, calls};
use truth_tests::{Fixture, Opened, fixture, pipeline};

/// Functions of the demo: many calls, recursion, and one that sleeps.
const FUNCTIONS: [&str; 3] = ["round_fn", "mid", "worker"];

fn report(fixture: &Fixture, function: &str, workers: usize) -> Report {
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let function = opened.function(function).unwrap();
    opened.analyse(&[function], &DecodeOptions { workers, ..DecodeOptions::default() })
}

/// Every latency was "0 ns +- 0", and calls were right: these are held against the oracle.
#[test]
fn without_tsc_packets_calls_are_counted() {
    let Some(fixture) = fixture("demo-notsc") else { return };
    let truth = File::load(&fixture.truth).unwrap();
    for function in FUNCTIONS {
        let calls = calls::calls(&truth, &fixture.data, function).unwrap();
        let mut expected = CallCounts::default();
        let mut callers: BTreeMap<u64, u64> = BTreeMap::new();
        for row in &calls.rows {
            *match row.status.name() {
                "complete" => &mut expected.complete,
                "unwound" => &mut expected.unwound,
                "open_start" => &mut expected.open_start,
                "open_end" => &mut expected.open_end,
                _ => &mut expected.cut,
            } += 1;
            if row.status.is_whole() {
                *callers.entry(row.caller_ip.0).or_default() += 1;
            }
        }
        let found = report(&fixture, function, 1);
        assert_eq!(
            (found.trace.no_times, found.trace.no_off_cpu),
            (Some(NoTimes::NoTscPackets), Some(NoOffCpu::NoTimes))
        );
        let f = &found.functions[0];
        // The truth is counted by status alone.
        assert_eq!(CallCounts { undecided: 0, ..f.calls }, expected, "{function}");
        let mut of_callers: Vec<u64> = f.callers.iter().map(|caller| caller.figures.latency.count).collect();
        let mut expected: Vec<u64> = callers.into_values().collect();
        of_callers.sort_unstable();
        expected.sort_unstable();
        assert_eq!(of_callers, expected, "{function}");
        assert_eq!(report(&fixture, function, 4), found, "{function}: workers do not matter");
    }
}

/// "[off the CPU] +5,054,125 (654.8 %)": one side knew it, and the other had 0.
#[test]
fn a_difference_leaves_off_cpu_time_inside_if_one_side_does_not_know_it() {
    let (Some(whole), Some(without)) = (fixture("demo"), fixture("demo-noswitch")) else { return };
    let slept = report(&whole, "worker", 1).functions[0].figures.off_cpu.unwrap().sum_ns;
    assert!(slept > 0, "a function that sleeps");
    for (base, these) in [(&whole, &without), (&without, &whole)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
        command.arg("diff").args([&base.data, &these.data]).args(["-f", "worker", "--format", "json"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let difference: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = difference["rows"].as_array().unwrap();
        for kind in ["blocked", "runnable", "preempted", "off the CPU"] {
            assert!(rows.iter().all(|row| row["kind"] != kind), "{rows:?}");
        }
        let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(difference["these"]["sum_ns"], sum("these_sum_ns"));
        assert_eq!(difference["base"]["sum_ns"], sum("base_sum_ns"));
    }
}
