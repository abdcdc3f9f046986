//! Rows, and what is found by them.

use analyzer::FunctionReport;
use serde_json::Value;

use super::python::Python;
use super::{cases, command, text};

#[test]
fn rows_are_those_of_the_report() {
    for case in cases() {
        for (format, headers) in [("csv", 1), ("jsonl", 0)] {
            assert_eq!(
                text(&case.export(format, &[])).lines().count(),
                case.report.rows.len() + headers,
                "{}",
                case.name
            );
        }
    }
}

/// DuckDB reads them, of either form, and has the report's figures.
#[test]
fn duckdb_reads_rows() {
    let Some(python) = Python::with("duckdb") else { return };
    for case in cases() {
        let FunctionReport { figures, rows, .. } = &case.report;
        for format in ["csv", "jsonl"] {
            let read = python.run("rows_in_duckdb.py", &case.export(format, &[]));
            let expect = [
                rows.len() as u64,
                figures.latency.count,
                figures.latency.sum_ns,
                figures.off_cpu.unwrap().sum_ns,
            ];
            assert_eq!(read, expect, "{}: {format}", case.name);
        }
    }
}

/// By rows, and by an analysis that finds them: the same tree.
#[test]
fn a_call_is_shown_from_its_row() {
    for case in cases() {
        let rows = case.export("jsonl", &[]);
        let middle = text(&rows).lines().nth(case.report.rows.len() / 2).unwrap().to_owned();
        let row: Value = serde_json::from_str(&middle).unwrap();
        let show = |more: &[&std::ffi::OsStr]| {
            let output = command()
                .args(["show", row["id"].as_str().unwrap(), "-f", case.symbol, "--format", "json", "-i"])
                .arg(&case.data)
                .args(more)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        let shown = show(&["--rows".as_ref(), rows.as_ref()]);
        assert_eq!(shown, show(&[]), "{}", case.name);
        for key in ["start_ns", "latency_ns", "off_cpu_ns", "status", "function"] {
            assert_eq!(shown[key], row[key], "{}: {key}", case.name);
        }
        let own: u64 =
            shown["nodes"].as_array().unwrap().iter().map(|node| node["self_ns"].as_u64().unwrap()).sum();
        assert_eq!(Some(own), row["latency_ns"].as_u64(), "{}", case.name);
    }
}
