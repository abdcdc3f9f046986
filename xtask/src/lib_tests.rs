//! `lib-tests`: the library tests alone, in another order each time, twice in one clone, with `TMPDIR`
//! elsewhere, and by a user without rights: none may depend on what ran before it, on the directory for
//! temporary files, or on root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cargo;
use crate::process::{self, Result};
use crate::setup;
use crate::stages::{Outcome, Stages};

/// Cargo starts each test program by this command; its words are split at spaces.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// Becomes Debian's unprivileged user, without a home directory.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent";

/// `lib-tests`.
pub(crate) fn run() -> Result {
    let mut stages = Stages::new();
    if !stages.run("build", || process::run(command().arg("--no-run")).map(|()| Outcome::Done)) {
        return stages.finish();
    }
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    stages.run("one thread", || tests(&mut command(), "", &["--test-threads=1"], seed));
    stages.run("again", || tests(&mut command(), "", &[], seed + 1));
    stages.run("TMPDIR", || elsewhere(seed + 2));
    stages.run("nobody", || without_rights(seed + 3));
    stages.finish()
}

fn command() -> Command {
    let mut command = cargo::command();
    command.args(["test", "--workspace", "--all-features", "--locked", "--lib", "--bins", "--no-fail-fast"]);
    command
}

/// Runs the tests in a random order, for which a stable toolchain needs `RUSTC_BOOTSTRAP`.
fn tests(command: &mut Command, runner: &str, options: &[&str], seed: u64) -> Result<Outcome> {
    println!("lib-tests: seed {seed}");
    let runner = match runner {
        "" => "env RUSTC_BOOTSTRAP=1".to_owned(),
        runner => format!("{runner} RUSTC_BOOTSTRAP=1"),
    };
    command.env(RUNNER, runner).args(["--quiet", "--", "-Z", "unstable-options", "--shuffle-seed"]);
    process::run(command.arg(seed.to_string()).args(options)).map(|()| Outcome::Done)
}

/// Runs the tests in a directory with a space in its name, which some of their tools cannot name.
fn elsewhere(seed: u64) -> Result<Outcome> {
    let directory = PathBuf::from(format!("/var/tmp/func_latency tests {}", std::process::id()));
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let outcome = tests(command().env("TMPDIR", &directory), "", &[], seed);
    let left: Vec<String> = fs::read_dir(&directory)
        .map_err(|e| format!("{}: {e}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    fs::remove_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    match (outcome, &left[..]) {
        (Ok(_), [_, ..]) => Err(format!("the tests have left in TMPDIR: {}", left.join(", "))),
        (outcome, _) => outcome,
    }
}

fn without_rights(seed: u64) -> Result<Outcome> {
    if !setup::is_root() {
        return Ok(Outcome::Skipped("not root: all of these runs were by a user without rights".to_owned()));
    }
    let manifest = crate::layout::root().join("Cargo.toml");
    if !nobody_reads(&manifest) {
        let why =
            format!("nobody may not read {}; the clone must lie where everyone may", manifest.display());
        return Ok(Outcome::Skipped(why));
    }
    tests(&mut command(), NOBODY, &[], seed)
}

fn nobody_reads(file: &Path) -> bool {
    let mut words = NOBODY.split(' ');
    let mut test = Command::new(words.next().unwrap_or("false"));
    test.args(words).args(["test", "-r"]).arg(file);
    process::capture(&mut test).is_ok()
}
