//! How a window ends before its time, and what becomes of the target and the recorder.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::crashes::opens;
use super::live::{Live, NO_CALLS, Place, complete, end_of, server};
use super::machine;
use super::process::{runs_on, signal};
use crate::paths::Vm;

/// Some calls of the target.
const SOME_CALLS: Duration = Duration::from_millis(200);

/// From `<signal.h>`.
const SIGINT: i32 = 2;

/// Ctrl-C, and what else asks a program to end: the window ends, and what was recorded is reported.
pub(super) fn signals(vm: &Vm) -> Result<String> {
    let mut target = server(vm)?;
    let pid = target.id().to_string();
    let mut calls = Vec::new();
    for name in ["INT", "TERM", "HUP"] {
        let place = Place::new("signals")?;
        let mut live = start(vm, &place, &pid)?;
        signal(name, &live.command)?;
        let ended = live.end()?;
        let complete = complete(&ended.report()?).unwrap_or(0);
        ensure!(ended.said.contains("interrupted after"), "{name}: {}", ended.said);
        ensure!(complete > 0, "{name}: no calls");
        runs_on(&mut target)?;
        calls.push(complete.to_string());
    }
    end_of(target)?;
    Ok(format!("three signals, {} calls reported", calls.join(", ")))
}

/// The second Ctrl-C kills: the file is whole, nothing goes on.
pub(super) fn second_signal(vm: &Vm) -> Result<String> {
    let mut target = server(vm)?;
    let pid = target.id().to_string();
    let place = Place::new("second-signal")?;
    let mut live = start(vm, &place, &pid)?;
    let mut sent = 0;
    while live.command.try_wait()?.is_none() {
        signal("INT", &live.command)?;
        sent += 1;
    }
    let ended = live.end()?;
    ensure!(ended.status.signal() == Some(SIGINT), "{}: {}", ended.status, ended.said);
    ensure!(ended.report.is_empty(), "a report: {}", ended.report);
    opens(vm, &live.data)?;
    runs_on(&mut target)?;
    // The kernel is free for the next one.
    let next = Live::start(vm, &place, &["-p", &pid, "-d", "0.2", "-f", "handle"])?.end()?;
    ensure!(complete(&next.report()?).unwrap_or(0) > 0, "no calls in the next recording");
    end_of(target)?;
    Ok(format!("killed by one of {sent} signals, and the file opens"))
}

/// The window of a program that was started for it ends before the program does: that ends, too.
pub(super) fn started_program(vm: &Vm) -> Result<String> {
    /// On a busy host the program has not got to its work in the first one.
    const WINDOWS_SECONDS: [&str; 3] = ["1.5", "6", "24"];
    for seconds in WINDOWS_SECONDS {
        let calls = calls_of_started(vm, seconds)?;
        if calls > 0 {
            return Ok(format!("{calls} calls in {seconds} s, and the program has ended"));
        }
    }
    bail!("no calls")
}

/// Calls of a program that was started for a window; it is not there any more.
fn calls_of_started(vm: &Vm, seconds: &str) -> Result<u64> {
    let place = Place::new("started-program")?;
    let program = vm.programs().join("server").display().to_string();
    let ended = Live::start(vm, &place, &["-d", seconds, "-f", "handle", "--", &program])?.end()?;
    for process in fs::read_dir("/proc")? {
        let exe = fs::read_link(process?.path().join("exe"));
        ensure!(exe.is_err() || exe.is_ok_and(|exe| !exe.ends_with("programs/server")), "it is left behind");
    }
    if ended.status.code() == Some(NO_CALLS) {
        return Ok(0);
    }
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.said);
    // The program has printed its counts to the same stdout, and after them stands the report.
    ensure!(ended.report.contains("count handle"), "the program was not asked to end: {}", ended.report);
    let report = ended.report.find('{').and_then(|at| ended.report.get(at..)).unwrap_or_default();
    complete(&serde_json::from_str(report)?).context("a report without handle")
}

/// A recording of a long window that has gone on for a while.
fn start(vm: &Vm, place: &Place, pid: &str) -> Result<Live> {
    let starts = machine::starts()?;
    let mut live = Live::start(vm, place, &["-p", pid, "-d", "60", "-f", "handle"])?;
    live.wait_for_trace(starts)?;
    sleep(SOME_CALLS);
    Ok(live)
}
