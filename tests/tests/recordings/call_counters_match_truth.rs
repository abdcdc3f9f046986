//! What each call executed is what the ground truth says: instructions, branches and calls exactly, cycles
//! within their error; so are the sums of children, of `*self` and of callers.

use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::calls::Oracle;
use truth_tests::counted::counter_differences;
use truth_tests::rows::{Compare, differences};
use truth_tests::{Fixture, Opened, check_all, is_full_run, pipeline};

/// Plain, recursive, tail-called and unwound calls, and handlers of signals.
const DEMO: &[&str] =
    &["round_fn", "fib", "tail3", "thrower", "on_sig", "main", "leaf", "ind_tail", "catcher", "worker"];

/// Likewise; and calls that jump out, have a cold part, or sleep.
const CALLS: &[&str] = &[
    "fact_rec",
    "tail_b",
    "split_fn",
    "throw_rec",
    "sleep_fn",
    "main",
    "simple_fn",
    "is_even",
    "jmp_levels",
    "sig_target",
    "on_usr1",
    "sort_fn",
    "cmp_fn",
    "virtual_sum",
    "pool_wait",
];

/// What a recording has beside calls, in a run that is not full.
const FEW: &[&str] = &["", "-nocyc", "-ovf", "-trunc", "-filter2", "-kernel", "-cpu2-defer"];

/// Functions, in a run that is not full.
const FEW_NAMES: usize = 5;

fn check(fixture: &Fixture, names: &[&str]) -> bool {
    let kind = fixture.name.strip_prefix(&fixture.log).unwrap_or_default();
    let names = if is_full_run() { names } else { &names[..FEW_NAMES] };
    if !is_full_run() && !FEW.contains(&kind) {
        return true;
    }
    let truth = File::load(&fixture.truth).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    fixture.kernels_without_holes().iter().fold(true, |good, kernel| {
        let opened = Opened::with_kernel(&file, kernel).unwrap();
        check_opened(fixture, names, &truth, &opened) && good
    })
}

fn check_opened(fixture: &Fixture, names: &[&str], truth: &File, opened: &Opened<'_>) -> bool {
    let mut oracle = Oracle::new(truth, &fixture.data).unwrap().with_scheduler(opened.scheduler());
    let ids: Vec<_> = names.iter().map(|name| opened.function(name).unwrap()).collect();
    let options = DecodeOptions { workers: 2, ..DecodeOptions::default() };
    let report = opened.analyse_counters(&ids, &options);
    let compare = if fixture.is_lossy() { Compare::Entered } else { Compare::All };
    let mut text = String::new();
    let (mut counted, mut with_cycles) = (0, 0);
    let truth = oracle.calls_of_each(names).unwrap();
    for ((name, function), calls) in names.iter().zip(&report.functions).zip(&truth) {
        text += &differences(opened, function, calls, compare);
        let is_sure = function
            .rows
            .iter()
            .all(|row| !row.end.undecided && !row.traced().is_some_and(|traced| traced.hidden));
        // With an IP filter the trace does not always say which caller a call has.
        if compare == Compare::All && is_sure && !opened.recording.pt.has_ip_filter {
            text += &counter_differences(opened, function, calls);
        }
        for row in &function.rows {
            assert_eq!(
                row.counted().is_some(),
                row.end.status.counted(),
                "{}: {name}: {row:?}",
                fixture.name
            );
            counted += usize::from(row.counted().is_some());
            with_cycles += usize::from(row.counted().is_some_and(|counted| counted.cycles.is_some()));
        }
    }
    println!("{}: {counted} calls, {with_cycles} with cycles\n{text}", fixture.name);
    // An IP filter may have none of these functions.
    text.is_empty() && (counted > 0 || opened.recording.pt.has_ip_filter)
}

#[test]
fn demo() {
    check_all("demo", |fixture| check(fixture, DEMO));
}

#[test]
fn calls() {
    check_all("calls", |fixture| check(fixture, CALLS));
}
