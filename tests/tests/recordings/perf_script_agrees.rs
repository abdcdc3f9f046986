//! perf's own decoder opens the recordings and sees what the ground truth says: the recordings are valid.

use std::io::BufReader;
use std::process::{Command, Stdio};

use tracegen::truth::File;
use tracegen::truth::verify::perf_script::{self, Branches};
use truth_tests::{Fixture, check_all, check_in_full_run, check_one_in, hard_cases, skip};

/// perf goes wrong in these; each has a twin without what misleads it, in which it must be right.
///
/// A call that leaves the IP filter is not on the trace unit's stack for compressed returns. perf keeps it on
/// its own, and so a function that traced code called, and that itself called out of the filter, returns to
/// the wrong place. Twins, without compressed returns: `calls-filter-rec-noret`, `calls-offcpu-noret`,
/// `demo-offcpu-noret`.
///
/// The others are programs below 4 GB (not PIE) whose PSB+ has a FUP of four bytes: perf looks ahead for it
/// (`intel_pt_psb_with_fup`) before it has set the last IP to zero, and takes the upper half of what was
/// before. Twin: `python-cpu2-whole`, with whole addresses in PSB+.  Or the processor sets the last IP to
/// zero at an overflow, and perf keeps it.  Twins: `python-ovf-kept`, `python-cpu2-ovf-kept`.
const PERF_IS_WRONG: &[&str] = &[
    "calls-filter-rec",
    "calls-offcpu",
    "demo-offcpu",
    "python-cpu2",
    "python-ovf-zero",
    "python-cpu2-ovf-zero",
    "cc1-cpu2",
];

fn check(fixture: &Fixture) -> bool {
    let mut perf = Command::new("perf");
    perf.args(["script", "--itrace=be", "--ns", "-F", "tid,time,flags,ip,addr"]);
    if let Some(kernel) = fixture.kernel_dir() {
        perf.arg("--kallsyms").arg(kernel.join("kallsyms")); // and kcore beside it
    }
    let mut perf =
        perf.arg("-i").arg(&fixture.data).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let script = BufReader::with_capacity(1 << 20, perf.stdout.take().unwrap());
    let truth = File::load(&fixture.truth).unwrap();
    let agreement = perf_script::compare(&truth, script, Branches::All).unwrap();
    let done = perf.wait().unwrap().success();
    let good = done && agreement.agrees() && agreement.matched > 0;
    let no_surprise = fixture.is_lossy() || agreement.error_lines == 0;
    println!("{}: {}", fixture.name, agreement);
    good && no_surprise
}

fn agrees_or_is_wrong(fixture: &Fixture) -> bool {
    check(fixture) != PERF_IS_WRONG.contains(&fixture.name.as_str())
}

fn has_perf() -> bool {
    let has_perf = Command::new("perf").arg("version").stdout(Stdio::null()).status().is_ok();
    if !has_perf {
        skip("no perf here; install linux-perf");
    }
    has_perf
}

fn check_run(log: &str) {
    if has_perf() {
        check_all(log, agrees_or_is_wrong);
    }
}

/// For runs with so many recordings that perf would take minutes.
fn check_some_of_run(many: usize, log: &str) {
    if has_perf() {
        check_one_in(many, log, agrees_or_is_wrong);
    }
}

#[test]
fn demo() {
    check_some_of_run(12, "demo");
}

#[test]
fn calls() {
    check_some_of_run(12, "calls");
}

#[test]
fn cases() {
    hard_cases().iter().for_each(|log| check_run(log));
}

#[test]
fn sqlite_small() {
    check_run("sq1");
}

#[test]
fn python() {
    check_some_of_run(3, "python");
}

#[test]
fn xz() {
    check_run("xz");
}

#[test]
fn cc1() {
    check_some_of_run(3, "cc1");
}

#[test]
fn mariadb() {
    if has_perf() {
        check_in_full_run("mariadb", agrees_or_is_wrong);
    }
}
