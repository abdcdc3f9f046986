//! libipt, Intel's reference decoder, sees what ours sees: every transfer and every gap, thread by thread;
//! and the calls that come of it are the same. Where libipt cannot,
//! `docs/testing/second-opinions.md` says why, and this test predicts where.

mod return_stack;
mod side_by_side;
mod stream;

use decoder::{Context, DecodeOptions, OwnDecoder, SegmentDecoder};
use libipt::Libipt;
use model::{AuxBuffer, Recording};
use truth_tests::{
    Fixture, Opened, check_all, check_in_full_run, check_one_in, hard_cases, is_full_run, pipeline,
};

use side_by_side::{Comparison, Threads};
use stream::Stream;

/// Decodes one buffer alone: its events are in the order of its packets.
fn decode_alone(opened: &Opened<'_>, buffer: &AuxBuffer<'_>, decoder: Box<dyn SegmentDecoder>) -> Threads {
    let recording = Recording { buffers: vec![buffer.clone()], ..opened.recording.clone() };
    let Opened { schedule, image, .. } = opened;
    let context = Context::new(&recording, schedule, image, true);
    let options = DecodeOptions { workers: 2, all_branches: true, ..DecodeOptions::default() };
    let mut threads = Threads::default();
    decoder::decode_with(decoder, &context, &options, &|_| (), &mut threads);
    threads
}

fn libipt() -> Box<Libipt> {
    Box::new(Libipt::new().unwrap())
}

fn transfers_agree(fixture: &Fixture, opened: &Opened<'_>) -> bool {
    let keeps_ip = fixture.options.contains("--ovf-ip=kept");
    let mut all = Comparison::default();
    for buffer in &opened.recording.buffers {
        let stream = Stream::new(buffer);
        for part in stream.parts(buffer) {
            let ours = decode_alone(opened, &part, Box::new(OwnDecoder::default()));
            let theirs = decode_alone(opened, &part, libipt());
            all.add(side_by_side::compare(&ours, &theirs, &stream, keeps_ip));
        }
    }
    let Comparison {
        same,
        into_overflow,
        gaps_of_one,
        stale_returns,
        hidden_jumps,
        zeroed,
        not_held,
        differs,
    } = all;
    println!(
        "{}: {same} events are the same; {into_overflow} into an overflow only ours, {gaps_of_one} gaps only of one; libipt \
         is wrong at {stale_returns} stale returns, {hidden_jumps} hidden jumps and {zeroed} addresses after overflows, \
         {not_held} of our events there",
        fixture.name
    );
    if let Some(difference) = &differs {
        println!("{}: differs: {difference}", fixture.name);
    }
    let hides_jumps = fixture.options.contains("--pgd-hides-jcc");
    let only_there =
        (fixture.is_lossy() || into_overflow + gaps_of_one == 0) && (hides_jumps || hidden_jumps == 0);
    differs.is_none() && same > 0 && only_there
}

fn check(fixture: &Fixture) -> bool {
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    transfers_agree(fixture, &opened)
}

/// Options that change packets of time only: the flow is that of other recordings.
const OF_TIME: &[&str] =
    &["--tsc-skew", "--sleep-us", "--no-tma", "--skip-mtc", "--no-ratios", "--late-cbr-us", "--late-tnt"];

fn is_in_lane(fixture: &Fixture) -> bool {
    if fixture.kernel_dir().is_some() {
        println!("{}: has kernel code, where libipt cannot go on", fixture.name);
        return false;
    }
    let is_of_time = OF_TIME.iter().any(|option| fixture.options.contains(option));
    if is_of_time && !is_full_run() {
        println!("{}: left to the full run", fixture.name);
    }
    is_full_run() || !is_of_time
}

fn check_run(log: &str) {
    check_all(log, |f| !is_in_lane(f) || check(f));
}

/// For runs with so many recordings that libipt would take minutes.
fn check_some_of_run(many: usize, log: &str) {
    check_one_in(many, log, |f| !is_in_lane(f) || check(f));
}

/// For large recordings, for which libipt takes half a minute.
fn check_large_run(log: &str) {
    check_in_full_run(log, |f| !is_in_lane(f) || check(f));
}

#[test]
fn demo() {
    check_some_of_run(6, "demo");
}

#[test]
fn calls() {
    check_some_of_run(6, "calls");
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
fn sqlite_big() {
    check_large_run("sq50");
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
    check_large_run("cc1");
}

#[test]
fn mariadb() {
    check_large_run("mariadb");
}

/// Calls are the same by both decoders: status, caller, site, depth and off-CPU time; the latencies differ by
/// no more than both say. Without RET compression libipt is never wrong.
#[test]
fn rows_are_the_same() {
    let cases = [("demo-noretcomp", "round_fn"), ("calls-noretcomp", "rec_catch")];
    for (name, symbol) in cases {
        let Some(fixture) = truth_tests::fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let function = opened.function(symbol).unwrap();
        let ours = opened.analyse(&[function], &DecodeOptions::default());
        let theirs = opened.analyse_with(libipt(), &[function], &DecodeOptions::default());
        // By start in the report, which is an estimate.
        let in_order = |report: &analyzer::Report| {
            let mut rows = report.functions[0].rows.clone();
            rows.sort_by_key(|r| (r.id.tid, r.id.number));
            rows
        };
        let (ours, theirs) = (in_order(&ours), in_order(&theirs));
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let same = |r: &analyzer::CallRow| {
                (r.id.tid, r.end.status, r.from.caller, r.from.site, r.depth, r.off_cpu_ns)
            };
            assert_eq!(same(ours), same(theirs), "{name}");
            let apart = ours.latency_ns.abs_diff(theirs.latency_ns);
            assert!(apart <= ours.error_ns.saturating_add(theirs.error_ns), "{name}: {ours:?} {theirs:?}");
        }
        println!("{name}: {} rows of {symbol} are the same", ours.len());
    }
}
