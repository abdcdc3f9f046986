//! In the virtual machine: runs the cases and the trials, and leaves what was recorded, logged and printed in
//! `target/vm/out`.

mod containers;
mod cost;
mod crashes;
mod disk;
mod doctor;
mod endings;
mod files;
mod live;
mod machine;
mod perf_snapshots;
mod process;
mod record;
mod refusals;
mod snapshot_triggers;
mod snapshots;
mod targets;
mod uprobes;
mod watch;

use std::fs::{self, File};
use std::io;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::cases::CASES;
use crate::paths::Vm;

/// Something that is tried, and judged in the machine already.
pub struct Trial {
    /// Its name.
    pub name: &'static str,
    /// For the full run, or by its name: it takes long, and others of every run come close to it.
    pub is_long: bool,
    /// Says what it has seen; an error if that is wrong.
    run: fn(&Vm) -> Result<String>,
}

impl Trial {
    const fn new(name: &'static str, run: fn(&Vm) -> Result<String>) -> Self {
        Self { name, is_long: false, run }
    }

    const fn long(name: &'static str, run: fn(&Vm) -> Result<String>) -> Self {
        Self { name, is_long: true, run }
    }
}

/// All of them, in the order in which they run, after the cases.
pub const TRIALS: [Trial; 28] = [
    Trial::long("ten-minutes", watch::for_ten_minutes),
    Trial::new("minute", watch::for_a_minute),
    Trial::new("cost", cost::cost),
    Trial::new("killed", crashes::killed),
    Trial::new("killed-with-reasons", crashes::killed_with_reasons),
    Trial::new("disk-full", crashes::disk_full),
    Trial::new("signals", endings::signals),
    Trial::new("second-signal", endings::second_signal),
    Trial::new("started-program", endings::started_program),
    Trial::new("processes", targets::processes),
    Trial::long("two-recordings", targets::two_recordings),
    Trial::new("watch", watch::added_up),
    Trial::new("captures", watch::captured),
    Trial::new("snapshots", snapshots::taken),
    Trial::long("snapshot-ends", snapshots::ended),
    Trial::new("snapshot-triggers", snapshot_triggers::hit),
    Trial::new("perf-snapshots", perf_snapshots::same),
    Trial::new("view", watch::viewed),
    Trial::new("behind", watch::behind),
    Trial::new("full-spool", watch::full_spool),
    Trial::new("preview", targets::preview),
    Trial::new("filtered-files", files::filtered),
    Trial::new("filtered-containers", containers::filtered),
    Trial::new("bundle", files::bundled),
    Trial::new("uprobes", uprobes::uprobes),
    Trial::new("doctor", doctor::doctor),
    Trial::new("refusals", refusals::all),
    Trial::long("triggers-at-ret", snapshot_triggers::hit_at_ret),
];

/// What the line of a trial begins with that has seen what it should.
pub const GOOD: &str = "ok: ";

/// Loads the module and runs what is selected, but for what another machine has begun.  What fails is the
/// checker's to find.
///
/// # Errors
/// The machine is not as it should be, or its kernel complains.
pub fn run(vm: &Vm, number: &str) -> Result<()> {
    machine::load_module(vm)?;
    let selection = fs::read_to_string(vm.selection()).context("the selection of cases")?;
    let is_selected = |name: &str| selection.lines().any(|selected| selected == name);
    for case in CASES.iter().filter(|case| is_selected(case.name)) {
        run_once(vm, case.name, || record::run_case(vm, case))?;
    }
    machine::save_facts(vm, number)?;
    for trial in TRIALS.iter().filter(|trial| is_selected(trial.name)) {
        run_once(vm, trial.name, || (trial.run)(vm).map(|seen| format!("{GOOD}{seen}")))?;
    }
    machine::is_healthy()
}

/// Runs it if no machine has begun to, and says how it ended on the console and in its file.
fn run_once(vm: &Vm, name: &str, run: impl FnOnce() -> Result<String>) -> Result<()> {
    match File::create_new(vm.of_case(name, "end")) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        begun => drop(begun.with_context(|| format!("the end of {name}"))?),
    }
    let start = Instant::now();
    let end = run().unwrap_or_else(|error| format!("{error:#}"));
    println!("vm: {name}: {end}, {:.1} s", start.elapsed().as_secs_f64());
    fs::write(vm.of_case(name, "end"), end).with_context(|| format!("the end of {name}"))
}
