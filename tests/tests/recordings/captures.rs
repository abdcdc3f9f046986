//! Captures of `watch --replay`: every call that was planted, and no other; opened like any recording.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use decoder::DecodeOptions;
use model::{AuxOffset, Avma, EventSink, Pid, SpaceId, Tid, TraceEvent, Transfer};
use serde_json::Value;
use tempfile::TempDir;
use truth_tests::{Opened, fixture, is_full_run, pipeline};

/// Calls that are slow take longer, and no others.
const SLOW_NS: u64 = 20_000;
/// `fixtures/programs/rare.c`: of each thread.
const SLOW_CALLS: usize = 6;

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    command.args(words);
    command
}

fn run(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn done(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A watch that has ended.
struct Watched {
    directory: TempDir,
    captures: Vec<Value>,
    said: String,
}

impl Watched {
    /// Watches a function of a fixture.
    fn new(name: &str, function: &str, words: &[&str]) -> Option<Self> {
        let data = fixture(name)?.data;
        let directory = tempfile::tempdir().unwrap();
        let captures = directory.path().join("captures");
        let fixed = ["watch", "-f", function, "--format", "json", "--captures", captures.to_str().unwrap()];
        let output = run(&[&fixed, words, &["--replay", data.to_str().unwrap()]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {said}");
        let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let documents: Vec<Value> = documents.collect::<Result<_, _>>().unwrap();
        assert_eq!(documents.last().unwrap()["schema"], "func_latency/3", "the report is the last");
        let captures = documents.into_iter().filter(|it| it["schema"] == "func_latency.capture/1");
        Some(Self { directory, captures: captures.collect(), said })
    }

    /// All that is in the directory of the captures.
    fn entries(&self) -> BTreeSet<PathBuf> {
        entries(&self.directory.path().join("captures"))
    }

    fn paths(&self) -> BTreeSet<PathBuf> {
        self.captures.iter().map(|capture| path(capture).into()).collect()
    }
}

fn entries(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn path(capture: &Value) -> &str {
    capture["path"].as_str().unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    assert!(value[key].is_u64(), "no {key}: {value}");
    value[key].as_u64().unwrap()
}

/// The rows of the slow calls: thread, begin, latency and how far off these may be.
fn slow_rows(data: &Path) -> Vec<(u64, u64, u64, u64)> {
    let directory = tempfile::tempdir().unwrap();
    let rows = directory.path().join("rows.jsonl");
    done(&["report", "-f", "rarely_slow", "--rows", rows.to_str().unwrap(), "-i", data.to_str().unwrap()]);
    let rows = std::fs::read_to_string(rows).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 60_000);
    let slow = rows.iter().filter(|row| number(row, "latency_ns") > SLOW_NS);
    let keys = ["tid", "start_ns", "latency_ns", "error_ns"];
    slow.map(|row| keys.map(|key| number(row, key)).into()).collect()
}

const ALL: [&str; 8] = ["--over", "20us", "--keep", "100", "--max-captures", "100/1s", "-n", "0.0003"];
const AROUND: [&str; 4] = ["--before", "100us", "--after", "100us"];

#[test]
fn every_planted_call_is_captured_and_no_other() {
    let Some(watched) = Watched::new("rare", "rarely_slow", &[&ALL[..], &AROUND].concat()) else { return };
    let rows = slow_rows(&fixture("rare").unwrap().data);
    assert_eq!(rows.len(), SLOW_CALLS);
    assert_eq!(watched.captures.len(), SLOW_CALLS, "{}", watched.said);
    assert_eq!(watched.entries(), watched.paths(), "nothing else is there");
    for (tid, start_ns, latency_ns, error_ns) in rows {
        let is_it = |capture: &&Value| {
            number(capture, "tid") == tid
                && number(capture, "start_ns").abs_diff(start_ns) <= error_ns
                && number(capture, "latency_ns").abs_diff(latency_ns) <= error_ns
        };
        let found: Vec<&Value> = watched.captures.iter().filter(is_it).collect();
        let [capture] = found[..] else { panic!("{} captures of the call at {start_ns}", found.len()) };
        assert_eq!(capture["trigger"], "over 20.0 us");
        let cause = capture["cause"].as_str().unwrap();
        assert!(cause.contains("slow_part"), "{cause}");
        opens(capture);
    }
}

/// Every command that reads recordings takes the directory, and knows which call it is about.
fn opens(capture: &Value) {
    let path = path(capture);
    let read = |words: &[&str]| -> Value { serde_json::from_str(&done(words)).unwrap() };
    let report = read(&["report", "--check", "--format", "json", path]);
    let function = &report["functions"][0];
    assert_eq!(function["name"], "rarely_slow");
    assert!(number(&function["latency_ns"], "max") >= number(capture, "latency_ns"));
    let calls = number(&function["latency_ns"], "count");
    assert!((1000..20_000).contains(&calls), "{calls} calls in 200 us and more");
    let shown = done(&["show", "-i", path]);
    assert!(shown.contains("slow_part") && shown.contains(capture["id"].as_str().unwrap()), "{shown}");
    let explained = done(&["explain", "-i", path]);
    assert!(explained.contains("Cause: slow_part") && explained.contains("1 slow call"), "{explained}");
    let page = Path::new(path).join("page.html");
    done(&["report", path, "--html", page.to_str().unwrap()]);
    assert!(std::fs::read_to_string(page).unwrap().contains("rarely_slow"));
    // What is named on the command line counts.
    assert!(done(&["report", "-f", "slow_part", path]).contains("Latency of [slow_part]"), "{path}");
}

/// Thread, packet, and what happened, without the numbers that an image has for functions.
type Happened = (Tid, AuxOffset, Option<(Option<Avma>, Option<Avma>)>);

/// Events of a time, which buffers of CPUs and threads have.
struct Within {
    time: Range<u64>,
    events: BTreeMap<Tid, Vec<Happened>>,
}

impl EventSink for Within {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        for event in events {
            let (time, at, what) = match event {
                TraceEvent::Gap(gap) => (gap.from, gap.at, None),
                TraceEvent::Branch(branch) => {
                    let what = match branch.transfer {
                        Transfer::Branch { from, to, .. } => (Some(from.ip), Some(to.ip)),
                        Transfer::Start { to, .. } => (None, Some(to.ip)),
                        Transfer::End { from, to, .. } => (Some(from.ip), to),
                    };
                    (branch.time, branch.at, Some(what))
                }
            };
            if self.time.contains(&time.point.0) {
                self.events.entry(tid).or_default().push((tid, at, what));
            }
        }
    }
}

fn events(data: &Path, time: &Range<u64>) -> BTreeMap<Tid, Vec<Happened>> {
    let file = pipeline::open(data).unwrap();
    let opened = Opened::new(&file).unwrap();
    assert_eq!(opened.recording.damage, None);
    let mut within = Within { time: time.clone(), events: BTreeMap::new() };
    opened.decode(&DecodeOptions::default(), &mut within);
    within.events
}

/// From the begin to the end of the captured time every thread has the events of the whole recording.
#[test]
fn a_capture_has_all_threads_trace_of_its_time() {
    let cases = [
        ("rare", "rarely_slow", "20us"),
        ("demo-cpu2", "round_fn", "10us"),
        ("demo", "round_fn", "10us"),
        ("demo-cpu2-ovf", "round_fn", "10us"),
        ("sq1", "sqlite3VdbeExec", "300us"),
    ];
    let around =
        ["--before", "1ms", "--after", "1ms", "--keep", "5", "--max-captures", "5/1s", "-n", "0.001"];
    for (name, function, over) in cases {
        let words = [&["--over", over][..], &around].concat();
        let Some(watched) = Watched::new(name, function, &words) else { continue };
        assert!((1..=5).contains(&watched.captures.len()), "{name}: {}", watched.said);
        let whole = fixture(name).unwrap().data;
        for capture in &watched.captures {
            // Bounds may let an event at an end be on either side.
            let time = number(capture, "from_ns") + 100..number(capture, "to_ns") - 100;
            let (is, expected) =
                (events(&Path::new(path(capture)).join("perf.data"), &time), events(&whole, &time));
            let count = |events: &BTreeMap<Tid, Vec<Happened>>| -> Vec<_> {
                events.iter().map(|(tid, events)| (*tid, events.len())).collect()
            };
            assert_eq!(count(&is), count(&expected), "{name}: {capture}");
            assert!(is == expected, "{name}: {capture}");
        }
    }
}

/// The trace of a capture begins at a PSB before its time, when another thread may have run on the CPU.
#[test]
fn what_a_capture_has_of_before_and_after_its_time_is_the_threads_own() {
    let cases = [
        ("demo-cpu2", "round_fn", "10us"),
        ("demo-cpu8", "round_fn", "10us"),
        ("calls-cpu2", "round_cc", "1us"),
        ("causes-cpu1", "waits_for_lock", "10us"),
        ("case-recursion-cpu2", "deep", "1us"),
        ("rare", "rarely_slow", "20us"),
    ];
    let (many, rate) = if is_full_run() { ("20", "20/1s") } else { ("5", "5/1s") };
    let around = ["--before", "0ns", "--after", "0ns", "--keep", many, "--max-captures", rate, "-n", "0.001"];
    for (name, function, over) in cases {
        let words = [&["--over", over][..], &around].concat();
        let Some(watched) = Watched::new(name, function, &words) else { continue };
        assert!(!watched.captures.is_empty(), "{name}: {}", watched.said);
        let whole = events(&fixture(name).unwrap().data, &(0..u64::MAX));
        let mut outside = 0;
        for capture in &watched.captures {
            let (from, to) = (number(capture, "from_ns"), number(capture, "to_ns"));
            let path = Path::new(path(capture)).join("perf.data");
            for time in [0..from, to..u64::MAX] {
                for (tid, events) in events(&path, &time) {
                    let own: BTreeSet<&Happened> = whole.get(&tid).into_iter().flatten().collect();
                    // Where decoding begins, control is somewhere, and something is lost before.
                    let is_transfer = |(.., what): &&Happened| matches!(what, Some((Some(_), Some(_))));
                    for event in events.iter().filter(is_transfer) {
                        assert!(own.contains(event), "{name}: thread {} has {event:?}: {capture}", tid.0);
                        outside += 1;
                    }
                }
            }
        }
        println!("{name}: {outside} transfers outside of the time of {} captures", watched.captures.len());
        assert!(outside > 0, "{name}: the trace begins and ends with the time");
    }
}

fn hits(said: &str) -> u64 {
    let note = said.lines().find(|line| line.contains(" captured, ")).unwrap();
    let words: Vec<&str> = note.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("hit")).unwrap();
    words[at - 1].replace(',', "").parse().unwrap()
}

/// It is not known before ten calls are beyond it: of the 50,000 that follow, 50 should be.
#[test]
fn a_percentile_is_that_of_the_calls() {
    let words = ["--over", "p99.9", "--keep", "1", "--max-captures", "10000/1s", "-n", "0.0001"];
    let Some(watched) = Watched::new("rare", "rarely_slow", &words) else { return };
    let hits = hits(&watched.said);
    assert!((25..=100).contains(&hits), "{hits} of 50,000");
    let kept = watched.entries();
    let slowest = watched.captures.iter().max_by_key(|it| number(it, "latency_ns")).unwrap();
    assert_eq!(kept, BTreeSet::from([path(slowest).into()]), "the slowest stays");
    let with_floor = ["--over", "p99.9,1ms", "-n", "0.0001"];
    let watched = Watched::new("rare", "rarely_slow", &with_floor).unwrap();
    assert_eq!(watched.captures.len(), 0);
}

#[test]
fn the_rate_limits_captures() {
    let words = ["--over", "20us", "--max-captures", "1/1s", "-n", "0.0003"];
    let Some(watched) = Watched::new("rare", "rarely_slow", &words) else { return };
    assert_eq!(watched.captures.len(), 1);
    assert!(
        watched.said.contains("6 hits, 1 captured") && watched.said.contains("5 beyond 1 in"),
        "{}",
        watched.said
    );
}

#[test]
fn other_triggers_than_slow_calls() {
    let many = ["--max-captures", "100/1s", "-n", "0.0003", "--keep", "4"];
    let Some(watched) = Watched::new("rare", "rarely_slow", &[&["--on", "marked"][..], &many].concat())
    else {
        return;
    };
    // Each thread calls it three times.
    assert_eq!(
        (hits(&watched.said), watched.captures.len(), watched.entries().len()),
        (6, 6, 4),
        "{}",
        watched.said
    );
    assert!(watched.captures.iter().all(|it| it["trigger"] == "marked was entered" && it["id"].is_null()));
    let ends = ["--until", "kill -USR2 $PPID"];
    let watched = Watched::new("rare", "rarely_slow", &[&ends[..], &many].concat()).unwrap();
    let triggers: BTreeSet<&str> =
        watched.captures.iter().map(|it| it["trigger"].as_str().unwrap()).collect();
    assert_eq!(triggers, BTreeSet::from(["SIGUSR2", "kill -USR2 $PPID: exit status: 0"]));
    let watched = Watched::new("demo-cpu2-ovf", "round_fn", &[&["--on-gap"][..], &many].concat()).unwrap();
    assert_eq!(watched.entries().len(), 4, "{}", watched.said);
    assert!(watched.captures.iter().all(|it| it["trigger"] == "a gap: overflow"), "{:?}", watched.captures);
    let data = fixture("rare").unwrap().data;
    let output = run(&["watch", "-f", "rarely_slow", "--on", "no_such", "--replay", data.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("--on") && said.contains("no_such"), "{said}");
}

/// Of a capture that cannot be written nothing is left, and the watch goes on to its report.
#[test]
fn where_there_is_no_room_the_watch_goes_on() {
    let Some(fixture) = fixture("rare") else { return };
    let directory = tempfile::tempdir().unwrap();
    let script = "ulimit -f 40; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_func_latency_under_test"), "watch", "-f", "rarely_slow"])
        .args(ALL)
        .arg("--captures")
        .arg(directory.path())
        .arg("--replay")
        .arg(&fixture.data)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.matches("no capture of ").count(), SLOW_CALLS, "{said}");
    assert!(said.contains("perf.data: File too large") && said.contains("the watch goes on"), "{said}");
    assert!(said.contains("6 hits, 0 captured") && said.contains("6 failed"), "{said}");
    assert_eq!(entries(directory.path()), BTreeSet::new());
    assert!(String::from_utf8(output.stdout).unwrap().contains("60,000 calls"));
}

#[test]
fn what_is_there_when_the_watch_is_killed_is_whole() {
    let Some(fixture) = fixture("rare") else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut watch = command(&["watch", "-f", "rarely_slow"])
        .args(ALL)
        .arg("--captures")
        .arg(directory.path())
        .arg("--replay")
        .arg(&fixture.data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let first = lines.map(Result::unwrap).find(|line| line.starts_with("capture "));
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(first.unwrap().contains("slow_part"));
    let is_hidden = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with('.');
    let whole: Vec<PathBuf> = entries(directory.path()).into_iter().filter(|path| !is_hidden(path)).collect();
    assert!((1..=SLOW_CALLS).contains(&whole.len()), "{whole:?}");
    for path in whole {
        assert!(done(&["show", "-i", path.to_str().unwrap()]).contains("slow_part"));
    }
}
