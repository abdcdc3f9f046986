//! `func_latency doctor`: the machine as it is, without permission, without the PMU.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, ensure};

use super::machine;
use super::refusals::USER;
use crate::paths::Vm;

/// Whether it can record, and what it says.
pub(super) fn doctor(vm: &Vm) -> Result<String> {
    let all = examined(vm, None, 0)?;
    for line in [
        "ok      kernel driver: intel_pt",
        "ok      IP filters: 2 ranges",
        "ok      kernel's clock: the TSC",
        "ok      crystal clock: ",
    ] {
        ensure!(all.contains(line), "does not say `{line}`: {all}");
    }
    let forbidden = machine::with_paranoid(3, || examined(vm, Some(USER), 3))?;
    for line in
        ["not ok  permission: kernel.perf_event_paranoid is 3", "not ok  locked memory: ulimit -l is "]
    {
        ensure!(forbidden.contains(line), "does not say `{line}`: {forbidden}");
    }
    machine::unload_module()?;
    let missing = examined(vm, None, 3);
    machine::load_module(vm)?;
    ensure!(missing?.contains("not ok  kernel driver: "), "it does not miss the PMU");
    Ok("a machine that can record, a user who may not, a kernel without the PMU".to_owned())
}

/// What it says to a user (root, if none is named), ending with `code`.
fn examined(vm: &Vm, user: Option<u32>, code: i32) -> Result<String> {
    let mut doctor = Command::new(vm.func_latency());
    if let Some(user) = user {
        doctor.uid(user).gid(user);
    }
    let output = doctor.arg("doctor").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(code), "{}, not {code}: {said}", output.status);
    Ok(said)
}
