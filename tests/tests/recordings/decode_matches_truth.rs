//! Every transfer and every gap that the decoder finds is one of the ground truth, and the other way round;
//! every true time is inside its bounds.

use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::verify::{EventVerifier, Verdict};
use truth_tests::{Fixture, Opened, check_all, check_in_full_run, hard_cases, pipeline};

/// Where kernel code is skipped and returns are lost by it, at most one event in so many may be. Each such
/// return costs the events up to the next PSB, some 140; a run has up to eight of them in 900,000.
const MIN_SEEN: u64 = 300;

/// Where CBR is late, at most one time in so many may be out of its bounds: without MTC those of the last
/// microseconds before a thread sleeps or ends, in one of some 30 runs.
const MIN_IN_BOUNDS: u64 = 100;

/// All taken branches: each jump from one function to another that the truth has is demanded.
fn all_branches(opened: &Opened<'_>, truth: &File) -> Verdict {
    let mut verifier = EventVerifier::new(truth, None, opened.kernel);
    let options = DecodeOptions { workers: 2, all_branches: true, ..DecodeOptions::default() };
    opened.decode(&options, &mut verifier);
    verifier.finish()
}

/// Transfers between functions, as the analyzer sees them, in segments so small that there are many.
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
        let few_holes = match fixture.has_holes(opened.kernel) {
            true => verdict.in_holes() * MIN_SEEN < verdict.matched(),
            false => verdict.in_holes() == 0,
        };
        let times_agree = match fixture.has_late_cbr() {
            true => {
                verdict.times_are_ordered() && verdict.out_of_bounds() * MIN_IN_BOUNDS < verdict.matched()
            }
            false => verdict.times_agree(),
        };
        let right = verdict.agrees() && times_agree && verdict.matched() > 0 && few_holes;
        if !right {
            println!("{}, {mode}, kernel {:?}:\n{verdict}", fixture.name, opened.kernel);
        } else {
            let (matched, gaps, holes) = (verdict.matched(), verdict.gaps(), verdict.in_holes());
            println!("{}, {mode}: {matched} events agree, {gaps} gaps, {holes} in holes", fixture.name);
            println!("  bounds {}; error {}", verdict.widths, verdict.errors);
        }
        good &= right;
    }
    good
}

#[test]
fn demo() {
    check_all("demo", check);
}

#[test]
fn calls() {
    check_all("calls", check);
}

#[test]
fn cases() {
    hard_cases().iter().for_each(|log| check_all(log, check));
}

#[test]
fn causes() {
    check_all("causes", check);
}

/// perf would need the dump's code as files of its own.
#[test]
fn generated_code() {
    check_all("jit-dump", check);
}

#[test]
fn sqlite_small() {
    check_all("sq1", check);
}

#[test]
fn sqlite() {
    check_in_full_run("sq50", check);
}

#[test]
fn python() {
    check_all("python", check);
}

#[test]
fn xz() {
    check_all("xz", check);
}

#[test]
fn cc1() {
    check_all("cc1", check);
}

#[test]
fn mariadb() {
    check_all("mariadb", check);
}
