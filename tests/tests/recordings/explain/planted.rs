//! Twenty functions with reasons that were drawn at random: `fixtures/programs/planted.c` has their table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use truth_tests::{Fixture, fixture};

use super::explain;

/// Calls of each function, as in the program.
const CALLS: u64 = 400;
/// Calls of which one is slow, as in the program.
const PERIOD: u64 = 20;

/// What a cluster is named: its row, the end of the way down, and why there.
type Named = (String, String, String);

/// How `explain` names a reason of the program's table.
fn name(function: &str, reason: &str) -> Named {
    let (row, end, why) = match reason {
        "SLEEP" => ("[blocked]", "backoff", "more_often"),
        "LOCK" => ("[blocked]", "__lll_lock_wait", "more_often"),
        "MORE" => ("piece", "piece", "more_often"),
        "DEEPER" => ("descends", "descends", "more_often"),
        "TRIPS" | "BRANCH" => ("*self", function, "own"),
        "SYSCALLS" => ("[kernel]", "syscall", "more_often"),
        "SIGNAL" => ("on_fault", "on_fault", "more_often"),
        "FAULT" => ("[interrupts and faults]", "[interrupt]", "more_often"),
        "CHILD" => ("child", "grandchild", "own"),
        other => unreachable!("no reason: {other}"),
    };
    (row.to_owned(), end.to_owned(), why.to_owned())
}

/// Each function, and the slow calls of each of its reasons.
fn table() -> BTreeMap<&'static str, BTreeMap<Named, BTreeSet<u64>>> {
    let source = include_str!("../../../../fixtures/programs/planted.c");
    let rows = source.lines().filter_map(|line| line.trim().strip_prefix("X(planted_"));
    let rows: Vec<&str> = rows.map(|row| row.split_once(')').unwrap().0).collect();
    assert_eq!(rows.len(), 20);
    let row = |row: &'static str| {
        let (number, reasons) = row.split_once(", ").unwrap();
        let function: &'static str = format!("planted_{number}").leak();
        let reasons: Vec<&str> = reasons.split(", ").filter(|reason| *reason != "NONE").collect();
        let mut calls: BTreeMap<Named, BTreeSet<u64>> = BTreeMap::new();
        for (slow, reason) in (0..CALLS / PERIOD).zip(reasons.iter().cycle()) {
            calls.entry(name(function, reason)).or_default().insert(slow * PERIOD + PERIOD / 2);
        }
        (function, calls)
    };
    rows.into_iter().map(row).collect()
}

/// The clusters that `explain` finds, with the numbers of their calls.
fn found(explained: &Value) -> BTreeMap<Named, BTreeSet<u64>> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let number = |id: &Value| text(id).rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
    let cluster = |cluster: &Value| {
        let cause = &cluster["cause"];
        let row = &cluster["rows"][cause["row"].as_u64().unwrap() as usize];
        let last = cause["path"].as_array().unwrap().last().unwrap();
        let calls = cluster["slow_ids"].as_array().unwrap().iter().map(number);
        ((text(&row["name"]), text(&last["name"]), text(&cause["why"])), calls.collect())
    };
    explained["clusters"].as_array().unwrap().iter().map(cluster).collect()
}

/// The call that is opened is one of the cause that is named first, and so are the means of each cluster.
fn examples_are_of_their_cluster(function: &str, explained: &Value) {
    for cluster in explained["clusters"].as_array().unwrap() {
        let example = &cluster["branches"]["slow"];
        let ids = cluster["slow_ids"].as_array().unwrap();
        assert!(ids.contains(example), "{function}: {example} is none of {ids:?}");
        let rows = cluster["rows"].as_array().unwrap();
        let sum: i64 = rows.iter().map(|row| row["difference_ns"].as_i64().unwrap()).sum();
        assert_eq!(Some(sum), cluster["difference_ns"].as_i64(), "{function}");
    }
    assert_eq!(explained["branches"], explained["clusters"][0]["branches"], "{function}");
}

/// Right: each reason with all of its calls, and nothing else. Half right: what is named is planted, and its
/// calls are those, but something is missing. Wrong: anything else.
#[test]
fn causes_that_were_drawn_at_random_are_found() {
    let Some(Fixture { data, .. }) = fixture("planted") else { return };
    let mut verdicts = [0; 3];
    let mut text = String::new();
    for (function, planted) in table() {
        let explained = explain(&data, function, &["--slow", "p95"]);
        examples_are_of_their_cluster(function, &explained);
        let found = found(&explained);
        let is_planted = |(name, calls): (&Named, &BTreeSet<u64>)| {
            planted.get(name).is_some_and(|planted| calls.is_subset(planted))
        };
        let verdict = if found == planted { 0 } else { 2 - usize::from(found.iter().all(is_planted)) };
        verdicts[verdict] += 1;
        let verdict = ["right", "half right", "WRONG"][verdict];
        writeln!(text, "{function}  {verdict:10}  {}", summary(&planted)).unwrap();
        if found != planted {
            writeln!(text, "                  found: {}", summary(&found)).unwrap();
        }
    }
    let [right, half_right, wrong] = verdicts;
    println!("{text}right {right}, half right {half_right}, wrong {wrong}");
    assert!(right >= 18 && wrong == 0, "right {right}, half right {half_right}, wrong {wrong}\n{text}");
}

fn summary(clusters: &BTreeMap<Named, BTreeSet<u64>>) -> String {
    let cluster =
        |((row, end, why), calls): (&Named, &BTreeSet<u64>)| format!("{} {row} > {end} {why}", calls.len());
    clusters.iter().map(cluster).collect::<Vec<_>>().join("; ")
}
