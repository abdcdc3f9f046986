//! `wheel`: the Python package as a wheel, installed where nothing else is, and on a Ray cluster.
//!
//! ```text
//!   maturin build                            target/wheel/func_latency-VERSION-py3-none-TAG.whl
//!   pip install in a fresh environment       target/wheel/fresh
//!   pip install beside Ray                   target/wheel/ray
//! ```

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Result};
use crate::{clean_room, fixtures, layout, setup};

/// Three lines that print a figure of a recording of SQLite.
const THREE_LINES: &str = "\
import func_latency, sys
report = func_latency.report(sys.argv[1], \"sqlite3VdbeExec\")
print(report.functions[0].latency_ns.p99)";

/// What the cluster reports on: 20 recordings of one program, and a function of it.
const RECORDINGS: [&str; 20] = [
    "demo",
    "demo-allclocks",
    "demo-coarse",
    "demo-cpu2",
    "demo-cpu2-clocks",
    "demo-cpu2-defer",
    "demo-cpu2-ovf",
    "demo-cpu2-switch2",
    "demo-cpu2-trunc",
    "demo-cpu8",
    "demo-defer",
    "demo-filter2",
    "demo-kernel",
    "demo-lag64",
    "demo-longtnt",
    "demo-nomtc",
    "demo-noswitch",
    "demo-offcpu",
    "demo-ovf",
    "demo-trunc",
];
const FUNCTION: &str = "round_fn";

/// What the cluster reports on in parts.
const IN_PARTS: &str = "sq50";

/// `wheel`, and a stage of the full run.
pub(crate) fn run() -> Result {
    let directory = layout::target().join("wheel");
    let wheel = build(&directory)?;
    println!("wheel: {}", wheel.display());
    fixtures::run(&["sq1"])?;
    check_fresh(&directory.join("fresh"), &wheel)?;
    fixtures::run(&[&RECORDINGS[..], &[IN_PARTS]].concat())?;
    check_cluster(&directory.join("ray"), &wheel)
}

/// Makes the wheel; its path.
fn build(directory: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    for old in wheels(directory)? {
        fs::remove_file(&old).map_err(|e| format!("{}: {e}", old.display()))?;
    }
    let mut build = Command::new(setup::maturin()?);
    build.args(["build", "--release", "--quiet", "--out"]).arg(directory);
    build.current_dir(layout::root().join("python")).env("CARGO_TARGET_DIR", layout::target());
    process::run(&mut build)?;
    match wheels(directory)?.as_slice() {
        [wheel] => Ok(wheel.clone()),
        others => Err(format!("wheel: maturin made {} wheels", others.len())),
    }
}

fn wheels(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension() == Some(OsStr::new("whl"))).collect())
}

/// Installs the wheel, and no other package, and has three lines report a recording.
fn check_fresh(directory: &Path, wheel: &Path) -> Result {
    clean_room::remove(directory)?;
    let programs = setup::environment(directory)?;
    setup::install(&programs, &["--no-index".as_ref(), wheel.as_os_str()])?;
    let recording = layout::fixtures().join("sq1.data");
    let mut python = Command::new(programs.join("python3"));
    python.args(["-c", THREE_LINES]).arg(&recording).env_clear().env("LANG", "C.UTF-8");
    let printed = process::capture(&mut python)?;
    let mut command = Command::new(programs.join("func_latency"));
    command.args(["report", "--format", "json", "-f", "sqlite3VdbeExec", "-i"]).arg(&recording);
    let report = process::capture(&mut command)?;
    let expected = format!("\"p99\": {},", printed.trim());
    if printed.trim().is_empty() || !report.contains(&expected) {
        return Err(format!("wheel: three lines print another p99 than the report has: {printed}"));
    }
    println!("wheel: in a fresh environment three lines of Python print p99: {} ns", printed.trim());
    Ok(())
}

fn check_cluster(directory: &Path, wheel: &Path) -> Result {
    let python = setup::python_with_ray(directory, wheel)?;
    let mut check = Command::new(python);
    check.arg("-B").arg(layout::root().join("python/tests/ray_cluster.py")).arg(FUNCTION);
    check.args(RECORDINGS.map(|name| layout::fixtures().join(format!("{name}.data"))));
    check.env_remove("PYTHONPATH").env_remove("FUNC_LATENCY_COMMAND");
    print!("{}", process::capture(&mut check)?);
    Ok(())
}
