//! The corpus of hard cases: small programs that count their own calls. Each test is a rule of what a call
//! is, named by it, and held by functions of one program (`fixtures/programs/cases`) in every recording of
//! its run.
//!
//! ```text
//! what the program printed   ==  the report            see [`printed`]
//! every call of the oracle   ==  every row             see [`truth_tests::rows`]
//! every transfer             ==  every branch event    in `decode_matches_truth`
//! ```

mod printed;

mod changing_code;
mod exceptions;
mod layout;
mod parts;
mod processes;
mod recursion;
mod signals;
mod stacks;
mod tails;

use std::fmt::Write as _;

use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::calls::Oracle;
use truth_tests::child_rows::child_differences;
use truth_tests::rows::{Compare, differences};
use truth_tests::{Fixture, Opened, fixtures_of, pipeline};

/// Holds `functions` in all recordings of a run to what the program printed of them, and to the oracle.
fn check(log: &str, functions: &[&str]) {
    let wrong: Vec<String> =
        fixtures_of(log).iter().map(|fixture| check_recording(fixture, functions)).collect();
    assert!(wrong.concat().is_empty(), "{}", wrong.concat());
}

/// What is wrong with the calls of `functions` in one recording; empty if nothing is.
fn check_recording(fixture: &Fixture, functions: &[&str]) -> String {
    let output = std::fs::read_to_string(&fixture.output).unwrap();
    let truth = File::load(&fixture.truth).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    let mut wrong = String::new();
    for kernel in &fixture.kernels_without_holes() {
        let opened = Opened::with_kernel(&file, kernel).unwrap();
        let mut oracle = Oracle::new(&truth, &fixture.data).unwrap().with_scheduler(opened.scheduler());
        let ids: Vec<_> = functions.iter().map(|name| opened.function(name).unwrap()).collect();
        let report = opened.analyse(&ids, &DecodeOptions { workers: 2, ..DecodeOptions::default() });
        let compare = if fixture.is_lossy() { Compare::Entered } else { Compare::All };
        let truth = oracle.calls_of_each(functions).unwrap();
        for ((name, function), calls) in functions.iter().zip(&report.functions).zip(&truth) {
            let told = printed::differences(&output, fixture, name, &opened, function);
            let rows = differences(&opened, function, calls, compare);
            let children = child_differences(&opened, function, calls, compare);
            for text in [told, rows, children].into_iter().filter(|text| !text.is_empty()) {
                let _ = writeln!(wrong, "{}, {name}:\n{text}", fixture.name);
            }
        }
    }
    wrong
}
