//! Tables in Parquet files, as DuckDB, Polars and pyarrow read them.

use std::path::{Path, PathBuf};

use truth_tests::fixture;

use super::command;
use super::python::Python;

/// Plain, recursive, on two CPUs, with losses, with waits, through an IP filter, without switch records.
const TABLES: [(&str, &str); 7] = [
    ("sq1", "sqlite3VdbeExec"),
    ("calls", "fact_rec"),
    ("calls-cpu2", "round_cc"),
    ("demo-cpu2-ovf", "round_fn"),
    ("causes-cpu1", "waits_for_lock"),
    ("demo-filter2", "mid"),
    ("demo-noswitch", "round_fn"),
];

/// A directory with the tables, and beside it the report and the same rows as JSON lines.
struct Written {
    directory: tempfile::TempDir,
    tables: PathBuf,
    report: PathBuf,
    lines: PathBuf,
}

impl Written {
    fn new(data: &Path, function: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        let (tables, report, lines) = (of("tables/"), of("report.json"), of("rows.jsonl"));
        let run = |rows: &Path| {
            let output = command()
                .args(["report", "--format", "json", "--label", "rack=r7", "-f", function, "-i"])
                .arg(data)
                .arg("--rows")
                .arg(rows)
                .output()
                .unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {errors}", data.display());
            output.stdout
        };
        let json = run(&tables);
        assert_eq!(run(&lines), json, "{}", data.display());
        std::fs::write(&report, json).unwrap();
        Self { directory, tables, report, lines }
    }
}

#[test]
fn tables_add_up_to_the_report() {
    let Some(python) = Python::with("duckdb, polars, pyarrow") else { return };
    let mut met = [false; 4];
    for (name, function) in TABLES {
        let Some(fixture) = fixture(name) else { return };
        let written = Written::new(&fixture.data, function);
        let files = [written.tables.as_path(), &written.report, &written.lines];
        let rows = python.run_with("rows_in_parquet.py", &files);
        met.iter_mut().zip(rows).for_each(|(met, rows)| *met |= rows > 0);
        assert_eq!(std::fs::read_dir(&written.directory).unwrap().count(), 3, "{name}");
    }
    assert_eq!(met, [true; 4], "some table has no row in any recording");
}

/// `export --format parquet` writes the bytes of `report --rows`, to a file or below a directory.
#[test]
fn an_export_is_what_a_report_writes() {
    let Some(fixture) = fixture("demo-cpu2-ovf") else { return };
    let directory = tempfile::tempdir().unwrap();
    let write = |words: &[&str], output: &str| {
        let path = directory.path().join(output);
        let output = command()
            .args(words)
            .args(["-f", "round_fn", "-i"])
            .arg(&fixture.data)
            .arg(if words[0] == "export" { "-o" } else { "--rows" })
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        path
    };
    let export = ["export", "--format", "parquet"];
    let bytes = |path: PathBuf| std::fs::read(path).unwrap();
    let calls = bytes(write(&["report"], "report.parquet"));
    assert!(calls == bytes(write(&export, "export.parquet")));
    let tables = [write(&["report"], "report/"), write(&export, "export/")];
    for table in ["calls", "children", "off_cpu", "gaps"] {
        let [reported, exported] = tables.each_ref().map(|tables| {
            let recording = std::fs::read_dir(tables.join(table)).unwrap().next().unwrap().unwrap().path();
            bytes(recording.join(format!("{table}.parquet")))
        });
        assert!(reported == exported, "{table}");
        assert!(table != "calls" || reported == calls);
    }
}

/// Each query of `docs/queries.md` runs as it stands there, on tables of two builds.
#[test]
fn queries_of_the_documentation() {
    let Some(python) = Python::with("duckdb, polars, pyarrow") else { return };
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| directory.path().join(name);
    for (name, build) in [("causes-cpu1", "v1"), ("causes-slower", "v2")] {
        let Some(fixture) = fixture(name) else { return };
        let output = command()
            .args([
                "report",
                "--format",
                "json",
                "-f",
                "waits_for_lock",
                "--label",
                &format!("build={build}"),
                "-i",
            ])
            .arg(&fixture.data)
            .arg("--rows")
            .arg(of("rows/"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(of(build), output.stdout).unwrap();
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/queries.md");
    let files = [document.as_path(), directory.path(), &of("v1"), &of("v2")];
    assert_eq!(python.run_with("queries.py", &files), [10]);
}
