//! `watch` on a running target: its intervals add up to what the target did.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread::sleep;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::live::Place;
use super::machine;
use super::process::{HEAD_START, command, signal, wait};
use crate::paths::Vm;

/// Requests of the target, each with 20 calls of `hot` and one of `handle`.
const REQUESTS: u64 = 300;

/// From the first call to the target's end, without a filter and with one.
pub(super) fn watched(vm: &Vm) -> Result<String> {
    let plain = watch(vm, &[])?;
    let filtered = watch(vm, &["-i"])?;
    Ok(format!("{plain}; with a filter {filtered}"))
}

fn watch(vm: &Vm, more: &[&str]) -> Result<String> {
    let place = Place::new("watch")?;
    let program = vm.programs().join("server").display().to_string();
    let mut target =
        command(&[program, REQUESTS.to_string()])?.env("WAIT", "1").stdout(Stdio::null()).spawn()?;
    sleep(HEAD_START);
    let starts = machine::starts()?;
    let (lines, said) = (place.path("lines"), place.path("said"));
    let metrics = place.path("metrics");
    let mut watch = Command::new(vm.func_latency())
        .args(["watch", "--format", "json", "-n", "0.3", "-f", "hot", "-f", "handle", "-p"])
        .arg(target.id().to_string())
        .arg("--openmetrics")
        .arg(&metrics)
        .arg("--spool-dir")
        .arg(place.root())
        .args(more)
        .stdin(Stdio::null())
        .stdout(File::create(&lines)?)
        .stderr(File::create(&said)?)
        .spawn()?;
    while machine::starts()? == starts {
        ensure!(watch.try_wait()?.is_none(), "nothing is traced: {}", fs::read_to_string(&said)?);
        sleep(std::time::Duration::from_millis(5));
    }
    sleep(HEAD_START);
    signal("USR1", &target)?;
    wait(&mut target)?;
    let status = wait(&mut watch)?;
    let (lines, said) = (fs::read_to_string(&lines)?, fs::read_to_string(&said)?);
    ensure!(status.success(), "{status}: {said}");
    let documents: Vec<Value> =
        serde_json::Deserializer::from_str(&lines).into_iter::<Value>().collect::<Result<_, _>>()?;
    let (report, intervals) = documents.split_last().context("nothing was printed")?;
    let with_calls = intervals.iter().filter(|line| calls(line, 0) > 0).count();
    ensure!(with_calls > 1, "{with_calls} of {} intervals have calls: {lines}", intervals.len());
    for (function, expected) in [(0, 20 * REQUESTS), (1, REQUESTS)] {
        let sum: u64 = intervals.iter().map(|line| calls(line, function)).sum();
        let pointer = format!("/functions/{function}/latency_ns/count");
        let reported = report.pointer(&pointer).and_then(Value::as_u64);
        ensure!(
            (sum, reported) == (expected, Some(expected)),
            "function {function}: {sum} calls in intervals, {reported:?} in the report, not {expected}: {lines}"
        );
    }
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
