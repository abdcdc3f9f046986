//! By the Firefox Profiler itself, as its command line has it, and by the rules of its format.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::python::Python;
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
        assert_eq!((total_ms * 1e6).round() as u64, case.report.outermost.total.sum_ns, "{}", case.name);
    }
}

/// Holds profiles against a JSON Schema that is written from the format's documentation.
#[test]
fn firefox_profiles_fit_the_schema() {
    let Some(python) = Python::with("fastjsonschema") else { return };
    for case in cases() {
        let profile = case.export("firefox", &["--top", "1000"]);
        let [samples] = python.run("firefox_schema.py", &profile)[..] else { panic!("no number") };
        assert!(samples > 0, "{}", case.name);
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
/// A client gives its server a second, and takes it for dead then; a busy machine may need more.
const ATTEMPTS: usize = 5;

impl Profiler {
    /// `None`: the server did not get ready in a minute.
    fn load(script: &Path, profile: &Path) -> Option<Self> {
        let sessions = tempfile::tempdir().unwrap();
        let mut server = command(script, sessions.path());
        server.arg("--daemon").arg(profile).args(["--session", SESSION]);
        let mut profiler = Self { script: script.to_owned(), server: server.spawn().unwrap(), sessions };
        let ready = profiler.sessions.path().join(format!("{SESSION}.json"));
        let start = Instant::now();
        while !ready.exists() {
            let ended = profiler.server.try_wait().unwrap();
            assert_eq!(ended, None, "the Firefox Profiler does not take {}", profile.display());
            if start.elapsed() > Duration::from_secs(60) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(profiler)
    }

    /// The answer to a question; `None`: the client did not wait for it.
    fn ask(&self, question: &[&str]) -> Option<Value> {
        let mut client = command(&self.script, self.sessions.path());
        let output = client.args(question).args(["--session", SESSION, "--json"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("Profile load failed"), "{said}");
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// How long all functions of all threads took themselves.
    fn self_ms(&self) -> Option<f64> {
        let mut sum = 0.0;
        for thread in self.ask(&["thread", "list"])?["threads"].as_array().unwrap() {
            let of_thread = ["--thread", thread["threadHandle"].as_str().unwrap()];
            let all = ["thread", "functions", "--include-idle", "--limit", "0"];
            let functions = self.ask(&[&all[..], &of_thread].concat())?;
            assert_eq!(functions["weightType"], "tracing-ms");
            let times = functions["functions"].as_array().unwrap().iter();
            sum += times.map(|function| function["selfSamples"].as_f64().unwrap()).sum::<f64>();
        }
        Some(sum)
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
        let profile = case.export("firefox", &[]);
        let total_ms = (0..ATTEMPTS).find_map(|_| Profiler::load(&script, &profile)?.self_ms());
        let Some(total_ms) = total_ms else {
            println!(
                "skipped: {}: the machine is too busy for the Firefox Profiler's client and server",
                case.name
            );
            continue;
        };
        assert_eq!((total_ms * 1e6).round() as u64, case.report.outermost.total.sum_ns, "{}", case.name);
    }
}
