//! How a window ends before its time, and what becomes of who is left.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::crashes::opens;
use super::live::{Live, Place, complete, end_of, server};
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
    let place = Place::new("started-program")?;
    let program = vm.programs().join("server").display().to_string();
    let mut live = Live::start(vm, &place, &["-d", "1.5", "-f", "handle", "--", &program])?;
    let ended = live.end()?;
    ensure!(ended.status.success(), "{}: {}", ended.status, ended.said);
    // The program has printed its counts to the same stdout, and behind them stands the report.
    ensure!(ended.report.contains("count handle"), "the program was not asked to end: {}", ended.report);
    let report = ended.report.find('{').and_then(|at| ended.report.get(at..)).unwrap_or_default();
    let calls = complete(&serde_json::from_str(report)?).unwrap_or(0);
    ensure!(calls > 0, "no calls");
    for process in fs::read_dir("/proc")? {
        let exe = fs::read_link(process?.path().join("exe"));
        ensure!(exe.is_err() || exe.is_ok_and(|exe| !exe.ends_with("programs/server")), "it is left behind");
    }
    Ok(format!("{calls} calls, and the program has ended"))
}

/// A recording of a long window that has gone on for a while.
fn start(vm: &Vm, place: &Place, pid: &str) -> Result<Live> {
    let starts = machine::starts()?;
    let mut live = Live::start(vm, place, &["-p", pid, "-d", "60", "-f", "handle"])?;
    live.wait_for_trace(starts)?;
    sleep(SOME_CALLS);
    Ok(live)
}
