//! Runs that were repeated and compared, as text and JSON.

use analyzer::ledger::{Compared as Calls, LeftOut};
use analyzer::samples::{Figure, RunsComparison};
use func_latency::render::compare::{self, Compared, FailAbove, Side};
use func_latency::render::runs::{FunctionRuns, Run};
use func_latency::render::stat::{self, Repeated};

use super::golden::check_golden;

/// Calls of about `typical_ns`, of which one in fifty takes twenty times as long.
fn run(number: u64, calls: u64, typical_ns: u64) -> Run {
    let latency = |call: u64| {
        let jitter = (call * 7 + number * 3) % 10;
        if call % 50 == 49 { 20 * typical_ns + jitter } else { typical_ns + jitter }
    };
    let calls: Vec<(u64, u64)> = (0..calls).map(|call| (latency(call), 2)).collect();
    Run {
        name: format!("run-{number:02}.jsonl"),
        calls: Calls::of(&calls, LeftOut { cut: u64::from(number == 3), ..LeftOut::default() }),
        off_cpu_sum_ns: (typical_ns != 1000).then_some(100 * number),
    }
}

fn runs(function: &str, runs: Vec<Run>) -> FunctionRuns {
    FunctionRuns { function: function.to_owned(), runs }
}

/// Ten runs around `typical_ns`.
fn ten(typical_ns: u64) -> FunctionRuns {
    runs("work", (1..=10).map(|number| run(number, 300 + number, typical_ns + number * 5 % 7)).collect())
}

/// The first function rises and has an outlier, the second is quiet and its time off the CPU is not known.
#[test]
fn runs_that_are_repeated() {
    let rising = (1..=10).map(|number| run(number, 1200, 500 + 10 * number)).collect();
    let mut first = runs("rising", rising);
    first.runs[0] = run(1, 1200, 100);
    let last = ten(1000);
    let functions =
        [first, runs("late", (1..=10).map(|n| run(n, 50, 700 + 300 * u64::from(n == 8))).collect()), last];
    let repeated = Repeated { measured: "./work 3", functions: &functions };
    let (mut text, mut json) = (vec![], vec![]);
    stat::write_text(&mut text, &repeated, 120).unwrap();
    stat::write_json(&mut json, &repeated).unwrap();
    check_golden("stat.txt", &text);
    check_golden("stat.json", &json);
}

fn check(golden: &str, base: FunctionRuns, these: FunctionRuns, fail_above: FailAbove) {
    let comparison = RunsComparison::of(&these.latencies(), &base.latencies());
    let base = Side { name: "./work 3".to_owned(), runs: base };
    let these = Side { name: "./work 4".to_owned(), runs: these };
    let compared =
        Compared { base: &base, these: &these, comparison: &comparison, fail_above: Some(fail_above) };
    let (mut text, mut json) = (vec![], vec![]);
    compare::write_text(&mut text, &compared, 120).unwrap();
    compare::write_json(&mut json, &compared).unwrap();
    check_golden(&format!("{golden}.txt"), &text);
    check_golden(&format!("{golden}.json"), &json);
}

#[test]
fn two_commands_of_ten_runs() {
    check("compare", ten(500), ten(530), FailAbove { figure: Figure::P50, percent: 5.0 });
}

/// Of 2,000 calls there is no p99.9, and the difference of the medians is below the errors of the times.
#[test]
fn two_runs_by_their_blocks() {
    let one = |typical_ns| runs("work", vec![run(1, 2000, typical_ns)]);
    check("compare-blocks", one(500), one(503), FailAbove { figure: Figure::P999, percent: 5.0 });
}
