//! The binary from outside: exit codes, where output goes, what errors say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_func_latency")).args(words).output().unwrap()
}

/// Runs it, and holds the exit code and a part of stderr; stdout must be empty.
fn check_failure(words: &[&str], code: i32, says: &str) {
    let output = run(words);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    assert!(stderr.contains(says), "{words:?} says: {stderr}");
    assert!(output.stdout.is_empty(), "{words:?} prints to stdout");
}

/// A directory of its own for each test.
fn scratch(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn file(directory: &Path, name: &str, bytes: &[u8]) -> String {
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

const REAL_RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/recordings/intel_pt-4.14.data");

/// TSC ticks were printed as if they were ns.
#[test]
fn a_trace_without_a_clock_has_no_times() {
    let directory = scratch("without_clock");
    let mut bytes = std::fs::read(REAL_RECORDING).unwrap();
    let words = [1u32, 0, 6, 0, 31, 0]; // AUXTRACE_INFO: Intel PT, PMU type, time_shift
    let start: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let info = bytes.windows(start.len()).position(|window| window == start).unwrap();
    let word = |index: usize| info + 8 + 8 * index;
    let (cap_user_time_zero, tsc_bit) = (word(4), word(5));
    let whole = file(&directory, "whole.data", &bytes);
    bytes[tsc_bit..][..8].fill(0);
    let tsc_0 = file(&directory, "tsc_0.data", &bytes);
    bytes[tsc_bit..][..8].copy_from_slice(&0x400u64.to_le_bytes());
    bytes[cap_user_time_zero] = 0;
    bytes[info - 8 - 24..info - 8].fill(0); // the TIME_CONV before it
    let no_clock = file(&directory, "no_clock.data", &bytes);
    for (path, says) in [(&tsc_0, "tsc=0"), (&no_clock, "cap_user_time_zero")] {
        check_failure(&["report", path, "-f", "main", "-l"], 4, says);
        let branches = run(&["dump", "--branches", path]);
        let lines = String::from_utf8(branches.stdout).unwrap();
        assert_eq!(branches.status.code(), Some(0));
        assert!(lines.lines().count() > 0 && lines.lines().all(|line| line.contains(" - ~- ")), "{lines}");
        assert_eq!(run(&["dump", "--packets", path]).stdout, run(&["dump", "--packets", &whole]).stdout);
    }
    assert_eq!(run(&["dump", "--branches", &whole]).status.code(), Some(0));
}

/// They were decoded to gaps.
#[test]
fn a_trace_without_branches_is_refused() {
    const CONFIG: u64 = 0x300_e601;
    let directory = scratch("without_branches");
    let mut bytes = std::fs::read(REAL_RECORDING).unwrap();
    let config = bytes.windows(8).position(|window| window == CONFIG.to_le_bytes()).unwrap();
    for (name, changed) in [("branch_0.data", CONFIG & !(1 << 13)), ("notnt.data", CONFIG | 1 << 55)] {
        bytes[config..][..8].copy_from_slice(&changed.to_le_bytes());
        check_failure(&["report", &file(&directory, name, &bytes), "-f", "main"], 4, "branch=0");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    for (words, says) in [
        (&["--help"][..], "report"),
        (&["report", "--help"], "--max-loss"),
        (&["dump", "--help"], "--sideband"),
        (&["--version"], "func_latency "),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains(says), "{words:?}");
        assert!(output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn wrong_usage_is_2() {
    check_failure(&["report", "x.data", "-l"], 2, "-f FUNC");
    check_failure(&["report", "x.data"], 4, "cannot open x.data"); // it lists functions
    check_failure(&["report", "x.data", "-f", "f", "--no-such-option"], 2, "--no-such-option");
    check_failure(&["report", "x.data", "-f", "f", "--rows", "calls.txt"], 2, ".jsonl or .csv");
    check_failure(&["report", "x.data", "-f", "f", "-T", "5-3"], 2, "empty range");
    check_failure(&["report", "x.data", "-f", "f", "--ti", "1,2"], 2, "start,min,max");
    check_failure(&["report", "x.data", "-f", "f", "-w", "0"], 2, "-w");
    check_failure(&["dump", "x.data"], 2, "--packets");
    for command in ["report", "show", "top"] {
        check_failure(&[command, "-i", "x.data", "--top", "0"], 2, "0 is not in 1..");
    }
    check_failure(
        &["export", "x.data", "--format", "perfetto", "-o", "o", "--top", "0"],
        2,
        "0 is not in 1..",
    );
    // It blamed --counters, which nothing had named.
    let part = ["report", "x.data", "-f", "f", "--part", "1/2", "--part-out", "o", "--by", "ipc"];
    check_failure(&part, 2, "error: --by is of a whole recording");
    check_failure(&["-f", "f", "-p", "1", "--history", "0"], 2, "0 is not in 1..=2");
}

#[test]
fn recording_needs_to_know_whom_and_what() {
    check_failure(&[], 2, "-f FUNC");
    check_failure(&["-f", "f"], 2, "-p PID, -T TID, -C CPUS, or -- CMD");
    check_failure(&["watch", "-f", "f"], 2, "whom to trace? -p PID, -T TID, or -- CMD\n"); // it has no -C
    check_failure(&["-f", "f", "-C", "0", "-i"], 2, "-p or -T");
    check_failure(&["-f", "f", "-p", "1", "-d", "0"], 2, "-d 0");
    check_failure(&["record", "-p", "1", "-m", "1T"], 2, "--aux_size");
    for (percent, says) in [("nan", "NaN"), ("-1", "-1"), ("inf", "inf")] {
        let option = format!("--max-overhead={percent}");
        let says = format!("--max-overhead {says}: not a number of percent from 0 on");
        check_failure(&["-f", "f", "-p", "1", &option], 2, &says);
    }
}

/// "run 1 of 10" stood before the error.
#[test]
fn runs_are_not_begun_where_nothing_is_named() {
    let stderr = String::from_utf8(run(&["stat", "-f", "f"]).stderr).unwrap();
    assert!(stderr.starts_with("func_latency: error: whom to trace?"), "{stderr}");
}

/// With `-d`, `-s`, `-t` and all that PT_PERF's users have in their scripts.
#[test]
fn without_a_trace_unit_nothing_is_recorded() {
    if Path::new("/sys/bus/event_source/devices/intel_pt").exists() {
        println!("skipped: this machine has Intel PT");
        return;
    }
    let own = std::process::id().to_string();
    let pt = ["-f", "main", "-d", "1", "-s", "-p", &own, "-o", "-i", "-t", "--backend", "pt"];
    check_failure(&pt, 3, "func_latency doctor");
    let directory = scratch("without-a-trace-unit");
    let name = directory.to_str().unwrap();
    check_failure(&["-d", "1", "-p", &own, "-t", "-D", name, "--history=1"], 3, "no Intel PT");
    #[cfg(feature = "bpf")]
    for words in
        [&["record", "-p", &own, "-D", name][..], &["--preview", "-f", "main", "-p", &own, "-D", name]]
    {
        check_failure(words, 3, "`func_latency -f FUNC -p PID` times calls by uprobes");
    }
    #[cfg(feature = "bpf")]
    check_failure(&["-f", "main", "-F", "cpu", "-d", "1", "-p", &own, "-D", name], 3, "-F needs Intel PT");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "a file is left behind");
}

#[test]
fn the_doctor_says_what_there_is() {
    let output = run(&["doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for what in ["processor", "kernel driver", "permission", "locked memory", "container"] {
        assert!(text.lines().any(|line| line.contains(&format!(" {what}: "))), "{what}: {text}");
    }
    let can_do_nothing = text.starts_with("does not work here; ");
    assert_eq!(output.status.code(), Some(if can_do_nothing { 3 } else { 0 }), "{text}");
    assert!(can_do_nothing || text.starts_with("works here by "), "{text}");
}

#[test]
fn bad_input_is_4_and_named() {
    let directory = scratch("bad-input");
    let missing = directory.join("missing.data").into_os_string().into_string().unwrap();
    check_failure(&["report", &missing, "-f", "f"], 4, "missing.data");
    // They asked for a function, which a capture's directory would have named.
    check_failure(&["show", "-i", &missing], 4, "cannot open");
    check_failure(&["explain", "-i", &missing], 4, "cannot open");
    let history = directory.to_str().unwrap();
    check_failure(&["-f", "f", "-t", "-s", "--history=2", "-D", history], 4, "perf.data");
    check_failure(&["report", history, "-f", "f"], 4, "is a directory");
    let empty = file(&directory, "empty.data", b"");
    check_failure(&["dump", &empty, "--packets"], 4, "empty.data is empty");
    let wrong = file(&directory, "wrong.data", b"\x7fELF and no recording at all");
    check_failure(&["report", "-i", &wrong, "-f", "f"], 4, "not a perf.data file");
    check_failure(&["merge", &wrong], 4, "is no summary (report --summary) and no part (report --part): ");
    let cut = file(&directory, "cut.data", b"PERFILE2\x68\0\0\0\0\0\0\0\x88");
    check_failure(&["dump", &cut, "--sideband"], 4, "cut.data");
}

/// The report went on without it.
#[test]
fn kernel_code_that_was_asked_for_must_be_there() {
    for (option, path, says) in [
        ("--kcore", "no/such/kcore", "--kcore no/such/kcore: No such file"),
        ("--kcore", env!("CARGO_MANIFEST_DIR"), "/kcore: No such file"),
        ("--vmlinux", REAL_RECORDING, "it is no ELF file"),
    ] {
        check_failure(&["report", REAL_RECORDING, "-f", "main", option, path], 4, says);
        check_failure(&["dump", "--branches", REAL_RECORDING, option, path], 4, says);
    }
}

#[test]
#[cfg(not(feature = "libipt"))]
fn a_decoder_that_was_left_out_says_how_to_get_it() {
    for words in [&["report", "x.data", "-f", "f"][..], &["dump", "x.data", "--branches"]] {
        check_failure(&[words, &["--decoder", "libipt"]].concat(), 3, "libipt-dev");
    }
}

#[test]
fn an_unknown_decoder_is_wrong_usage() {
    check_failure(&["report", "x.data", "-f", "f", "--decoder", "perf"], 2, "[possible values: own, libipt]");
}

/// Options that choose rows of tables say what they take.
#[test]
fn rows_of_tables_are_numbers_and_shares() {
    let report = ["report", REAL_RECORDING, "-f", "main"];
    let cases: [(&[&str], &str); 4] = [
        (&["--top", "0"], "0 is not in 1.."),
        (&["--top", "few"], "invalid digit found in string"),
        (&["--min-share", "101"], "`101` is not between 0 and 100 percent (example: 1.5)"),
        (&["--all", "--top", "3"], "the argument '--all' cannot be used with '--top <N>'"),
    ];
    for (words, says) in cases {
        check_failure(&[&report, words].concat(), 2, says);
    }
    let show = ["show", "7-1", "-f", "main"];
    for (words, says) in &cases[..2] {
        check_failure(&[&show, *words].concat(), 2, says);
    }
    let both = "the argument '--top <N>' cannot be used with '--all'";
    check_failure(&[&show[..], &["--top", "3", "--all"]].concat(), 2, both);
}
