//! The scheduler's events in a recording, held against what ftrace has traced, and the causes that a report
//! makes of them against what the target does (`programs/waits.c`).

use anyhow::{Result, ensure};
use model::{Ns, Sideband, Tid};
use serde_json::Value;
use tracegen::truth::File;
use truth_tests::Opened;

use crate::counts;
use crate::switches::Trace;

/// Two handlers of one event run one after the other, and the emulator may be put aside by its host in
/// between.
const APART_NS: u64 = 50_000_000;

/// Each switch of a traced thread that eBPF has told of is one of ftrace's, from the first one to the last:
/// how many.
pub(crate) fn same_as_traced(opened: &Opened<'_>, truth: &File, trace: &Trace) -> Result<u64> {
    let mut count = 0;
    for tid in truth.threads().iter().map(|thread| thread.tid) {
        let told = told(opened, tid);
        let (Some(first), Some(last)) = (told.first(), told.last()) else { continue };
        let traced = trace.switches(tid);
        let start = traced
            .windows(told.len())
            .position(|part| part.iter().zip(&told).all(|(one, other)| is_same(*one, *other)));
        ensure!(
            start.is_some(),
            "thread {}: {} switches from {} to {} are not among ftrace's {}",
            tid.0,
            told.len(),
            first.0.0,
            last.0.0,
            traced.len()
        );
        count += told.len() as u64;
    }
    ensure!(count > 0, "the recording has no events of the scheduler");
    Ok(count)
}

fn is_same((at, out): (Ns, bool), (told_at, told_out): (Ns, bool)) -> bool {
    out == told_out && at.0.abs_diff(told_at.0) < APART_NS
}

/// When a thread left (true) and came, by the recording's samples.
fn told(opened: &Opened<'_>, tid: Tid) -> Vec<(Ns, bool)> {
    let switches = opened.recording.sideband.iter().filter_map(|record| match record.body {
        Sideband::SchedSwitch { prev, .. } if prev == tid => Some((record.time?, true)),
        Sideband::SchedSwitch { next, .. } if next == tid => Some((record.time?, false)),
        _ => None,
    });
    switches.collect()
}

/// Calls are off the CPU for what the target does in them, woken by what it says, and their split is all of
/// their time.
pub(crate) fn causes_are_the_targets(report: &Value) -> Result<()> {
    let causes = |function: &str| causes(report, function);
    let sleeps = causes("sleeps")?;
    // 40 ms each, from when the timer is set. The thread leaves the CPU a little later: by tens of
    // microseconds, or by what the host keeps the emulator from its own CPU for.
    let blocked = sleeps["blocked_ns"].as_u64().unwrap_or(0);
    ensure!(blocked >= 5 * 32_000_000, "five naps of 40 ms: {sleeps}");
    let total = counts::function(report, "sleeps")?["latency_ns"]["sum"].as_u64().unwrap_or(0);
    let until_woken = total.saturating_sub(sleeps["runnable_ns"].as_u64().unwrap_or(u64::MAX));
    ensure!(until_woken >= 5 * 40_000_000, "five naps of 40 ms: {total} ns, {sleeps}");
    ensure!(
        reason(&sleeps, "clock_nanosleep") == 5 && first_waker(&sleeps) == "[interrupt]",
        "naps: {sleeps}"
    );
    let waits = causes("waits")?;
    ensure!(reason(&waits, "futex") >= 5 && first_waker(&waits).starts_with("waits ("), "waits: {waits}");
    // In its own code it was in the C library's function that wakes.
    let from = waits["wakers"][0]["stacks"][0]["functions"][0].as_str().unwrap_or_default();
    ensure!(!from.is_empty() && from != "[unknown]", "from where: {waits}");
    let spins = causes("spins")?;
    ensure!(spins["preempted_ns"].as_u64() > Some(0) && reason(&spins, "[preempted]") > 0, "spins: {spins}");
    Ok(())
}

fn causes(report: &Value, function: &str) -> Result<Value> {
    let found = counts::function(report, function)?;
    let causes = &found["off_cpu_causes"];
    ensure!(causes["told_by"] == "scheduler", "{function}: {causes}");
    let ns = |name: &str| causes[name].as_u64().unwrap_or(0);
    let split = ns("blocked_ns") + ns("runnable_ns") + ns("preempted_ns");
    let sum = found["off_cpu_ns"]["sum"].as_u64();
    ensure!(sum == Some(split), "{function}: {sum:?} ns off the CPU, split: {causes}");
    Ok(causes.clone())
}

/// How often it was for this reason.
fn reason(causes: &Value, name: &str) -> u64 {
    let rows = causes["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().find(|row| row["name"] == name).and_then(|row| row["count"].as_u64()).unwrap_or(0)
}

fn first_waker(causes: &Value) -> &str {
    causes["wakers"][0]["name"].as_str().unwrap_or_default()
}
