//! The functions of a recording, as text and JSON.

use analyzer::{
    CallCounts, CallFigures, ChildKind, ChildRow, FunctionReport, OpenCalls, OutermostCalls, Report, Total,
};
use func_latency::args::TopBy;
use func_latency::render::row_limit::RowLimit;
use func_latency::render::top::{TopView, write_json, write_text};
use model::FunctionId;

use super::golden::check_golden;
use super::report::{FakeNames, child, function, report, whole_report, without_times};

/// Two functions that were called, and one that was not.
fn called_twice(mut report: Report) -> Report {
    let mut other = function();
    other.id = FunctionId(3);
    other.outermost.total.sum_ns = 2_000_000;
    other.calls.complete = 3;
    report.functions.push(other);
    report
}

fn view(report: &Report) -> TopView<'_> {
    let names = &FakeNames { lines: false };
    TopView { report, names, input: "perf.data", by: TopBy::Time, table_rows: RowLimit::default() }
}

fn text(view: &TopView<'_>) -> String {
    let mut out = vec![];
    write_text(&mut out, view, 100).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn functions_are_listed_by_time_or_calls() {
    let report = called_twice(report());
    check_golden("top.txt", text(&view(&report)).as_bytes());
    let first = |by| text(&TopView { by, ..view(&report) }).lines().nth(3).unwrap().to_owned();
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
    let text = text(&TopView { table_rows: one, ..view(&report) });
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

/// A function of which all calls were seen whole.
fn called(id: u32, complete: u64, sum_ns: u64, children: &[ChildRow]) -> FunctionReport {
    FunctionReport {
        id: FunctionId(id),
        calls: CallCounts { complete, ..CallCounts::default() },
        figures: CallFigures { children: children.to_vec(), ..function().figures },
        outermost: OutermostCalls {
            total: Total { count: complete, sum_ns, off_cpu_ns: Some(0) },
            ..function().outermost
        },
        open: OpenCalls::default(),
        ..function()
    }
}

/// The first rows of a list were what the loader and the C library call before `main`.
#[test]
fn wrappers_stand_at_what_they_lead_to() {
    let list = |calls_of_the_second: u64| {
        let report = Report {
            functions: vec![
                called(1, 5, 10_000, &[child(ChildKind::Call, 2, 0x10, 5, 9_950, 0)]),
                called(2, calls_of_the_second, 9_950, &[child(ChildKind::Tail, 3, 0x20, 5, 9_900, 0)]),
                called(3, 5, 9_900, &[child(ChildKind::Own, 0, 0, 5, 9_900, 0)]),
                called(5, 5, 500, &[child(ChildKind::Call, 3, 0x30, 5, 490, 0)]),
            ],
            ..whole_report()
        };
        let lines = |table_rows| {
            let text = text(&TopView { table_rows, ..view(&report) });
            let rows = text.lines().skip(3).take_while(|line| line.starts_with("  "));
            rows.map(|line| line.trim_start().split("  ").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        (lines(RowLimit::default()), lines(RowLimit::ALL))
    };
    let [first, second, third, alarm] =
        ["row_search_mvcc", "btr_pcur_open_with_no_init_func", "ha_innobase::index_read", "on_alarm"];
    let through = "through row_search_mvcc, btr_pcur_open_with_no_init_func";
    let every = vec![first, second, third, alarm].into_iter().map(str::to_owned).collect::<Vec<_>>();
    // `on_alarm` calls what is called as often from elsewhere, and takes less than that does.
    let (some, all) = list(5);
    assert_eq!((some, &all), ([third, through, alarm].map(str::to_owned).to_vec(), &every));
    // It is called from elsewhere, too.
    let (some, all) = list(6);
    assert_eq!((&some, &all), (&every, &every));
}
