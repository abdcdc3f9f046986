//! The same events, the same report and the same output for every number of workers.

use std::path::Path;
use std::process::Command;

use decoder::DecodeOptions;
use model::{EventSink, Pid, SpaceId, Tid, TraceEvent};
use truth_tests::{Opened, fixture, pipeline};

const WORKERS: [usize; 4] = [1, 2, 3, 8];

const RECORDINGS: [(&str, &str); 8] = [
    ("demo-kernel-cpu2", "round_fn"),
    ("demo-offcpu", "worker"),
    ("demo", "round_fn"),
    ("demo-cpu2-ovf", "leaf"),
    ("demo-filter2", "mid"),
    ("calls-cpu8", "round_cc"),
    ("sq1", "sqlite3VdbeExec"),
    ("case-recursion-ovf", "deep"),
];

#[derive(Default, PartialEq)]
struct All(Vec<(Pid, Tid, SpaceId, TraceEvent)>);

impl EventSink for All {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.0.extend(events.iter().map(|event| (pid, tid, space, *event)));
    }
}

#[test]
fn events() {
    for (name, _) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let kernel = fixture.kernels().pop().unwrap_or_default();
        let opened = Opened::with_kernel(&file, &kernel).unwrap();
        let decode = |workers| {
            let mut all = All::default();
            let options = DecodeOptions { workers, segment_bytes: 50_000, ..DecodeOptions::default() };
            let stats = opened.decode(&options, &mut all);
            (all, stats)
        };
        let (one, stats) = decode(1);
        assert!(!one.0.is_empty());
        for workers in WORKERS {
            let (all, its_stats) = decode(workers);
            assert_eq!(all.0.len(), one.0.len(), "{name} with {workers} workers");
            assert!(all == one, "{name} with {workers} workers");
            assert_eq!(its_stats, stats, "{name} with {workers} workers");
        }
    }
}

/// What the command prints, and its rows.
fn report(data: &Path, function: &str, workers: usize) -> (String, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let rows = directory.path().join("rows.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"))
        .args(["report", "--check", "--format", "json", "-f", function, "-w", &workers.to_string(), "-i"])
        .arg(data)
        .arg("--rows")
        .arg(&rows)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", data.display());
    let json = String::from_utf8(output.stdout).unwrap();
    (json, std::fs::read(rows).unwrap())
}

/// The report says how many workers there were, and nothing else differs.
fn without_workers(json: &str, workers: usize) -> String {
    json.replace(&format!("\"workers\":{workers},"), "").replace(&format!("\"workers\": {workers},"), "")
}

#[test]
fn output() {
    for (name, function) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let (json, rows) = report(&fixture.data, function, 1);
        assert!(!rows.is_empty(), "{name}");
        for workers in WORKERS {
            let (its_json, its_rows) = report(&fixture.data, function, workers);
            assert_eq!(
                without_workers(&its_json, workers),
                without_workers(&json, 1),
                "{name}, {workers} workers"
            );
            assert!(its_rows == rows, "rows of {name} with {workers} workers");
        }
    }
}
