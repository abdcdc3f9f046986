//! `bpf`: compiles the eBPF programs, or checks that what is in the repository was compiled from its sources.
//!
//! Users compile nothing: the objects are in the repository. Another clang makes other code of the same
//! source, so that it is one version that compiles and checks, Debian 12's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::layout;
use crate::process::{self, Result};
use crate::stages::Outcome;

/// Its version as it says it itself.
const CLANG: (&str, &str) = ("clang-14", "clang version 14.0.6");

/// One object of each source.
const OBJECTS: [&str; 2] = ["probes", "sched"];

/// Compiles them anew.
pub(crate) fn run() -> Result {
    if let Some(why) = missing() {
        return Err(why);
    }
    OBJECTS.iter().try_for_each(|name| compile(name, &object(name)))
}

/// Checks that each object is what compiling its source gives.
pub(crate) fn check() -> Result<Outcome> {
    if let Some(why) = missing() {
        return Ok(Outcome::Skipped(why));
    }
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    for name in OBJECTS {
        let anew = layout::target().join(format!("{name}.bpf.o"));
        compile(name, &anew)?;
        if read(&anew)? != read(&object(name))? {
            return Err(format!("{name}.bpf.o is not that of its sources: cargo xtask bpf makes it anew"));
        }
    }
    Ok(Outcome::Done)
}

fn source() -> PathBuf {
    layout::root().join("crates").join("bpf").join("bpf")
}

fn object(name: &str) -> PathBuf {
    layout::root().join("crates").join("bpf").join("objects").join(format!("{name}.bpf.o"))
}

/// Why it cannot be compiled here, if so.
fn missing() -> Option<String> {
    let (clang, wanted) = CLANG;
    let output = Command::new(clang).arg("--version").stderr(Stdio::null()).output().ok();
    let version =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if !version.contains(wanted) {
        return Some(format!("no {wanted} here: apt-get install {clang} (Debian 12)"));
    }
    let headers = Path::new("/usr/include/bpf/bpf_helpers.h");
    (!headers.exists()).then(|| format!("no {}: apt-get install libbpf-dev", headers.display()))
}

fn compile(name: &str, to: &Path) -> Result {
    let directory = source();
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    }
    let mut clang = Command::new(CLANG.0);
    // Types for CO-RE are in the debug information; no path of this machine is.
    clang.args([
        "-g",
        "-O2",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
    ]);
    clang.arg(format!("-ffile-prefix-map={}=.", directory.display())).arg("-fdebug-compilation-dir=.");
    clang.arg("-c").arg(format!("{name}.bpf.c")).arg("-o").arg(to).current_dir(directory);
    process::run(&mut clang)
}
