//! What is exported adds up to the report's totals, in the eyes of who reads it: `go tool pprof`, Perfetto's
//! published schema, the Firefox Profiler and the rules of its format, speedscope, DuckDB, and `inferno`.

mod bounds;
mod counters;
mod firefox;
mod package;
mod parquet;
mod perfetto;
mod pprof;
mod python;
mod rows;
mod speedscope;

use std::path::{Path, PathBuf};
use std::process::Command;

use analyzer::{FunctionReport, Total};
use decoder::DecodeOptions;
use truth_tests::{Opened, fixture, pipeline};

/// Plain, recursive, with time off the CPU on two CPUs, with losses.
const CASES: [(&str, &str); 5] = [
    ("sq1", "sqlite3VdbeExec"),
    ("calls", "fact_rec"),
    ("calls-cpu2", "round_cc"),
    ("demo-cpu2-ovf", "round_fn"),
    ("demo-filter2", "mid"),
];

/// A recording, one of its functions, and the report on it.
struct Case {
    name: &'static str,
    data: PathBuf,
    symbol: &'static str,
    report: FunctionReport,
    directory: tempfile::TempDir,
}

impl Case {
    /// The file that `export` writes.
    fn export(&self, format: &str, more: &[&str]) -> PathBuf {
        let path = self.directory.path().join(format!("export.{format}"));
        let output = command()
            .arg("export")
            .arg("-i")
            .arg(&self.data)
            .args(["-f", self.symbol, "--format", format])
            .args(more)
            .arg("-o")
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        path
    }
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"))
}

fn cases() -> Vec<Case> {
    let case = |(name, symbol)| {
        let data = fixture(name)?.data;
        let file = pipeline::open(&data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let function = opened.function(symbol).unwrap();
        let report = opened.analyse(&[function], &DecodeOptions::default()).functions.remove(0);
        assert!(report.outermost.total.count > 0, "{name}");
        let directory = tempfile::tempdir().unwrap();
        Some(Case { name, data, symbol, report, directory })
    };
    CASES.into_iter().filter_map(case).collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn folded_sum(path: &Path) -> u64 {
    text(path).lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn folded_stacks_and_flame_graphs() {
    for case in cases() {
        let Total { sum_ns, .. } = case.report.outermost.total;
        assert_eq!(folded_sum(&case.export("folded", &[])), sum_ns, "{}", case.name);
        let on_cpu_ns = folded_sum(&case.export("folded", &["--weight", "cpu"]));
        assert_eq!(Some(on_cpu_ns), case.report.outermost.total.on_cpu_ns(), "{}", case.name);
        let svg = text(&case.export("flamegraph", &[]));
        let all = svg.split("<title>all (").nth(1).and_then(|all| all.split(' ').next()).unwrap();
        assert_eq!(all.replace(',', ""), sum_ns.to_string(), "{}", case.name);
    }
}

#[test]
fn all_of_a_recording() {
    let Some(fixture) = fixture("sq1") else { return };
    let directory = tempfile::tempdir().unwrap();
    let folded = directory.path().join("folded");
    let export = |more: &[&str]| {
        let command = command()
            .args(["export", "--format", "folded", "-i"])
            .arg(&fixture.data)
            .args(more)
            .arg("-o")
            .arg(&folded)
            .output();
        assert!(command.unwrap().status.success());
        text(&folded)
    };
    // `main` is there with all its time, whether it is asked for or found below what called it.
    let of = |stacks: &str, inside: &str| -> u64 {
        let lines = stacks.lines().filter(|line| line.split([';', ' ']).any(|frame| frame == inside));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let (whole, main) = (export(&[]), export(&["-f", "main"]));
    assert!(of(&main, "main") > 0);
    assert_eq!(of(&whole, "main"), of(&main, "main"));
    let svg = directory.path().join("flamegraph-cpu.svg");
    let report = command()
        .args(["report", "-F", "cpu", "-i"])
        .arg(&fixture.data)
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(report.status.success() && report.stdout.is_empty());
    assert!(text(&svg).contains("<title>main ("));
}
