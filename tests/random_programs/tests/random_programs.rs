//! Random programs in random recordings, and the seeds that have shown something.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use random_programs::soak::{Runs, soak};
use truth_tests::{is_full_run, skip};

/// Programs of a quick run, and of a full one.
const PROGRAMS: (u64, u64) = (50, 2000);

fn seeds_that_showed_something() -> Vec<u64> {
    let words = include_str!("../seeds.txt").lines().filter_map(|line| line.split_whitespace().next());
    words.filter(|word| *word != "#").map(|word| word.parse().unwrap()).collect()
}

#[test]
fn every_transfer_and_every_call_is_right() {
    for tool in ["qemu-x86_64", "as", "ld"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return skip(&format!("no {tool} here: cargo xtask setup"));
        }
    }
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let out = target.join("random");
    let plugin = tracegen::run::build_plugin(&tracegen::run::default_cache()).unwrap();
    let mut seeds = seeds_that_showed_something();
    seeds.extend(1..=if is_full_run() { PROGRAMS.1 } else { PROGRAMS.0 });
    let runs = if is_full_run() { Runs::Timers } else { Runs::NoTimers };
    let totals = soak(&seeds, runs, &plugin, &out);
    for (seed, wrong) in &totals.wrong {
        println!(
            "seed {seed}, in {}/{seed}; again: cargo xtask random --programs 1 --seed {seed}\n{wrong}",
            out.display()
        );
    }
    println!("{totals}");
    assert!(totals.wrong.is_empty(), "{totals}");
}
