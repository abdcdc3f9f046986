//! perf's own snapshots: `perf record -S` of one run of a program and `watch --snapshot` of another, which
//! stop at the same call, have the same last calls, which are those that the program says.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;

use super::live::{Place, report};
use super::machine;
use super::process::{HEAD_START, LIMIT, command, is_stopped, signal, wait};
use super::snapshots::{captured, has_captures, watched};
use crate::crystal;
use crate::paths::Vm;

/// The call in which the program stops: by then its ring was overwritten.
const STOPS_AT: u64 = 5_000;
/// How many of its last calls the program prints, and both have.
const LAST: usize = 1_000;
const RING: &str = "128K";
const RING_BYTES: u64 = 128 << 10;
/// More MTC packets would be most of the ring: an instruction takes so long here.
const PT_CONFIG: &str = "cyc,mtc_period=9";
/// The functions of the program, which names them by their first letters.
const FUNCTIONS: [&str; 4] = ["ash", "birch", "cedar", "elm"];

/// A call, as far as it is the same in each run.
#[derive(Debug, PartialEq, Eq)]
struct SeenCall {
    function: String,
    caller: String,
    site: String,
}

/// What a snapshot has.
struct Seen {
    calls: Vec<SeenCall>,
    /// What the program says of its last calls.
    printed: String,
}

/// Both have the last calls of the program.
pub(super) fn same(vm: &Vm) -> Result<String> {
    let (ours, perfs) = (by_us(vm)?, by_perf(vm)?);
    for (seen, recorder) in [(&ours, "watch --snapshot"), (&perfs, "perf record -S")] {
        let number = seen.calls.len();
        ensure!((LAST..STOPS_AT as usize).contains(&number), "{recorder} has {number} of {STOPS_AT} calls");
        let letters: String = seen.last().iter().filter_map(|call| call.function.chars().next()).collect();
        ensure!(
            letters == seen.printed,
            "the last calls of {recorder} are\n{letters}\nand not\n{}",
            seen.printed
        );
    }
    let mut pairs = ours.last().iter().zip(perfs.last());
    let differ = pairs.find(|(one, other)| one != other);
    ensure!(differ.is_none(), "they have another call: {differ:?}");
    let [one, other] = [&ours, &perfs].map(|seen| seen.calls.len());
    Ok(format!(
        "of {STOPS_AT} calls {one} in our snapshot and {other} in perf's; the last {LAST} are the same"
    ))
}

impl Seen {
    fn new(vm: &Vm, place: &Place, data: &Path) -> Result<Self> {
        let printed = fs::read_to_string(place.path("printed"))?.trim().to_owned();
        ensure!(printed.len() == LAST, "the program has printed {printed}");
        Ok(Self { calls: calls(vm, place, data)?, printed })
    }

    fn last(&self) -> &[SeenCall] {
        &self.calls[self.calls.len().saturating_sub(LAST)..]
    }
}

/// The calls of which the entry was seen, in their order.
fn calls(vm: &Vm, place: &Place, data: &Path) -> Result<Vec<SeenCall>> {
    let path = place.path("rows.jsonl");
    let path = path.to_str().context("a path of ours")?;
    let asked: Vec<&str> = FUNCTIONS.iter().flat_map(|function| ["-f", function]).collect();
    let done = report(vm, data, &[&asked[..], &["--rows", path]].concat())?;
    ensure!(done.status.success(), "{}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    let rows = fs::read_to_string(path)?;
    let mut rows: Vec<Value> = rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    rows.retain(|row| row["status"] != "open_start");
    rows.sort_by_key(|row| (row["start_ns"].as_u64(), Reverse(row["latency_ns"].as_u64())));
    let text = |row: &Value, key: &str| Some(row[key].as_str()?.to_owned());
    let call = |row: &Value| {
        let (function, caller, site) = (text(row, "function")?, text(row, "caller")?, text(row, "site")?);
        Some(SeenCall { function, caller, site })
    };
    rows.iter().map(|row| call(row).with_context(|| format!("no call: {row}"))).collect()
}

/// Our snapshot of a run.
fn by_us(vm: &Vm) -> Result<Seen> {
    let place = Place::new("snapshot-of-ours")?;
    let captures = place.path("captures");
    let asked = FUNCTIONS.iter().flat_map(|function| ["-f", function]);
    let more: Vec<&str> = asked.chain(["-m", RING, "--no-sched", "--pt_config", PT_CONFIG]).collect();
    let (mut target, mut watch) = watched(vm, &place, &captures, ("course", STOPS_AT), &more)?;
    has_stopped(&mut target)?;
    signal("USR2", &watch)?;
    has_captures(&captures, 1, &mut watch)?;
    signal("CONT", &target)?;
    wait(&mut target)?;
    wait(&mut watch)?;
    let captures = captured(&captures)?;
    let first = captures.first().ok_or_else(|| anyhow!("no capture"))?;
    Seen::new(vm, &place, first)
}

/// perf's snapshot of another run.
fn by_perf(vm: &Vm) -> Result<Seen> {
    let place = Place::new("snapshot-of-perf")?;
    let (data, said) = (place.path("perf.data"), place.path("said"));
    let program = vm.programs().join("course").display().to_string();
    let mut target = command(&[program, STOPS_AT.to_string()])?
        .env("WAIT", "1")
        .stdout(File::create(place.path("printed"))?)
        .spawn()?;
    sleep(HEAD_START);
    let starts = machine::starts()?;
    let mut perf = Command::new("perf")
        .args(["record", "-B", "-N", "-S", "-m", &format!(",{RING}"), "-o"])
        .arg(&data)
        .args(["-e", &format!("intel_pt/{PT_CONFIG}/u")])
        .args(["-p", &target.id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said)?)
        .spawn()?;
    let said = || fs::read_to_string(&said).unwrap_or_default();
    let begun = Instant::now();
    while machine::starts()? == starts {
        ensure!(perf.try_wait()?.is_none() && begun.elapsed() < LIMIT, "perf traces nothing: {}", said());
        sleep(Duration::from_millis(5));
    }
    sleep(HEAD_START);
    signal("USR1", &target)?;
    has_stopped(&mut target)?;
    let size = || fs::metadata(&data).map_or(0, |file| file.len());
    let before = size();
    signal("USR2", &perf)?;
    let begun = Instant::now();
    while size() < before + RING_BYTES {
        ensure!(perf.try_wait()?.is_none() && begun.elapsed() < LIMIT, "no snapshot of perf: {}", said());
        sleep(Duration::from_millis(5));
    }
    signal("INT", &perf)?;
    wait(&mut perf)?;
    signal("CONT", &target)?;
    wait(&mut target)?;
    crystal::tell(&data, crystal::ratio(vm)?)?;
    Seen::new(vm, &place, &data)
}

/// Waits until the target has stopped itself.
fn has_stopped(target: &mut Child) -> Result<()> {
    let begun = Instant::now();
    while !is_stopped(target)? {
        ensure!(begun.elapsed() < LIMIT, "the target does not stop");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
