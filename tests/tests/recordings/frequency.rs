//! The frequency that CBR packets say, of single calls, against the truth's cycles and times.

use analyzer::{CallRow, CountersAsked, Metric};
use decoder::DecodeOptions;
use tracegen::truth::File;
use tracegen::truth::calls::{Row, calls};
use truth_tests::{Opened, fixture, pipeline};

/// Shorter calls have too few cycles, and too few ns, for a ratio of both.
const LATENCY_MIN_NS: u64 = 1_000;

/// How far a ratio of whole cycles and whole ns may be off in a call that is no shorter.
const TOLERANCE: f64 = 0.01;

/// Calls of a function with the truth of each: those that both have, whole, and on the CPU all the time.
fn pairs<'r>(rows: &'r [CallRow], truth: &'r [Row]) -> impl Iterator<Item = (&'r CallRow, &'r Row)> {
    let is_wanted = |(ours, truth): &(&CallRow, &Row)| {
        ours.counted().is_some() && truth.off_cpu_ns == 0 && truth.latency_ns >= LATENCY_MIN_NS
    };
    let theirs = |ours: &CallRow| {
        truth.iter().find(|row| {
            row.tid == ours.id.tid
                && row.start.0.abs_diff(ours.start_ns.0) <= ours.error_ns
                && row.depth == ours.depth
        })
    };
    rows.iter().filter_map(move |ours| Some((ours, theirs(ours)?))).filter(is_wanted)
}

/// Cycles of user code in a ns of the whole call are the frequency, or fewer where it was interrupted.
#[test]
fn the_frequency_of_calls_is_that_of_their_cycles_and_times() {
    let mut ratios = Vec::new();
    for (name, function) in [
        ("demo", "round_fn"),
        ("demo", "mid"),
        ("causes-slower", "disturbing"),
        ("causes-slower", "dear_child"),
    ] {
        let Some(fixture) = fixture(name) else { return };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let id = opened.function(function).unwrap();
        let pt = &opened.recording.pt;
        let bus_khz = opened.recording.clock.unwrap().khz().unwrap() / u64::from(pt.max_nonturbo_ratio);
        let asked = CountersAsked { kernel: false, bus_khz: Some(bus_khz) };
        let report = opened.analyse_counters(&[id], &DecodeOptions::default());
        let truth = calls(&File::load(&fixture.truth).unwrap(), &fixture.data, function).unwrap();
        let [function] = report.functions.as_slice() else { panic!("one function was asked for") };
        let distribution = function.figures.counters.as_ref().unwrap().get(Metric::Frequency).unwrap();
        assert!(distribution.count > 0, "{name}");
        for (ours, truth) in pairs(&function.rows, &truth.rows) {
            let Some(mhz) = ours.counted().and_then(|counted| asked.mhz(counted)) else { continue };
            let said = mhz / 1000.0;
            let measured = truth.ran.cycles as f64 / truth.latency_ns as f64;
            ratios.push((said, measured));
        }
    }
    let off = ratios.iter().filter(|(said, measured)| *measured > said * (1.0 + TOLERANCE)).count();
    let near = ratios.iter().filter(|(said, measured)| (measured / said - 1.0).abs() <= TOLERANCE).count();
    let (least, most) =
        ratios.iter().fold((f64::MAX, 0.0f64), |(l, m), (said, _)| (l.min(*said), m.max(*said)));
    println!("{} calls, {near} near, {off} above what CBR says; {least} to {most} GHz", ratios.len());
    assert!(ratios.len() > 100 && off * 100 <= ratios.len(), "{off} of {}", ratios.len());
    assert!(near * 2 > ratios.len(), "{near} of {}", ratios.len());
    assert!(most > least * 1.1, "the frequency changed: {least} to {most} GHz");
}

#[test]
fn without_cyc_packets_the_frequency_is_not_known() {
    let Some(fixture) = fixture("demo-nocyc") else { return };
    let file = pipeline::open(&fixture.data).unwrap();
    let opened = Opened::new(&file).unwrap();
    let function = opened.function("round_fn").unwrap();
    let report = opened.analyse_counters(&[function], &DecodeOptions::default());
    let counters = report.functions[0].figures.counters.as_ref().unwrap();
    assert!(counters.get(Metric::Instructions).unwrap().count > 0);
    assert_eq!(counters.get(Metric::Frequency), None);
}
