//! Every chore of this repository, in plain Rust without dependencies: it builds in seconds on a bare
//! toolchain.  One command, one file; `cargo xtask help` lists them.

mod bench;
mod bpf;
mod cargo;
mod check;
mod civil;
mod clean_room;
mod demo;
mod deny;
mod extent;
mod fixtures;
mod fuzz;
mod layout;
mod lib_tests;
mod lock;
mod mirror;
mod package;
mod process;
mod ptt;
mod random;
mod servers;
mod setup;
mod soak;
mod stages;
mod tidy;
mod vm;
mod wheel;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  setup                          install the Debian packages that are missing (root), or print the command
  demo                           trace SQLite in software and print the report of sqlite3VdbeExec
  test                           all that a change must pass: format, lints, tidy, fixtures, tests
  ci [--full]                    as test; --full: the long loops, cargo deny with advisories
  fixtures [NAME..]              make the recordings of fixtures/matrix.txt that are out of date, in
                                 target/fixtures
      --all                      those that only ci --full tests, too
      --keep-logs                keep the logs of the big runs, too
      --list                     only name the recordings
  fuzz [TARGET..]                libFuzzer on all that reads what others wrote: thirty minutes each, or --seconds N
      --minutes N                all together, a minute each in turn
      --seeds                    make the seeds in fuzz/corpus and the program they are traces of anew
  soak [--rounds N]              run the small programs anew, record them in every way with other dice, compare
  random [--programs N]          random programs (2000), recorded in random ways, against the truth
      --seed S                   the first of their seeds; what is wrong names it
  vm [NAME..]                    live cases, recorded by a real kernel in a virtual machine; two minutes, but by name and in
                                 ci --full also those that take longer
  servers [TEST]                 PostgreSQL and MariaDB under load while they are probed; six minutes, on an idle machine (root)
  lib-tests                      the library tests alone: shuffled, again, with TMPDIR elsewhere, by a user without rights
  clean-room [STEP..]            demo, lib-tests and test in a bare Debian 12 with only Rust, in a clone at a short path, and in
                                 one at 120 characters with a space (root)
      --path DIR                 at this path only
      --keep                     do not remove target/clean-room/room
  package                        the Debian package with completions and man pages, installed in a bare Debian 12 (root)
  wheel                          the Python package as a wheel, in a fresh environment and on a Ray cluster of three nodes; 600 MB
  bpf                            compile the eBPF programs anew, with Debian 12's clang
  bench [NAME..]                 decoding speed and memory beside libipt and perf script, in one run
      --quick                    the cases that take under five minutes
      --append                   add the result to docs/benchmarks.md
      --fleet [GB]               what 64 parts of a recording of 20 GB cost, and their merge; 15 minutes, 25 GB of disk
      --instructions             only count instructions, by callgrind, against what they were; part of test
  deny                           licences, bans and sources of the dependencies, by cargo-deny; part of test
  tidy                           the rules of this repository that no other tool checks
  help                           this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[&str]) -> process::Result {
    match args {
        [] | ["help" | "-h" | "--help", ..] => {
            print!("{HELP}");
            Ok(())
        }
        ["setup"] => setup::run(extent::Extent::Quick),
        ["demo"] => demo::run(),
        ["test"] | ["ci"] => check::run(extent::Extent::Quick),
        ["ci", "--full"] => check::run(extent::Extent::Full),
        ["fixtures", rest @ ..] => fixtures::run(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["soak", rest @ ..] => soak::run(rest),
        ["random", rest @ ..] => random::run(rest),
        ["vm", rest @ ..] => vm::run(rest),
        ["servers", rest @ ..] => servers::run(rest),
        ["lib-tests"] => lib_tests::run(),
        ["clean-room", rest @ ..] => clean_room::run(rest),
        ["package"] => package::run(),
        ["wheel"] => wheel::run(),
        ["bpf"] => bpf::run(),
        ["bench", rest @ ..] => bench::run(rest),
        ["tidy"] => tidy::run(),
        ["deny"] => deny::run(),
        other => Err(format!("do not know `{}`; see cargo xtask help", other.join(" "))),
    }
}
