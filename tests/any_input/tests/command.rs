//! The corpus of `command`, on its own: the command works in a directory, which is one of the whole
//! process, and prints.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

#[test]
fn command() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/command");
    let mut inputs: Vec<_> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    let inputs: Vec<_> = inputs.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    assert!(inputs.len() >= 24, "{}", corpus.display());
    for (bytes, path) in inputs {
        println!("command: {}", path.display());
        any_input::command(&bytes);
    }
}
