//! Timelines that leave out short calls: what is left out is counted, on stderr and in the file.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use truth_tests::fixture;

use super::perfetto::{Slices, read};
use super::{cases, command, text};

const FUNCTION: &str = "sqlite3VdbeExec";

/// What `export` says of what it writes.
fn export(format: &str, bound: &[&str], to: &Path) -> Option<String> {
    let fixture = fixture("sq1")?;
    let output = command()
        .args(["export", "-f", FUNCTION, "--format", format, "-i"])
        .arg(&fixture.data)
        .args(bound)
        .arg("-o")
        .arg(to)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stderr).unwrap())
}

/// The calls of all slices by what they took, in ns.
fn durations(slices: &Slices) -> BTreeMap<u64, u64> {
    let mut durations = BTreeMap::new();
    for slice in slices.calls() {
        *durations.entry(slice.ns).or_default() += 1;
    }
    durations
}

/// All calls of sq1, those of a thousand slices at most, and from 3 us on.
#[test]
fn calls_that_are_left_out_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("export");
    let Some(said) = export("perfetto", &["--all"], &path) else { return };
    let all = read(&path);
    assert_eq!((said.as_str(), all.left_out()), ("", None));
    let all = durations(&all);
    let of = |from: u64| all.range(from..).map(|(_, calls)| calls).sum::<u64>();
    let (every, longest) = (of(0), (0..64).map(|bits| 1 << bits).find(|from| of(*from) <= 1000).unwrap());
    for (bound, from) in [(["--top", "1000"], longest), (["--min", "3000"], 3000)] {
        let said = export("perfetto", &bound, &path).unwrap();
        let trace = read(&path);
        let kept: BTreeMap<u64, u64> = all.range(from..).map(|(ns, calls)| (*ns, *calls)).collect();
        assert_eq!(durations(&trace), kept, "{bound:?}");
        let of_file = trace.left_out().unwrap();
        assert_eq!((of_file["calls_left_out"], of_file["all_shorter_than_ns"]), (every - of(from), from));
        let firefox = directory.path().join("profile");
        assert_eq!(export("firefox", &bound, &firefox).unwrap(), said);
        let profile: Value = serde_json::from_str(&text(&firefox)).unwrap();
        let entries = profile["meta"]["extra"][0]["entries"].as_array().unwrap().iter();
        let of_profile: Vec<_> = entries.map(|entry| entry["value"].as_u64().unwrap()).collect();
        let names = ["calls_left_out", "all_shorter_than_ns", "in_no_other_call", "time_of_these_ns"];
        assert_eq!(of_profile, names.map(|name| of_file[name]));
        assert_eq!(
            said,
            format!("func_latency: note: {}\n", profile["meta"]["profileName"].as_str().unwrap())
        );
        // What is not there of the calls' time is that of calls which are not in any other.
        let samples = &profile["threads"][0]["samples"]["weight"];
        let ms: f64 = samples.as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap()).sum();
        let outermost_ns: u64 = trace.calls().filter(|slice| slice.depth == 0).map(|slice| slice.ns).sum();
        assert_eq!((ms * 1e6).round() as u64, outermost_ns, "{bound:?}");
    }
}

/// Calls of a function inside of another one's were drawn twice, and after them though they were before.
#[test]
fn each_of_several_functions_has_a_timeline_of_its_own() {
    let Some(case) = cases().into_iter().find(|case| case.symbol == FUNCTION) else { return };
    let both = ["-f", "main", "--all"];
    let of_function = case.report.outermost.total.sum_ns;
    let totals: Vec<u64> = read(&case.export("perfetto", &both)).totals().into_values().collect();
    let of_main = *totals.iter().max().unwrap();
    assert_eq!((totals.len(), totals.iter().sum::<u64>()), (2, of_main + of_function));
    let profile: Value = serde_json::from_str(&text(&case.export("firefox", &both))).unwrap();
    let mut totals = BTreeMap::new();
    for thread in profile["threads"].as_array().unwrap() {
        let column = |name: &str| -> Vec<f64> {
            let column = thread["samples"][name].as_array().unwrap();
            column.iter().map(|value| value.as_f64().unwrap()).collect()
        };
        assert!(column("time").is_sorted());
        let ns = (column("weight").iter().sum::<f64>() * 1e6).round() as u64;
        totals.insert(thread["name"].as_str().unwrap().to_owned(), ns);
    }
    let expect = [("sqbench: main", of_main), ("sqbench: sqlite3VdbeExec", of_function)];
    assert_eq!(totals, expect.map(|(name, ns)| (name.to_owned(), ns)).into());
}

/// The most memory that a process had while it ran, in kB.
fn peak_kilobytes(export: &mut Command) -> u64 {
    let mut process = export.spawn().unwrap();
    let status = format!("/proc/{}/status", process.id());
    let mut peak = 0;
    loop {
        // None of a process that has ended.
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak = line.map_or(peak, |line| line.trim().trim_end_matches(" kB").parse().unwrap());
        if let Some(status) = process.try_wait().unwrap() {
            assert!(status.success());
            return peak;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// 46 ms of calls were 139 MB for Firefox and 189 MB for Perfetto, and took 1.7 GB and 274 MB of memory.
#[test]
fn timelines_of_a_large_recording_take_little_room() {
    let Some(fixture) = fixture("sq50") else { return };
    let directory = tempfile::tempdir().unwrap();
    for format in ["firefox", "perfetto"] {
        let path = directory.path().join(format);
        let words = ["export", "-f", FUNCTION, "--format", format, "-i"];
        let mut export = command();
        export.args(words).arg(&fixture.data).args(["-w", "2", "-o"]).arg(&path);
        let peak = peak_kilobytes(&mut export);
        assert!((50_000..160_000).contains(&peak), "{format}: {peak} kB");
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!((2_000_000..20_000_000).contains(&bytes), "{format}: {bytes} bytes");
    }
}
