//! Functions of the kernel, by the command.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use truth_tests::{Fixture, fixture};

fn run(words: &[&str], code: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    let Output { status, stdout, stderr } = command.args(words).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{words:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Paths of the recording and of the directory with its kernel.
fn paths(fixture: &Fixture) -> (String, String) {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    (text(&fixture.data), text(&fixture.kernel_dir().unwrap()))
}

fn json(words: &[&str]) -> Value {
    let words = [&["report", "--format", "json"], words].concat();
    serde_json::from_str(&run(&words, 0).0).unwrap()
}

/// The rows of calls.
fn rows(of: &[&str]) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calls.jsonl");
    let words = ["export", "--format", "jsonl", "-o", file.to_str().unwrap()];
    run(&[&words, of].concat(), 0);
    let text = std::fs::read_to_string(&file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(report: &Value) -> Vec<&str> {
    report["functions"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect()
}

#[test]
fn a_kernel_function_is_a_function_like_any_other() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let vmlinux = format!("{kernel}/vmlinux");
    let words = ["-i", &data, "-f", "k:schedule", "-f", "round_fn", "--check"];
    let report = json(&[&words[..], &["--kcore", &kernel]].concat());
    assert_eq!(names(&report), ["schedule", "round_fn"]);
    let schedule = &report["functions"][0];
    assert_eq!(schedule["object"], "[kernel.kallsyms]");
    let count = schedule["calls"]["complete"].as_u64().unwrap();
    assert_eq!(schedule["callers"][0]["name"], "__x64_sys_wait");
    assert_eq!(schedule["callers"][0]["calls"].as_u64(), Some(count));
    let child = &schedule["children"].as_array().unwrap().iter().find(|c| c["name"] == "__schedule").unwrap();
    assert_eq!((child["count"].as_u64(), child["kind"].as_str()), (Some(count), Some("call")));
    // Each of its calls is a sleep.
    assert!(schedule["off_cpu_ns"]["min"].as_u64().unwrap() > 0, "{schedule}");
    // With the linked kernel it is the same, and user code is what it is alone.
    let linked = json(&[&words[..], &["--vmlinux", &vmlinux]].concat());
    assert_eq!(linked["functions"], report["functions"]);
    let alone = json(&["-i", &data, "-f", "round_fn", "--kcore", &kernel]);
    assert_eq!(alone["functions"][0], report["functions"][1]);
}

#[test]
fn the_kernel_is_not_called_stripped_where_its_symbols_are_there() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let (_, error) = run(&["report", "-i", &data, "--kcore", &kernel, "-f", "k:no_such_function"], 2);
    assert!(error.contains("no function is called 'k:no_such_function'"), "{error}");
    assert!(!error.contains("stripped"), "{error}");
}

/// A kernel function that is entered where tracing starts, in an IP filter, is no child of user code.
/// That has the whole system call or interrupt as one.
#[test]
fn in_an_ip_filter_user_functions_are_what_they_are_alone() {
    let Some(fixture) = fixture("calls-offcpu") else { return };
    let (data, kernel) = paths(&fixture);
    let words = ["-i", &data, "-f", "leaf_fn", "-f", "simple_fn", "--kcore", &kernel];
    let both = json(&[&words[..], &["-f", "k:__schedule", "--check"]].concat());
    assert_eq!(names(&both), ["leaf_fn", "simple_fn", "__schedule"]);
    let alone = json(&words);
    assert_eq!(alone["functions"][0], both["functions"][0]);
    assert_eq!(alone["functions"][1], both["functions"][1]);
}

#[test]
fn regions_in_kernel_code_are_refused() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let region = "a=k:do_syscall_64..k:do_syscall_64";
    let (_, error) = run(&["report", "-i", &data, "--kcore", &kernel, "--region", region], 2);
    assert!(error.contains("is kernel code, where there are no regions"), "{error}");
    assert!(error.contains("-f k:NAME"), "{error}");
}

#[test]
fn globs_processes_and_workers() {
    let Some(fixture) = fixture("demo-kernel-cpu2") else { return };
    let (data, kernel) = paths(&fixture);
    let words = ["-i", &data, "-f", "k:__x64_sys_*", "--kcore", &kernel];
    let report = json(&words);
    assert_eq!(names(&report), ["__x64_sys_work", "__x64_sys_wait"]);
    let pid = rows(&["-i", &data, "-f", "k:do_syscall_64", "--kcore", &kernel])[0]["pid"].to_string();
    assert_eq!(json(&[&words[..], &["-p", &pid]].concat())["functions"], report["functions"]);
    for workers in ["1", "3"] {
        assert_eq!(json(&[&words[..], &["-w", workers]].concat())["functions"], report["functions"]);
    }
}

#[test]
fn user_frames_stand_below_the_system_call() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let of = ["-i", &data, "-f", "k:__x64_sys_wait", "--kcore", &kernel];
    let calls = rows(&of);
    let row = calls.iter().find(|row| row["status"] == "complete").unwrap();
    let id = row["id"].as_str().unwrap();
    let (text, _) = run(&[&["show", id], &of[..]].concat(), 0);
    let stack = text.split("stack below the call\n").nth(1).unwrap();
    let lines: Vec<&str> = stack.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    assert_eq!(lines[..2], ["kernel  do_syscall_64", "kernel  entry_SYSCALL_64"]);
    assert!(lines.len() > 2 && lines[2..].iter().all(|line| line.starts_with("user    ")), "{text}");
    let json: Value =
        serde_json::from_str(&run(&[&["show", id, "--format", "json"], &of[..]].concat(), 0).0).unwrap();
    let below = json["below"].as_array().unwrap();
    assert_eq!(below.len(), lines.len());
    assert_eq!((&below[1]["name"], &below[1]["kernel"]), (&"entry_SYSCALL_64".into(), &true.into()));
}

#[test]
fn where_kernel_code_is_missing_the_error_says_what_to_record() {
    let (Some(fixture), Some(user)) = (fixture("demo-kernel"), fixture("demo")) else { return };
    let (data, _) = paths(&fixture);
    let (_, error) = run(&["report", "-i", &data, "-f", "k:vfs_read"], 4);
    for word in ["'k:vfs_read'", "--kcore DIR", "--vmlinux FILE", "func_latency bundle"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    let (_, error) = run(&["report", "-i", user.data.to_str().unwrap(), "-f", "k:vfs_*"], 4);
    assert!(error.contains("user code alone was traced"), "{error}");
    assert!(error.contains("perf record --kcore -e intel_pt//"), "{error}");
}

#[test]
fn a_bundle_has_the_functions_of_the_kernel() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let root = tempfile::tempdir().unwrap();
    let bundle = root.path().join("bundle");
    let path = |name: &str| bundle.join(name).to_str().unwrap().to_owned();
    run(&["bundle", &data, "--kcore", &kernel, "-o", bundle.to_str().unwrap()], 0);
    let there = json(&["-i", &path("perf.data"), "--symfs", &path("objects"), "-f", "k:do_syscall_64"]);
    let here = json(&["-i", &data, "--kcore", &kernel, "-f", "k:do_syscall_64"]);
    assert_eq!(there["functions"], here["functions"]);
}

/// The kernel's own instructions are counted, and nothing of user code is 0.
#[test]
fn counters_of_kernel_functions_are_of_kernel_code() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let of = |function: &str| ["-i", &data, "--kcore", &kernel, "-f", function].map(str::to_owned);
    let counted = |function: &str| {
        let words = of(function);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--counters", "--check"]).collect();
        json(&words)["functions"][0].clone()
    };
    let [outer, inner] = ["k:entry_SYSCALL_64", "k:do_syscall_64"].map(counted);
    for function in [&outer, &inner] {
        let counters = &function["counters"];
        for unknown in ["instructions", "branches", "calls", "cycles", "milli_ipc", "frequency_mhz", "ipc"] {
            assert_eq!(counters[unknown], Value::Null, "{unknown}");
        }
        let kernel = &counters["kernel_instructions"];
        assert_eq!(kernel["count"], function["latency_ns"]["count"]);
        let children = function["children"].as_array().unwrap();
        assert!(children.iter().all(|child| child["counters"]["instructions"].is_null()));
        let of_child = |child: &Value| child["counters"]["kernel_instructions"].as_u64().unwrap();
        assert_eq!(Some(children.iter().map(of_child).sum::<u64>()), kernel["sum"].as_u64());
    }
    let sum = |function: &Value| function["counters"]["kernel_instructions"]["sum"].as_u64().unwrap();
    assert!(sum(&inner) > 0 && sum(&outer) > sum(&inner));
    let words = of("k:do_syscall_64");
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--counters"]).collect();
    let (text, _) = run(&[&["report"], &words[..]].concat(), 0);
    assert!(text.contains("a function of the kernel runs no user code"), "{text}");
    assert!(text.contains("kernel instr. avg"), "{text}");
    let rows = rows(&words);
    let row = rows.iter().find(|row| row["status"] == "complete").unwrap();
    assert_eq!(row["instructions"], Value::Null);
    assert!(row["kernel_instructions"].as_u64().unwrap() > 0);
}

/// What a call executed in the kernel function's own code is listed as that of user code is.
#[test]
fn annotate_lists_kernel_functions() {
    let Some(fixture) = fixture("demo-kernel") else { return };
    let (data, kernel) = paths(&fixture);
    let words = ["annotate", "--format", "json", "-i", &data, "--kcore", &kernel, "-f", "k:do_syscall_64"];
    let listing: Value = serde_json::from_str(&run(&words, 0).0).unwrap();
    let group = &listing["groups"][0];
    let instructions = listing["instructions"].as_array().unwrap();
    assert_eq!(instructions[0]["of"][0]["executions"], group["calls"], "{}", instructions[0]);
    let sum = |key: &str| instructions.iter().map(|one| one["of"][0][key].as_u64().unwrap()).sum::<u64>();
    let number = |key: &str| group[key].as_u64().unwrap();
    assert_eq!(sum("self_ns") + number("elsewhere_ns"), number("self_ns"));
    assert_eq!(number("self_ns") + number("inside_ns"), number("latency_sum_ns"));
    assert!(sum("self_ns") * 2 > number("self_ns"), "most of its time has a place: {group}");
    // Code blocks, too.
    let of = ["report", "-c", "-i", &data, "--kcore", &kernel, "-f", "k:do_syscall_64"];
    let (text, _) = run(&of, 0);
    assert!(text.contains("Code blocks of [do_syscall_64]") && text.contains("entry .. "), "{text}");
}
