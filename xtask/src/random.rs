//! `random`: random programs, recorded in random ways, against the truth. What differs stays in
//! `target/random`.

use crate::cargo;
use crate::layout;
use crate::process::{self, Result};

/// `random [--programs N] [--seed S]`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let is_number = |text: &&str| text.parse::<u64>().is_ok();
    let known = |pair: &[&str]| matches!(pair, ["--programs" | "--seed", number] if is_number(number));
    if !arguments.chunks(2).all(known) {
        return Err("random [--programs N] [--seed S]".to_owned());
    }
    let mut command = cargo::command();
    command.args(["run", "--release", "--quiet", "--package", "random_programs", "--"]);
    process::run(command.arg(layout::target().join("random")).args(arguments))
}
