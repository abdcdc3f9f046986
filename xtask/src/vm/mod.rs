//! `vm`: what is recorded by a real kernel, in a virtual machine with a test module for PMU `intel_pt`
//! (`tests/vm`).
//!
//! ```text
//! kernel    headers that are installed, and the stock image that belongs to them, unpacked
//! build     the module, the traced programs, func_latency, the test program   -> target/vm
//! machine   a small first file system, QEMU                                   -> target/vm/out
//! the test program checks target/vm/out
//! ```

mod build;
mod kernel;
mod machine;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::lock::Lock;
use crate::process::{self, Result};
use crate::stages::Outcome;
use crate::{layout, setup};
use kernel::Kernel;

/// `vm [NAME..]`: runs these cases, or all.
pub(crate) fn run(names: &[&str]) -> Result {
    match stage(names)? {
        Outcome::Done => Ok(()),
        Outcome::Skipped(why) => {
            println!("skipped: {why}");
            Ok(())
        }
    }
}

/// The stage of the tests.  Where the machine cannot be had (no Debian, not root, no network), it is skipped.
pub(crate) fn stage(names: &[&str]) -> Result<Outcome> {
    let directory = directory();
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let _lock = Lock::wait(&directory.join("lock"))?;
    let kernel = match setup::virtual_machine().and_then(|()| Kernel::find(&directory.join("kernel"))) {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    build::all(&kernel, &directory)?;
    all_are_known(names)?;
    fresh_results(names)?;
    machine::run(&kernel, &directory)?;
    process::run(Command::new(directory.join("vm_tests")).arg("check").arg(&directory).args(names))?;
    Ok(Outcome::Done)
}

/// `target/vm`: the machine has it at the same place.
fn directory() -> PathBuf {
    layout::target().join("vm")
}

/// A name that nothing has would run nothing.
fn all_are_known(names: &[&str]) -> Result {
    let known = process::capture(Command::new(directory().join("vm_tests")).arg("list"))?;
    match names.iter().find(|name| known.lines().all(|known| known != **name)) {
        Some(name) => Err(format!("vm: no case {name}; there are:\n{known}")),
        None => Ok(()),
    }
}

/// Nothing of an older run, and the cases to run if not all.
fn fresh_results(names: &[&str]) -> Result {
    let (out, selection) = (directory().join("out"), directory().join("selection"));
    let named = |e: std::io::Error| format!("{}: {e}", out.display());
    if out.exists() {
        fs::remove_dir_all(&out).map_err(named)?;
    }
    fs::create_dir(&out).map_err(named)?;
    let _ = fs::remove_file(&selection);
    match names {
        [] => Ok(()),
        names => fs::write(&selection, names.join("\n")).map_err(|e| format!("{}: {e}", selection.display())),
    }
}
