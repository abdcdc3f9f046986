//! libipt's own text tests: packets and flow that we decode, against what libipt says that they are.
//!
//! The tests are `.ptt` files in libipt's sources (`test/src`): assembly with the packets of a trace in its
//! comments, and what libipt's programs `ptdump` and `ptxed` print of that trace. They are read from the
//! directory that the environment variable `FUNC_LATENCY_PTT` names; `cargo xtask ci --full` provides it. A
//! test without it says so and passes; with `FUNC_LATENCY_REQUIRE_PTT=1` it fails.
//!
//! ```text
//! source --program, trace--> code, bytes --dump, flow--> our lines
//!       \--labels----------> libipt's lines                       compared, see differences
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod differences;
mod dump;
mod flow;
mod labels;
mod program;
mod source;
mod trace;

use std::path::{Path, PathBuf};

use differences::{FLOW, Outcome, PACKETS, judge};
use program::Program;
use source::{Ptt, Tool};
use trace::Trace;

#[test]
fn packets_are_those_that_ptdump_prints() {
    let Some(files) = files() else { return };
    let outcomes = files.iter().filter_map(|path| packets(&Ptt::read(path))).collect();
    judge("packets", PACKETS, outcomes);
}

#[test]
fn flow_is_that_which_ptxed_prints() {
    let Some(files) = files() else { return };
    let outcomes = files.iter().filter_map(|path| flow_of(&Ptt::read(path))).collect();
    judge("flow", FLOW, outcomes);
}

/// The files, by name; `None`: there are none here, which is said.
fn files() -> Option<Vec<PathBuf>> {
    let Some(directory) = std::env::var_os("FUNC_LATENCY_PTT") else {
        assert!(std::env::var_os("FUNC_LATENCY_REQUIRE_PTT").is_none(), "FUNC_LATENCY_PTT is not set");
        println!(
            "skipped: FUNC_LATENCY_PTT names no directory of libipt's .ptt files (cargo xtask ci --full does)"
        );
        return None;
    };
    let directory = Path::new(&directory);
    let entries = std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "ptt")).collect();
    files.sort();
    assert!(!files.is_empty(), "{}: no .ptt file", directory.display());
    Some(files)
}

/// A file's code and trace.
fn assembled(ptt: &Ptt) -> (Program, Trace) {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::assemble(&ptt.text, directory.path());
    let program = program.unwrap_or_else(|error| panic!("{}: nasm: {error}", ptt.name));
    let trace = Trace::of(&ptt.directives, &program);
    (program, trace.unwrap_or_else(|error| panic!("{}: {error}", ptt.name)))
}

/// What a tool is to print, of which `comparable` lines stay; `None`: the file does not say.
fn expected(
    ptt: &Ptt,
    tool: Tool,
    (program, trace): (&Program, &Trace),
    comparable: impl Fn(&str) -> Option<String>,
) -> Option<Vec<String>> {
    let line =
        |line: &str| labels::resolve(line, program, trace).unwrap_or_else(|e| panic!("{}: {e}", ptt.name));
    Some(ptt.expected(tool)?.into_iter().filter_map(|text| comparable(&line(text))).collect())
}

fn packets(ptt: &Ptt) -> Option<Outcome> {
    ptt.expected(Tool::Ptdump)?;
    let (program, trace) = assembled(ptt);
    let libipt = expected(ptt, Tool::Ptdump, (&program, &trace), dump::comparable)?;
    let ours = dump::lines(&trace.bytes, &dump::Options::of(&ptt.options(Tool::Ptdump)));
    Some(Outcome { file: ptt.name.clone(), libipt, ours })
}

/// The first processor of the file on which we differ, else its last.
fn flow_of(ptt: &Ptt) -> Option<Outcome> {
    ptt.expected(Tool::Ptxed)?;
    let (program, trace) = assembled(ptt);
    let libipt = expected(ptt, Tool::Ptxed, (&program, &trace), flow::comparable)?;
    let setup = |cpu| flow::Setup::of(&ptt.options(Tool::Ptxed), cpu);
    let cpus = ptt.cpus.iter().copied().map(Some).chain(ptt.cpus.is_empty().then_some(None));
    let mut outcomes = cpus.map(|cpu| flow::lines(&program, &trace, &setup(cpu)));
    let mut ours = outcomes.next()?;
    while ours == libipt {
        let Some(next) = outcomes.next() else { break };
        ours = next;
    }
    Some(Outcome { file: ptt.name.clone(), libipt, ours })
}
