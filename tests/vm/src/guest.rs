//! In the virtual machine: runs the cases, and leaves what was recorded, logged and printed in `target/vm/out`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::case::{Case, Word};
use crate::cases::CASES;
use crate::paths::Vm;

const LOG: &str = "/sys/kernel/debug/soft_pt/log";
const COUNTERS: &str = "/sys/kernel/debug/soft_pt/stat";
const KNOBS: &str = "/sys/module/soft_pt/parameters";
const SECOND_CPU: &str = "/sys/devices/system/cpu/cpu1/online";
const PMU: &str = "/sys/bus/event_source/devices/intel_pt";

/// Room in the module's log: 32 MB.
const LOG_EVENTS: u64 = 1_000_000;

/// A case takes seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// A target that runs before it is recorded has this long to get to its work.
const HEAD_START: Duration = Duration::from_millis(200);

/// Loads the module and runs all cases, or those that are selected.  A case that fails is the checker's to find.
///
/// # Errors
/// The machine is not as it should be, or its kernel complains.
pub fn run(vm: &Vm) -> Result<()> {
    let insmod = Command::new("insmod").arg(vm.module()).arg(format!("log_entries={LOG_EVENTS}")).status()?;
    ensure!(insmod.success(), "insmod: {insmod}");
    for case in selected(vm)? {
        let start = Instant::now();
        let end = run_case(vm, case).unwrap_or_else(|error| format!("{error:#}"));
        println!("vm: {}: {end}, {:.1} s", case.name, start.elapsed().as_secs_f64());
        fs::write(vm.of_case(case.name, "end"), end)?;
    }
    fs::copy(format!("{PMU}/tsc_art_ratio"), vm.of_run("ratio"))?;
    fs::copy(COUNTERS, vm.of_run("counters"))?;
    healthy()
}

fn selected(vm: &Vm) -> Result<Vec<&'static Case>> {
    match fs::read_to_string(vm.selection()) {
        Ok(names) => Ok(CASES.iter().filter(|case| names.lines().any(|name| name == case.name)).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CASES.iter().collect()),
        Err(error) => Err(error).context("the selection of cases"),
    }
}

/// The kernel has found nothing wrong with itself, or with the module.
fn healthy() -> Result<()> {
    let messages = Command::new("dmesg").output()?.stdout;
    let messages = String::from_utf8_lossy(&messages);
    let bad =
        messages.lines().find(|line| ["WARNING", "BUG:", "Oops"].iter().any(|word| line.contains(word)));
    bad.map_or(Ok(()), |line| bail!("the kernel says: {line}"))
}

/// How the command ended, as text: `exit status: 0`.
fn run_case(vm: &Vm, case: &Case) -> Result<String> {
    for (knob, value) in case.knobs {
        set_knob(knob, *value)?;
    }
    set_online(case.cpus > 1)?;
    fs::write(LOG, "0").context(LOG)?;
    let end = if case.attaches() { attach(vm, case) } else { launch(vm, case) };
    fs::copy(LOG, vm.of_case(case.name, "log")).context(LOG)?;
    for (knob, _) in case.knobs {
        set_knob(knob, 0)?;
    }
    Ok(end?.to_string())
}

fn set_knob(knob: &str, value: u64) -> Result<()> {
    fs::write(Path::new(KNOBS).join(knob), value.to_string()).with_context(|| format!("knob {knob}"))
}

/// The second CPU.  One thread emulates both, so that it only costs time where it is not needed.
fn set_online(second: bool) -> Result<()> {
    let there = fs::read_to_string(SECOND_CPU).context(SECOND_CPU)?.trim() == "1";
    if there == second {
        return Ok(());
    }
    fs::write(SECOND_CPU, u8::from(second).to_string()).context(SECOND_CPU)
}

/// The command starts the target.
fn launch(vm: &Vm, case: &Case) -> Result<ExitStatus> {
    let mut child = recorder(vm, case, None)?.stdout(create(vm, case, "out")?).spawn()?;
    wait(&mut child)
}

/// The target runs, the command comes and goes, the target is told to end.
fn attach(vm: &Vm, case: &Case) -> Result<ExitStatus> {
    let [program, arguments @ ..] = case.target else { bail!("a case without a target") };
    let mut target = Command::new(vm.programs().join(program));
    let mut target = target.args(arguments).stdout(create(vm, case, "out")?).spawn()?;
    sleep(HEAD_START);
    let end = recorder(vm, case, Some(target.id())).and_then(|mut recorder| {
        let mut recorder = recorder.stdout(create(vm, case, "report")?).spawn()?;
        wait(&mut recorder)
    });
    Command::new("kill").arg(target.id().to_string()).status()?;
    wait(&mut target)?;
    end
}

fn create(vm: &Vm, case: &Case, kind: &str) -> Result<File> {
    let path = vm.of_case(case.name, kind);
    File::create(&path).with_context(|| path.display().to_string())
}

/// The command with its words filled in.
fn recorder(vm: &Vm, case: &Case, pid: Option<u32>) -> Result<Command> {
    let programs = vm.programs().display().to_string();
    let fill = |word: &str| word.replace(Word::PROGRAMS, &programs);
    let mut words = Vec::new();
    for word in case.command {
        match *word {
            Word::TARGET => {
                words.extend(case.target.iter().map(|word| (*word).to_owned()));
                if let (Some(program), Some(path)) =
                    (case.target.first(), words.iter_mut().rev().nth(case.target.len() - 1))
                {
                    *path = format!("{programs}/{program}");
                }
            }
            Word::DATA => words.push(vm.of_case(case.name, "data").display().to_string()),
            Word::PID => words.extend(pid.map(|pid| pid.to_string())),
            word => words.push(fill(word)),
        }
    }
    let [program, arguments @ ..] = &words[..] else { bail!("a case without a command") };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(create(vm, case, "err")?);
    Ok(command)
}

/// Waits for the end, [`LIMIT`] at most.
fn wait(child: &mut Child) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            bail!("it did not end within {} s", LIMIT.as_secs());
        }
        sleep(Duration::from_millis(5));
    }
}
