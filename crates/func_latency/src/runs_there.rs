//! Runs that were made before: recordings, files of rows, and directories of these.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use analyzer::ledger::{Compared, LeftOut};
use analyzer::{FunctionReport, Request};
use anyhow::{Context, Result};

use crate::args::CallsArgs;
use crate::calls;
use crate::config::{CallsConfig, NO_FUNCTION};
use crate::exit::{Exit, failure, wrong_choice};
use crate::render::Names;
use crate::render::image_names::ImageNames;
use crate::render::rows::{RowsFile, rows_file};
use crate::render::runs::{FunctionRuns, Run};
use crate::render::units::counted;
use crate::{messages, row_calls};

/// Whether a path is a file of rows or a directory of runs, and not a single recording.
pub(crate) fn holds_runs(path: &Path) -> bool {
    is_rows_file(path) || path.is_dir() && !is_recording_directory(path)
}

fn is_rows_file(path: &Path) -> bool {
    ["jsonl", "csv"].map(OsStr::new).map(Some).contains(&path.extension())
}

fn is_recording_directory(path: &Path) -> bool {
    path.join("data").exists()
}

/// Whether an entry of a directory of runs is a recording.
fn is_recording(path: &Path) -> bool {
    path.is_file() && path.extension() == Some(OsStr::new("data")) || is_recording_directory(path)
}

/// The runs of each function that was asked for, or of each that was called: a directory has a run in each of
/// its files of rows, or else in each of its recordings; any other path is a run. `command` is what they are
/// for.
///
/// # Errors
/// One cannot be read, or does not have the function.
pub(crate) fn read(paths: &[PathBuf], calls: &CallsArgs, command: &str) -> Result<Vec<FunctionRuns>> {
    let mut found: Vec<FunctionRuns> = Vec::new();
    let files = files(paths)?;
    each_once(&files)?;
    for path in &files {
        let of_file = if is_rows_file(path) {
            row_calls::read(&rows_of(path)?)?
        } else {
            of_recording(path, calls, command)?
        };
        for (function, run) in of_file {
            let known = found.iter_mut().find(|known| known.function == function);
            let is_seen = !run.calls.latencies_ns.is_empty();
            let runs: Vec<Run> = is_seen.then_some(run).into_iter().collect();
            match known {
                Some(known) => known.runs.extend(runs),
                None => found.push(FunctionRuns { function, runs }),
            }
        }
    }
    let (whole, rest): (Vec<_>, Vec<_>) = chosen(found, &calls.functions, &files)?
        .into_iter()
        .partition(|function| function.runs.len() == files.len());
    let of = |FunctionRuns { function, runs }: &FunctionRuns| {
        let all = counted(files.len() as u64, "run");
        format!("{function}: a call was seen from entry to end in {} of {all} only", runs.len())
    };
    match (whole.as_slice(), rest.first()) {
        ([], Some(missing)) => Err(failure(Exit::Nothing, of(missing))),
        _ => {
            rest.iter().for_each(|missing| messages::note(format!("{}; it is left out", of(missing))));
            Ok(whole)
        }
    }
}

/// A run that counted twice would narrow the intervals.
fn each_once(files: &[PathBuf]) -> Result<()> {
    let mut known = BTreeSet::new();
    let same = |path: &PathBuf| fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    match files.iter().find(|path| !known.insert(same(path))) {
        Some(path) => {
            Err(failure(Exit::Usage, format!("{} is given twice, and a run counts once", path.display())))
        }
        None => Ok(()),
    }
}

/// The only function that there are runs of, for a `command` that takes one.
///
/// # Errors
/// There are more.
pub(crate) fn one(command: &str, mut functions: Vec<FunctionRuns>) -> Result<FunctionRuns> {
    match (functions.pop(), functions.as_slice()) {
        (Some(one), []) => Ok(one),
        (last, others) => {
            let names = others.iter().chain(&last).map(|runs| runs.function.clone()).collect();
            Err(wrong_choice(format!("{command} takes one function: name it with -f"), names))
        }
    }
}

/// A file of rows.
///
/// # Errors
/// Its name does not say in which form they are.
pub(crate) fn rows_of(path: &Path) -> Result<RowsFile> {
    rows_file(path.to_owned())
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() || is_recording_directory(path) {
            files.push(path.clone());
            continue;
        }
        let context = || format!("cannot read {}", path.display());
        let entries = fs::read_dir(path).with_context(context)?.collect::<Result<Vec<_>, _>>();
        let entries = entries.with_context(context)?.into_iter().map(|entry| entry.path());
        let (mut of_directory, others): (Vec<PathBuf>, Vec<PathBuf>) =
            entries.partition(|path| is_rows_file(path));
        // Rows beside recordings are theirs: each run counts once.
        if of_directory.is_empty() {
            of_directory.extend(others.into_iter().filter(|path| is_recording(path)));
        }
        of_directory.sort();
        if of_directory.is_empty() {
            let path = path.display();
            let message = format!("{path}: no runs: no .jsonl or .csv, as --save writes them, and no .data");
            return Err(failure(Exit::BadInput, message));
        }
        files.extend(of_directory);
    }
    Ok(files)
}

/// The functions that were asked for, by the whole name or the part before its arguments; all, if none was.
fn chosen(found: Vec<FunctionRuns>, asked: &[String], files: &[PathBuf]) -> Result<Vec<FunctionRuns>> {
    let matches = |name: &str, text: &String| {
        name == text || name.strip_prefix(text.as_str()).is_some_and(|rest| rest.starts_with('('))
    };
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let files = messages::list(&files);
    if found.is_empty() {
        return Err(failure(Exit::Nothing, format!("{files}: no call of any function was seen")));
    }
    if let Some(text) = asked.iter().find(|text| !found.iter().any(|runs| matches(&runs.function, text))) {
        let names = found.into_iter().map(|runs| runs.function).collect();
        return Err(wrong_choice(format!("no call of '{text}' is in {files}.  There are calls of:"), names));
    }
    let is_asked =
        |runs: &FunctionRuns| asked.is_empty() || asked.iter().any(|text| matches(&runs.function, text));
    Ok(found.into_iter().filter(is_asked).collect())
}

/// The calls of each function of `-f` in a recording.
fn of_recording(path: &Path, args: &CallsArgs, command: &str) -> Result<Vec<(String, Run)>> {
    if args.names_nothing() {
        return Err(failure(Exit::Usage, NO_FUNCTION));
    }
    let config = CallsConfig::new(path.to_owned(), args.clone())?;
    calls::open(&config, Some(command), |opened| {
        let report = opened.report(&Request { rows: true, ..opened.request()? })?;
        let names = ImageNames::new(opened.image, false);
        let functions = opened.wanted.iter().zip(&report.functions);
        let named = |wanted: &crate::target::Wanted| names.function(wanted.function.id);
        Ok(functions.map(|(wanted, report)| (named(wanted), run(&config, report))).collect())
    })
}

fn run(config: &CallsConfig, report: &FunctionReport) -> Run {
    let mut left_out = LeftOut::default();
    let mut rows: Vec<_> =
        report.rows.iter().filter(|row| left_out.compares_status(row.end.status)).collect();
    rows.sort_unstable_by_key(|row| (row.start_ns, row.id));
    let calls: Vec<(u64, u64)> = rows.iter().map(|row| (row.latency_ns, row.error_ns)).collect();
    Run {
        name: config.input.display().to_string(),
        calls: Compared::of(&calls, left_out),
        off_cpu_sum_ns: rows.iter().map(|row| row.off_cpu_ns).sum(),
    }
}
