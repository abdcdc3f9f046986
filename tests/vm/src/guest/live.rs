//! The command on a target of a trial.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::machine;
use super::process::{HEAD_START, LIMIT, command, signal, wait};
use crate::paths::Vm;

/// A directory of a trial, in memory, that is not there any more when the trial is over.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new(name: &str) -> Result<Self> {
        let path = Path::new("/tmp").join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        // For any user that records.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
        Ok(Self(path))
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A directory in it.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The user of everything that does not name one.
const ROOT: u32 = 0;

/// A program of [`Vm::programs`] that runs until it is told to end.
pub(super) fn server(vm: &Vm) -> Result<Child> {
    server_of(ROOT, vm)
}

/// That, of this user.
pub(super) fn server_of(user: u32, vm: &Vm) -> Result<Child> {
    let program = vm.programs().join("server").display().to_string();
    let target = command(&[program])?.uid(user).gid(user).stdout(Stdio::null()).spawn()?;
    sleep(HEAD_START);
    Ok(target)
}

/// Tells it to end.
pub(super) fn end_of(mut target: Child) -> Result<()> {
    signal("TERM", &target)?;
    wait(&mut target).map(drop)
}

/// The command while it runs, into `perf.data` of a place; what it prints goes to files there.
pub(super) struct Live {
    pub(super) command: Child,
    report: PathBuf,
    said: PathBuf,
    pub(super) data: PathBuf,
}

/// How the command ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// On stdout.
    pub(super) report: String,
    /// On stderr.
    pub(super) said: String,
}

impl Live {
    pub(super) fn start(vm: &Vm, place: &Place, arguments: &[&str]) -> Result<Self> {
        Self::start_by(ROOT, vm, place, arguments)
    }

    /// By this user.
    pub(super) fn start_by(user: u32, vm: &Vm, place: &Place, arguments: &[&str]) -> Result<Self> {
        let (report, said) = (place.path("report"), place.path("said"));
        let mut command = Command::new(vm.func_latency());
        command
            .args(["--no-sched", "--format", "json", "-D"])
            .arg(place.root())
            .args(arguments)
            .stdin(Stdio::null());
        command.uid(user).gid(user);
        let command = command.stdout(File::create(&report)?).stderr(File::create(&said)?).spawn()?;
        Ok(Self { command, report, said, data: place.path("perf.data") })
    }

    /// Until something is traced.
    pub(super) fn wait_for_trace(&mut self, starts_before: u64) -> Result<()> {
        let begun = Instant::now();
        while machine::starts()? == starts_before {
            let ended = self.command.try_wait()?;
            ensure!(ended.is_none() && begun.elapsed() < LIMIT, "nothing is traced: {}", self.said()?);
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// What it has said so far.
    pub(super) fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.said)?)
    }

    pub(super) fn end(&mut self) -> Result<Ended> {
        let status = wait(&mut self.command)?;
        let (report, said) = (fs::read_to_string(&self.report)?, fs::read_to_string(&self.said)?);
        Ok(Ended { status, report, said })
    }
}

impl Ended {
    /// The report of a command that has done what it should.
    pub(super) fn report(&self) -> Result<Value> {
        ensure!(self.status.success(), "{}: {}", self.status, self.said);
        serde_json::from_str(&self.report).with_context(|| format!("no report: {}", self.report))
    }
}

/// Complete calls of the first function of a report.
pub(super) fn complete(report: &Value) -> Option<u64> {
    report.pointer("/functions/0/calls/complete")?.as_u64()
}

/// The report ends so if it has seen no call.
pub(super) const NO_CALLS: i32 = 1;

/// `func_latency report` of a recording, with these arguments.
pub(super) fn report(vm: &Vm, data: &Path, arguments: &[&str]) -> Result<Output> {
    let mut report = Command::new(vm.func_latency());
    Ok(report.args(["report", "--format", "json", "-i"]).arg(data).args(arguments).output()?)
}

/// Waits until a target has become a server.
pub(super) fn is_a_server(target: &mut Child) -> Result<()> {
    let exe = format!("/proc/{}/exe", target.id());
    let begun = Instant::now();
    while !fs::read_link(&exe).is_ok_and(|exe| exe.ends_with("server")) {
        ensure!(target.try_wait()?.is_none() && begun.elapsed() < LIMIT, "the target did not start");
        sleep(Duration::from_millis(5));
    }
    sleep(HEAD_START);
    Ok(())
}
