//! What runs in the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::Kernel;
use crate::cargo;
use crate::layout;
use crate::process::{self, Result};

/// Ours, as `cargo test` builds them.
const BINARIES: [&str; 2] = ["func_latency", "vm_tests"];

/// The module, the traced programs and our own programs, in `directory`.
pub(super) fn all(kernel: &Kernel, directory: &Path) -> Result {
    module(kernel, directory)?;
    programs(&directory.join("programs"))?;
    let mut build = cargo::command();
    // As `cargo test` does, or libraries would be built once more with other features.
    build.args(["build", "--profile", "test", "--quiet", "--locked", "--workspace", "--all-features"]);
    process::run(build.args(BINARIES.iter().flat_map(|binary| ["--bin", binary])))
        .map_err(process::perhaps_no_network)?;
    let built = layout::target().join("debug");
    BINARIES.iter().try_for_each(|binary| copy(&built.join(binary), &directory.join(binary)))
}

/// The kernel's build system writes beside the sources: it gets a copy of them.
fn module(kernel: &Kernel, directory: &Path) -> Result {
    let place = directory.join("module");
    make_directory(&place)?;
    for source in sources("module")? {
        if let Some(name) = source.file_name() {
            copy_if_changed(&source, &place.join(name))?;
        }
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(kernel.headers()).arg(format!("M={}", place.display())).arg("modules");
    process::capture(&mut make)?;
    copy(&place.join("soft_pt.ko"), &directory.join("soft_pt.ko"))
}

/// Every C file is a program; a linker script of its name lays it out.
fn programs(place: &Path) -> Result {
    make_directory(place)?;
    for source in
        sources("programs")?.iter().filter(|file| file.extension().is_some_and(|ending| ending == "c"))
    {
        let Some(name) = source.file_stem() else { continue };
        let mut compile = Command::new("gcc");
        compile.args(["-O1", "-g", "-pthread", "-o"]).arg(place.join(name)).arg(source);
        let script = source.with_extension("ld");
        if script.is_file() {
            compile.arg("-Xlinker").arg("-T").arg("-Xlinker").arg(script);
        }
        process::capture(&mut compile)?;
    }
    Ok(())
}

/// The files of a directory of `tests/vm`, sorted.
fn sources(directory: &str) -> Result<Vec<PathBuf>> {
    let place = layout::root().join("tests/vm").join(directory);
    let entries = fs::read_dir(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    Ok(files)
}

fn make_directory(path: &Path) -> Result {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result {
    fs::copy(from, to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// Copies a file only if it has changed: `make` builds anew what is newer.
fn copy_if_changed(from: &Path, to: &Path) -> Result {
    let same = fs::read(from).ok().is_some_and(|content| fs::read(to).ok() == Some(content));
    if same { Ok(()) } else { copy(from, to) }
}
