//! Processes of the virtual machine.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

/// Nothing takes longer.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// A target that runs before it is recorded has this long to get to its work.
pub(super) const HEAD_START: Duration = Duration::from_millis(200);

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

/// Sends a signal, by its name.
pub(super) fn signal(name: &str, process: &Child) -> Result<()> {
    let kill = Command::new("kill").arg(format!("-{name}")).arg(process.id().to_string()).status()?;
    ensure!(kill.success(), "kill -{name}: {kill}");
    Ok(())
}

/// The process lives, and is not stopped.
pub(super) fn runs_on(process: &mut Child) -> Result<()> {
    ensure!(process.try_wait()?.is_none(), "the target is dead");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    ensure!(matches!(state, Some("R" | "S" | "D")), "the target is in state {state:?}");
    Ok(())
}
