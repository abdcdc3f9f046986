//! Calls timed by uprobes, on a kernel that places each by itself.

use std::fs::{self, File};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::live::{Live, Place};
use super::process::{LIMIT, command, signal, wait};
use crate::counts;
use crate::paths::Vm;

/// The others begin with an instruction that the kernel places no probe at.
const FUNCTIONS: [&str; 2] = ["mid", "outer"];

/// All calls of a program that has counted its own.
pub(super) fn uprobes(vm: &Vm) -> Result<String> {
    let place = Place::new("uprobes")?;
    let mut target = command(&[vm.programs().join("nest").display().to_string(), "50".to_owned()])?;
    let printed = place.path("printed");
    let mut target = target.env("WAIT", "1").stdout(File::create(&printed)?).spawn()?;
    let pid = target.id().to_string();
    let functions = FUNCTIONS.iter().flat_map(|function| ["-f", function]);
    let arguments: Vec<&str> = ["--backend", "uprobe", "-v", "--max-overhead", "1e9", "-p", &pid, "-d", "60"]
        .into_iter()
        .chain(functions)
        .collect();
    let mut live = Live::start(vm, &place, &arguments)?;
    let placed = is_placed(&mut live);
    signal("USR1", &target)?;
    wait(&mut target)?;
    let ended = live.end()?;
    placed?;
    counts::same_as_printed(&ended.report()?, &FUNCTIONS, &fs::read_to_string(&printed)?)?;
    Ok(format!("all calls of {}", FUNCTIONS.join(", ")))
}

/// Waits until it says so.
fn is_placed(live: &mut Live) -> Result<()> {
    let begun = Instant::now();
    while !live.said()?.contains(" placed") {
        let ended = live.command.try_wait()?;
        ensure!(ended.is_none() && begun.elapsed() < LIMIT, "no probes: {ended:?} {}", live.said()?);
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
