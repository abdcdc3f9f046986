//! A call of a recording of three gigabytes is opened at once: neither the trace is searched for it nor the
//! file read. Its millions of calls are written as rows in bounded memory.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use analyzer::CallRow;
use decoder::DecodeOptions;
use func_latency::args::DecoderChoice;
use func_latency::one_call::{self, CallKey, CallPlace};
use tracegen::Options;
use truth_tests::{Opened, fixture, is_full_run, pipeline};

/// With so many rows SQLite's run is 3.1 GB of trace; its log takes 10 GB meanwhile.
const ROWS: &str = "920000";
const SYMBOL: &str = "sqlite3VdbeExec";

fn record(program: &Path, directory: &Path) {
    let plugin = tracegen::run::build_plugin(&tracegen::run::default_cache()).unwrap();
    let log = directory.join("log");
    let database = directory.join("database");
    tracegen::run::log(&plugin, &log, program.as_os_str(), &[database.into(), ROWS.into()]).unwrap();
    let options = Options::from_args(["--noretcomp"]).unwrap();
    // The truth would be twice as long as the recording.
    tracegen::encode(&log, &directory.join("big.data"), Path::new("/dev/null"), &options).unwrap();
    fs::remove_dir_all(log).unwrap();
}

/// Opens the call as the command does, from the file on; how long that took, and how many bytes were decoded.
fn open(data: &Path, row: &CallRow) -> (Duration, u64) {
    let start = Instant::now();
    let file = pipeline::open(data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let function = opened.function(SYMBOL).unwrap();
    let place = CallPlace {
        recording: &opened.recording,
        schedule: &opened.schedule,
        image: &opened.image,
        workers: 1,
        decoder: DecoderChoice::Own,
    };
    let call = one_call::open(place, function, &CallKey::of(row), 0).unwrap().unwrap();
    assert_eq!((call.row.latency_ns, call.attempts), (row.latency_ns, 1));
    (start.elapsed(), call.bytes)
}

/// Rows, of which there are 14 million.
const CALLED_OFTEN: &str = "getCellInfo";

/// What a report takes with these options: seconds, and KB of memory.
fn report(data: &Path, options: &[&OsStr]) -> (f64, u64) {
    let start = Instant::now();
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%M", env!("CARGO_BIN_EXE_func_latency_under_test")])
        .args(["report", "--format", "json", "-w", "2", "-f", CALLED_OFTEN, "-i"])
        .arg(data)
        .args(options)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    (start.elapsed().as_secs_f64(), errors.lines().last().unwrap().trim().parse().unwrap())
}

/// Rows as Parquet take as much time again as the report, at most, and less than 500 MB.
fn check_rows(data: &Path, directory: &Path) {
    let rows = directory.join("rows.parquet");
    let (without, _) = report(data, &[]);
    let (with, memory_kb) = report(data, &["--rows".as_ref(), rows.as_ref()]);
    let bytes = fs::metadata(&rows).unwrap().len();
    println!("rows: {with:.1} s, without {without:.1} s; {memory_kb} KB of memory; {bytes} bytes");
    // What is mapped of the recording counts as memory, too.
    let mapped_kb = fs::metadata(data).unwrap().len() / 1024;
    assert!(memory_kb.saturating_sub(mapped_kb) < 500_000, "{memory_kb} KB");
    assert!(with < 2.0 * without, "{with:.1} s with rows, {without:.1} s without");
}

#[test]
fn a_call_is_opened_in_well_under_a_second() {
    if !is_full_run() {
        println!("skipped: takes ten minutes and 14 GB of disk, which the full run has");
        return;
    }
    let Some(fixture) = fixture("sq1") else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    record(&fixture.data.with_file_name("bin").join("sqbench"), directory.path());
    let data = directory.path().join("big.data");
    assert!(fs::metadata(&data).unwrap().len() >= 3 << 30);
    check_rows(&data, directory.path());
    let rows = {
        let file = pipeline::open(&data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let options = DecodeOptions { workers: 2, ..DecodeOptions::default() };
        opened.analyse(&[opened.function(SYMBOL).unwrap()], &options).functions.remove(0).rows
    };
    // A call may itself be 70 MB long, and then takes longer to open.
    let rows: Vec<CallRow> = rows.into_iter().filter(|row| row.latency_ns < 100_000).collect();
    for at in [0, rows.len() / 2, rows.len() - 1] {
        // The fastest of some: what else the machine does is not measured.
        let (took, bytes) = (0..4).map(|_| open(&data, &rows[at])).min().unwrap();
        println!("call {} of {}: {took:?}, {bytes} bytes", at + 1, rows.len());
        assert!(took < Duration::from_secs(1), "{took:?}");
        let most = 4 * 4_500 + rows[at].latency_ns; // never more than a byte each nanosecond
        assert!(bytes <= most, "{bytes} bytes of {:?}", rows[at]);
    }
}
