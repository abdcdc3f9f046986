//! Whether return addresses are rewritten, decided for programs of each kind; and what becomes of these
//! programs.
//!
//! What needs root, or CAP_BPF and CAP_PERFMON, says that it is skipped without.

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod probing;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use probing::Probing;
use serde_json::Value;

fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unwinding");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Compiles one of the sources; each test makes its own, by its own name.
fn compiled(compiler: &str, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let to = directory().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwinding").join(source);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(source).args(options);
    assert!(command.arg("-o").arg(&to).status().unwrap().success(), "{command:?}");
    to
}

/// What was seen of a run.
struct Seen {
    /// What was said of the probes.
    said: String,
    report: Value,
    /// Rows of calls that began in the second turn.
    rows: Vec<Value>,
    /// What the program counted in it.
    called: u64,
    /// What the program said last.
    end: String,
}

/// Probes `functions` while a program takes its turns.
fn probed(program: &Path, case: &str, functions: &[&str]) -> Option<Seen> {
    let mut target =
        Command::new(program).arg(case).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(target.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let (pid, rows) = (target.id().to_string(), directory().join(format!("{}.jsonl", target.id())));
    let mut words = vec!["-p", &pid, "--check", "--format", "json", "--max-overhead", "1000000"];
    words.extend(["--max-probes", "0", "--rows", rows.to_str().unwrap()]);
    functions.iter().for_each(|function| words.extend(["-f", function]));
    let probing = Probing::start(&words);
    target.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut end = String::new();
    output.read_to_string(&mut end).unwrap();
    assert!(target.wait().unwrap().success() && end.ends_with("done\n"), "{end}");
    let ended = probing?.end();
    let words: Vec<&str> = end.split(' ').collect();
    let number = |index: usize| words[index].parse::<u64>().unwrap();
    let (from, called) = (number(1), number(3));
    let text = fs::read_to_string(&rows).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows = rows.filter(|row| row["start_ns"].as_u64().unwrap() >= from).collect();
    Some(Seen { report: ended.report(), said: ended.said, rows, called, end })
}

impl Seen {
    /// Calls of a function in the second turn, by status.
    fn calls(&self, function: &str, status: &str) -> u64 {
        let is_it = |row: &&Value| row["function"] == function && row["status"] == status;
        self.rows.iter().filter(is_it).count() as u64
    }

    fn is_rewritten(&self, function: &str) {
        let says = format!("{function}: its return address is rewritten, ");
        assert!(self.said.contains(&says), "{}", self.said);
        let limits = self.report["loss"]["problems"].to_string();
        assert!(limits.contains(" were rewritten: calls that were running"), "{limits}");
    }

    fn is_probed(&self, function: &str, why: &str) {
        let line = self.said.lines().find(|line| line.contains(&format!("{function}: `ret` is probed, ")));
        let is_so = |line: &str| line.contains(why) && line.contains("; --uretprobe would cost ");
        assert!(line.is_some_and(is_so), "{}", self.said);
    }

    /// Every call is complete, and their number is that which the program has counted.
    fn is_exact(&self, function: &str) {
        assert_eq!((self.calls(function, "complete"), self.rows.len() as u64), (self.called, self.called));
    }
}

/// From main, from a function of the C library, from a handler, from a thread: each stack is followed to its
/// start.
#[test]
fn a_c_program_has_its_return_addresses_rewritten() {
    let program = compiled("gcc", "cases.c", "plain", &[]);
    for case in ["directly", "sorts", "handler", "thread"] {
        let Some(seen) = probed(&program, case, &["work"]) else { return };
        seen.is_rewritten("work");
        assert!(seen.said.contains("nothing above handles exceptions"), "{case}: {}", seen.said);
        assert_eq!(seen.called, 1000, "{case}");
        seen.is_exact("work");
    }
}

/// A child process returns to a rewritten address that it did not have rewritten.
#[test]
fn a_function_that_forks_returns_in_both_processes() {
    let program = compiled("gcc", "cases.c", "forks", &[]);
    let Some(seen) = probed(&program, "forks", &["forks"]) else { return };
    seen.is_rewritten("forks");
    assert_eq!(seen.called, 100);
    seen.is_exact("forks");
}

/// The library is what ICU is in PostgreSQL: its tables have handlers, and it never stands above.
#[test]
fn a_library_that_only_stands_below_does_not_matter() {
    let library = compiled("g++", "library.cpp", "libbelow.so", &["-shared", "-fPIC"]);
    let options = ["-DCATCHES", library.to_str().unwrap()];
    let program = compiled("gcc", "cases.c", "above", &options);
    let Some(seen) = probed(&program, "catches", &["calls_what_catches"]) else { return };
    seen.is_rewritten("calls_what_catches");
    seen.is_exact("calls_what_catches");
}

/// Each of the two calls ends where it ends, and both have the same caller.
#[test]
fn a_rewritten_call_may_jump_into_a_probed_one() {
    let library = compiled("g++", "library.cpp", "libjumped.so", &["-shared", "-fPIC"]);
    let program = compiled("gcc", "cases.c", "jumps", &["-DCATCHES", library.to_str().unwrap()]);
    let functions = ["jumps_to_what_catches", "throws_and_catches"];
    let Some(seen) = probed(&program, "jumps", &functions) else { return };
    seen.is_rewritten(functions[0]);
    seen.is_probed(functions[1], "libjumped.so has exception handlers");
    assert_eq!(functions.map(|name| seen.calls(name, "complete")), [1000, 1000]);
    assert_eq!(seen.rows.len(), 2000);
    let callers = |function: usize| seen.report["functions"][function]["callers"].as_array().unwrap();
    for function in 0..2 {
        assert!(
            callers(function).iter().all(|caller| caller["name"] == "take_turns"),
            "{:?}",
            callers(function)
        );
    }
}

/// With its return address rewritten, the first of these exceptions would end the program.
#[test]
fn c_that_exceptions_pass_through_has_its_returns_probed() {
    let library = compiled("gcc", "passes.c", "libpasses.so", &["-shared", "-fPIC", "-fexceptions"]);
    let program = compiled("g++", "catches.cpp", "catches", &[library.to_str().unwrap()]);
    let Some(seen) = probed(&program, "", &["passes"]) else { return };
    seen.is_probed("passes", "as catches, which stands above its calls, has exception handlers");
    assert!(seen.end.contains("caught "), "{}", seen.end);
    assert_eq!(seen.called, 300);
    assert_eq!((seen.calls("passes", "complete"), seen.calls("passes", "cut")), (200, 100));
}

#[test]
fn a_function_of_cpp_has_its_returns_probed() {
    let library = compiled("g++", "library.cpp", "libown.so", &["-shared", "-fPIC"]);
    let program = compiled("gcc", "cases.c", "own", &["-DCATCHES", library.to_str().unwrap()]);
    let Some(seen) = probed(&program, "catches", &["throws_and_catches"]) else { return };
    seen.is_probed("throws_and_catches", "as libown.so has exception handlers");
    seen.is_exact("throws_and_catches");
}

#[test]
fn a_program_that_switches_stacks_has_its_returns_probed() {
    let program = compiled("gcc", "cases.c", "switches", &["-DSWITCHES"]);
    let Some(seen) = probed(&program, "switches", &["work"]) else { return };
    seen.is_probed("work", "as switches can switch stacks (swapcontext)");
    seen.is_exact("work");
}

#[test]
fn a_program_that_ends_threads_has_its_returns_probed() {
    let program = compiled("gcc", "cases.c", "ends", &["-DENDS"]);
    let Some(seen) = probed(&program, "ends", &["ends_its_thread"]) else { return };
    seen.is_probed("ends_its_thread", "as ends can end threads within calls (pthread_exit)");
    assert_eq!((seen.called, seen.calls("ends_its_thread", "open_end")), (100, 100));
}

#[test]
fn calls_that_are_nested_deeper_than_the_kernel_follows_have_their_returns_probed() {
    let program = compiled("gcc", "cases.c", "nested", &[]);
    let Some(seen) = probed(&program, "nested", &["nested"]) else { return };
    seen.is_probed("nested", "more than 32 of its calls are nested");
    assert_eq!(seen.called, 800);
    seen.is_exact("nested");
}

/// Where no call is seen beforehand, all that is mapped counts.
#[test]
fn a_function_that_was_not_called_is_judged_by_all_that_is_mapped() {
    let library = compiled("g++", "library.cpp", "libmapped.so", &["-shared", "-fPIC"]);
    let with = compiled("gcc", "cases.c", "mapped", &["-DCATCHES", library.to_str().unwrap()]);
    let without = compiled("gcc", "cases.c", "alone", &[]);
    let Some(seen) = probed(&with, "catches", &["calls_what_catches", "work"]) else { return };
    seen.is_probed("work", "has exception handlers, and no call was seen");
    seen.is_rewritten("calls_what_catches");
    let Some(seen) = probed(&without, "nested", &["work", "nested"]) else { return };
    seen.is_rewritten("work");
    assert!(seen.said.contains("nothing that the process has mapped handles exceptions"), "{}", seen.said);
}

/// Nothing of it has run, and what it will load is not known: of one that loads nothing it is.
#[test]
fn a_program_that_is_started_is_judged_by_what_it_has_mapped() {
    let program = compiled("gcc", "cases.c", "started", &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-f", "work", "--"]).arg(&program).arg("directly");
    let mut probing =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    probing.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = probing.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if probing::not_permitted(&said) {
        return;
    }
    assert!(said.contains("work: its return address is rewritten, "), "{said}");
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("done") && report.contains("0 open at start, 0 open at end, 0 cut"), "{report}");
}
