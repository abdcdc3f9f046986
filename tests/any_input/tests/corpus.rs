//! The corpora of the fuzz targets, and what fuzzing has found, through the checks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use any_input::{CHECKS, mutate_stream};

/// Names and contents of a corpus, by name.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap())
    };
    let mut inputs: Vec<_> = fs::read_dir(&directory).unwrap().map(read).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{}", directory.display());
    inputs
}

fn run(name: &str) {
    let check = CHECKS.iter().find(|check| check.name == name).unwrap();
    for (input, bytes) in corpus(name) {
        println!("{name}: {input}");
        (check.run)(&bytes);
    }
}

#[test]
fn packets() {
    run("packets");
}

#[test]
fn flow() {
    run("flow");
}

#[test]
fn perfdata() {
    run("perfdata");
}

#[test]
fn elf() {
    run("elf");
}

#[test]
fn lines() {
    run("lines");
}

#[test]
fn files() {
    run("files");
}

#[test]
fn parts() {
    run("parts");
}

#[test]
fn wires() {
    run("wires");
}

fn is_full_run() -> bool {
    std::env::var_os("FUNC_LATENCY_FULL").is_some_and(|v| v != "0" && !v.is_empty())
}

#[test]
fn mutated_parts() {
    let seeds = corpus("parts");
    let rounds = if is_full_run() { 50_000 } else { 1000 };
    for seed in 0..rounds {
        let (_, parts) = &seeds[seed % seeds.len()];
        let mut changed = parts.clone();
        // Any multiplier will do that spreads the places over the input.
        for step in 1..=1 + seed % 4 {
            let place = (seed * step).wrapping_mul(0x9e37_79b9) >> 8;
            let at = place % changed.len();
            changed[at] ^= 1 << (place % 8) as u8;
        }
        any_input::parts(&changed);
    }
}

#[test]
fn mutated_streams() {
    let seeds = corpus("flow");
    let rounds = if is_full_run() { 10_000 } else { 500 };
    for seed in 0..rounds {
        let (_, stream) = &seeds[seed as usize % seeds.len()];
        let mut changed = stream.clone();
        changed.resize(stream.len() + 64, 0);
        let mut size = stream.len();
        for step in 0..3 {
            size = mutate_stream(&mut changed, size, stream.len() + 64, seed << 2 | step);
        }
        any_input::flow(&changed[..size]);
    }
}
