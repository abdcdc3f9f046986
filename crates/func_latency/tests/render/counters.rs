//! What calls executed, as text, JSON and rows.

use analyzer::{
    CallRow, ChildKind, Counted, CounterReport, CountersAsked, CycleCount, Evidence, Metric, Report,
    TracedRow,
};
use func_latency::render::rows::RowsForm;
use func_latency::render::{View, json, rows, text};
use model::{Cycles, Executed, NoTimes};

use super::golden::check_golden;
use super::report::{FakeNames, report, view};

const USER: CountersAsked = CountersAsked { kernel: false, bus_khz: Some(100_000) };

/// A call with `instructions` and `cycles`.
fn ran(instructions: u64, cycles: Option<u64>) -> Counted {
    let executed = Executed {
        instructions,
        conditional_branches: instructions / 5,
        indirect_branches: instructions / 100,
        calls: instructions / 50,
        ..Executed::default()
    };
    // 25 cycles of the core are one of the bus clock.
    let bus = cycles.map(|count| count * Cycles::BUS_UNITS / 25);
    Counted { executed, cycles: cycles.map(|count| CycleCount { count, error: 12 }), bus }
}

/// The report with what its six counted calls executed, and the calls that had not ended.
pub(crate) fn with_counters(has_cycles: bool) -> Report {
    let mut report = report();
    let calls = [(40, 10), (380, 160), (500, 300), (17_000, 9_000), (20_000, 9_600), (70_000, 150_000)];
    let calls: Vec<Counted> =
        calls.into_iter().map(|(i, cycles)| ran(i, has_cycles.then_some(cycles))).collect();
    let function = &mut report.functions[0];
    let parts = [5..6, 3..4, 0..3, 4..5];
    for (caller, part) in function.callers.iter_mut().zip(parts) {
        caller.figures.counters = Some(CounterReport::of_calls(&calls[part], USER));
    }
    let whole = CounterReport::of_calls(&calls, USER);
    let of_child = |number: u64| ran(300 * number, has_cycles.then_some(200 * number));
    let mut rest = whole.sum;
    for (number, child) in (1..).zip(function.figures.children.iter_mut()) {
        let is_code = !matches!(child.kind, ChildKind::Syscall | ChildKind::Interrupt | ChildKind::Own);
        let counted = if is_code { of_child(number) } else { ran(0, has_cycles.then_some(0)) };
        child.counted = Some(counted);
        rest = rest.without(&counted);
    }
    for child in function.figures.children.iter_mut().filter(|child| child.kind == ChildKind::Own) {
        child.counted = Some(rest);
    }
    function.figures.counters = Some(whole);
    let is_counted = |row: &&mut CallRow| row.end.status.counted();
    for row in function.rows.iter_mut().filter(is_counted) {
        row.evidence = Evidence::Traced(TracedRow { counted: Some(calls[5]), ..*row.traced().unwrap() });
    }
    report
}

fn text_of(view: &View<'_>) -> String {
    let mut out = vec![];
    text::write(&mut out, view, 120).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn text_with_counters() {
    let report = with_counters(true);
    check_golden("counters.txt", text_of(&view(&report)).as_bytes());
}

#[test]
fn text_without_cyc_packets_says_unknown() {
    let report = with_counters(false);
    let text = text_of(&view(&report));
    assert!(text.contains("cycles, IPC and MHz are unknown: the recording has no CYC packets"), "{text}");
    let titles = text.lines().find(|line| line.contains("latency, ns")).unwrap();
    assert!(titles.contains("instructions") && !titles.contains("cycles"), "{titles}");
    let by_cycles = View { by: Some(Metric::Cycles), ..view(&report) };
    assert!(text_of(&by_cycles).contains("  histogram by cycles: unknown\n"));
}

#[test]
fn without_times_there_are_counters_alone() {
    let mut report = with_counters(true);
    report.trace.no_times = Some(NoTimes::NoTscPackets);
    let text = text_of(&view(&report));
    let (_, counters) = text.split_once("Counters of [row_search_mvcc]\n").unwrap();
    let titles = counters.lines().next().unwrap();
    assert_eq!(titles.split_whitespace().next(), Some("instructions"), "{text}");
    let median = counters.lines().find(|line| line.starts_with("  p50 ")).unwrap();
    assert_eq!(median.split_whitespace().nth(1), Some("500"), "{text}");
}

#[test]
fn histograms_are_by_what_was_asked_for() {
    let report = with_counters(true);
    let text = text_of(&View { by: Some(Metric::Instructions), ..view(&report) });
    let title = "  instructions           : count distribution\n            32 -> 63     : 1";
    assert!(text.contains(title), "{text}");
    let by_ipc = text_of(&View { by: Some(Metric::MilliIpc), ..view(&report) });
    // The cycles of the first call are less than their error.
    assert!(
        by_ipc.contains("  IPC x 1000         : count distribution\n         256 -> 511  : 1"),
        "{by_ipc}"
    );
    assert!(
        by_ipc.contains("IPC: without 1 call, of which the cycles are no more than their error"),
        "{by_ipc}"
    );
}

#[test]
fn json_with_counters() {
    let report = with_counters(true);
    let mut out = vec![];
    json::write(&mut out, &view(&report)).unwrap();
    check_golden("counters.json", &out);
}

#[test]
fn rows_have_columns_for_them() {
    let report = with_counters(true);
    let written = |form| {
        let mut out = vec![];
        rows::write(&mut out, form, &report, &FakeNames { lines: false }).unwrap();
        String::from_utf8(out).unwrap()
    };
    let csv = written(RowsForm::Csv);
    let lines: Vec<&str> = csv.lines().collect();
    let more = ",end_ns,instructions,conditional_branches,indirect_branches,calls,kernel_instructions,cycles,cycles_error,frequency_mhz,depth,";
    assert!(lines[0].contains(more), "{csv}");
    let of_origin = ",0,,/usr/sbin/mysqld,,,,";
    assert!(lines[1].ends_with(&format!(",70000,14000,700,1400,,150000,12,2500{of_origin}")), "{csv}");
    let unknown = format!(",,,,,,,,,{of_origin}");
    assert!(lines[2].ends_with(&unknown), "of a call that had not ended nothing is known: {csv}");
    let json = written(RowsForm::JsonLines);
    let lines: Vec<&str> = json.lines().collect();
    assert!(
        lines[0].contains("\"kernel_instructions\":null,\"cycles\":150000,\"cycles_error\":12,\"frequency_mhz\":2500,\"depth\":0,"),
        "{json}"
    );
    assert!(lines[1].contains("\"instructions\":null,"), "{json}");
}
