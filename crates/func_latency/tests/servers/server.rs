//! A server in a directory of its own, run by an unprivileged user.

use std::fmt;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The unprivileged user and group of Debian.
const NOBODY: u32 = 65534;

/// What is not here, so that a test cannot run.
pub(crate) struct Missing(pub(crate) String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// That a program is here, and the time for it: the numbers are exact, and so the machine must have nothing
/// else to do.
pub(crate) fn need(program: &str, package: &str) -> Result<(), Missing> {
    let is_full_run = std::env::var_os("FUNC_LATENCY_FULL").is_some_and(|v| v != "0" && !v.is_empty());
    if !is_full_run {
        return Err(Missing("servers under load are for the full run (FUNC_LATENCY_FULL=1)".to_owned()));
    }
    let is_there = Path::new(program).exists();
    is_there.then_some(()).ok_or_else(|| Missing(format!("no {program} here (Debian: {package})")))
}

/// A directory of the unprivileged user.
pub(crate) fn directory() -> Result<TempDir, Missing> {
    let directory = tempfile::tempdir().unwrap();
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).map_err(|error| {
        Missing(format!("servers do not run as root, and nobody else can be had: {error}"))
    })?;
    Ok(directory)
}

/// A program that will run as the unprivileged user, in that directory, and say nothing.
pub(crate) fn command(program: &str, directory: &TempDir) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir(directory.path()).env("HOME", directory.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Tries until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "a minute has passed, and still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a thread sleeps (`/proc/PID/task/TID`): it may have said that it rests, and run on.
pub(crate) fn is_asleep(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
}

/// Ends with us, however we do.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, perhaps.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
