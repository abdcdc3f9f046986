//! Recordings in which nothing happened: `explain` names no cause.

use std::path::Path;

use serde_json::Value;
use tracegen::Options;
use truth_tests::{Fixture, fixture, is_full_run};

use super::explain;

/// Functions of `causes.c` without a cause, and which of their calls are called slow.
pub(super) const ASKED: [(&str, &str); 4] =
    [("no_cause", "p99"), ("no_cause", "p99.9"), ("no_cause", "p90"), ("disturbed", "p99")];

/// Makes a steady recording with these dice; the sets of slow calls that have a cause.
fn false_causes(log: &Path, dir: &Path, seed: u64) -> Vec<String> {
    let seed_option = format!("--seed={seed}");
    let arguments = ["--tick-us=1000000000", "--fixed-cbr", "--fault=touch", &seed_option];
    let (data, truth) = (dir.join("steady.data"), dir.join("steady.truth"));
    tracegen::encode(log, &data, &truth, &Options::from_args(arguments).unwrap()).unwrap();
    let asked = ASKED.iter().filter_map(|(function, percentile)| {
        let explained = explain(&data, function, &["--slow", percentile]);
        let clusters = explained["clusters"].as_array().unwrap();
        let is_false = explained["cause"] != Value::Null || !clusters.is_empty();
        is_false.then(|| format!("seed {seed}: {function} {percentile}: {:#}", explained["outlying"]))
    });
    asked.collect()
}

/// At most one false cause in 400 recordings, over all sets of slow calls that are asked about.
#[test]
fn steady_recordings_have_no_cause() {
    let Some(Fixture { data, log, .. }) = fixture("causes") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (recordings, allowed) = if is_full_run() { (400, 1) } else { (12, 0) };
    let log = data.with_file_name("logs").join(log);
    let found: Vec<String> =
        (1..=recordings).flat_map(|seed| false_causes(&log, dir.path(), 100 + seed)).collect();
    assert!(found.len() <= allowed, "{} of {recordings}:\n{}", found.len(), found.join("\n"));
}
