//! The functions of a recording, as text and JSON.

use analyzer::Report;
use func_latency::args::TopBy;
use func_latency::render::row_limit::RowLimit;
use func_latency::render::top::{View, write_json, write_text};
use model::FunctionId;

use super::golden::check_golden;
use super::report::{FakeNames, function, report, whole_report, without_times};

/// Two functions that were called, and one that was not.
fn called_twice(mut report: Report) -> Report {
    let mut other = function();
    other.id = FunctionId(3);
    other.outermost.sum_ns = 2_000_000;
    other.calls.complete = 3;
    report.functions.push(other);
    report
}

fn view(report: &Report) -> View<'_> {
    let names = &FakeNames { lines: false };
    View { report, names, input: "perf.data", by: TopBy::Time, table_rows: RowLimit::default() }
}

fn text(view: &View<'_>) -> String {
    let mut out = vec![];
    write_text(&mut out, view, 100).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn functions_are_listed_by_time_or_calls() {
    let report = called_twice(report());
    check_golden("top.txt", text(&view(&report)).as_bytes());
    let first = |by| text(&View { by, ..view(&report) }).lines().nth(3).unwrap().to_owned();
    assert!(
        first(TopBy::Time).starts_with("  ha_innobase::index_read  mysqld      8  11.5 ms "),
        "{}",
        first(TopBy::Time)
    );
    assert!(
        first(TopBy::Calls).starts_with("  row_search_mvcc          mysqld     10  10.8 ms "),
        "{}",
        first(TopBy::Calls)
    );
    let mut out = vec![];
    write_json(&mut out, &view(&report)).unwrap();
    check_golden("top.json", &out);
}

#[test]
fn functions_that_are_left_out_are_counted() {
    let report = called_twice(whole_report());
    let one = RowLimit { top: Some(1), ..RowLimit::ALL };
    let text = text(&View { table_rows: one, ..view(&report) });
    assert!(
        text.contains("  ... 1 more function, 0.0 % of the time in themselves; --all prints them\n"),
        "{text}"
    );
}

/// Each time was 0.
#[test]
fn without_times_there_are_calls_alone() {
    let report = called_twice(without_times());
    check_golden("top-no-times.txt", text(&view(&report)).as_bytes());
    let mut out = vec![];
    write_json(&mut out, &view(&report)).unwrap();
    check_golden("top-no-times.json", &out);
}
