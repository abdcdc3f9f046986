//! Every transfer and every gap that the decoder finds is one of the ground truth, and the other way round; every
//! true time is inside its bounds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::verify::{EventVerifier, Verdict};
use truth_tests::{Fixture, Opened, fixtures_of, pipeline};

/// All taken branches: each jump from one function to another that the truth has is demanded.
fn all_branches(opened: &Opened<'_>, truth: &File) -> Verdict {
    let mut verifier = EventVerifier::new(truth, None, opened.kernel);
    let options = DecodeOptions { workers: 2, all_branches: true, ..DecodeOptions::default() };
    opened.decode(&options, &mut verifier);
    verifier.finish()
}

/// As the analyzer sees it, in segments so small that there are many.
fn transfers(opened: &Opened<'_>, truth: &File) -> Verdict {
    let mut verifier = EventVerifier::new(truth, Some(&opened.image), opened.kernel);
    let options = DecodeOptions { workers: 3, segment_bytes: 20_000, ..DecodeOptions::default() };
    opened.decode(&options, &mut verifier);
    verifier.finish()
}

fn check(fixture: &Fixture) -> bool {
    let truth = File::load(&fixture.truth).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    let mut good = true;
    for kernel in fixture.kernels() {
        let opened = Opened::with_kernel(&file, &kernel).unwrap();
        good &= check_opened(fixture, &opened, &truth);
    }
    good
}

fn check_opened(fixture: &Fixture, opened: &Opened<'_>, truth: &File) -> bool {
    let mut good = true;
    for (mode, verdict) in
        [("all branches", all_branches(opened, truth)), ("transfers", transfers(opened, truth))]
    {
        let right = verdict.agrees() && verdict.times_agree() && verdict.matched() > 0;
        if !right {
            println!("{}, {mode}, kernel {:?}:\n{verdict}", fixture.name, opened.kernel);
        } else {
            let (matched, gaps) = (verdict.matched(), verdict.gaps());
            println!("{}, {mode}: {matched} events agree, {gaps} gaps", fixture.name);
            println!("  bounds {}; error {}", verdict.widths, verdict.errors);
        }
        good &= right;
    }
    good
}

fn check_all(log: &str) {
    let bad: Vec<String> = fixtures_of(log).into_iter().filter(|f| !check(f)).map(|f| f.name).collect();
    assert!(bad.is_empty(), "{} differ from the truth", bad.join(", "));
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
fn sqlite() {
    check_all("sq50");
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
