//! `watch` where there is no Intel PT, on a program that counts its own calls and slow calls
//! (`uprobes/slow.c`).
//!
//! What needs root, or CAP_BPF and CAP_PERFMON, says that it is skipped without.

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod probing;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use probing::{Ended, Probing, compiled, not_permitted, signal};
use serde_json::{Deserializer, Value};

/// The program, compiled once.
fn slow() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compiler = ["gcc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    compiled(&PROGRAM, "watch-slow", &compiler, "tests/uprobes/slow.c")
}

/// The program, waiting.
struct Target {
    program: Child,
    output: BufReader<ChildStdout>,
}

impl Target {
    fn new(calls: u64) -> Self {
        let mut command = Command::new(slow());
        command.arg(calls.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let mut output = BufReader::new(program.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { program, output }
    }

    fn pid(&self) -> String {
        self.program.id().to_string()
    }

    fn begin(&mut self) {
        self.program.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// Its calls; those that slept, that waited for its other thread, and that took longer than 15 ms
    /// by its own clock.
    fn end(mut self) -> [u64; 4] {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.program.wait().unwrap().success(), "{text}");
        let counted: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        counted.try_into().unwrap()
    }
}

/// The JSON objects of each interval and of each capture, and the report.
struct Watched {
    intervals: Vec<Value>,
    captures: Vec<Value>,
    report: Value,
}

impl Watched {
    fn of(ended: &Ended) -> Self {
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        let all: Vec<Value> = Deserializer::from_str(&ended.stdout).into_iter().map(Result::unwrap).collect();
        let of = |schema: &str| {
            let is_it = |value: &&Value| value["schema"].as_str().unwrap().starts_with(schema);
            all.iter().filter(is_it).cloned().collect::<Vec<_>>()
        };
        let [report] = of("func_latency/").try_into().unwrap();
        Self { intervals: of("func_latency.watch/"), captures: of("func_latency.capture/"), report }
    }

    fn calls(&self) -> Vec<u64> {
        let calls = |interval: &Value| interval["functions"][0]["calls"].as_u64().unwrap();
        self.intervals.iter().map(calls).collect()
    }
}

/// Watches `work` of a target, from its first call to its last.
fn watched(target: &mut Target, more: &[&str]) -> Option<Probing> {
    let pid = target.pid();
    let words = ["-f", "work", "-p", &pid, "--max-overhead", "1e9", "--format", "json", "-n", "0.1"];
    let probing = Probing::start_as(&["watch"], &[&words[..], more].concat())?;
    target.begin();
    Some(probing)
}

/// Whether a line of a capture's text ends with this: `20.1 ms   99.6         1  doze`.
fn has_line(text: &str, end: &str) -> bool {
    text.lines().any(|line| line.split_whitespace().last() == Some(end))
}

#[test]
fn each_slow_call_is_captured_with_its_cause_and_no_other() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch-captures");
    let _ = fs::remove_dir_all(&directory);
    let mut target = Target::new(3_000);
    let place = directory.display().to_string();
    let over = ["--over", "15ms", "--captures", &place, "--max-captures", "1000/1s", "--keep", "1000"];
    let Some(probing) = watched(&mut target, &over) else { return };
    let [calls, slept, waited, slow] = target.end();
    let watched = Watched::of(&probing.end());
    assert_eq!(watched.calls().iter().sum::<u64>(), calls);
    assert_eq!(watched.report["functions"][0]["calls"]["complete"], calls);
    assert!(watched.intervals.len() >= 3, "{} intervals of 0.1 s", watched.intervals.len());

    // Of 1,500 both are the last: one call is slow for two reasons.  A call that was preempted is slow, too;
    // the program's clock is read outside of the probes, so that it may count one more.
    let planted = slept + waited - calls / 1_500;
    let captured = watched.captures.len() as u64;
    assert!((planted..=slow).contains(&captured), "{planted} to {slow}: {:#?}", watched.captures);
    let mut causes = [0; 2];
    for capture in &watched.captures {
        assert!(capture["latency_ns"].as_u64().unwrap() > 15_000_000, "{capture}");
        let path = Path::new(capture["path"].as_str().unwrap());
        assert_eq!(fs::read_dir(path).unwrap().count(), 3, "{}", path.display());
        let text = fs::read_to_string(path.join("call.txt")).unwrap();
        let cause = capture["cause"].as_str().unwrap();
        let [dozes, receives] = ["doze", "receive"].map(|child| has_line(&text, child));
        // Of a preemption some kernels do not tell both ends.
        assert!(cause.starts_with("off the CPU for ") || !(dozes || receives), "{cause}");
        if dozes {
            causes[0] += 1;
            assert!(text.contains("clock_nanosleep, woken by [interrupt]"), "{text}");
        }
        if receives {
            causes[1] += 1;
            assert!(text.contains("futex, woken by giver ("), "{text}");
        }
        assert!(has_line(&text, "spin") && has_line(&text, "*self"), "{text}");
        // The call itself, and those just before it.
        let rows = fs::read_to_string(path.join("calls.jsonl")).unwrap();
        let id = format!("\"id\":\"{}\"", capture["id"].as_str().unwrap());
        assert!(rows.lines().any(|row| row.contains(&id)) && rows.lines().count() > 1, "{rows}");
    }
    assert_eq!(causes, [slept, waited]);

    // What a trace would be needed for is said, and what is there instead.
    let first = watched.captures[0]["path"].as_str().unwrap();
    let show = Command::new(env!("CARGO_BIN_EXE_func_latency")).args(["show", "-i", first]).output().unwrap();
    let said = String::from_utf8(show.stderr).unwrap();
    assert!(show.status.code() == Some(4) && said.contains("call.txt"), "{said}");
}

/// Wherever the intervals end, and with children in turns.
#[test]
fn intervals_add_up_to_the_report() {
    let mut target = Target::new(4_000);
    let metrics = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch-metrics.txt");
    let file = metrics.display().to_string();
    let Some(probing) = watched(&mut target, &["--openmetrics", &file]) else { return };
    let [calls, ..] = target.end();
    let watched = Watched::of(&probing.end());
    assert_eq!(watched.calls().iter().sum::<u64>(), calls);
    let function = &watched.report["functions"][0];
    assert_eq!(function["calls"]["complete"], calls);
    assert_eq!(watched.report["trace"]["decoder"], "uprobe");
    let sum = |of: &str| {
        let of = |interval: &Value| interval["functions"][0]["latency_ns"][of].as_u64().unwrap();
        watched.intervals.iter().map(of).sum::<u64>()
    };
    // Figures are of slices without children; of an interval that has none, of the others.
    assert!((function["latency_ns"]["count"].as_u64().unwrap()..=calls).contains(&sum("count")));
    for interval in &watched.intervals {
        assert_eq!((&interval["trace_bytes"], &interval["decoded"]), (&0.into(), &1.0.into()));
        assert!(interval["probes"]["cost_percent"].as_f64().unwrap() >= 0.0, "{interval}");
        let latency = &interval["functions"][0]["latency_ns"];
        assert_eq!(latency["p50"].is_null(), latency["p50_error"].is_null(), "{latency}");
    }
    let text = fs::read_to_string(&metrics).unwrap();
    assert!(text.contains("func_latency_probe_cost_ratio ") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn a_signal_captures_what_runs_and_a_command_ends_the_watch() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("watch-asked");
    let _ = fs::remove_dir_all(&directory);
    let mut target = Target::new(30_000);
    let place = directory.display().to_string();
    let asked = ["--captures", &place, "--until", "sleep 0.5"];
    let Some(probing) = watched(&mut target, &asked) else { return };
    sleep(Duration::from_millis(200));
    signal(probing.pid(), "USR2");
    let watched = Watched::of(&probing.end());
    let triggers: Vec<&str> =
        watched.captures.iter().map(|capture| capture["trigger"].as_str().unwrap()).collect();
    assert_eq!(triggers, ["SIGUSR2", "sleep 0.5: exit status: 0"]);
    let [calls, ..] = target.end();
    let seen: u64 = watched.calls().iter().sum();
    assert!(seen > 0 && seen < calls, "{seen} of {calls}: the command ended the watch");
}

#[test]
fn what_only_a_trace_has_is_refused() {
    let target = Target::new(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    let words = ["watch", "--backend", "uprobe", "-f", "work", "-p", &target.pid(), "--on", "doze"];
    let output = command.args(words).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if not_permitted(&said) {
        return;
    }
    assert!(output.status.code() == Some(2) && said.contains("--on needs Intel PT"), "{said}");
    drop(target.program.stdin);
}
