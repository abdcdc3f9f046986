//! What a recorder leaves that was killed, or whose disk was full: a file that is decoded up to there. The
//! complete calls that it has are the first ones of the log.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use decoder::DecodeOptions;
use tracegen::truth::calls::Oracle;
use truth_tests::{Opened, pipeline};

use crate::log;
use crate::paths::Vm;

/// The trials that leave something.
pub(crate) const TRIALS: [&str; 2] = ["killed", "disk-full"];

/// What the target of these trials does.
const FUNCTIONS: [&str; 2] = ["hot", "handle"];

/// The name of the `number`-th file of a trial, and of its log: [`Vm::of_case`].
pub(crate) fn name(trial: &str, number: u32) -> String {
    format!("{trial}-{number}")
}

/// Checks all that a trial has left; says what that was.
pub(crate) fn check(vm: &Vm, trial: &str) -> Result<String> {
    let recordings = recordings(vm, trial)?;
    // The oracle has a reader of its own, for files that are whole: the last one is, and of the same process.
    let (_, whole) = recordings.last().context("nothing is left")?;
    let mut calls = 0;
    for (number, data) in &recordings {
        let name = name(trial, *number);
        calls += first_calls(vm, &name, data, whole).with_context(|| name)?;
    }
    let files = recordings.len();
    ensure!(calls > 0, "no call in {files} files");
    Ok(format!("{files} files with {calls} calls, the first ones of the log"))
}

/// By number.
fn recordings(vm: &Vm, trial: &str) -> Result<Vec<(u32, PathBuf)>> {
    let place = vm.of_run("");
    let mut found = Vec::new();
    for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix(trial).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".data"));
        if let Some(number) = rest.and_then(|number| number.parse().ok()) {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found)
}

/// How many complete calls a file has.
fn first_calls(vm: &Vm, name: &str, data: &Path, whole: &Path) -> Result<usize> {
    let file = pipeline::open(data)?;
    let opened = Opened::new(&file)?;
    let clock = opened.recording.clock.context("the recording has no clock")?;
    let truth = log::convert(&vm.of_case(name, "log"), clock, &vm.of_case(name, "truth"))?;
    let mut oracle = Oracle::new(&truth, whole)?;
    let ids = FUNCTIONS.iter().map(|function| opened.function(function)).collect::<Result<Vec<_>, _>>()?;
    let report = opened.analyse(&ids, &DecodeOptions::default());
    let mut calls = 0;
    let truth = oracle.calls_of_each(&FUNCTIONS)?;
    for ((function, found), truth) in FUNCTIONS.iter().zip(&report.functions).zip(&truth) {
        let mut logged = truth.rows.iter().filter(|row| row.status.is_whole());
        // They are those of one thread, in the order of their entries; but that of a recursion there is none.
        for row in found.rows.iter().filter(|row| row.end.status.counted()) {
            let is_it = logged.next().is_some_and(|logged| {
                row.id.tid == logged.tid && row.latency_ns.abs_diff(logged.latency_ns) <= row.error_ns
            });
            ensure!(is_it, "{function}: {row:?} is not the next call of the log");
            calls += 1;
        }
    }
    Ok(calls)
}
