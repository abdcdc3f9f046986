//! `test` and `ci`: all that a change must pass, in stages.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cargo;
use crate::extent::Extent;
use crate::process::{self, Result};
use crate::stages::{Outcome, Stages};
use crate::{bench, bpf, deny, fixtures, fuzz, layout, package, setup, tidy, vm, wheel};

/// What tests can use that not every machine has.
#[derive(Default)]
struct Provided {
    /// The browser that opens the page.
    browser: bool,
    /// The Python that reads exports.
    python: Option<PathBuf>,
    /// The Firefox Profiler that reads exports.
    firefox_profiler: Option<PathBuf>,
    /// The page of speedscope that reads exports.
    speedscope: Option<PathBuf>,
    /// The directory of libipt's text tests.
    ptt: Option<PathBuf>,
}

/// Runs the stages; an error if any failed.
pub(crate) fn run(extent: Extent) -> Result {
    let mut stages = Stages::new();
    println!("disk: {} free; a run from a fresh clone takes 3 GB", free_disk()?);
    stages.run("setup", || setup::run(extent).map(done));
    if !stages.run("fetch", || fetch().map(done)) {
        return stages.finish();
    }
    stages.run("fmt", || component(extent, "fmt", &["--all", "--check"]));
    stages.run("tidy", || tidy::run().map(done));
    stages.run("bpf", bpf::check);
    stages.run("clippy", || clippy(extent));
    stages.run("deny", if extent == Extent::Full { deny::full } else { deny::quick });
    let lane: &[&str] = if extent == Extent::Full { &["--all"] } else { &[] };
    if stages.run("fixtures", || fixtures::run(lane).map(done)) {
        let mut provided = Provided::default();
        stages.run("browser", || Ok(or_skipped(setup::browser(), |()| provided.browser = true)));
        stages.run("python", || Ok(or_skipped(setup::python(), |path| provided.python = Some(path))));
        stages.run("profiler", || {
            Ok(or_skipped(setup::firefox_profiler(), |path| provided.firefox_profiler = Some(path)))
        });
        stages.run("speedscope", || {
            Ok(or_skipped(setup::speedscope(), |path| provided.speedscope = Some(path)))
        });
        if extent == Extent::Full {
            stages.run("servers", || Ok(or_skipped(setup::servers(), |()| ())));
            stages.run("ptt", || Ok(or_skipped(setup::ptt(), |path| provided.ptt = Some(path))));
        }
        stages.run("test", || cargo_test(extent, &provided).map(done));
        stages.run("instructions", bench::count_instructions);
    }
    stages.run("vm", || vm::stage(extent));
    if extent == Extent::Full {
        stages.run("package", package::stage);
        stages.run("wheel", || wheel::run().map(done));
        stages.run("fuzz", || fuzz::full().map(done));
    }
    stages.finish()
}

/// What is left where the build goes, as `df` says it.
fn free_disk() -> Result<String> {
    let table =
        process::capture(Command::new("df").args(["-h", "--output=avail", "."]).current_dir(layout::root()))?;
    Ok(table.lines().last().unwrap_or("unknown").trim().to_owned())
}

/// With all features, the command without any, and in a full run as a plain `cargo build` has it.
fn clippy(extent: Extent) -> Result<Outcome> {
    let strict = ["--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    let all = [&["--all-features"], &strict[..]].concat();
    let none = ["-p", "func_latency", "--no-default-features", "--locked", "--quiet", "--", "-D", "warnings"];
    let plain = (extent == Extent::Full).then_some(&strict[..]);
    for arguments in [&all[..], &none].into_iter().chain(plain) {
        if let Outcome::Skipped(why) = component(extent, "clippy", arguments)? {
            return Ok(Outcome::Skipped(why));
        }
    }
    Ok(Outcome::Done)
}

/// What cannot be had is no failure: its tests are skipped.
fn or_skipped<T>(provided: Result<T>, keep: impl FnOnce(T)) -> Outcome {
    match provided {
        Ok(provided) => {
            keep(provided);
            Outcome::Done
        }
        Err(why) => Outcome::Skipped(why),
    }
}

fn done((): ()) -> Outcome {
    Outcome::Done
}

fn fetch() -> Result {
    process::run(cargo::command().args(["fetch", "--locked", "--quiet"])).map_err(process::perhaps_no_network)
}

/// A cargo command that a minimal toolchain lacks; the full run insists on it.
fn component(extent: Extent, name: &str, arguments: &[&str]) -> Result<Outcome> {
    let version =
        cargo::command().args([name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        let hint = format!("no cargo {name} here: rustup component add {}", rustup_name(name));
        return if extent == Extent::Full { Err(hint) } else { Ok(Outcome::Skipped(hint)) };
    }
    process::run(cargo::command().arg(name).args(arguments)).map(done)
}

fn rustup_name(component: &str) -> &str {
    if component == "fmt" { "rustfmt" } else { component }
}

/// `cargo test` as it prints, and its closing lines again at the end, where they can be found.
fn cargo_test(extent: Extent, provided: &Provided) -> Result {
    let mut command = cargo::command();
    command.args(["test", "--workspace", "--all-features", "--locked", "--no-fail-fast"]);
    command.env("FUNC_LATENCY_REQUIRE_FIXTURES", "1");
    if extent == Extent::Full {
        command.env("FUNC_LATENCY_FULL", "1");
    }
    if provided.browser {
        command.env("FUNC_LATENCY_REQUIRE_BROWSER", "1");
    }
    if let Some(python) = &provided.python {
        command.env("FUNC_LATENCY_PYTHON", python);
    }
    if let Some(script) = &provided.firefox_profiler {
        command.env("FUNC_LATENCY_FIREFOX_PROFILER", script);
    }
    if let Some(page) = &provided.speedscope {
        command.env("FUNC_LATENCY_SPEEDSCOPE", page);
    }
    if let Some(directory) = &provided.ptt {
        command.env("FUNC_LATENCY_PTT", directory).env("FUNC_LATENCY_REQUIRE_PTT", "1");
    }
    let ran = tee(&mut command, &mut std::io::stdout())?;
    println!("\nclosing lines of cargo test:");
    for line in ran.results.iter().filter(|line| !line.contains(" 0 passed; 0 failed")) {
        println!("{line}");
    }
    let [passed, failed, ignored] = ["passed", "failed", "ignored"].map(|word| total(&ran.results, word));
    println!("in all: {passed} passed; {failed} failed; {ignored} ignored");
    if ran.success {
        return Ok(());
    }
    Err(format!("`{}` failed\n{}", process::command_line(&command), ran.failures.concat().join("\n")))
}

/// What `cargo test` printed that is needed again at its end.
#[derive(Default)]
struct Ran {
    success: bool,
    /// The lines that sum up a test binary.
    results: Vec<String>,
    /// Of each failed test its name, and the last lines that it printed.
    failures: Vec<Vec<String>>,
}

/// Lines of a failed test's output that are printed again: the last ones say what went wrong.
const LINES_OF_A_FAILURE: usize = 20;

/// Runs a command, and passes its output on line by line.
fn tee(command: &mut Command, out: &mut impl Write) -> Result<Ran> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| process::cannot_start(command, &e))?;
    let mut ran = Ran::default();
    let mut is_of_failure = false;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|e| e.to_string())?;
            let line = String::from_utf8_lossy(&line);
            writeln!(out, "{line}").map_err(|e| e.to_string())?;
            if line.starts_with("test result: ") {
                ran.results.push(line.clone().into_owned());
            }
            if line.starts_with("---- ") {
                is_of_failure = true;
                ran.failures.push(Vec::new());
            } else if line == "failures:" || line == "stack backtrace:" {
                is_of_failure = false;
            }
            if let Some(failure) = ran.failures.last_mut().filter(|_| is_of_failure && !line.is_empty()) {
                if failure.len() > LINES_OF_A_FAILURE {
                    failure.remove(1); // its name stays
                }
                failure.push(line.into_owned());
            }
        }
    }
    ran.success = child.wait().map_err(|e| process::cannot_start(command, &e))?.success();
    Ok(ran)
}

/// The sum of the numbers before `word` in lines like `test result: ok. 3 passed; 0 failed; 0 ignored; ...`.
fn total(results: &[String], word: &str) -> u64 {
    let counts = results.iter().flat_map(|line| line.split([';', '.']));
    counts.filter_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed_and_failures_kept() {
        let script = "echo running 2 tests
            echo 'test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s'
            printf 'failures:\\n\\n---- one stdout ----\\n'
            seq 30
            printf 'left: 1\\n\\nfailures:\\n    one\\n'
            echo 'test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out'
            exit 1";
        let mut out = Vec::new();
        let ran = tee(Command::new("sh").args(["-c", script]), &mut out).unwrap();
        assert!(out.starts_with(b"running 2 tests\ntest result: ok. 12"));
        assert!(!ran.success);
        assert_eq!(ran.results.len(), 2);
        let sums = ["passed", "failed", "ignored"].map(|word| total(&ran.results, word));
        assert_eq!(sums, [15, 1, 2]);
        let lines: Vec<String> = (12..=30).map(|line| line.to_string()).collect();
        assert_eq!(
            ran.failures.concat().join(" "),
            format!("---- one stdout ---- {} left: 1", lines.join(" "))
        );
    }
}
