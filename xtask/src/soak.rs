//! `soak`: the small programs run anew, recorded in every way of the matrix with other dice, and decoded
//! against the truth, until something differs. What differs stays in `target/soak`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::cargo;
use crate::fixtures::{self, Recording};
use crate::layout;
use crate::process::{self, Result};
use crate::stages::seconds;

/// Runs that take a second each under the emulator, and their command line after the program.
const RUNS: [(&str, &str); 2] = [("demo", "300"), ("calls", "120")];

/// The modules of the tests on recordings that hold them against the truth.
const TESTS: [&str; 2] = ["decode_matches_truth", "rows_match_oracle"];

/// `soak [--rounds N]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let rounds: u64 = match arguments {
        [] => 1,
        ["--rounds", count] => count.parse().map_err(|_| "soak: --rounds needs a number".to_owned())?,
        _ => return Err("soak [--rounds N]".to_owned()),
    };
    let matrix = fixtures::matrix()?;
    let is_small = |recording: &Recording| RUNS.iter().any(|(log, _)| *log == recording.log);
    let recordings: Vec<Recording> = fixtures::recordings(&matrix)?.into_iter().filter(is_small).collect();
    // The programs, and the generator.
    fixtures::run(&RUNS.map(|(log, _)| log))?;
    let dir = layout::target().join("soak");
    let first_seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    for seed in first_seed..first_seed + rounds {
        let start = Instant::now();
        round(&dir, &recordings, seed)
            .map_err(|e| format!("{e}\nsoak: seed {seed}, in {}", dir.display()))?;
        println!("soak: seed {seed}: {} recordings agree, {}", recordings.len(), seconds(start.elapsed()));
    }
    Ok(())
}

fn round(dir: &Path, recordings: &[Recording], seed: u64) -> Result {
    let logs = dir.join("logs");
    fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    let tracegen = layout::target().join("release").join("tracegen");
    for (log, argument) in RUNS {
        let program = layout::fixtures().join("bin").join(log);
        process::capture(
            Command::new(&tracegen).arg("log").arg(logs.join(log)).arg("--").arg(program).arg(argument),
        )?;
    }
    for recording in recordings {
        let [data, truth] = ["data", "truth"].map(|end| dir.join(format!("{}.{end}", recording.name)));
        let mut encode = Command::new(&tracegen);
        encode.arg("encode").arg(logs.join(recording.log)).arg(data).arg(truth).args(&recording.options);
        process::capture(encode.arg(format!("--seed={seed}")))?;
    }
    let test = |arguments: &[&str]| {
        let mut test = cargo::command();
        test.args(["test", "--quiet", "--package", "truth_tests", "--test", "recordings", "--", "--exact"]);
        test.args(TESTS.iter().flat_map(|test| RUNS.map(|(log, _)| format!("{test}::{log}"))));
        test.args(arguments).env("FUNC_LATENCY_FIXTURES", dir);
        test
    };
    // A test that is not there passes.
    let found =
        process::capture(&mut test(&["--list"]))?.lines().filter(|line| line.ends_with(": test")).count();
    if found != TESTS.len() * RUNS.len() {
        return Err(format!("soak: {found} of {} tests are there", TESTS.len() * RUNS.len()));
    }
    process::run(&mut test(&[]))
}
