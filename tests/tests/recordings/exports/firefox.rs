//! By the Firefox Profiler itself, as its command line has it, and by the rules of its format.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{cases, text};

/// What the profiler's own checks demand: tables are as long as they say, and indices are inside of them.
fn check_table(thread: &Value, name: &str, indices: &[(&str, u64)]) -> u64 {
    let table = thread[name].as_object().unwrap();
    let length = table["length"].as_u64().unwrap();
    for (column, values) in table {
        if let Some(values) = values.as_array() {
            assert_eq!(values.len() as u64, length, "{name}.{column}");
        }
    }
    for (column, end) in indices {
        let indices = table[*column].as_array().unwrap();
        assert!(indices.iter().filter_map(Value::as_u64).all(|index| index < *end), "{name}.{column}");
    }
    length
}

#[test]
fn the_firefox_profilers_rules_hold() {
    for case in cases() {
        let profile: Value = serde_json::from_str(&text(&case.export("firefox", &[]))).unwrap();
        assert_eq!(profile["meta"]["preprocessedProfileVersion"], 55);
        let mut total_ms = 0.0;
        for thread in profile["threads"].as_array().unwrap() {
            let strings = thread["stringArray"].as_array().unwrap().len() as u64;
            let functions = check_table(thread, "funcTable", &[("name", strings)]);
            let frames = check_table(thread, "frameTable", &[("func", functions), ("category", 1)]);
            let stacks = check_table(thread, "stackTable", &[("frame", frames)]);
            let prefixes = thread["stackTable"]["prefix"].as_array().unwrap();
            let is_before =
                |(at, prefix): (usize, &Value)| prefix.as_u64().is_none_or(|prefix| prefix < at as u64);
            assert!(
                prefixes.iter().enumerate().all(is_before),
                "{}: a stack comes before its caller's",
                case.name
            );
            check_table(thread, "samples", &[("stack", stacks)]);
            check_table(thread, "markers", &[]);
            let column = |name: &str| {
                thread["samples"][name]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|v| v.as_f64().unwrap())
                    .collect::<Vec<_>>()
            };
            assert!(column("time").is_sorted(), "{}", case.name);
            total_ms += column("weight").iter().sum::<f64>();
        }
        assert_eq!((total_ms * 1e6).round() as u64, case.report.outermost.sum_ns, "{}", case.name);
    }
}

/// The Firefox Profiler's own code, serving one profile.
struct Profiler {
    script: PathBuf,
    sessions: tempfile::TempDir,
    server: Child,
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let _ = self.server.kill(); // or it has ended
        let _ = self.server.wait();
    }
}

/// What the session is called.
const SESSION: &str = "test";

impl Profiler {
    fn load(script: PathBuf, profile: &Path) -> Self {
        let sessions = tempfile::tempdir().unwrap();
        let mut server = command(&script, sessions.path());
        server.arg("--daemon").arg(profile).args(["--session", SESSION]);
        let server = server.spawn().unwrap();
        Self { script, sessions, server }
    }

    /// The answer to a question; `None`: it is not there yet, or it does not take the profile.
    fn ask(&self, question: &[&str]) -> Option<Value> {
        let mut client = command(&self.script, self.sessions.path());
        let output = client.args(question).args(["--session", SESSION, "--json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn threads(&self) -> Vec<Value> {
        let start = Instant::now();
        loop {
            if let Some(list) = self.ask(&["thread", "list"]) {
                return list["threads"].as_array().unwrap().clone();
            }
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "the Firefox Profiler does not take the profile"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How long all of a thread's functions took themselves.
    fn self_ms(&self, thread: &str) -> f64 {
        let all = ["thread", "functions", "--include-idle", "--limit", "0", "--thread", thread];
        let functions = self.ask(&all).unwrap();
        assert_eq!(functions["weightType"], "tracing-ms");
        functions["functions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|function| function["selfSamples"].as_f64().unwrap())
            .sum()
    }
}

fn command(script: &Path, sessions: &Path) -> Command {
    let mut command = Command::new("node");
    command.arg(script).env("PROFILER_CLI_SESSION_DIR", sessions).env("PROFILER_CLI_NO_SYMBOLICATE", "1");
    command
}

#[test]
fn the_firefox_profiler_opens_it_and_finds_the_same_total() {
    let Some(script) = std::env::var_os("FUNC_LATENCY_FIREFOX_PROFILER").map(PathBuf::from) else {
        println!(
            "skipped: the Firefox Profiler's command line is not here (cargo xtask test installs it where npm is)"
        );
        return;
    };
    for case in cases() {
        let profiler = Profiler::load(script.clone(), &case.export("firefox", &[]));
        let threads = profiler.threads();
        let self_ms = |thread: &Value| profiler.self_ms(thread["threadHandle"].as_str().unwrap());
        let total_ms: f64 = threads.iter().map(self_ms).sum();
        assert_eq!((total_ms * 1e6).round() as u64, case.report.outermost.sum_ns, "{}", case.name);
    }
}
