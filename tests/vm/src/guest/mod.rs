//! In the virtual machine: runs the cases and the trials, and leaves what was recorded, logged and printed in
//! `target/vm/out`.

mod containers;
mod cost;
mod crashes;
mod doctor;
mod endings;
mod files;
mod live;
mod machine;
mod process;
mod record;
mod refusals;
mod snapshots;
mod targets;
mod uprobes;
mod watch;

use std::fs;
use std::io;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::cases::CASES;
use crate::paths::Vm;

/// Something that is tried, and judged in the machine already.
pub struct Trial {
    /// Its name.
    pub name: &'static str,
    /// Says what it has seen; an error if that is wrong.
    run: fn(&Vm) -> Result<String>,
}

/// All of them, in the order in which they run, after the cases.
pub const TRIALS: [Trial; 22] = [
    Trial { name: "cost", run: cost::cost },
    Trial { name: "killed", run: crashes::killed },
    Trial { name: "killed-with-reasons", run: crashes::killed_with_reasons },
    Trial { name: "disk-full", run: crashes::disk_full },
    Trial { name: "signals", run: endings::signals },
    Trial { name: "second-signal", run: endings::second_signal },
    Trial { name: "started-program", run: endings::started_program },
    Trial { name: "processes", run: targets::processes },
    Trial { name: "two-recordings", run: targets::two_recordings },
    Trial { name: "watch", run: watch::added_up },
    Trial { name: "captures", run: watch::captured },
    Trial { name: "snapshots", run: snapshots::taken },
    Trial { name: "snapshot-ends", run: snapshots::ended },
    Trial { name: "view", run: watch::viewed },
    Trial { name: "behind", run: watch::behind },
    Trial { name: "preview", run: targets::preview },
    Trial { name: "filtered-files", run: files::filtered },
    Trial { name: "filtered-containers", run: containers::filtered },
    Trial { name: "bundle", run: files::bundled },
    Trial { name: "uprobes", run: uprobes::uprobes },
    Trial { name: "doctor", run: doctor::doctor },
    Trial { name: "refusals", run: refusals::all },
];

/// What the line of a trial begins with that has seen what it should.
pub const GOOD: &str = "ok: ";

/// Loads the module and runs everything, or what is selected.  What fails is the checker's to find.
///
/// # Errors
/// The machine is not as it should be, or its kernel complains.
pub fn run(vm: &Vm) -> Result<()> {
    machine::load_module(vm)?;
    let selection = selection(vm)?;
    let is_selected = |name: &str| selection.as_ref().is_none_or(|names| names.lines().any(|n| n == name));
    for case in CASES.iter().filter(|case| is_selected(case.name)) {
        tell(vm, case.name, || record::run_case(vm, case))?;
    }
    machine::save_facts(vm)?;
    for trial in TRIALS.iter().filter(|trial| is_selected(trial.name)) {
        tell(vm, trial.name, || (trial.run)(vm).map(|seen| format!("{GOOD}{seen}")))?;
    }
    machine::is_healthy()
}

/// Runs it, and says how it ended on the console and in its file.
fn tell(vm: &Vm, name: &str, run: impl FnOnce() -> Result<String>) -> Result<()> {
    let start = Instant::now();
    let end = run().unwrap_or_else(|error| format!("{error:#}"));
    println!("vm: {name}: {end}, {:.1} s", start.elapsed().as_secs_f64());
    fs::write(vm.of_case(name, "end"), end).with_context(|| format!("the end of {name}"))
}

/// The names of what is to run; `None`: everything.
fn selection(vm: &Vm) -> Result<Option<String>> {
    match fs::read_to_string(vm.selection()) {
        Ok(names) => Ok(Some(names)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("the selection of cases"),
    }
}
