//! The command with any values of its options, on any recording and any file of rows.
//!
//! ```text
//! command line (of COMMANDS), values of its options, rows, recording
//! ```
//! Files are in a directory of the thread's own, and the command works there.

use std::ffi::OsString;
use std::path::Path;

use func_latency::exit::Exit;

use crate::input::Input;
use crate::{program, scratch};

/// Options that take a value; only one of a list is given, so that a value never names a file or a program.
const VALUES: [&str; 14] = [
    "-f",
    "-a",
    "--li",
    "--ti",
    "--tu",
    "--slow",
    "--percent-limit",
    "--max-loss",
    "-T",
    "-w",
    "-I",
    "-p",
    "--depth",
    "--weight",
];

/// What it is asked, on `any.data`.
const COMMANDS: [&[&str]; 32] = [
    &["report", "-i", "any.data", "--check"],
    &["report", "-i", "any.data", "--check", "--format", "json"],
    &["report", "-i", "any.data", "--check", "-l"],
    &["report", "-i", "any.data", "--html", "page.html"],
    &["report", "-i", "any.data", "--rows", "out.csv"],
    &["report", "-i", "any.data", "--rows", "out.jsonl"],
    &["report", "-i", "any.data", "-U", "--srcline"],
    &["report", "-i", "any.data", "-F", "latency"],
    &["report", "-i", "any.data", "--explain"],
    &["graph", "-i", "any.data"],
    &["graph", "-i", "any.data", "--callee", "--fractal"],
    &["export", "-i", "any.data", "-o", "out", "--format", "folded"],
    &["export", "-i", "any.data", "-o", "out", "--format", "flamegraph"],
    &["export", "-i", "any.data", "-o", "out", "--format", "pprof"],
    &["export", "-i", "any.data", "-o", "out", "--format", "firefox"],
    &["export", "-i", "any.data", "-o", "out", "--format", "perfetto"],
    &["explain", "-i", "any.data"],
    &["modes", "-i", "any.data"],
    &["diff", "any.data", "any.data"],
    &["show", "1-0", "-i", "any.data", "--rows", "rows.csv"],
    &["show", "1-0", "-i", "any.data", "--rows", "rows.jsonl"],
    &["dump", "-i", "any.data", "--branches"],
    &["dump", "-i", "any.data", "--sideband"],
    &["bundle", "-i", "any.data", "-o", "there"],
    &["top", "-i", "any.data"],
    &["top", "-i", "any.data", "--by", "calls", "--format", "json"],
    &["report", "-i", "any.data", "--min-share", "5"],
    &["diff", "rows.csv", "rows.jsonl"],
    &["stat", "rows.csv", "rows.jsonl"],
    &["export", "-i", "any.data", "-o", "tables/", "--format", "parquet"],
    &["report", "-i", "any.data", "--summary", "out.json"],
    &["merge", "rows.csv"],
];

/// It ends with an exit code, and not with that of a report that contradicts itself.
///
/// # Panics
/// If it does.
pub fn command(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let command = COMMANDS[usize::from(input.byte()) % COMMANDS.len()];
    let mut words: Vec<OsString> = ["func_latency"].iter().chain(command).map(OsString::from).collect();
    let takes_symfs = !command.contains(&"--sideband") && !command.contains(&"merge");
    words.extend(takes_symfs.then(symfs).into_iter().flatten());
    for _ in 0..input.byte() % 4 {
        words.push(value(VALUES[usize::from(input.byte()) % VALUES.len()], &input.text()));
    }
    let rows = input.block();
    scratch::file("rows.csv", rows);
    scratch::file("rows.jsonl", rows);
    scratch::file("any.data", input.rest());
    let _ = std::fs::remove_dir_all(scratch::directory().join("there"));
    let before = std::env::current_dir().unwrap();
    std::env::set_current_dir(scratch::directory()).unwrap();
    let exit = func_latency::run_words(&words);
    std::env::set_current_dir(before).unwrap();
    assert_ne!(exit, Exit::Inconsistent, "{words:?}");
}

/// An option and its value in one word, so that the value is no option.
fn value(option: &str, value: &str) -> OsString {
    let separator = if option.starts_with("--") { "=" } else { "" };
    // The end of a C string ends an argument.
    format!("{option}{separator}{}", value.replace('\0', "")).into()
}

/// Only the program of the corpora is found, whatever the recording names.
fn symfs() -> [OsString; 2] {
    let directory = Path::new(&program::directory()).canonicalize().unwrap();
    ["--symfs".into(), directory.into()]
}
