//! What a report takes that asks for all functions of a large program, in a process that does nothing else:
//! its peak is looked at.

#![allow(clippy::unwrap_used)]

use std::fs;

use analyzer::{Analysis, Report, Request, Surroundings};
use decoder::DecodeOptions;
use model::FunctionId;
use truth_tests::{Opened, fixture, pipeline};

/// Number of functions of a database server; those of SQLite are among them.
const FUNCTIONS: u32 = 100_000;
const MAX_KILOBYTES: u64 = 600 << 10;

fn kilobytes(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A report on all of them as the command makes it: without rows, runs of calls analysed by the workers.
fn report(opened: &Opened<'_>, workers: usize) -> Report {
    let functions = (1..=FUNCTIONS).map(FunctionId).collect();
    let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
    let mut analysis = Analysis::new(&Request { functions, ..Request::default() }, around);
    let digester = analysis.digester().unwrap();
    opened.decode_digested(&digester, &DecodeOptions { workers, ..DecodeOptions::default() }, &mut analysis);
    analysis.finish()
}

/// Each worker had sums for all functions, for each run of calls: 850 MB for 5,500 functions, 2 MB of trace
/// and 16 workers.
#[test]
fn sixteen_workers_and_a_hundred_thousand_functions_take_less_than_600_mb() {
    let Some(fixture) = fixture("sq1") else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let one = report(&opened, 1);
    // The peak is forgotten (proc(5)).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = kilobytes("VmRSS:");
    let sixteen = report(&opened, 16);
    let taken = kilobytes("VmHWM:").saturating_sub(before);
    println!("{} MB beside {} MB", taken >> 10, before >> 10);
    assert!(taken < MAX_KILOBYTES, "{taken} kB");
    assert!(sixteen == one, "another report for another number of workers");
    assert!(one.functions.iter().filter(|function| function.figures.latency.count > 0).count() > 500);
}
