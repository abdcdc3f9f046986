//! `watch --snapshot --over TIME --on FUNC`: probes look for hits, and each has a capture with its call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::live::Place;
use super::process::{Killed, command, runs_on, wait};
use super::snapshots::{captured, watched};
use crate::paths::Vm;

/// Of so many calls of the target one is slow, and one calls `rare`.
const EACH: usize = 40;
/// What a slow call takes at least; on a busy machine others may take as much, which are logged, too.
const SLOW_NS: u64 = 100_000_000;

/// Each slow call that the target has logged, and each call of `rare`, has its capture, and nothing else has.
/// Return addresses are rewritten.
pub(super) fn hit(vm: &Vm) -> Result<String> {
    let captures = hit_with(vm, "--uretprobe", 2)?;
    Ok(format!("{captures} captures with rewritten return addresses"))
}

/// Hits have their captures, and no other call has one, where `ret` is probed; what is too dear is refused.
pub(super) fn hit_at_ret(vm: &Vm) -> Result<String> {
    let captures = hit_with(vm, "--no-uretprobe", 2)?;
    too_dear(vm)?;
    Ok(format!("{captures} captures with probed `ret`; what is too dear is refused"))
}

/// Probes that cost more than is allowed are refused, with what they cost; the target runs on.
fn too_dear(vm: &Vm) -> Result<()> {
    let program = vm.programs().join("nest").display().to_string();
    let target = command(&[program, i32::MAX.to_string()])?.stdout(Stdio::null()).spawn()?;
    let mut target = Killed(target);
    let refused = Command::new(vm.func_latency())
        .args(["watch", "--snapshot", "-f", "outer", "--over", "1ms", "--max-overhead", "0", "-p"])
        .arg(target.id().to_string())
        .output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    let is_said =
        said.contains("calls a second, each slower by") && said.contains("--max-overhead allows 0 %");
    ensure!(!refused.status.success() && is_said, "{}: {said}", refused.status);
    runs_on(&mut target)
}

fn hit_with(vm: &Vm, ends: &str, planted: usize) -> Result<usize> {
    let place = Place::new("triggers")?;
    let captures = place.path("captures");
    let triggers = ["--over", "100ms", "--on", "rare", "--max-captures", "100/1s"];
    let more = ["-f", "work", "-m", "1M", "--no-sched", "--max-overhead", "1e9", ends];
    let more = [&more[..], &triggers].concat();
    let rounds = (planted * EACH) as u64;
    let (mut target, mut watch) = watched(vm, &place, &captures, ("slow", rounds), &more)?;
    let ended = wait(&mut target)?;
    let status = wait(&mut watch)?;
    let said = fs::read_to_string(place.path("said"))?;
    ensure!(ended.success() && status.success(), "target: {ended}; watch: {status}: {said}");
    let printed = fs::read_to_string(place.path("printed"))?;
    let logged = |kind: &str| printed.lines().filter(|line| line.starts_with(kind)).count();
    ensure!((logged("slow"), logged("rare")) == (planted, planted), "the target: {printed}");
    let captures: Vec<(PathBuf, Value)> =
        captured(&captures)?.into_iter().map(about).collect::<Result<_>>()?;
    let hit_by = |trigger: &str| {
        let is_so = |about: &Value| about["trigger"].as_str().is_some_and(|it| it.starts_with(trigger));
        captures.iter().filter(|(_, about)| is_so(about)).collect::<Vec<_>>()
    };
    let (slow, entered) = (hit_by("over 100 ms"), hit_by("rare was entered"));
    let of_entries = entered.len();
    ensure!(of_entries == planted, "{of_entries} captures: {captures:?}: {printed}: {said}");
    have_slow_calls(vm, &printed, &slow).with_context(|| format!("{captures:?}: {printed}: {said}"))?;
    // The call that has entered it was running, or was seen to end.
    let lacks_call = entered.iter().find(|(_, about)| !about["id"].is_string());
    ensure!(lacks_call.is_none(), "{lacks_call:?} has no call of work: {said}");
    Ok(captures.len())
}

fn about(capture: PathBuf) -> Result<(PathBuf, Value)> {
    let about = serde_json::from_slice(&fs::read(capture.join("capture.json"))?)?;
    Ok((capture, about))
}

/// Each call that is logged as slow has its capture, in their order; and what else has one is logged as late.
fn have_slow_calls(vm: &Vm, printed: &str, captures: &[&(PathBuf, Value)]) -> Result<()> {
    let mut captures = captures.iter().peekable();
    for line in printed.lines().filter(|line| line.starts_with("slow") || line.starts_with("late")) {
        let next = captures.peek().context("no more captures");
        match next.and_then(|(capture, about)| has_slow_call(vm, line, capture, about)) {
            Ok(()) => _ = captures.next(),
            // It may have been late around the call.
            Err(_) if line.starts_with("late") => (),
            Err(why) => return Err(why.context(line.to_owned())),
        }
    }
    let others = captures.count();
    ensure!(others == 0, "{others} captures of calls that are not logged");
    Ok(())
}

/// The call that is chosen is the slow one of the log, from its entry to its end. One that is late has not
/// called `nap`.
fn has_slow_call(vm: &Vm, logged: &str, capture: &Path, about: &Value) -> Result<()> {
    let naps = about["cause"].as_str().is_some_and(|cause| cause.contains("nap"));
    ensure!(!naps || logged.starts_with("slow"), "it is another one");
    let times: Vec<u64> = logged.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [from, to] = times[..] else { anyhow::bail!("no times") };
    let latency_ns = about["latency_ns"].as_u64().context("no latency")?;
    ensure!(SLOW_NS < latency_ns && latency_ns <= to - from, "{latency_ns} ns");
    let rows = rows(vm, capture)?;
    let slow: Vec<&Value> = rows.iter().filter(|row| row["latency_ns"].as_u64() > Some(SLOW_NS)).collect();
    let [row] = slow[..] else { anyhow::bail!("not one slow call: {rows:?}") };
    ensure!(row["status"] == "complete" && row["id"] == about["id"], "{row} is not the one");
    Ok(())
}

/// The calls of `work` in a capture.
fn rows(vm: &Vm, capture: &Path) -> Result<Vec<Value>> {
    let rows = capture.with_extension("rows.jsonl");
    let report = Command::new(vm.func_latency())
        .args(["report", "-f", "work", "--rows"])
        .arg(&rows)
        .arg("-i")
        .arg(capture)
        .output()?;
    let said = String::from_utf8_lossy(&report.stderr);
    ensure!(report.status.success(), "report: {}: {said}", report.status);
    let rows = fs::read_to_string(&rows)?;
    Ok(rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}
