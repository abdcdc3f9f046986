//! `cargo deny`: licences, sources, bans and advisories of the dependencies, by `.deny.toml`.

use std::path::Path;
use std::process::Command;

use crate::process::{self, Result};
use crate::stages::Outcome;
use crate::{layout, setup};

/// `deny`: as the tests have it.
pub(crate) fn run() -> Result {
    if let Outcome::Skipped(why) = quick()? {
        println!("skipped: {why}");
    }
    Ok(())
}

/// Licences, bans and sources.  Advisories are left to [`full`]: a new one must not fail a change that has
/// nothing to do with it.
pub(crate) fn quick() -> Result<Outcome> {
    match setup::cargo_deny() {
        Ok(program) => check(&program, &["bans", "licenses", "sources"]),
        Err(why) => Ok(Outcome::Skipped(why)),
    }
}

/// Everything.
pub(crate) fn full() -> Result<Outcome> {
    let program = setup::cargo_deny()?;
    check(&program, &["bans", "licenses", "sources"])?;
    if let Err(message) = process::capture(Command::new(&program).args(["fetch", "db"])) {
        return Ok(Outcome::Skipped(format!("advisories only, the rest passes: no database: {message}")));
    }
    check(&program, &["advisories"])
}

/// By `.deny.toml`, which it finds itself: the option that names it has moved between versions.
fn check(program: &Path, which: &[&str]) -> Result<Outcome> {
    let mut check = Command::new(program);
    process::run(check.current_dir(layout::root()).args(["--locked", "check"]).args(which))?;
    Ok(Outcome::Done)
}
