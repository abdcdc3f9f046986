//! Figures of uprobes against the clock of the program itself (`uprobes/clocked.c`), which it reads before
//! there are probes.
//!
//! A round is one run of each case; `cargo xtask ci --full` takes 20 of them, on a machine that is idle and
//! on one with busy CPUs.

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod probing;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use probing::not_permitted;
use serde_json::Value;

/// The program as C and as C++, compiled once.
fn programs() -> &'static [PathBuf; 2] {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        [("gcc", "c"), ("g++", "c++")].map(|(compiler, language)| compiled(compiler, language))
    })
}

fn compiled(compiler: &str, language: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clocked-{language}"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/uprobes/clocked.c");
    let mut command = Command::new(compiler);
    command
        .args(["-x", language, "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", source, "-o"])
        .arg(&program);
    assert!(command.status().unwrap().success(), "{compiler} {source}");
    program
}

/// Calls of `ns` ns, with children, and a walk over memory in between.
#[derive(Clone, Copy, Debug)]
struct Case {
    ns: u64,
    children: u64,
    walked_kb: u64,
}

const fn case(ns: u64, children: u64, walked_kb: u64) -> Case {
    Case { ns, children, walked_kb }
}

const CASES: [Case; 10] = [
    case(300, 0, 0),
    case(300, 2, 0),
    case(300, 20, 0),
    case(3_000, 0, 0),
    case(3_000, 2, 0),
    case(3_000, 20, 0),
    case(30_000, 0, 0),
    case(30_000, 2, 0),
    case(30_000, 20, 0),
    // What a server is like: other code and data between two calls.
    case(3_000, 2, 512),
];

/// Of the cases those that a change must pass: `(language, number)`.
const QUICK: [(usize, usize); 4] = [(0, 2), (0, 8), (1, 1), (1, 9)];

/// What the program's clock says of its calls: ns.
#[derive(Clone, Copy, Debug)]
struct Own {
    p50: f64,
    mean: f64,
    /// Between the means of 20 parts.
    spread: f64,
}

/// The running program.
struct Clocked {
    program: Child,
    output: BufReader<ChildStdout>,
    before: Own,
}

impl Clocked {
    fn new(program: &Path, case: Case) -> Self {
        let words = [case.ns, case.children, case.walked_kb].map(|number| number.to_string());
        let mut command = Command::new(program);
        let mut program = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(program.stdout.take().unwrap());
        let before = own(&mut output);
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { program, output, before }
    }

    /// What its clock says before the probes and after them.
    fn end(mut self) -> [Own; 2] {
        drop(self.program.stdin.take());
        let after = own(&mut self.output);
        assert!(self.program.wait().unwrap().success());
        [self.before, after]
    }
}

fn own(output: &mut impl BufRead) -> Own {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert_eq!(numbers.len(), 4, "{line}");
    Own { p50: numbers[0], mean: numbers[1], spread: numbers[3] - numbers[2] }
}

/// Processes that keep all CPUs busy, until they are dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn new() -> Self {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let spinning = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cpus).map(|_| spinning()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// What is printed of `measured`, and the ns between the least and the most that its own probes took where
/// they were measured; `None`: it is not permitted here.
fn reported(pid: u32) -> Option<(Value, f64)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "--check", "--format", "json", "-f", "measured"]);
    command.args(["--max-overhead", "100000", "-p", &pid.to_string()]);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if not_permitted(&said) {
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let limits = report["loss"]["problems"][0].as_str().unwrap();
    let (_, range) = limits.split_once("warm and with cold caches: ").unwrap();
    let (least, most) = range.split_once(')').unwrap().0.split_once(" to ").unwrap();
    Some((report["functions"][0].clone(), ns(most) - ns(least)))
}

/// `1.23 us`.
fn ns(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap();
    let unit = [("ns", 1.0), ("us", 1e3), ("ms", 1e6)].into_iter().find(|(name, _)| *name == unit).unwrap();
    number.parse::<f64>().unwrap() * unit.1
}

/// What is wrong with the figures of one run.
fn wrong(case: Case, function: &Value, [before, after]: [Own; 2]) -> Vec<String> {
    let number = |value: &Value| value.as_f64().unwrap();
    let latency = &function["latency_ns"];
    let [p50, p50_error, mean, mean_error] =
        ["p50", "p50_error", "mean", "mean_error"].map(|key| number(&latency[key]));
    let [low, high] = ["low", "high"].map(|side| number(&function["bounds_ns"][side]["p50"]));
    println!(
        "  own p50 {} ({} after) in {low} to {high}; own mean {} +- {}: {mean} +- {mean_error}",
        before.p50, after.p50, before.mean, before.spread
    );
    let mut wrong = Vec::new();
    // The program is not quite as fast after the probes as before them: a machine has its turns.
    let drift = (before.p50 - after.p50).abs();
    if before.p50 < low - drift || before.p50 > high + drift {
        wrong.push(format!("{case:?}: p50 {} ({} after) is not in {low} to {high}", before.p50, after.p50));
    }
    if (p50 - before.p50).abs() > p50_error + drift {
        wrong.push(format!("{case:?}: p50 {} is not in {p50} +- {p50_error}", before.p50));
    }
    // A sample of calls, some of which were preempted for milliseconds, has a mean that is off by as much as
    // chance has it.
    let chance = 3.0 * number(&latency["stddev"]) / number(&latency["count"]).sqrt();
    let allowed = mean_error + before.spread.max(after.spread) + chance;
    if (mean - before.mean).abs() > allowed {
        wrong.push(format!("{case:?}: mean {} is not in {mean} +- {allowed}", before.mean));
    }
    wrong
}

/// An interval that is wider than it should be.
struct Wide {
    what: String,
    /// It is as narrow as what was measured of the probes lets it be, so the machine runs unevenly.
    is_of_machine: bool,
}

/// How wide an interval is depends on how evenly the machine runs while the probes are measured.
fn too_wide(case: Case, function: &Value, probes_ns: f64) -> Option<Wide> {
    let [low, high] = ["low", "high"].map(|side| function["bounds_ns"][side]["p50"].as_f64().unwrap());
    let (most_ns, what) = match case.ns {
        30_000 if high - low >= 5_000.0 => (5_000.0, "narrower than 5 us"),
        300 if high >= 3_000.0 => (2_700.0, "below 3 us"),
        _ => return None,
    };
    // Some calls in the middle are of a spell in which all took longer.
    let is_of_machine = probes_ns >= most_ns && high - low <= 1.5 * probes_ns + 1_000.0;
    Some(Wide {
        what: format!(
            "{case:?}: {low} to {high} is not {what}; the probes took what differs by {probes_ns} ns"
        ),
        is_of_machine,
    })
}

/// How far a run may be from what is asked of it.
struct Lenience {
    /// Runs of a case at most: another is made where an interval was too wide, or wrong and forgiven.
    attempts: usize,
    /// Wrong intervals of all cases: a measurement is right nearly always, and a machine that others share
    /// has spells in which a trap takes longer than it did before.
    wrong: usize,
}

/// What is wrong with one run of each of these cases.  `None`: it is not permitted here.
fn round(cases: &[(usize, usize)], lenience: &mut Lenience) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for &(language, number) in cases {
        let (program, case) = (&programs()[language], CASES[number]);
        for left in (0..lenience.attempts).rev() {
            println!("{program:?} {case:?}");
            let clocked = Clocked::new(program, case);
            let (function, probes_ns) = reported(clocked.program.id())?;
            let own = clocked.end();
            let wrong = wrong(case, &function, own);
            let is_forgiven = left > 0 && !wrong.is_empty() && lenience.wrong > 0;
            lenience.wrong -= usize::from(is_forgiven);
            let mut wide = too_wide(case, &function, probes_ns);
            if is_forgiven || left > 0 && wrong.is_empty() && wide.is_some() {
                continue;
            }
            if let Some(wide) = wide.take_if(|wide| lenience.attempts > 1 && wide.is_of_machine) {
                println!("skipped: how wide it is: {}", wide.what);
            }
            let wide = wide.map(|wide| wide.what);
            all.extend(wrong.into_iter().chain(wide).map(|what| format!("{program:?}: {what}")));
            break;
        }
    }
    Some(all)
}

#[test]
fn figures_are_what_the_programs_own_clock_says() {
    let is_full = std::env::var_os("FUNC_LATENCY_FULL").is_some();
    let all: Vec<(usize, usize)> =
        (0..2).flat_map(|program| (0..CASES.len()).map(move |case| (program, case))).collect();
    let (rounds, cases, mut lenience) = match is_full {
        true => (20, &all[..], Lenience { attempts: 1, wrong: 0 }),
        false => (1, &QUICK[..], Lenience { attempts: 6, wrong: 1 }),
    };
    for is_busy in [false, true] {
        let _busy = is_busy.then(Busy::new);
        for number in 0..rounds {
            let Some(wrong) = round(cases, &mut lenience) else { return };
            assert!(wrong.is_empty(), "round {number}, busy: {is_busy}: {wrong:#?}");
        }
    }
}

/// It was a number with an error larger than itself.
#[test]
fn a_call_that_costs_less_than_the_probes_noise_has_an_upper_bound_and_no_number() {
    let case = Case { ns: 20, children: 0, walked_kb: 0 };
    let clocked = Clocked::new(&programs()[0], case);
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-f", "measured", "-d", "0.2", "--max-overhead", "1000000"]);
    let output = command.args(["-p", &clocked.program.id().to_string()]).output().unwrap();
    clocked.end();
    let said = String::from_utf8(output.stderr).unwrap();
    if not_permitted(&said) {
        return;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find(|line| line.trim_start().starts_with("p50")).unwrap();
    let mut cells = row.split_whitespace().skip(1);
    assert_eq!(cells.next(), Some("<"), "{row}");
    let bound: f64 = cells.next().unwrap().parse().unwrap();
    let is_below = match cells.next().unwrap() {
        "ns" => bound < 3_000.0,
        "us" => bound < 3.0,
        _ => false,
    };
    assert!(is_below, "{row}");
    // Behind it come the times off the CPU.
    assert_eq!(cells.next(), Some("0"), "{row}");
}
