//! `fuzz`: the targets of `fuzz/` under libFuzzer, through cargo-fuzz.
//!
//! No sanitizer: the code is safe Rust but for three modules that map files, a stable toolchain will do, and
//! without it a target runs several times as often. What is found is in `fuzz/artifacts`; what is worth
//! keeping goes into `fuzz/corpus/TARGET` under a name that says what it showed, where `cargo test -p
//! any_input` runs it for ever.

mod seeds;

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cargo;
use crate::layout;
use crate::process::{self, Result};

/// The targets; each has a corpus of the same name.
const TARGETS: [&str; 9] =
    ["packets", "flow", "perfdata", "elf", "lines", "files", "command", "parts", "wires"];

/// How long each runs unless told otherwise.
const DURATION: Duration = Duration::from_secs(30 * 60);

/// How long a target runs in its turn.
const TURN: Duration = Duration::from_secs(60);

/// What one input may take.  Inputs are small, so this is far above what any needs.
const INPUT_BYTES: u64 = 1 << 16;
const INPUT_SECONDS: u64 = 10;
const MEMORY_MB: u64 = 1024;

const VERSION: &str = "0.13.2";

/// `fuzz [TARGET..] [--seconds N | --minutes N] | --seeds`.
pub(crate) fn run(arguments: &[&str]) -> Result {
    if arguments == ["--seeds"] {
        return seeds::make();
    }
    let (targets, time) = parse(arguments)?;
    install()?;
    match time {
        Time::Each(duration) => targets.iter().try_for_each(|target| run_target(target, duration)),
        Time::All(duration) => {
            by_turns(duration, targets.len(), |index, turn| run_target(targets[index], turn))
        }
    }
}

/// How long to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// Each target, one after the other.
    Each(Duration),
    /// All together, in turns.
    All(Duration),
}

/// Runs `count` targets in turns of [`TURN`], until together they have run for `time`.
fn by_turns(time: Duration, count: usize, mut run: impl FnMut(usize, Duration) -> Result) -> Result {
    let mut left = time;
    for index in (0..count).cycle() {
        let turn = TURN.min(left);
        if turn.is_zero() {
            break;
        }
        run(index, turn)?;
        left -= turn;
    }
    Ok(())
}

/// All targets for their full time.
pub(crate) fn full() -> Result {
    run(&[])
}

fn parse<'a>(arguments: &[&'a str]) -> Result<(Vec<&'a str>, Time)> {
    let (mut targets, mut time) = (Vec::new(), Time::Each(DURATION));
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|number| number.parse::<u32>().ok());
            number.ok_or(format!("fuzz: {word} needs a number"))
        };
        match *word {
            "--seconds" => time = Time::Each(Duration::from_secs(number()?.into())),
            "--minutes" => time = Time::All(Duration::from_secs(u64::from(number()?) * 60)),
            target if TARGETS.contains(&target) => targets.push(target),
            other => return Err(format!("fuzz: no target {other}; there are {}", TARGETS.join(", "))),
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    Ok((targets, time))
}

/// cargo-fuzz, if it is missing.
fn install() -> Result {
    let version =
        cargo::command().args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let mut install = cargo::command();
    install.args(["install", "--locked", "--version", VERSION, "cargo-fuzz"]);
    process::run(&mut install).map_err(process::perhaps_no_network)
}

fn run_target(target: &str, duration: Duration) -> Result {
    // What libFuzzer finds new is not for the repository.
    let found = layout::target().join("fuzz").join("corpus").join(target);
    std::fs::create_dir_all(&found).map_err(|e| format!("{}: {e}", found.display()))?;
    let mut command: Command = cargo::command();
    command.args(["fuzz", "run", "--fuzz-dir", "fuzz", "--sanitizer", "none", "--target-dir"]);
    command.arg(layout::target().join("fuzz").join("build"));
    command.arg(target).arg(found).arg(format!("fuzz/corpus/{target}")).arg("--");
    command.arg(format!("-max_total_time={}", duration.as_secs()));
    command.args([
        format!("-max_len={INPUT_BYTES}"),
        format!("-timeout={INPUT_SECONDS}"),
        format!("-rss_limit_mb={MEMORY_MB}"),
        format!("-malloc_limit_mb={MEMORY_MB}"),
    ]);
    // The command's target works in another directory when it is stopped: then a relative path leads nowhere.
    let artifacts = layout::root().join("fuzz/artifacts").join(target);
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg("-print_final_stats=1");
    process::run(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_unless_some_are_named() {
        assert_eq!(parse(&[]), Ok((TARGETS.to_vec(), Time::Each(DURATION))));
        let (five, minutes) = (Duration::from_secs(5), Duration::from_secs(300));
        assert_eq!(parse(&["elf", "--seconds", "5"]), Ok((vec!["elf"], Time::Each(five))));
        assert_eq!(parse(&["--minutes", "5"]), Ok((TARGETS.to_vec(), Time::All(minutes))));
        assert!(parse(&["pakets"]).is_err_and(|e| e.starts_with("fuzz: no target pakets")));
        assert!(parse(&["--seconds"]).is_err());
    }

    #[test]
    fn targets_run_in_turns_until_the_time_is_over() {
        let mut turns = vec![];
        let run = |index, turn: Duration| {
            turns.push((index, turn.as_secs()));
            Ok(())
        };
        assert_eq!(by_turns(Duration::from_secs(200), 3, run), Ok(()));
        assert_eq!(turns, [(0, 60), (1, 60), (2, 60), (0, 20)]);
        assert_eq!(by_turns(TURN, 1, |_, _| Err("found".to_owned())), Err("found".to_owned()));
    }

    #[test]
    fn every_target_has_a_corpus() {
        for target in TARGETS {
            let corpus = layout::root().join("fuzz/corpus").join(target);
            let count = std::fs::read_dir(&corpus).map_or(0, Iterator::count);
            assert!(count > 0, "{}", corpus.display());
        }
    }
}
