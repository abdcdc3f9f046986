//! Regions that are timed by uprobes, held against what their program counts (`fixtures/programs/regions.c`).
//!
//! What needs root, or CAP_BPF and CAP_PERFMON, says that it is skipped without.

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod probing;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use probing::{compiled, not_permitted};
use serde_json::Value;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/programs/regions.c");

/// The program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    compiled(&PROGRAM, "regions", &["gcc", "-O2", "-g", "-lpthread"], SOURCE)
}

/// `file:line` of a comment of the source.
fn line(comment: &str) -> String {
    let source = std::fs::read_to_string(SOURCE).unwrap();
    format!("regions.c:{}", 1 + source.lines().position(|line| line.contains(comment)).unwrap())
}

fn probed(words: &[&str], rounds: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe"]).args(words).arg("--").arg(program()).arg(rounds);
    command.output().unwrap()
}

/// The rows of regions; `None`: probes are not permitted here.
fn rows(regions: &[String], rounds: &str) -> Option<Vec<Value>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rows.jsonl");
    let mut words = vec!["--check", "--rows", file.to_str().unwrap()];
    regions.iter().for_each(|region| words.extend(["--region", region]));
    let ended = probed(&words, rounds);
    let said = String::from_utf8(ended.stderr).unwrap();
    if ended.status.code() == Some(3) && not_permitted(&said) {
        return None;
    }
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let rows = std::fs::read_to_string(&file).unwrap();
    Some(rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// How many rows a region has of a status.
fn count(rows: &[Value], region: &str, status: &str) -> usize {
    rows.iter().filter(|row| row["function"] == region && row["status"] == status).count()
}

#[test]
fn regions_of_probes_and_lines_are_paired_by_their_frames() {
    let lines = format!("lines={}..{}", line("LINE: start"), line("LINE: end"));
    let regions = [
        "answer=usdt:db:query__start..usdt:db:query__done".to_owned(),
        // These overlap.
        "over=query..usdt:db:query__done".to_owned(),
        "parsed=usdt:db:query__start..send_result".to_owned(),
        "round=usdt:db:round..usdt:db:round".to_owned(),
        lines,
    ];
    let Some(rows) = rows(&regions, "300") else { return };
    // 300 and 150 rounds; each sixth query, from the fourth on, is left first.
    for region in ["answer", "over", "parsed"] {
        assert_eq!((count(&rows, region, "complete"), count(&rows, region, "cut")), (375, 75), "{region}");
    }
    // After the last one no probe is hit before the thread ends.
    assert_eq!((count(&rows, "round", "complete"), count(&rows, "round", "open_end")), (448, 2));
    assert_eq!(count(&rows, "lines", "complete"), 450);
    assert_eq!(rows.len(), 5 * 450);
    // The caller of what begins in the middle of a function is that function.
    let of = |region: &str| rows.iter().find(|row| row["function"] == region).unwrap()["caller"].clone();
    assert_eq!(["answer", "over", "round"].map(of), ["query", "server", "server"]);
    // A period ends where the next begins.
    let mut rounds: Vec<&Value> = rows.iter().filter(|row| row["function"] == "round").collect();
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    rounds.sort_by_key(|row| (number(row, "tid"), number(row, "start_ns")));
    for (row, next) in rounds.iter().zip(&rounds[1..]).filter(|(row, next)| row["tid"] == next["tid"]) {
        assert!(
            number(row, "start_ns") + number(row, "latency_ns") <= number(next, "start_ns"),
            "{row} {next}"
        );
    }
}

#[test]
fn what_cannot_be_probed_is_refused() {
    let said = |words: &[&str]| {
        let ended = probed(words, "1");
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let (code, text) = said(&["--region", "a=query..server", "-f", "query"]);
    assert!(code == Some(2) && text.contains("-f and --region at once need Intel PT"), "{text}");
    let (code, text) = said(&["--region", "a=query+1..query"]);
    assert!(code == Some(3) && text.contains("a cannot be probed: no instruction begins at"), "{text}");
}
