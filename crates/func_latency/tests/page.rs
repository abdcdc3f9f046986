//! `--html` from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::path::{Path, PathBuf};
use std::process::Command;

fn check(directory: &Path, words: &[&str], code: i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    let output = command.args(words).current_dir(directory).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn recorded(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page").join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    program::write(&directory, &program::BUILD_ID);
    directory
}

/// The page has both calls, and is the same for every number of workers.
#[test]
fn a_page_of_both_calls() {
    let directory = recorded("page");
    let page = |workers: &str| {
        check(&directory, &["report", "-f", "f", "--html", "calls.html", "--check", "-w", workers], 0);
        std::fs::read_to_string(directory.join("calls.html")).unwrap()
    };
    let one = page("1");
    assert!(one.contains("\"name\":\"f\"") && one.contains("\"calls\":2") && one.contains("id=\"calls-0\""));
    assert!(one.starts_with("<!DOCTYPE html>") && one.ends_with("</html>\n"));
    assert_eq!(one, page("4"));
    check(&directory, &["report", "-f", "f", "--html", "no/such/dir/calls.html"], 3);
}

/// One pass over the recording is for both.
#[test]
fn a_page_changes_nothing_of_a_flame_graph() {
    let directory = recorded("flame-graph");
    let flame_graph = || std::fs::read_to_string(directory.join("flamegraph-latency.svg")).unwrap();
    check(&directory, &["report", "-f", "f", "-F", "latency"], 0);
    let alone = flame_graph();
    check(&directory, &["report", "-f", "f", "-F", "latency", "--html", "both.html"], 0);
    assert_eq!(flame_graph(), alone);
    check(&directory, &["report", "-f", "f", "--html", "page.html"], 0);
    let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(page("both.html"), page("page.html"));
}
