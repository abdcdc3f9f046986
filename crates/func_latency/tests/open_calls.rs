//! A function that does not return in the recording: what was seen inside of it, in every command that has
//! it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A recording in which `outer` calls `f` twice and does not return.
fn recorded(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    program::write(&directory, &program::BUILD_ID);
    directory
}

/// What the command prints; it must succeed, and say nothing on stderr.
fn run(directory: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    let Output { status, stdout, stderr } = command.args(words).current_dir(directory).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{words:?}\n{stdout}");
    stdout
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_report_has_its_children_apart() {
    let directory = recorded("open-report");
    let f =
        &json(&run(&directory, &["report", "-f", "outer", "--check", "--format", "json"]))["functions"][0];
    assert_eq!((&f["children"], &f["callers"]), (&json("[]"), &json("[]")));
    let open = &f["open"];
    let children = open["children"].as_array().unwrap();
    let named = |name: &str| children.iter().filter(|child| child["name"] == name).collect::<Vec<_>>();
    let counts: Vec<_> = named("f").iter().map(|child| child["count"].as_u64().unwrap()).collect();
    assert_eq!((counts, named("*self").len()), (vec![1, 1], 1));
    let sum: u64 = children.iter().map(|child| child["sum"].as_u64().unwrap()).sum();
    assert!(sum > 0 && open["observed_ns"] == sum && open["calls"] == 1, "{open}");
    assert_eq!(open["callers"][0]["name"], "[unknown]");

    let text = run(&directory, &["report", "-f", "outer"]);
    assert!(text.contains("Children of [outer] in 1 call that was open: the observed part, "), "{text}");
}

#[test]
fn the_graph_shows_the_observed_part_and_says_so() {
    let directory = recorded("open-graph");
    let text = run(&directory, &["graph", "-f", "outer"]);
    let says =
        "no call of outer was seen from entry to end: this is the observed part of calls that were open\n";
    assert!(text.contains(says) && text.contains("%-- f\n"), "{text}");
    assert!(!run(&directory, &["graph", "-f", "f"]).contains("observed part"));
}

#[test]
fn an_explanation_says_what_it_was_spent_in_and_what_says_more() {
    let directory = recorded("open-explain");
    let text = run(&directory, &["explain", "-f", "outer"]);
    assert!(text.contains("No call was seen from entry to end"), "{text}");
    let next = text.lines().last().unwrap().strip_prefix("More of what was seen: func_latency ").unwrap();
    let document = json(&run(&directory, &["explain", "-f", "outer", "--format", "json"]));
    assert_eq!((&document["schema"], &document["slow"]), (&"func_latency_explain/1".into(), &Value::Null));
    assert_eq!(
        (&document["open"]["calls"], &document["next"]),
        (&1.into(), &format!("func_latency {next}").into())
    );
    // What it names works.
    run(&directory, &next.split(' ').collect::<Vec<_>>());
}
