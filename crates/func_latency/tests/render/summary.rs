//! The first sentences of the report: only what is certain.

use analyzer::histogram::histogram;
use analyzer::{
    CallCounts, CallFigures, ChildKind, ErrorBound, FunctionReport, OpenCalls, Quantiles, Report, Tails,
};
use func_latency::render::text;

use super::report::{child, durations, error, stats, view, whole_report};

/// What stands between the function's name and its histogram.
fn sentences(report: &Report) -> Vec<String> {
    let mut out = vec![];
    text::write(&mut out, &view(report), 200).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("Latency of")).skip(1);
    lines.take_while(|line| !line.is_empty()).map(|line| line.trim_start().to_owned()).collect()
}

/// 200 calls: of 100 to 296 ns, and three of 1, 2 and 3 ms. Those of `off_cpu_ns` were off the CPU.
fn report_of(off_cpu_ns: &[u64]) -> Report {
    let latency: Vec<u64> = (100..297).chain([1_000_000, 2_000_000, 3_000_000]).collect();
    let mut report = whole_report();
    report.trace.no_off_cpu = None;
    let function = &mut report.functions[0];
    *function = FunctionReport {
        calls: CallCounts { complete: 200, ..CallCounts::default() },
        figures: CallFigures {
            latency: stats(&latency),
            off_cpu: Some(stats(off_cpu_ns)),
            error: error(&latency),
            histogram: histogram(&durations(&latency), Some(&durations(off_cpu_ns))),
            children: vec![
                child(ChildKind::Syscall, 0, 0x40, 3, 5_000_000, 4_000_000),
                child(ChildKind::Call, 2, 0x20, 300, 900_000, 0),
                child(ChildKind::Own, 0, 0, 200, 139_006, 0),
            ],
            counters: None,
        },
        tails: Tails::default(),
        callers: vec![],
        open: OpenCalls::default(),
        off_cpu_causes: None,
        ..function.clone()
    };
    report
}

const SLOW: &str = "200 calls, p50 199 ns, p99 1.00 ms.";
const TIME: &str = "82.8 % of the time in [syscall] (80.0 % of that off the CPU), 14.9 % in btr_pcur_open_with_no_init_func.";

#[test]
fn slow_calls_are_known_to_have_waited_where_they_must_have() {
    let cases: [(&[u64], &str); 5] = [
        (&[], "No call was off the CPU."),
        (&[600_000], "1 call was off the CPU for 600 us (9.9 % of the time)."),
        (
            &[2_900_000],
            "1 call was off the CPU for 2.90 ms (48.0 % of the time), all among the slowest 2 (1 %).",
        ),
        (
            &[50, 2_900_000],
            "2 calls were off the CPU for 2.90 ms (48.0 % of the time), 1 or more among the slowest 2 (1 %).",
        ),
        (
            &[50, 1_900_000, 2_900_000],
            "3 calls were off the CPU for 4.80 ms (79.5 % of the time), the slowest 2 (1 %) among them.",
        ),
    ];
    for (off_cpu_ns, waited) in cases {
        assert_eq!(sentences(&report_of(off_cpu_ns)), [SLOW, TIME, waited]);
    }
}

/// The sentences on a report that is changed.
fn changed(change: impl FnOnce(&mut FunctionReport)) -> Vec<String> {
    let mut report = report_of(&[]);
    change(&mut report.functions[0]);
    sentences(&report)
}

#[test]
fn figures_have_their_bounds_where_these_are_far_apart() {
    let p50 = |low, high| {
        let first = changed(|function| {
            function.figures.error.low.p50_ns = Some(low);
            function.figures.error.high.p50_ns = Some(high);
        });
        first[0].clone()
    };
    assert_eq!(p50(190, 210), "200 calls, p50 200 ns, p99 1.00 ms.");
    assert_eq!(p50(150, 230), "200 calls, p50 150 ns to 230 ns, p99 1.00 ms.");
    assert_eq!(p50(0, 230), "200 calls, p50 < 400 ns, p99 1.00 ms.");
}

#[test]
fn what_is_not_certain_is_not_said() {
    let uncertain = changed(|function| {
        function.figures.children[0].error_ns = 1_500_000;
        function.figures.children[1].error_ns = 600_000;
    });
    assert_eq!(uncertain[1], "83 % of the time in [syscall] (80 % of that off the CPU).");
    let unknown = changed(|function| {
        function.figures.children.iter_mut().for_each(|row| row.error_ns = row.total.sum_ns)
    });
    assert_eq!(unknown, [SLOW, "No call was off the CPU."]);
    let sliced = changed(|function| function.calls.complete = 300);
    assert_eq!(sliced[0], "200 of 300 calls, p50 199 ns, p99 1.00 ms.");
    let undecided = changed(|function| function.calls.undecided = 3);
    assert_eq!(undecided[0], format!("{SLOW} 3 of them may have ended at another time."));
    assert_eq!(sentences(&whole_report())[1..], ["99.1 % of the time in [syscall]."]);
}

/// It said "p50 20.1 ms to 20.1 ms".
#[test]
fn bounds_that_are_printed_alike_are_one_figure() {
    let tails = |low_ns, high_ns| {
        let first = changed(|function| {
            let at_least = Quantiles { p99_ns: Some(low_ns), ..function.figures.error.low };
            function.tails =
                Tails { calls: 1, at_least, at_most: Quantiles { p99_ns: Some(high_ns), ..at_least } };
        });
        first[0].clone()
    };
    assert_eq!(tails(1_900_100, 1_900_900), "200 calls, p50 199 ns, p99 1.90 ms.");
    assert_eq!(tails(1_900_100, 1_990_900), "200 calls, p50 199 ns, p99 1.90 ms to 1.99 ms.");
}

/// Of calls that have not ended a figure may be anything from there on.
#[test]
fn open_calls_take_back_what_they_may_change() {
    let open = |count: u64| {
        let mut report = report_of(&[1_900_000, 2_900_000]);
        let function = &mut report.functions[0];
        let at_least = Quantiles { p99_ns: Some(2_000_000), ..function.figures.error.low };
        let at_most = Quantiles { p99_ns: None, ..function.figures.error.high };
        function.tails = Tails { calls: 1, at_least, at_most };
        function.open.longest = whole_report().functions[0].open.longest[..1].to_vec();
        if count == 0 {
            function.figures.latency = stats(&[]);
            function.figures.off_cpu = Some(stats(&[]));
            function.figures.error = ErrorBound::default();
            function.figures.children.clear();
        }
        sentences(&report)
    };
    let some =
        "200 calls, p50 199 ns, p99 2.00 ms or more. Not seen to end: 1 more, the longest 9.00 ms or more.";
    let waited = "2 calls were off the CPU for 4.80 ms (79.5 % of the time).";
    assert_eq!(open(1), [some, TIME, waited]);
    assert_eq!(
        open(0),
        ["No call was seen from entry to return. Not seen to end: 1, the longest 9.00 ms or more."]
    );
}
