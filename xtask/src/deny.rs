//! `cargo deny`: licences, sources, bans and advisories of the dependencies, by `.deny.toml`.

use std::process::Stdio;

use crate::process::{self, Result, cargo};
use crate::stages::Outcome;

/// Licences, bans and sources, if cargo-deny is installed.  Advisories are left to [`full`]: a new one must not
/// fail a change that has nothing to do with it.
pub(crate) fn quick() -> Result<Outcome> {
    if !installed() {
        return Ok(Outcome::Skipped(
            "cargo-deny is not installed; `cargo xtask ci --full` installs it".to_owned(),
        ));
    }
    check(&["bans", "licenses", "sources"])
}

/// Everything; installs cargo-deny if it is missing.
pub(crate) fn full() -> Result<Outcome> {
    if !installed() {
        process::run(cargo().args(["install", "--locked", "cargo-deny"]))?;
    }
    check(&["bans", "licenses", "sources"])?;
    if let Err(message) = process::capture(cargo().args(["deny", "fetch", "db"])) {
        return Ok(Outcome::Skipped(format!("advisories only, the rest passes: no database: {message}")));
    }
    check(&["advisories"])
}

fn installed() -> bool {
    let version = cargo().args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// By `.deny.toml`, which it finds itself: the option that names it has moved between versions.
fn check(which: &[&str]) -> Result<Outcome> {
    process::run(cargo().args(["deny", "--locked", "check"]).args(which))?;
    Ok(Outcome::Done)
}
