//! What commands print of a small recording, as files that can be read: `tests/goldens/printed`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod golden;
mod program;

use std::path::Path;

use golden::check_golden;
use program::{BUILD_ID, check, write};

/// A golden, and what prints it.
const PRINTED: [(&str, &[&str]); 13] = [
    ("show.txt", &["show", "77-0", "-f", "outer"]),
    ("show-depth.txt", &["show", "77-0", "-f", "outer", "--depth", "0"]),
    ("show.json", &["show", "77-0", "-f", "outer", "--format", "json"]),
    ("graph.txt", &["graph", "-f", "outer"]),
    ("graph-callee.txt", &["graph", "--callee"]),
    ("dump-packets.txt", &["dump", "--packets"]),
    ("dump-branches.txt", &["dump", "--branches"]),
    ("dump-sideband.txt", &["dump", "--sideband"]),
    ("export-folded.txt", &["export", "--format", "folded", "-f", "f", "-o", "/dev/stdout"]),
    ("export-flamegraph.svg", &["export", "--format", "flamegraph", "-f", "f", "-o", "/dev/stdout"]),
    ("export-firefox.json", &["export", "--format", "firefox", "-f", "f", "-o", "/dev/stdout"]),
    ("export-csv.csv", &["export", "--format", "csv", "-f", "f", "-o", "/dev/stdout"]),
    ("export-jsonl.jsonl", &["export", "--format", "jsonl", "-f", "f", "-o", "/dev/stdout"]),
];

#[test]
fn what_is_printed_of_a_small_recording() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("printed");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    write(&directory, &BUILD_ID);
    for (name, words) in PRINTED {
        let (stdout, stderr) = check(&directory, words, 0);
        let mut printed = format!("{stdout}{stderr}").replace(directory.to_str().unwrap(), "DIR");
        if words.contains(&"--sideband") {
            printed = printed.lines().map(without_place).collect();
        }
        check_golden(&format!("printed/{name}"), printed.as_bytes());
    }
}

/// A line without offset and size of its record, which the length of the directory's path moves.
fn without_place(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').skip(2).collect();
    format!("{}\n", words.join(" "))
}
