//! In the virtual machine: runs the cases, and leaves what was recorded, logged and printed in `target/vm/out`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::case::{Case, Start};
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

/// How the recorder ended, as text: `exit status: 0`.
fn run_case(vm: &Vm, case: &Case) -> Result<String> {
    for (knob, value) in case.knobs {
        set_knob(knob, *value)?;
    }
    set_online(case.cpus > 1)?;
    fs::write(LOG, "0").context(LOG)?;
    let end = match case.start {
        Start::ByRecorder => launch(vm, case),
        Start::Waits | Start::Runs => attach(vm, case),
    };
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
    let starts = starts()?;
    let report = create(vm, case, "report")?;
    let mut recorder = recorder(vm, case, Some(target.id()))?.stdout(report).spawn()?;
    if case.start == Start::Waits {
        let begun = Instant::now();
        while self::starts()? == starts && begun.elapsed() < LIMIT && recorder.try_wait()?.is_none() {
            sleep(Duration::from_millis(5));
        }
        signal("USR1", target)?;
    }
    wait(&mut recorder)
}

/// How often the PMU was started.
fn starts() -> Result<u64> {
    let text = fs::read_to_string(COUNTERS).context(COUNTERS)?;
    let starts = text.lines().find_map(|line| line.strip_prefix("starts ")?.parse().ok());
    starts.with_context(|| format!("{COUNTERS} has no starts"))
}

fn signal(name: &str, process: &Child) -> Result<()> {
    let kill = Command::new("kill").arg(format!("-{name}")).arg(process.id().to_string()).status()?;
    ensure!(kill.success(), "kill -{name}: {kill}");
    Ok(())
}

fn create(vm: &Vm, case: &Case, kind: &str) -> Result<File> {
    let path = vm.of_case(case.name, kind);
    File::create(&path).with_context(|| path.display().to_string())
}

fn command(words: &[String]) -> Result<Command> {
    let [program, arguments @ ..] = words else { bail!("a case without a command") };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

fn recorder(vm: &Vm, case: &Case, pid: Option<u32>) -> Result<Command> {
    let mut command = command(&case.command(vm, pid))?;
    command.stderr(create(vm, case, "err")?);
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
