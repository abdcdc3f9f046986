//! Instructions of a program from entry to exit, against who else counts them: QEMU, and the processor.
//!
//! The ground truth is made from a log of blocks. QEMU's own count here is made by another plugin, in another
//! run of the same program. It counts a block's instructions when the block begins, and each round of a
//! repeated string instruction; so both agree but for a few of a thousand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use decoder::DecodeOptions;
use model::{EventSink, Pid, SpaceId, StretchCounters, Tid, TraceEvent};
use truth_tests::{Opened, fixture, pipeline};

const PLUGIN: &str = include_str!("instructions_of_a_program.c");
const INTERFACE: &str = include_str!("../../../crates/tracegen/plugin/qplug.h");

/// The counters at each thread's last event.
#[derive(Default)]
struct Last(BTreeMap<Tid, u64>);

impl EventSink for Last {
    fn events(&mut self, _: Pid, _: Tid, _: SpaceId, _: &[TraceEvent]) {}

    fn wants_counters(&self) -> bool {
        true
    }

    fn counted(&mut self, _: Pid, tid: Tid, _: SpaceId, _: &[TraceEvent], counters: StretchCounters<'_>) {
        self.0.extend(counters.iter().last().map(|last| (tid, last.executed.instructions)));
    }
}

/// What a recording says that all of its threads executed.
fn recorded(data: &Path) -> u64 {
    let file = pipeline::open(data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let mut last = Last::default();
    opened.decode(&DecodeOptions { workers: 2, ..DecodeOptions::default() }, &mut last);
    last.0.values().sum()
}

/// They differ by at most one in a thousand.
fn assert_agrees(ours: u64, theirs: u64, what: &str) {
    println!("{what}: {ours} instructions, and {theirs} by the other count");
    assert!(ours.abs_diff(theirs) * 1_000 <= theirs, "{what}: {ours}, not {theirs}");
}

/// The plugin; `None`: there is no emulator here, or no compiler.
fn plugin(directory: &Path) -> Option<PathBuf> {
    if Command::new("qemu-x86_64").arg("--version").output().is_err() {
        println!("skipped: qemu-x86_64 is not here (cargo xtask setup installs it)");
        return None;
    }
    std::fs::write(directory.join("icount.c"), PLUGIN).unwrap();
    std::fs::write(directory.join("qplug.h"), INTERFACE).unwrap();
    let built = directory.join("icount.so");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", "-o"]);
    let status = compile.arg(&built).arg(directory.join("icount.c")).status();
    let Ok(status) = status else {
        println!("skipped: there is no C compiler here");
        return None;
    };
    assert!(status.success());
    Some(built)
}

/// The number after a word on stderr.
fn number_after(Output { status, stderr, .. }: &Output, word: &str) -> u64 {
    let text = String::from_utf8_lossy(stderr);
    assert!(status.success(), "{text}");
    let number = text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    number.unwrap()
}

/// A program whose command line is its name alone.
fn program(data: &Path, name: &str) -> PathBuf {
    data.with_file_name("bin").join(name)
}

#[test]
fn qemu_counts_as_many_instructions() {
    let directory = tempfile::tempdir().unwrap();
    let Some(plugin) = plugin(directory.path()) else { return };
    for name in ["causes", "planted"] {
        let Some(fixture) = fixture(name) else { continue };
        let mut emulator = Command::new("qemu-x86_64");
        emulator.arg("-plugin").arg(&plugin).arg(program(&fixture.data, name));
        let theirs = number_after(&emulator.output().unwrap(), "instructions ");
        assert_agrees(recorded(&fixture.data), theirs, name);
    }
}

/// Where the processor counts instructions, and traces them.
#[test]
fn perf_stat_counts_as_many_instructions() {
    let Some(fixture) = fixture("causes") else { return };
    let program = program(&fixture.data, "causes");
    let mut perf = Command::new("perf");
    let Ok(stat) = perf.args(["stat", "-e", "instructions:u", "-x,"]).arg(&program).output() else {
        println!("skipped: perf is not here");
        return;
    };
    let text = String::from_utf8_lossy(&stat.stderr);
    let counted = text.lines().find(|line| line.contains("instructions:u"));
    let Some(theirs) = counted.and_then(|line| line.split(',').next()?.parse().ok()) else {
        println!("skipped: no counter of instructions here: {}", text.trim());
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let mut record = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    let output =
        record.args(["record", "-D"]).arg(directory.path()).arg("--").arg(&program).output().unwrap();
    if !output.status.success() {
        println!("skipped: no Intel PT here: {}", String::from_utf8_lossy(&output.stderr).trim());
        return;
    }
    assert_agrees(recorded(&directory.path().join("perf.data")), theirs, "causes");
}
