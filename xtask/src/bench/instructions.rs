//! A guard against slow code that no timing in CI could be: how many instructions of ours `func_latency
//! report` runs on small recordings, counted by callgrind, against what it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::layout;
use crate::process::{self, Result};
use crate::stages::Outcome;

/// Recordings of every run of the tests, and the function that is reported on: much code, an IP filter, C++.
const RECORDINGS: [(&str, &str); 3] =
    [("sq1", "sqlite3VdbeExec"), ("sq1-filter2", "sqlite3BtreeInsert"), ("calls", "split_fn")];

/// The most that counters may cost: instructions of the report on the first recording with `--counters`, as a
/// multiple of those without. The aim is 1.15. This profile has 1.28, and another log of the same program
/// some percent more or less.
const COUNTERS_BOUND: f64 = 1.35;

/// A new compiler or other libraries in the recording change the counts by a few percent; what this is for
/// doubles them.
const BOUND: f64 = 1.25;

/// A baseline this much too high guards nothing.
const STALE: f64 = 0.75;

/// `RECORDING INSTRUCTIONS`: for each byte of the recording, because those are made anew on every machine.
const BASELINE: &str = "xtask/src/bench/instructions.txt";

/// Builds what [`run`] needs, as `cargo test` does.
pub(super) fn build() -> Result {
    let arguments = ["build", "--profile", "test", "--package", "func_latency", "--all-features", "--quiet"];
    process::run(cargo::command().args(arguments))
}

/// Counts in the program that the tests are of, and fails where there are many more than in [`BASELINE`];
/// `UPDATE_INSTRUCTIONS=1` writes that anew.
pub(crate) fn run() -> Result<Outcome> {
    if !process::on_path("valgrind") {
        return Ok(Outcome::Skipped("no valgrind here; cargo xtask setup installs it".to_owned()));
    }
    let now: Vec<(&str, f64)> = RECORDINGS
        .iter()
        .map(|(recording, function)| Ok((*recording, measure(recording, function, &[])?)))
        .collect::<Result<_>>()?;
    let [(recording, function), ..] = RECORDINGS;
    let counted = measure(recording, function, &["--counters"])?;
    let ratio = counted / now.first().map_or(f64::NAN, |(_, count)| *count);
    println!("instructions: {recording} with counters {ratio:.3} of those without");
    if ratio > COUNTERS_BOUND {
        return Err(format!("--counters takes {ratio:.3} times the instructions, not {COUNTERS_BOUND}"));
    }
    let file = layout::root().join(BASELINE);
    if std::env::var_os("UPDATE_INSTRUCTIONS").is_some() {
        let text: String = now.iter().map(|(recording, count)| format!("{recording} {count:.0}\n")).collect();
        fs::write(&file, text).map_err(|e| format!("{BASELINE}: {e}"))?;
        println!("instructions: wrote {BASELINE}");
        return Ok(Outcome::Done);
    }
    let text = fs::read_to_string(&file).map_err(|e| format!("{BASELINE}: {e}"))?;
    compare(&baseline(&text), &now).map(|()| Outcome::Done)
}

/// Instructions for each byte of a recording.
fn measure(recording: &str, function: &str, options: &[&str]) -> Result<f64> {
    let fixtures = std::env::var_os("FUNC_LATENCY_FIXTURES").map_or_else(layout::fixtures, PathBuf::from);
    let data = fixtures.join(format!("{recording}.data"));
    let bytes = fs::metadata(&data).map_err(|e| format!("{}: {e}", data.display()))?.len();
    let binary = layout::target().join("debug").join("func_latency");
    // callgrind names it so.
    let binary = binary.canonicalize().map_err(|e| format!("{}: {e}", binary.display()))?;
    let profile = layout::target().join(format!("callgrind-{recording}.out"));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind"]);
    valgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    valgrind.arg(&binary).args(["report", "-w", "1", "-f", function]).args(options).arg("-i").arg(&data);
    // One thread that loads objects does not wait for another one.
    valgrind.env("RAYON_NUM_THREADS", "1");
    process::capture(&mut valgrind)?;
    let text = fs::read_to_string(&profile).map_err(|e| format!("{}: {e}", profile.display()))?;
    let _ = fs::remove_file(&profile);
    match instructions_of(&text, &binary) {
        0 => Err(format!("callgrind's profile has nothing of {}", binary.display())),
        count => Ok(count as f64 / bytes as f64),
    }
}

/// What ran in the code of `binary` itself, by callgrind's profile: the C library and the loader are the
/// machine's.
///
/// ```text
/// ob=(1) /path/of/object     from here on; `ob=(1)` later
/// fn=(7) name
/// 12 340                     340 instructions at line 12
/// calls=1 0                  the next line is what the callee took
/// 12 5600
/// ```
fn instructions_of(profile: &str, binary: &Path) -> u64 {
    let mut ours = None;
    let mut is_ours = false;
    let mut is_callee = false;
    let mut sum: u64 = 0;
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            let (id, path) = object.split_once(' ').unwrap_or((object, ""));
            if Path::new(path) == binary {
                ours = Some(id);
            }
            if line.starts_with("ob=") {
                is_ours = ours == Some(id);
            }
        } else if line.starts_with("calls=") {
            is_callee = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            if is_ours && !is_callee {
                sum += cost;
            }
            is_callee = false;
        }
    }
    sum
}

/// Lines of a recording and a number.
fn baseline(text: &str) -> BTreeMap<&str, f64> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(recording, count)| Some((recording, count.parse().ok()?))).collect()
}

fn compare(baseline: &BTreeMap<&str, f64>, now: &[(&str, f64)]) -> Result {
    let mut bad = Vec::new();
    for (recording, count) in now {
        let Some(before) = baseline.get(recording) else {
            bad.push(format!("{recording} is not in {BASELINE}"));
            continue;
        };
        let ratio = count / before;
        println!("instructions: {recording} {count:.0} a byte, {ratio:.2} of the baseline");
        if ratio > BOUND {
            bad.push(format!("{recording} takes {ratio:.2} times the instructions that it took"));
        }
        if ratio < STALE {
            println!("instructions: that is better; UPDATE_INSTRUCTIONS=1 makes it the baseline");
        }
    }
    if bad.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nIf that must be, UPDATE_INSTRUCTIONS=1 cargo xtask bench --instructions",
        bad.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_code_is_counted() {
        let profile = "positions: line\nevents: Ir\n\nob=(1) /lib/ld.so\nfn=(1) start\n0 100\n\n\
            ob=(2) /target/debug/func_latency\nfn=(2) main\n3 20\n+1 5\ncob=(3) /lib/libc.so.6\ncfn=(3) memcpy\n\
            calls=1 0\n* 400\n* 7\n\nob=(3)\nfn=(3)\n9 400\n\nob=(2)\nfn=(4) run\n-2 1000\n\ntotals: 1532\n";
        assert_eq!(instructions_of(profile, Path::new("/target/debug/func_latency")), 20 + 5 + 7 + 1000);
        assert_eq!(instructions_of(profile, Path::new("/elsewhere")), 0);
    }

    #[test]
    fn more_is_an_error_and_less_is_not() {
        let known = baseline("a 100\nb 10\n");
        assert_eq!(compare(&known, &[("a", 124.0), ("b", 1.0)]), Ok(()));
        let error = compare(&known, &[("a", 126.0), ("c", 1.0)]).unwrap_err();
        assert!(
            error.starts_with("a takes 1.26 times the instructions that it took\nc is not in "),
            "{error}"
        );
    }

    #[test]
    fn the_baseline_has_all_recordings() {
        let text = include_str!("instructions.txt");
        let known = baseline(text);
        assert!(RECORDINGS.iter().all(|(recording, _)| known.contains_key(recording)), "{text}");
    }
}
