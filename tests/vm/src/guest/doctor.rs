//! `func_latency doctor`: the machine as it is, without permission, without the PMU.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, ensure};

use super::machine;
use super::refusals::USER;
use crate::paths::Vm;

/// Whether it can record, and what it says.
pub(super) fn doctor(vm: &Vm) -> Result<String> {
    let (all, code) = examined(vm, None)?;
    ensure!(code == Some(0), "{code:?}: {all}");
    for line in [
        "ok      kernel driver: intel_pt",
        "ok      IP filters: 2 ranges",
        "ok      kernel's clock: the TSC",
        "ok      crystal clock: ",
    ] {
        ensure!(all.contains(line), "does not say `{line}`: {all}");
    }
    let (forbidden, code) = machine::with_paranoid(3, || examined(vm, Some(USER)))?;
    ensure!(code == Some(3), "{code:?}: {forbidden}");
    for line in
        ["not ok  permission: kernel.perf_event_paranoid is 3", "not ok  locked memory: ulimit -l is "]
    {
        ensure!(forbidden.contains(line), "does not say `{line}`: {forbidden}");
    }
    machine::unload_module()?;
    let missing = examined(vm, None);
    machine::load_module(vm)?;
    let (missing, code) = missing?;
    ensure!(missing.contains("not ok  kernel driver: "), "it does not miss the PMU: {missing}");
    // Probes do without, if the kernel of the machine has what they need.
    let can_probe = missing.starts_with("works here by uprobes");
    ensure!(code == Some(if can_probe { 0 } else { 3 }), "{code:?}: {missing}");
    Ok("a machine that can record, a user who may not, a kernel without the PMU".to_owned())
}

/// What it says to a user (root, if none is named), and its exit code.
fn examined(vm: &Vm, user: Option<u32>) -> Result<(String, Option<i32>)> {
    let mut doctor = Command::new(vm.func_latency());
    if let Some(user) = user {
        doctor.uid(user).gid(user);
    }
    let output = doctor.arg("doctor").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((said, output.status.code()))
}
