//! `watch --snapshot` on a running target: what the rings hold is captured when it is asked for, once.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;

use super::live::Place;
use super::process::{HEAD_START, LIMIT, command, has_run, signal, wait};
use crate::paths::Vm;

/// Rounds of `nest`: each has one call of `outer`, two of `mid` and six of `leaf`.
const ROUNDS: u64 = 1_000;
/// Those of a target that is not stopped.
const RUNNING_ROUNDS: u64 = 4_000;
/// Those of a target that outlives its watch, or nearly so.
const ENDLESS_ROUNDS: u64 = 1_000_000;
/// Trace from PSB to PSB is shorter.
const PSB_BYTES: u64 = 20 << 10;
/// How long the target runs between two snapshots: a fast machine runs all in half a second.
const BETWEEN: Duration = Duration::from_millis(150);

/// Large rings of a target that is stopped while they are copied: the captures have all its calls, each once.
/// Small ones, of a target that runs: each capture has the newest of it.
pub(super) fn taken(vm: &Vm) -> Result<String> {
    let whole = snapshots(vm, "snapshots", (ROUNDS, "8M", true))?;
    let [.., last] = &whole[..] else { return Err(anyhow!("no capture")) };
    let complete: u64 = whole.iter().map(|it| it.complete).sum();
    let cut: u64 = whole.iter().map(|it| it.open_end).sum();
    let bytes: u64 = whole.iter().map(|it| it.aux_bytes).sum();
    let not_decoded: u64 = whole.iter().map(|it| it.not_decoded_bytes).sum();
    // A call that is open when the target is stopped ends in the next capture, and is whole in neither; and
    // what stands in front of the first PSB of a ring cannot be decoded: some calls, and parts of two.
    let lost =
        ROUNDS.checked_sub(complete + cut).with_context(|| format!("calls are there twice: {whole:?}"))?;
    let lost_max = not_decoded * ROUNDS / bytes + 4;
    ensure!(not_decoded <= 4 * PSB_BYTES, "{not_decoded} bytes are not decoded: {whole:?}");
    ensure!(cut <= 2 && lost <= lost_max, "{complete} calls, {cut} cut, {lost} lost: {whole:?}");
    ensure!(whole.iter().all(|it| it.coverage > 0.95), "there is trace of other captures' time: {whole:?}");
    ensure!(last.open_end == 0, "the target ended with a call open: {whole:?}");

    let newest = snapshots(vm, "wrapped", (RUNNING_ROUNDS, "32K", false))?;
    let few: u64 = newest.iter().map(|it| it.complete).sum();
    ensure!(few > 0 && few < ROUNDS, "{few} of {RUNNING_ROUNDS} calls are in small rings: {newest:?}");
    // The others may have what the target did behind its calls.
    ensure!(newest.iter().take(1).all(|it| it.complete > 0), "small rings have no call: {newest:?}");
    ensure!(newest.iter().all(|it| it.aux_bytes <= 2 * (32 << 10) + 16), "more than rings hold: {newest:?}");
    Ok(format!("{complete} of {ROUNDS} calls in {} captures, {few} in small rings", whole.len()))
}

/// A command's exit, Ctrl-C and the end of a program that is started: each gives the last capture, with a
/// buffer for each CPU and for each thread.
pub(super) fn ended(vm: &Vm) -> Result<String> {
    let until = ended_by(vm, "until", &["--until", "sleep 0.5"], |_, _| Ok(()))?;
    let interrupted = ended_by(vm, "interrupted", &["-t"], |target, watch| {
        has_run(target, BETWEEN)?;
        signal("INT", watch)
    })?;
    for (capture, expected) in [(&until, "until"), (&interrupted, "end")] {
        ensure!(capture.ends_with(expected), "{capture} is the capture, not {expected}");
    }
    let place = Place::new("started")?;
    let program = vm.programs().join("nest").display().to_string();
    let captures = place.path("captures");
    let started = Command::new(vm.func_latency())
        .args(["watch", "--snapshot", "-f", "outer", "--captures"])
        .arg(&captures)
        .args(["--", &program, "200"])
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&started.stderr);
    ensure!(started.status.success(), "{}: {said}", started.status);
    let [capture] = &captured(&captures)?[..] else { return Err(anyhow!("not one capture: {said}")) };
    let seen = seen(vm, capture)?;
    ensure!((seen.complete, seen.open_end) == (200, 0), "not all calls of a program: {seen:?}");
    Ok(format!("{until}, {interrupted}; {} calls of a program from its start", seen.complete))
}

/// The one capture, by name, of a watch that ends while its target runs on.
fn ended_by(
    vm: &Vm,
    name: &str,
    more: &[&str],
    meanwhile: impl FnOnce(&mut Child, &Child) -> Result<()>,
) -> Result<String> {
    let place = Place::new(name)?;
    let captures = place.path("captures");
    let more = [&["-f", "outer", "-m", "1M"], more].concat();
    let (mut target, mut watch) = watched(vm, &place, &captures, ("nest", ENDLESS_ROUNDS), &more)?;
    meanwhile(&mut target, &watch)?;
    let status = wait(&mut watch)?;
    let said = said_in(&place.path("said"));
    ensure!(status.success(), "{status}: {said}");
    // Without trace it is fast.
    let is_well = target.try_wait()?.is_none_or(|status| status.success());
    ensure!(is_well, "the target did not live on: {said}");
    target.kill()?;
    target.wait()?;
    let [capture] = &captured(&captures)?[..] else { return Err(anyhow!("not one capture: {said}")) };
    ensure!(seen(vm, capture)?.complete > 0, "it has no call: {said}");
    Ok(capture.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned())
}

/// The exit code of a report without any call.
const NO_CALL: i32 = 1;

/// What a capture has of `outer`.
#[derive(Debug, Default)]
struct Seen {
    complete: u64,
    open_end: u64,
    aux_bytes: u64,
    not_decoded_bytes: u64,
    /// Of the time.
    coverage: f64,
    /// The first entry and the last end.
    span: (u64, u64),
}

/// Two captures for SIGUSR2 and one of the end, in order. The target may be stopped meanwhile.
fn snapshots(vm: &Vm, name: &str, (rounds, ring, is_stopped): (u64, &str, bool)) -> Result<Vec<Seen>> {
    let place = Place::new(name)?;
    let captures = place.path("captures");
    let said = place.path("said");
    let more = ["-f", "outer", "-m", ring];
    let (mut target, mut watch) = watched(vm, &place, &captures, ("nest", rounds), &more)?;
    for number in 1..=2 {
        has_run(&mut target, BETWEEN)?;
        if is_stopped {
            signal("STOP", &target)?;
        }
        signal("USR2", &watch)?;
        has_captures(&captures, number, &mut watch).with_context(|| said_in(&said))?;
        if is_stopped {
            signal("CONT", &target)?;
        }
    }
    wait(&mut target)?;
    let status = wait(&mut watch)?;
    ensure!(status.success(), "{status}: {}", said_in(&said));
    let paths = captured(&captures)?;
    // A target that was not stopped may have ended before the second one.
    let expected = if is_stopped { 3..=3 } else { 2..=3 };
    ensure!(expected.contains(&paths.len()), "{paths:?} are captured: {}", said_in(&said));
    let seen: Vec<Seen> = paths.iter().map(|capture| seen(vm, capture)).collect::<Result<_>>()?;
    let is_apart =
        |pair: &[Seen]| matches!(pair, [one, next] if one.span.1 <= next.span.0 || next.complete == 0);
    ensure!(seen.windows(2).all(is_apart), "captures have the same calls: {seen:?}");
    Ok(seen)
}

/// A target that has begun its work, a program and its number of rounds, and its watch. What the target
/// prints is in `printed`.
pub(super) fn watched(
    vm: &Vm,
    place: &Place,
    captures: &Path,
    (target, rounds): (&str, u64),
    more: &[&str],
) -> Result<(Child, Child)> {
    let program = vm.programs().join(target).display().to_string();
    let printed = File::create(place.path("printed"))?;
    let target = command(&[program, rounds.to_string()])?.env("WAIT", "1").stdout(printed).spawn()?;
    sleep(HEAD_START);
    let said = place.path("said");
    let mut watch = Command::new(vm.func_latency())
        .args(["watch", "--snapshot", "-n", "0.1", "-p"])
        .arg(target.id().to_string())
        .arg("--captures")
        .arg(captures)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&said)?)
        .spawn()?;
    // It says so when the trace is on.
    let start = Instant::now();
    while !said_in(&said).contains("until SIGUSR2") {
        ensure!(watch.try_wait()?.is_none() && start.elapsed() < LIMIT, "no trace: {}", said_in(&said));
        sleep(Duration::from_millis(5));
    }
    signal("USR1", &target)?;
    Ok((target, watch))
}

fn said_in(said: &Path) -> String {
    fs::read_to_string(said).unwrap_or_default()
}

/// Waits for so many captures.
pub(super) fn has_captures(captures: &Path, number: usize, watch: &mut Child) -> Result<()> {
    let start = Instant::now();
    while captured(captures)?.len() < number {
        ensure!(start.elapsed() < LIMIT, "there is no capture {number}");
        ensure!(watch.try_wait()?.is_none(), "the watch has ended");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The captures, by time.
pub(super) fn captured(captures: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(captures) else { return Ok(Vec::new()) };
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.join("capture.json").exists() && !path.display().to_string().contains("/."));
    // TIME-NAME
    let time = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.split('-').next().and_then(|time| time.parse::<u64>().ok())
    };
    paths.sort_by_key(time);
    Ok(paths)
}

fn seen(vm: &Vm, capture: &Path) -> Result<Seen> {
    let rows = capture.with_extension("rows.jsonl");
    let report = Command::new(vm.func_latency())
        .args(["report", "-f", "outer", "--format", "json", "-i"])
        .arg(capture)
        .arg("--rows")
        .arg(&rows)
        .output()?;
    let said = String::from_utf8_lossy(&report.stderr);
    if report.status.code() == Some(NO_CALL) {
        return Ok(Seen::default());
    }
    ensure!(report.status.success(), "report: {}: {said}", report.status);
    let report: Value = serde_json::from_slice(&report.stdout)?;
    let function = &report["functions"][0];
    let number = |value: &Value| value.as_u64().with_context(|| format!("no number: {function}"));
    let complete = number(&function["calls"]["complete"])?;
    let children = function["children"].as_array().context("no children")?;
    let called: u64 =
        children.iter().filter(|row| row["kind"] == "call").filter_map(|row| row["count"].as_u64()).sum();
    ensure!(called == 2 * complete, "{called} children of {complete} calls, not 2 each: {function}");
    let rows = fs::read_to_string(&rows)?;
    let rows: Vec<Value> = rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let whole = rows.iter().filter(|row| row["status"] == "complete");
    let start = |row: &Value| row["start_ns"].as_u64().unwrap_or_default();
    let end = |row: &Value| start(row) + row["latency_ns"].as_u64().unwrap_or_default();
    let losses = report["loss"]["by_cause"].as_array().context("no losses")?;
    Ok(Seen {
        complete,
        not_decoded_bytes: losses.iter().filter_map(|loss| loss["bytes"].as_u64()).sum(),
        coverage: report["loss"]["coverage"].as_f64().context("no coverage")?,
        open_end: number(&function["calls"]["open_end"])?,
        aux_bytes: number(&report["trace"]["aux_bytes"])?,
        span: (whole.clone().map(start).min().unwrap_or_default(), whole.map(end).max().unwrap_or_default()),
    })
}
