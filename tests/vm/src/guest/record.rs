//! Runs a case: the recorder starts the target, or comes while it runs.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::machine;
use super::process::{HEAD_START, LIMIT, command, signal, wait};
use crate::case::{Case, Losses, Recorder, Start};
use crate::paths::Vm;

/// In this time a small buffer fills.
const STALL: Duration = Duration::from_secs(1);

/// How the recorder ended, as text: `exit status: 0`.
pub(super) fn run_case(vm: &Vm, case: &Case) -> Result<String> {
    for (knob, value) in case.knobs {
        machine::set_knob(knob, *value)?;
    }
    machine::set_second_cpu(case.cpus > 1)?;
    let aside = Aside::of(case)?;
    machine::empty_log()?;
    machine::trace_switches()?;
    let end = match case.start {
        Start::ByRecorder => launch(vm, case),
        Start::Waits | Start::Runs => attach(vm, case),
    };
    drop(aside);
    machine::save_log(&vm.of_case(case.name, "log"))?;
    machine::save_switches(&vm.of_case(case.name, "switches"))?;
    for (knob, _) in case.knobs {
        machine::set_knob(knob, 0)?;
    }
    let end = end?;
    if case.recorder == Recorder::Perf {
        move_file(&case.perf_output(), &case.data(vm))?;
    }
    Ok(end.to_string())
}

/// While all that runs on one of two CPUs is recorded, the processes that wait and record are on the other
/// one. They read the clock in code that is not in the recording (the vDSO), and where such code has run, the
/// decoder does not know any more where the calls before it return to: the target, which moves from one to
/// the other, would have gaps there.
struct Aside(CpuSet);

impl Aside {
    fn of(case: &Case) -> Result<Option<Self>> {
        let Some(traced) = case.traced_cpu().filter(|_| case.is_of_cpus()) else { return Ok(None) };
        let before = sched_getaffinity(None)?;
        let mut others = before;
        others.unset(traced.0 as usize);
        sched_setaffinity(None, &others)?; // who is started from here is there, too
        Ok(Some(Self(before)))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Also from one file system to another.
fn move_file(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    fs::remove_file(from).with_context(|| from.display().to_string())
}

/// The recorder starts the target: both print to one file.
fn launch(vm: &Vm, case: &Case) -> Result<ExitStatus> {
    let mut recorder = recorder(vm, case, None)?.stdout(create(vm, case, "out")?).spawn()?;
    wait(&mut recorder)
}

/// The target runs, the recorder comes and goes.
fn attach(vm: &Vm, case: &Case) -> Result<ExitStatus> {
    let mut target = command(&case.target_words(&vm.programs().display().to_string()))?;
    if case.start == Start::Waits {
        target.env("WAIT", "1");
    }
    let mut target = target.stdout(create(vm, case, "out")?).spawn()?;
    sleep(HEAD_START);
    let end = record_running(vm, case, &target);
    if case.start == Start::Runs || end.is_err() {
        signal("TERM", &target)?;
    }
    wait(&mut target)?;
    end
}

fn record_running(vm: &Vm, case: &Case, target: &Child) -> Result<ExitStatus> {
    let starts = machine::starts()?;
    let report = create(vm, case, "report")?;
    let mut recorder = recorder(vm, case, Some(target.id()))?.stdout(report).spawn()?;
    if case.start == Start::Waits {
        let begun = Instant::now();
        while machine::starts()? == starts && begun.elapsed() < LIMIT && recorder.try_wait()?.is_none() {
            sleep(Duration::from_millis(5));
        }
        signal("USR1", target)?;
    }
    if case.losses == Losses::Stalled {
        signal("STOP", &recorder)?;
        sleep(STALL);
        signal("CONT", &recorder)?;
    }
    wait(&mut recorder)
}

fn create(vm: &Vm, case: &Case, kind: &str) -> Result<File> {
    let path = vm.of_case(case.name, kind);
    File::create(&path).with_context(|| path.display().to_string())
}

fn recorder(vm: &Vm, case: &Case, pid: Option<u32>) -> Result<Command> {
    let mut command = command(&case.command(vm, pid))?;
    command.stderr(create(vm, case, "err")?);
    Ok(command)
}
