//! perf's own decoder opens the recordings and sees what the ground truth says: the recordings are valid.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::BufReader;
use std::process::{Command, Stdio};

use tracegen::truth::File;
use tracegen::truth::verify::perf_script::{self, Branches};
use truth_tests::{Fixture, fixtures_of, skip};

/// A call that leaves the IP filter is not on the trace unit's stack for compressed returns.  perf keeps it on its own
/// and so follows later returns to the wrong place, where a function recurses out of the filter and back in.
///
/// The others are programs below 4 GB (not PIE) whose PSB+ has a FUP of four bytes: perf looks ahead for it
/// (`intel_pt_psb_with_fup`) before it has set the last IP to zero, and takes the upper half of what was before.
const PERF_IS_WRONG: &[&str] = &["calls-filter-rec", "python-cpu2", "cc1-cpu2"];

/// perf and the truth differ, and whose fault it is was not found out.  The decoder agrees with the truth.
const UNEXPLAINED: &[&str] = &["calls-offcpu", "demo-offcpu"];

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

fn check_all(log: &str) {
    if Command::new("perf").arg("version").stdout(Stdio::null()).status().is_err() {
        skip("no perf here; install linux-perf");
        return;
    }
    let is_known = |name: &str| PERF_IS_WRONG.contains(&name) || UNEXPLAINED.contains(&name);
    let differs = |f: &Fixture| !is_known(&f.name) && !check(f);
    let bad: Vec<String> = fixtures_of(log).into_iter().filter(differs).map(|f| f.name).collect();
    assert!(bad.is_empty(), "perf and truth differ: {}", bad.join(", "));
}

#[test]
fn demo() {
    check_all("demo");
}

#[test]
fn calls() {
    check_all("calls");
}

#[test]
fn sqlite_small() {
    check_all("sq1");
}

#[test]
fn python() {
    check_all("python");
}

#[test]
fn xz() {
    check_all("xz");
}

#[test]
fn cc1() {
    check_all("cc1");
}

#[test]
fn mariadb() {
    check_all("mariadb");
}
