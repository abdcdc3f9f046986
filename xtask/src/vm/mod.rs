//! `vm`: what is recorded by a real kernel, in virtual machines with a test module for PMU `intel_pt`
//! (`tests/vm`).
//!
//! ```text
//! kernel    headers that are installed, and the stock image that belongs to them, unpacked
//! build     the module, the traced programs, func_latency, the test program   -> target/vm
//! machine   a small first file system, QEMU, for each of two machines         -> target/vm/out
//! the test program checks target/vm/out
//! ```

mod build;
mod kernel;
mod machine;

use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::extent::Extent;
use crate::lock::Lock;
use crate::process::{self, Result};
use crate::stages::Outcome;
use crate::{layout, setup};
use kernel::Kernel;

/// Machines that run at once: each takes 768 MB.
const MACHINES_MAX: usize = 2;

/// What does not take minutes takes about two together, where nothing else runs.
const QUICK_LIMIT: Duration = Duration::from_secs(10 * 60);
/// With what takes minutes.
const LONG_LIMIT: Duration = Duration::from_secs(20 * 60);

/// `vm [NAME..]`: runs these cases and trials, or those of the quick lane.
pub(crate) fn run(names: &[&str]) -> Result {
    let selected = if names.is_empty() { Selected::Quick } else { Selected::Named(names) };
    match select_and_run(selected)? {
        Outcome::Done => Ok(()),
        Outcome::Skipped(why) => {
            println!("skipped: {why}");
            Ok(())
        }
    }
}

/// The stage of the tests.  Where the machine cannot be had (no Debian, not root, no network), it is skipped.
pub(crate) fn stage(extent: Extent) -> Result<Outcome> {
    select_and_run(if extent == Extent::Full { Selected::All } else { Selected::Quick })
}

/// What is to run.
#[derive(Clone, Copy)]
enum Selected<'a> {
    /// All that does not take minutes.
    Quick,
    All,
    Named(&'a [&'a str]),
}

fn select_and_run(selected: Selected<'_>) -> Result<Outcome> {
    let directory = directory();
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let _lock = Lock::wait(&directory.join("lock"))?;
    let kernel = match setup::virtual_machine().and_then(|()| Kernel::find(&directory.join("kernel"))) {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    build::all(&kernel, &directory)?;
    let names = names(selected)?;
    fresh_results(&names)?;
    let limit = if matches!(selected, Selected::Quick) { QUICK_LIMIT } else { LONG_LIMIT };
    // Each is one thread: what one has begun the others leave out.
    let machines = thread::available_parallelism().map_or(1, NonZero::get).min(MACHINES_MAX).min(names.len());
    machine::run(&kernel, &directory, machines, limit)?;
    let mut check = Command::new(directory.join("vm_tests"));
    process::run_check(check.arg("check").arg(&directory).arg(machines.to_string()).args(&names))?;
    Ok(Outcome::Done)
}

/// `target/vm`: the machine has it at the same place.
fn directory() -> PathBuf {
    layout::target().join("vm")
}

/// The names of what is selected, of which each is known: a name that nothing has would run nothing.
fn names(selected: Selected<'_>) -> Result<Vec<String>> {
    let list =
        |which: &[&str]| process::capture(Command::new(directory().join("vm_tests")).arg("list").args(which));
    let words = |list: &str| list.lines().map(str::to_owned).collect::<Vec<_>>();
    match selected {
        Selected::Quick => Ok(words(&list(&["quick"])?)),
        Selected::All => Ok(words(&list(&[])?)),
        Selected::Named(names) => {
            let known = list(&[])?;
            match names.iter().find(|name| known.lines().all(|known| known != **name)) {
                Some(name) => Err(format!("vm: no case {name}; there are:\n{known}")),
                None => Ok(names.iter().map(|name| (*name).to_owned()).collect()),
            }
        }
    }
}

/// Nothing of an older run, and what is to run.
fn fresh_results(names: &[String]) -> Result {
    let (out, selection) = (directory().join("out"), directory().join("selection"));
    let named = |e: std::io::Error| format!("{}: {e}", out.display());
    if out.exists() {
        fs::remove_dir_all(&out).map_err(named)?;
    }
    fs::create_dir(&out).map_err(named)?;
    fs::write(&selection, names.join("\n")).map_err(|e| format!("{}: {e}", selection.display()))
}
