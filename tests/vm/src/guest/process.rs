//! Processes of the virtual machine.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Nothing takes longer.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// A target that runs before it is recorded has this long to get to its work.
pub(super) const HEAD_START: Duration = Duration::from_millis(200);

/// A process that is killed where a trial fails before its end: it would be in the way of the next ones.
pub(super) struct Killed(pub(super) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended, in most cases.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// A command without input.
pub(super) fn command(words: &[String]) -> Result<Command> {
    let [program, arguments @ ..] = words else { bail!("no command") };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// Waits for the end, [`LIMIT`] at most.
pub(super) fn wait(child: &mut Child) -> Result<ExitStatus> {
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

/// Waits until the process has run for so long since now, or has ended: on a machine with much else to do, it
/// may not run for long.
pub(super) fn has_run(process: &mut Child, time: Duration) -> Result<()> {
    let (start, before) = (Instant::now(), cpu_time(process)?);
    while process.try_wait()?.is_none() && cpu_time(process)?.saturating_sub(before) < time {
        ensure!(start.elapsed() < LIMIT, "the target has not run for {time:?}");
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How long it has been on a CPU.
fn cpu_time(process: &Child) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", process.id()))?;
    let on_cpu = stat.split(' ').next().unwrap_or_default();
    Ok(Duration::from_nanos(on_cpu.parse().with_context(|| format!("schedstat: {stat:?}"))?))
}

/// Sends a signal, by its name.
pub(super) fn signal(name: &str, process: &Child) -> Result<()> {
    let kill = Command::new("kill").arg(format!("-{name}")).arg(process.id().to_string()).status()?;
    ensure!(kill.success(), "kill -{name}: {kill}");
    Ok(())
}

/// The process lives, and is not stopped.
pub(super) fn runs_on(process: &mut Child) -> Result<()> {
    let state = state(process)?;
    ensure!(matches!(&*state, "R" | "S" | "D"), "the target is in state {state}");
    Ok(())
}

/// A signal has stopped the process.
pub(super) fn is_stopped(process: &mut Child) -> Result<bool> {
    Ok(state(process)? == "T")
}

/// The state of a process that lives, as `ps` names it.
fn state(process: &mut Child) -> Result<String> {
    ensure!(process.try_wait()?.is_none(), "the target is dead");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    Ok(state.unwrap_or_default().to_owned())
}
