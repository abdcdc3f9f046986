//! The recorder dies, or its disk is full: the target runs on, and there is a file that opens. What is in
//! that is checked outside ([`crate::remains`]).

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::disk::Disk;
use super::live::{end_of, report, server};
use super::machine;
use super::process::{command, runs_on};
use crate::paths::Vm;
use crate::remains;

/// Half of them from the start on, half from when the file is there.
const KILLS: u32 = 12;
const KILLS_APART: Duration = Duration::from_millis(50);

/// `kill -9` at [`KILLS`] moments: the target runs on, what is there of the file opens, and the next
/// recording is a whole one.
pub(super) fn killed(vm: &Vm) -> Result<String> {
    let directory = vm.of_case("killed", "recording");
    let mut target = server(vm)?;
    let mut opened = 0;
    for number in 0..KILLS {
        machine::empty_log()?;
        let mut recorder = record(vm, &target, &directory, "5")?.stderr(Stdio::null()).spawn()?;
        let data = directory.join("perf.data");
        while number % 2 == 1 && !data.exists() {
            ensure!(recorder.try_wait()?.is_none(), "it ended without a file");
            sleep(Duration::from_millis(1));
        }
        sleep(KILLS_APART * number);
        recorder.kill()?;
        recorder.wait()?;
        runs_on(&mut target)?;
        if fs::metadata(&data).is_ok_and(|meta| meta.len() > 0) {
            opens(vm, &data).with_context(|| format!("killed after {:?}", KILLS_APART * number))?;
            keep(vm, "killed", number, &data)?;
            opened += 1;
        }
        remove(&directory)?;
    }
    record_whole(vm, "killed", KILLS, &target)?;
    runs_on(&mut target)?;
    end_of(target)?;
    ensure!(opened >= KILLS / 4, "only {opened} of the killed recordings had begun");
    Ok(format!("killed {KILLS} times, {opened} files, all open"))
}

/// Killed in the window, too: what is there of the file says what calls waited for.
pub(super) fn killed_with_reasons(vm: &Vm) -> Result<String> {
    const REPORTED: Duration = Duration::from_secs(1);
    let directory = vm.of_case("killed-with-reasons", "recording");
    let mut target = server(vm)?;
    let mut recorder = func_latency(vm, &["record", "-d", "60"], &target, &directory)?;
    let mut recorder = recorder.stderr(Stdio::null()).spawn()?;
    let data = directory.join("perf.data");
    while !data.exists() {
        ensure!(recorder.try_wait()?.is_none(), "it ended without a file");
        sleep(Duration::from_millis(5));
    }
    sleep(REPORTED);
    recorder.kill()?;
    recorder.wait()?;
    runs_on(&mut target)?;
    end_of(target)?;
    let output = report(vm, &data, &["-f", "handle"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let causes = &report["functions"][0]["off_cpu_causes"];
    let first = &causes["reasons"][0];
    ensure!(causes["told_by"] == "scheduler" && first["name"] == "clock_nanosleep", "{causes}");
    remove(&directory)?;
    Ok(format!("{} naps have their reason", first["count"]))
}

/// The disk is full in the window: that is said, and what was written opens.
pub(super) fn disk_full(vm: &Vm) -> Result<String> {
    let disk = Disk::new("small", "128k")?;
    let mut target = server(vm)?;
    machine::empty_log()?;
    let end = record(vm, &target, disk.root(), "5")?.output()?;
    let said = String::from_utf8_lossy(&end.stderr).into_owned();
    ensure!(end.status.code() == Some(3) && said.contains("No space left"), "{}: {said}", end.status);
    opens(vm, &disk.root().join("perf.data"))?;
    keep(vm, "disk-full", 0, &disk.root().join("perf.data"))?;
    runs_on(&mut target)?;
    record_whole(vm, "disk-full", 1, &target)?;
    end_of(target)?;
    Ok("the file opens up to where the disk was full".to_owned())
}

/// The next recording is a whole one, and kept.
fn record_whole(vm: &Vm, trial: &str, number: u32, target: &Child) -> Result<()> {
    let directory = vm.of_case(trial, "recording");
    machine::empty_log()?;
    let end = record(vm, target, &directory, "0.2")?.output()?;
    let said = String::from_utf8_lossy(&end.stderr);
    ensure!(end.status.success(), "the next recording: {}\n{said}", end.status);
    opens(vm, &directory.join("perf.data"))?;
    keep(vm, trial, number, &directory.join("perf.data"))
}

fn record(vm: &Vm, target: &Child, directory: &Path, seconds: &str) -> Result<Command> {
    func_latency(vm, &["record", "--no-sched", "-d", seconds], target, directory)
}

fn func_latency(vm: &Vm, words: &[&str], target: &Child, directory: &Path) -> Result<Command> {
    let mut command = command(&[vm.func_latency().display().to_string()])?;
    command.args(words).args(["-p", &target.id().to_string(), "-D"]).arg(directory);
    command.stdout(Stdio::null());
    Ok(command)
}

/// The file can be read.
pub(super) fn opens(vm: &Vm, data: &Path) -> Result<()> {
    let dump = Command::new(vm.func_latency()).args(["dump", "--sideband", "-i"]).arg(data).output()?;
    if !dump.status.success() {
        bail!("{} does not open: {}", data.display(), String::from_utf8_lossy(&dump.stderr));
    }
    Ok(())
}

/// Leaves a recording and the log of it to the check outside.
fn keep(vm: &Vm, trial: &str, number: u32, data: &Path) -> Result<()> {
    let name = remains::name(trial, number);
    machine::save_log(&vm.of_case(&name, "log"))?;
    fs::copy(data, vm.of_case(&name, "data")).map(drop).with_context(|| data.display().to_string())
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    Ok(())
}
