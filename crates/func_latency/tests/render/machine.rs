//! The report's JSON and rows.

use analyzer::{Caller, FunctionReport, Report, RowSink};
use func_latency::render::rows::{self, Origin, RowsFile, RowsForm, RowsWriter};
use func_latency::render::{View, json};
use model::FunctionId;

use super::golden::check_golden;
use super::report::{FakeNames, report, view, without_times};
use super::unknown::without_switches;

#[test]
fn json_report() {
    check_json("report.json", &report());
}

/// Unknown was 0 in sums and counts, and CPU percent was that of all time, asleep or not.
#[test]
fn json_without_switch_records_has_null() {
    check_json("report-no-switches.json", &without_switches(report()));
}

/// Each latency was 0.
#[test]
fn json_without_times_has_null_and_a_reason() {
    check_json("report-no-times.json", &without_times());
}

fn check_json(name: &str, report: &Report) {
    let mut out = vec![];
    let problems = &["/usr/lib/libz.so.1 is missing".to_owned()];
    let json_view = View {
        names: &FakeNames { lines: true },
        inlined: &[Some(17)],
        problems,
        srcline: true,
        ..view(report)
    };
    json::write(&mut out, &json_view).unwrap();
    check_golden(name, &out);
}

#[test]
fn rows_in_both_forms() {
    let mut report = report();
    // A name that CSV must quote.
    report.functions[0].rows[1].from.caller = Caller::Function { function: FunctionId(4), tail: true };
    for (name, form) in [("rows.jsonl", RowsForm::JsonLines), ("rows.csv", RowsForm::Csv)] {
        let mut out = vec![];
        rows::write(&mut out, form, &report, &FakeNames { lines: false }).unwrap();
        check_golden(name, &out);
    }
}

/// It was 0.
#[test]
fn rows_without_switch_records_say_no_off_cpu_time() {
    let report = without_switches(report());
    let count = report.functions[0].rows.len();
    let written = |form| {
        let mut out = vec![];
        rows::write(&mut out, form, &report, &FakeNames { lines: false }).unwrap();
        String::from_utf8(out).unwrap()
    };
    let lines = written(RowsForm::JsonLines);
    assert_eq!(lines.matches("\"off_cpu_ns\":null,").count(), count, "{lines}");
    let csv = written(RowsForm::Csv);
    let cells: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').nth(6)).collect();
    assert_eq!(cells, vec![Some(""); count], "{csv}");
}

/// However few of them there is room for, and whatever the order in which the calls ended.
#[test]
fn rows_that_wait_on_disk_are_the_same() {
    let mut report = report();
    let function = report.functions[0].clone();
    report.functions.push(FunctionReport { rows: function.rows[1..].to_vec(), ..function });
    let directory = tempfile::tempdir().unwrap();
    let names = FakeNames { lines: false };
    for (name, form) in [("rows.jsonl", RowsForm::JsonLines), ("rows.csv", RowsForm::Csv)] {
        let mut in_memory = vec![];
        rows::write(&mut in_memory, form, &report, &names).unwrap();
        let target = RowsFile { path: directory.path().join(name), form };
        for bound in [0, 700, 1 << 20] {
            let mut writer = RowsWriter::new(&target, &names, &Origin::default(), None).with_bound(bound);
            for (number, function) in report.functions.iter().enumerate().rev() {
                function.rows.iter().rev().for_each(|row| writer.row(number, row, None));
            }
            writer.finish().unwrap();
            assert_eq!(std::fs::read(&target.path).unwrap(), in_memory, "{name}, {bound}");
        }
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2); // nothing else has stayed
}
