//! Five kinds of slow calls in one run: more work in a callee, a longer loop, a lock, cache misses on the
//! path of any other call, a lower frequency. The program plants the first three, the simulation the others.

use std::path::Path;

use serde_json::Value;
use tracegen::Options;
use truth_tests::{Fixture, fixture, is_full_run};

use super::{adds_up, explain};

/// What the simulation does to `causes.c`: one call in 50 each.
const SIMULATED: [&str; 4] = [
    "--tick-us=1000000000",
    "--fixed-cbr",
    "--miss=disturbed,0.02,40",
    // 2.4 GHz instead of 3.6 GHz
    "--slow-clock=disturbing,0.02,24",
];

/// What `explain` names: row, end of the way down, why there, and what most of it is.
type Cause<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

/// What `explain` must say of a function.
struct Kind {
    function: &'static str,
    cause: Cause<'static>,
    /// Slow calls take the same branches as typical ones, in what they call, too.
    same_path: bool,
}

const KINDS: [Kind; 5] = [
    Kind {
        function: "dear_child",
        cause: ("deep_1", "deep_3", "own", Some("more_instructions")),
        same_path: false,
    },
    Kind {
        function: "one_more_trip",
        cause: ("*self", "one_more_trip", "own", Some("more_instructions")),
        same_path: false,
    },
    Kind {
        function: "waits_for_lock",
        cause: ("[blocked]", "__lll_lock_wait", "more_often", None),
        same_path: false,
    },
    Kind {
        function: "disturbed",
        cause: ("*self", "disturbed", "own", Some("slower_instructions")),
        same_path: true,
    },
    Kind {
        function: "disturbing",
        cause: ("*self", "disturbing", "own", Some("lower_frequency")),
        same_path: true,
    },
];

/// Functions of the same run in which nothing is planted.
const WITHOUT: [(&str, &str); 6] = [
    ("no_cause", "p90"),
    ("no_cause", "p99"),
    ("no_cause", "p99.9"),
    ("faults", "p90"), // without `--fault` it has none
    ("faults", "p99"),
    ("faults", "p99.9"),
];

/// The cause that is named, and whether it is the only one and on the path of typical calls.
fn named(explained: &Value) -> Option<(Cause<'_>, bool, bool)> {
    let cause = explained["cause"].as_object()?;
    let row = &explained["rows"][cause["row"].as_u64()? as usize];
    let end = cause["path"].as_array()?.last()?;
    let nature = cause.get("nature").and_then(Value::as_str);
    let is_only_one = explained["clusters"].as_array()?.len() == 1;
    let same_path = explained["branches"]["first"].is_null();
    Some((
        (row["name"].as_str()?, end["name"].as_str()?, cause["why"].as_str()?, nature),
        is_only_one,
        same_path,
    ))
}

/// Makes a recording with these dice; what is wrong with each kind, and causes where there are none.
fn check(log: &Path, dir: &Path, seed: u64) -> (Vec<String>, Vec<String>) {
    let seed_option = format!("--seed={seed}");
    let options = Options::from_args(SIMULATED.into_iter().chain([&*seed_option])).unwrap();
    let (data, truth) = (dir.join("kinds.data"), dir.join("kinds.truth"));
    tracegen::encode(log, &data, &truth, &options).unwrap();
    let wrong = KINDS.iter().filter_map(|kind| {
        let explained = explain(&data, kind.function, &["--slow", "p99"]);
        adds_up(kind.function, &explained);
        let found = named(&explained);
        (found != Some((kind.cause, true, kind.same_path)))
            .then(|| format!("seed {seed}: {}: {found:?}", kind.function))
    });
    let wrong = wrong.collect();
    let false_causes = WITHOUT.iter().filter_map(|(function, percentile)| {
        let explained = explain(&data, function, &["--slow", percentile]);
        let found = named(&explained)?;
        Some(format!("seed {seed}: {function} {percentile}: {found:?}"))
    });
    (wrong, false_causes.collect())
}

/// Every cause is named for what it is, and none where nothing is planted.
#[test]
fn every_kind_of_slowness_is_told_from_the_others() {
    let Some(Fixture { data, log, .. }) = fixture("causes") else { return };
    let dir = tempfile::tempdir().unwrap();
    let recordings = if is_full_run() { 20 } else { 2 };
    let log = data.with_file_name("logs").join(log);
    let (wrong, false_causes): (Vec<_>, Vec<_>) =
        (1..=recordings).map(|seed| check(&log, dir.path(), seed)).unzip();
    let [wrong, false_causes] = [wrong.concat(), false_causes.concat()];
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 5 * recordings, wrong.join("\n"));
    let asked = recordings * WITHOUT.len() as u64;
    let count = false_causes.len();
    assert!(count == 0, "{count} false causes of {asked}:\n{}", false_causes.join("\n"));
}
