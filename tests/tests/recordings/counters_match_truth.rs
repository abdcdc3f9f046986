//! What the decoder counts at each event is what the ground truth counted: instructions and branches exactly,
//! cycles within their bounds.

use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::verify::{CounterVerdict, EventVerifier, KernelText};
use truth_tests::{Fixture, Opened, check_all, check_one_in, fixture, hard_cases, pipeline};

fn verdict(fixture: &Fixture, opened: &Opened<'_>, options: &DecodeOptions) -> CounterVerdict {
    let truth = File::load(&fixture.truth).unwrap();
    let functions = (!options.all_branches).then_some(&opened.image as _);
    let mut verifier = EventVerifier::new(&truth, functions, opened.kernel).with_counters();
    opened.decode(options, &mut verifier);
    let verdict = verifier.finish();
    assert!(verdict.agrees(), "{}: {verdict}", fixture.name);
    let mut all = CounterVerdict::default();
    for thread in verdict.threads {
        let CounterVerdict { compared, wrong, out_of_bounds, first, cycle_errors } = thread.counters;
        all.compared += compared;
        all.wrong += wrong;
        all.out_of_bounds += out_of_bounds;
        all.first = all.first.or(first);
        all.cycle_errors.0 += cycle_errors.0;
        all.cycle_errors.1 += cycle_errors.1;
    }
    all
}

fn check(fixture: &Fixture) -> bool {
    let file = pipeline::open(&fixture.data).unwrap();
    let exact = fixture.kernels().into_iter().rfind(|kernel| kernel.text != KernelText::Inexact);
    let opened = Opened::with_kernel(&file, &exact.unwrap()).unwrap();
    let mut good = true;
    for (all_branches, segment_bytes) in [(true, 1 << 16), (false, 20_000)] {
        let options = DecodeOptions { workers: 2, all_branches, segment_bytes, ..DecodeOptions::default() };
        let verdict = verdict(fixture, &opened, &options);
        println!("{}, all branches {all_branches}: {verdict:?}", fixture.name);
        good &= verdict.wrong == 0 && verdict.out_of_bounds == 0 && verdict.compared > 0;
    }
    good
}

#[test]
fn demo() {
    check_one_in(3, "demo", check);
}

#[test]
fn cases() {
    hard_cases().iter().for_each(|log| check_all(log, check));
}

#[test]
fn calls() {
    check_one_in(3, "calls", check);
}

/// Blocks that take longer, and a clock that changes in user code.
#[test]
fn slow_calls() {
    let Some(slower) = fixture("causes-slower") else { return };
    assert!(check(&slower));
}
