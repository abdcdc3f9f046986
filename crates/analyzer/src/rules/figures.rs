//! Time: errors, off-CPU, windows, CPU percent; callers; what a request leaves out.

use super::script::{analyse, check, check_children, check_request, id};
use crate::{Ancestor, Caller, LatencyRange, Request, StartWindow};
use model::{NoOffCpu, Ns, Tid};

#[test]
fn the_error_of_a_latency_covers_all_that_its_ends_can_have_been() {
    let script = "
        0 start main+4
        95/100/103 call main+10 f
        150/160/162 ret f+20 main+15";
    // True latency from 150 - 103 = 47 to 162 - 95 = 67; printed 60.
    check(script, "100 +60 complete main+10 error 13");
}

#[test]
fn time_off_the_cpu_does_not_fit_32_bits() {
    let script = "
        off 112 5000000112
        0 start main+4
        100 call main+10 f
        110 syscall f+10
        5000000120 start f+12
        5000000130 ret f+20 main+15";
    let children = "
        syscall at f+10 x1 5000000010 off 5000000000
        self x1 20";
    check_children(script, "100 +5000000030 complete main+10 off 5000000000", children);
}

#[test]
fn off_cpu_time_belongs_to_the_call_and_to_the_child_that_was_switched_out() {
    let script = "
        off 112 127
        off 162 164
        0 start main+4
        100 call main+10 f
        105 call f+10 g
        110 syscall g+10
        130 start g+12
        140 ret g+20 f+15
        160 async f+30
        170 start f+30
        200 ret f+40 main+15";
    let children = "
        self x1 55
        call g at f+10 x1 35 off 15
        interrupt x1 10 off 2";
    check_children(script, "100 +100 complete main+10 off 17", children);
    let f = &analyse(script, Request::default()).functions[0];
    let off_cpu = f.figures.off_cpu.unwrap();
    assert_eq!((off_cpu.count, off_cpu.sum_ns), (1, 17));
    assert_eq!(f.outermost.cpu_percent, Some(8.3));
}

/// It was 0: the calls seemed to have been on the CPU all the time.
#[test]
fn off_cpu_time_without_switch_records_is_unknown_and_not_0() {
    let script = "
        0 start main+4
        100 call main+10 f
        105 call f+10 g
        140 ret g+20 f+15
        150 ret f+40 main+15
        200 call main+20 f";
    let report = analyse(script, Request::default());
    assert_eq!(report.trace.no_off_cpu, Some(NoOffCpu::NoSwitches));
    let f = &report.functions[0];
    assert_eq!((f.calls.complete, f.calls.open_end), (1, 1));
    assert_eq!(
        (f.figures.off_cpu, f.outermost.cpu_percent, f.outermost.total.off_cpu_ns),
        (None, None, None)
    );
    assert!(
        f.figures.histogram.iter().all(|bucket| bucket.off_cpu_count.is_none()),
        "{:?}",
        f.figures.histogram
    );
    let all_rows = f.rows.iter().chain(&f.open.longest);
    assert_eq!(all_rows.map(|row| row.off_cpu_ns).collect::<Vec<_>>(), [None; 3]);
    for children in [&f.figures.children, &f.callers[0].figures.children] {
        let known: Vec<_> = children.iter().map(|row| (row.total.off_cpu_ns, row.cpu_percent)).collect();
        assert_eq!(known, [(None, None); 2]);
    }
    assert_eq!(f.callers[0].figures.off_cpu, None);
}

#[test]
fn time_off_the_cpu_before_a_call_is_not_its_own() {
    let script = "
        off 20 90
        0 start main+4
        10 syscall main+8
        95 start main+a
        100 call main+10 f
        150 ret f+40 main+15";
    check(script, "100 +50 complete main+10");
}

#[test]
fn coverage_scales_cpu_percent_to_what_was_observed() {
    let script = "
        off 10 20
        0 start main+4
        100 call main+10 f
        150 ret f+40 main+15
        500 gap 1000";
    let report = analyse(script, Request::default());
    let thread = &report.loss.threads[0];
    assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (1000, 500, 500));
    assert_eq!((report.loss.coverage, report.loss.overflows), (0.5, 1));
    assert_eq!(report.functions[0].outermost.cpu_percent, Some(10.0));
}

#[test]
fn threads_have_stacks_and_windows_of_their_own() {
    let script = "
        tid 8
        born 300
        died 700
        tid 7
        0 start main+4
        100 call main+10 f
        tid 8
        310 start main+4
        320 call main+20 f
        330 ret f+40 main+25
        tid 7
        350 ret f+40 main+15";
    check(script, "100 +250 complete main+10\n320 +10 complete main+20");
    let report = analyse(script, Request::default());
    let windows: Vec<_> = report.loss.threads.iter().map(|t| (t.tid.0, t.window_ns)).collect();
    assert_eq!(windows, [(7, 1000), (8, 400)]);
    let only = Request { tids: vec![Tid(8)], ..Request::default() };
    check_request(script, only, "320 +10 complete main+20");
}

#[test]
fn callers_have_figures_of_their_own() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 ret f+40 main+15
        120 call main+20 f
        125 call f+10 g
        155 ret g+20 f+15
        160 ret f+40 main+25
        200 call main+10 f
        220 ret f+40 main+15";
    let f = &analyse(script, Request::default()).functions[0];
    let main = Caller::Function { function: id("main"), tail: false };
    let callers: Vec<_> = f
        .callers
        .iter()
        .map(|c| {
            (
                c.from.caller,
                c.from.site.unwrap().svma.0,
                c.figures.latency.count,
                c.figures.latency.sum_ns,
                c.figures.children.len(),
            )
        })
        .collect();
    assert_eq!(callers, [(main, 0x1020, 1, 40, 2), (main, 0x1010, 2, 30, 1)]);
    let total: u64 = f.callers.iter().map(|c| c.figures.histogram.iter().map(|b| b.count).sum::<u64>()).sum();
    assert_eq!(total, f.figures.latency.count);
}

const NESTED: &str = "
    0 start main+4
    100 call main+10 g
    110 call g+10 f
    120 ret f+40 g+15
    200 ret g+40 main+15
    300 call main+10 g
    310 call g+10 f
    330 ret f+40 g+15
    350 ret g+40 main+15
    400 call main+20 f
    405 ret f+40 main+25
    500 call main+30 f";

#[test]
fn only_calls_below_an_ancestor() {
    let below = |latency| {
        let ancestor = Some(Ancestor { function: id("g"), latency });
        Request { ancestor, ..Request::default() }
    };
    check_request(NESTED, below(LatencyRange::ALL), "110 +10 complete g+10\n310 +20 complete g+10");
    check_request(NESTED, below(LatencyRange { min_ns: 60, max_ns: 1000 }), "110 +10 complete g+10");
    check_request(NESTED, below(LatencyRange { min_ns: 0, max_ns: 50 }), "310 +20 complete g+10");
}

#[test]
fn one_of_several_ancestors_is_enough() {
    let script = "
        0 start main+4
        100 call main+10 g
        110 call g+10 g
        120 call g+10 f
        130 ret f+40 g+15
        140 ret g+40 g+15
        200 ret g+40 main+15";
    for (min_ns, max_ns, rows) in
        [(100, 1000, "120 +10 complete g+10"), (0, 30, "120 +10 complete g+10"), (31, 99, "")]
    {
        let ancestor = Some(Ancestor { function: id("g"), latency: LatencyRange { min_ns, max_ns } });
        check_request(script, Request { ancestor, ..Request::default() }, rows);
    }
}

#[test]
fn only_calls_of_a_latency_or_from_a_window() {
    let latency = LatencyRange { min_ns: 10, max_ns: 19 };
    let rows = "110 +10 complete g+10\n500 >=0 open_end main+30";
    check_request(NESTED, Request { latency, ..Request::default() }, rows);
    let starts = Some(StartWindow { start: Ns(300), min_ns: 10, max_ns: 100 });
    let rows = "310 +20 complete g+10\n400 +5 complete main+20";
    check_request(NESTED, Request { starts, ..Request::default() }, rows);
}
