//! `watch` on a running target: its intervals add up to what the target did, and slow calls are kept.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use truth_tests::terminal::InTerminal;

use super::live::Place;
use super::machine;
use super::process::{HEAD_START, command, signal, wait};
use crate::paths::Vm;

/// Requests of the target, each with 20 calls of `hot` and one of `handle`.
const REQUESTS: u64 = 300;

/// From the first call to the target's end, without a filter and with one.
pub(super) fn added_up(vm: &Vm) -> Result<String> {
    let plain = watch(vm, &[])?;
    let filtered = watch(vm, &["-i"])?;
    Ok(format!("{plain}; with a filter {filtered}"))
}

/// Slow calls are captured while the target runs on, those that are kept open, and so does what a signal asks
/// for.
pub(super) fn captured(vm: &Vm) -> Result<String> {
    const KEPT: usize = 4;
    let place = Place::new("captures")?;
    let captures = place.path("captures");
    // Each call of `handle` sleeps for 2 ms.
    let triggers = ["--over", "1ms", "--max-captures", "10/1s", "--keep", "4", "--captures"];
    let window = ["--before", "1ms", "--after", "1ms", "-f", "handle"];
    let mut more: Vec<String> = triggers.map(str::to_owned).to_vec();
    more.push(captures.display().to_string());
    more.extend(window.map(str::to_owned));
    let ask = |watch: &Child| {
        // What is captured is not the moment before the target begins.
        sleep(HEAD_START);
        signal("USR2", watch)
    };
    let (documents, said) = lines(vm, &place, &more, &ask)?;
    let announced: Vec<&Value> = documents.iter().filter(|line| line.get("trigger").is_some()).collect();
    let of_calls = announced.iter().filter(|capture| capture["id"].is_string()).count();
    ensure!(of_calls > 0, "no slow call was captured: {announced:?}, {said}");
    // A capture says if it does not show its call. On a machine that is busy with other work one in ten does
    // not; without such work none has been seen.
    let lacks_call = |capture: &&&Value| capture["latency_ns"].is_u64() && !capture["id"].is_string();
    let lost: Vec<_> = announced.iter().filter(lacks_call).collect();
    ensure!(lost.len() <= 1, "captures do not have their calls: {lost:?}, {said}");
    let asked_for = announced.len() - of_calls - lost.len();
    ensure!(asked_for > 0, "nothing is captured for SIGUSR2: {announced:?}, {said}");
    let kept: Vec<PathBuf> =
        fs::read_dir(&captures)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(kept.len() == KEPT, "{kept:?} are kept, not {KEPT}");
    let mut by_hand = 0;
    for capture in &kept {
        let about: Value = serde_json::from_slice(&fs::read(capture.join("capture.json"))?)?;
        let (command, expected) = match about["id"].as_str() {
            Some(id) => ("show", format!("call {id} of [handle]")),
            // Kept as long as it can be: it was asked for by hand.
            None => ("report", "Latency of [handle]".to_owned()),
        };
        let slow = about["latency_ns"].as_u64().is_none_or(|ns| ns > 1_000_000);
        ensure!(slow, "{about} is not of a slow call");
        let opened = Command::new(vm.func_latency()).arg(command).arg("-i").arg(capture).output()?;
        let text = String::from_utf8_lossy(&opened.stdout);
        let said = String::from_utf8_lossy(&opened.stderr);
        let is_shown = opened.status.success() && text.contains(&expected);
        ensure!(is_shown, "{about}: {}: {text}{said}; of all {announced:?}", opened.status);
        by_hand += usize::from(about["trigger"] == "SIGUSR2");
    }
    ensure!(by_hand == 1, "{by_hand} of the captures that are kept are for SIGUSR2, not 1: {announced:?}");
    let lost = lost.len();
    Ok(format!("{of_calls} calls captured, {lost} captures without their call, and {asked_for} for SIGUSR2"))
}

/// The view of a target: a slow call is opened, and `q` prints the report while the target runs on; when the
/// target has ended the view stays, until a signal.
pub(super) fn viewed(vm: &Vm) -> Result<String> {
    with_view(vm, 1000 * REQUESTS, |terminal, target| {
        // Each call of `handle` sleeps for 2 ms.
        terminal.shows("ms  max ")?;
        terminal.press("\r")?;
        terminal.shows("of [handle], called from")?;
        terminal.press("\x1b")?;
        terminal.shows("slowest of 5 minutes")?;
        terminal.press("q")?;
        let status = terminal.ends()?;
        ensure!(target.try_wait()?.is_none(), "the target had ended before");
        signal("TERM", target)?;
        Ok(status)
    })?;
    with_view(vm, REQUESTS / 3, |terminal, target| {
        wait(target)?;
        terminal.shows("the watch has ended")?;
        signal("TERM", &terminal.child)?;
        Ok(terminal.ends()?)
    })?;
    Ok("a call was opened; the report came at q as the target ran on, and at a signal after it".to_owned())
}

/// Watches the server and its requests in a terminal, up to the end of the watch.
fn with_view(
    vm: &Vm,
    requests: u64,
    view: impl FnOnce(&mut InTerminal, &mut Child) -> Result<ExitStatus>,
) -> Result<()> {
    let place = Place::new("view")?;
    let program = vm.programs().join("server").display().to_string();
    let mut target =
        command(&[program, requests.to_string()])?.env("WAIT", "1").stdout(Stdio::null()).spawn()?;
    sleep(HEAD_START);
    let starts = machine::starts()?;
    let watch = vm.func_latency().display().to_string();
    let pid = target.id().to_string();
    let words = [&watch, "watch", "-f", "handle", "-n", "0.1", "-p", &pid];
    let mut terminal = InTerminal::start(&words, place.root(), (24, 80))?;
    while machine::starts()? == starts {
        ensure!(terminal.child.try_wait()?.is_none(), "nothing is traced");
        sleep(Duration::from_millis(5));
    }
    sleep(HEAD_START);
    signal("USR1", &target)?;
    terminal.shows(" calls/s  mean")?;
    let status = view(&mut terminal, &mut target)?;
    let written = terminal.written();
    let (_, report) = written.rsplit_once("\x1b[?1049l").context("the view was not left")?;
    ensure!(status.success() && report.contains("Latency of [handle]"), "{status}: {report}");
    ensure!(!report.contains("0 hits"), "no capture was asked for: {report}");
    wait(&mut target)?;
    Ok(())
}

/// Rounds of the target that makes more trace than there is room for: each has one call of `outer`, two of
/// `mid` and six of `leaf`.
const ROUNDS: u64 = 6_000;

/// Trace comes faster than it is decoded, and has little room: part of it is left out. The calls that are
/// seen whole are right all the same, the ledger has the part that is left out, and the target runs on.
pub(super) fn behind(vm: &Vm) -> Result<String> {
    let place = Place::new("behind")?;
    let more = ["--spool", "250K", "-w", "1", "-f", "outer", "-f", "mid"].map(str::to_owned);
    let (documents, _) = watched(vm, &place, ("nest", ROUNDS), &more, &|_| Ok(()))?;
    let (report, intervals) = documents.split_last().context("nothing was printed")?;
    let decoded = |line: &Value| line["decoded"].as_f64().unwrap_or(0.0);
    let some_left_out = intervals.iter().filter(|line| decoded(line) < 1.0).count();
    ensure!(some_left_out > 0, "everything was decoded: {intervals:?}");
    let lost = report["loss"]["by_cause"].as_array().context("no losses")?;
    let left_out = lost.iter().find(|loss| loss["cause"] == "not decoded").context("none is not decoded")?;
    ensure!(left_out["lost_ns"].as_u64() > Some(0), "it has no time: {left_out}");
    let mut seen = Vec::new();
    for (number, (made, children)) in [(ROUNDS, 2), (2 * ROUNDS, 3)].into_iter().enumerate() {
        let function = &report["functions"][number];
        let count = function["latency_ns"]["count"].as_u64().context("no calls")?;
        let sum: u64 = intervals.iter().map(|line| calls(line, number)).sum();
        ensure!(sum == count, "{sum} calls in intervals, {count} in the report: {report}");
        ensure!(0 < count && count < made, "{count} of {made} calls were seen whole");
        let rows = function["children"].as_array().context("no children")?;
        let called: u64 =
            rows.iter().filter(|row| row["kind"] == "call").filter_map(|row| row["count"].as_u64()).sum();
        ensure!(
            called == children * count,
            "{called} children of {count} calls, not {children} each: {report}"
        );
        seen.push(count);
    }
    Ok(format!("{some_left_out} of {} intervals have less than all; {seen:?} calls seen", intervals.len()))
}

/// What a watch of the server prints from its first call to its end, and what it says; `meanwhile`: done
/// while the target runs.
fn lines(
    vm: &Vm,
    place: &Place,
    more: &[String],
    meanwhile: &dyn Fn(&Child) -> Result<()>,
) -> Result<(Vec<Value>, String)> {
    watched(vm, place, ("server", REQUESTS), more, meanwhile)
}

/// What a watch of this target and its number of rounds prints.
fn watched(
    vm: &Vm,
    place: &Place,
    (target, rounds): (&str, u64),
    more: &[String],
    meanwhile: &dyn Fn(&Child) -> Result<()>,
) -> Result<(Vec<Value>, String)> {
    let program = vm.programs().join(target).display().to_string();
    let mut target =
        command(&[program, rounds.to_string()])?.env("WAIT", "1").stdout(Stdio::null()).spawn()?;
    sleep(HEAD_START);
    let starts = machine::starts()?;
    let (lines, said) = (place.path("lines"), place.path("said"));
    let mut watch = Command::new(vm.func_latency())
        .args(["watch", "--format", "json", "-n", "0.3", "-p"])
        .arg(target.id().to_string())
        .arg("--spool-dir")
        .arg(place.root())
        .args(more)
        .stdin(Stdio::null())
        .stdout(File::create(&lines)?)
        .stderr(File::create(&said)?)
        .spawn()?;
    while machine::starts()? == starts {
        ensure!(watch.try_wait()?.is_none(), "nothing is traced: {}", fs::read_to_string(&said)?);
        sleep(Duration::from_millis(5));
    }
    sleep(HEAD_START);
    signal("USR1", &target)?;
    meanwhile(&watch)?;
    wait(&mut target)?;
    let status = wait(&mut watch)?;
    let (lines, said) = (fs::read_to_string(&lines)?, fs::read_to_string(&said)?);
    ensure!(status.success(), "{status}: {said}");
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&lines).into_iter::<Value>().collect::<Result<_, _>>()?;
    Ok((documents, said))
}

fn watch(vm: &Vm, more: &[&str]) -> Result<String> {
    let place = Place::new("watch")?;
    let metrics = place.path("metrics");
    let of_both = ["-f", "hot", "-f", "handle", "--openmetrics"].map(str::to_owned);
    let more = more.iter().map(|&word| word.to_owned());
    let more: Vec<String> = of_both.into_iter().chain([metrics.display().to_string()]).chain(more).collect();
    let (documents, _) = lines(vm, &place, &more, &|_| Ok(()))?;
    let (report, intervals) = documents.split_last().context("nothing was printed")?;
    let with_calls = intervals.iter().filter(|line| calls(line, 0) > 0).count();
    ensure!(with_calls > 1, "{with_calls} of {} intervals have calls: {intervals:?}", intervals.len());
    for (function, expected) in [(0, 20 * REQUESTS), (1, REQUESTS)] {
        let sum: u64 = intervals.iter().map(|line| calls(line, function)).sum();
        let pointer = format!("/functions/{function}/latency_ns/count");
        let reported = report.pointer(&pointer).and_then(Value::as_u64);
        ensure!(
            (sum, reported) == (expected, Some(expected)),
            "function {function}: {sum} calls in intervals, {reported:?} in the report, not {expected}: {intervals:?}"
        );
    }
    // Each call of `handle` sleeps once, if its time is not over before: it may be where it is preempted.
    let waits = report.pointer("/functions/1/off_cpu_causes/reasons").and_then(Value::as_array);
    let sleeps = waits.into_iter().flatten().find(|reason| reason["name"] == "clock_nanosleep");
    let slept = sleeps.and_then(|reason| reason["count"].as_u64());
    let preempted: u64 = waits
        .into_iter()
        .flatten()
        .filter(|reason| reason["kind"] == "preempted")
        .filter_map(|it| it["count"].as_u64())
        .sum();
    let least = (REQUESTS * 9 / 10).saturating_sub(preempted);
    let is_so = slept.is_some_and(|slept| (least..=REQUESTS).contains(&slept));
    ensure!(is_so, "{slept:?} sleeps in {REQUESTS} calls: {waits:?}");
    let metrics = fs::read_to_string(&metrics)?;
    ensure!(metrics.ends_with("# EOF\n"), "no metrics: {metrics}");
    let left = fs::read_dir(place.root())?.count();
    ensure!(left == 3, "{left} files are left, not lines, said and metrics");
    Ok(format!("{} intervals, {with_calls} with calls, {} calls", intervals.len(), 21 * REQUESTS))
}

/// Calls of a function in an interval.
fn calls(line: &Value, function: usize) -> u64 {
    line.pointer(&format!("/functions/{function}/calls")).and_then(Value::as_u64).unwrap_or(0)
}
