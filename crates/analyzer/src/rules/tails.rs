//! What is said of calls that were not seen to end, and of figures that are not exact.

use super::script::{analyse, check, check_request, id, row_text};
use crate::{Ancestor, LatencyRange, Quantiles, Request, StartWindow};
use model::Ns;

#[test]
fn a_call_open_over_the_whole_window_is_open_start_and_as_long_as_was_seen() {
    let script = "
        50 start f+4
        60 call f+10 g
        70 ret g+20 f+15
        900 call f+20 g";
    check(script, "50 >=850 open_start [unknown]");
    // Asleep at the end, it is open until the recording ends.
    let asleep = "off 950\n50 start f+4\n940 syscall f+10";
    check(asleep, "50 >=950 open_start [unknown] off 50");
}

const OPEN_CALLS: &str = "
    50 start f+4
    60 ret f+20 main+5
    100 call main+10 f
    130 ret f+40 main+15
    200 call main+20 f
    600 gap 610
    610 resume main+25
    620 call main+10 f
    660 ret f+40 main+15
    700 call main+30 f
    705 call f+10 g
    900 ret g+20 f+15";

#[test]
fn the_calls_not_seen_to_end_are_listed_longest_first_with_their_callers() {
    let f = &analyse(OPEN_CALLS, Request::default()).functions[0];
    let open: Vec<String> = f.open.longest.iter().map(row_text).collect();
    let expect = ["200 >=400 cut main+20", "700 >=200 open_end main+30", "50 >=10 open_start [unknown]"];
    assert_eq!(open, expect);
}

#[test]
fn at_least_is_what_the_errors_leave() {
    // The first took 10 ns to 45, the second 20 for certain.
    let script = "
        0 start main+4
        100/130/135 call main+10 f
        145 gap 150
        150 resume main+15
        200 call main+10 f
        220 gap 250";
    let f = &analyse(script, Request::default()).functions[0];
    let open: Vec<_> = f.open.longest.iter().map(|row| row.at_least_ns()).collect();
    assert_eq!(open, [20, 0]);
    assert_eq!((f.tails.at_least.min_ns, f.tails.at_least.max_ns), (Some(0), Some(20)));
}

#[test]
fn more_open_calls_than_are_listed_keep_the_longest() {
    // Thirty recursive calls, one every 10 ns, open at the end: the outermost ten are the longest.
    let calls: String = (0..30).map(|i| format!("{} call f+10 f\n", 100 + 10 * i)).collect();
    let f = &analyse(&format!("0 start main+4\n{calls}"), Request::default()).functions[0];
    let open: Vec<_> = f.open.longest.iter().map(|row| row.latency_ns).collect();
    assert_eq!(open, [290, 280, 270, 260, 250, 240, 230, 220, 210, 200]);
    assert_eq!((f.calls.open_end, f.tails.calls), (30, 30));
}

#[test]
fn figures_lie_between_open_calls_at_their_least_and_longer_than_all_others() {
    let f = &analyse(OPEN_CALLS, Request::default()).functions[0];
    let spread = f.figures.latency.spread.unwrap();
    assert_eq!((spread.p50_ns, spread.max_ns), (30, 40));
    // At least 10, 30, 40, 200, 400; at most 30, 40 and three that are longer.
    let at = |p50: Option<u64>, max| Quantiles { p50_ns: p50, max_ns: max, ..Quantiles::default() };
    let of = |q: Quantiles| at(q.p50_ns, q.max_ns);
    assert_eq!(f.tails.calls, 3);
    assert_eq!(of(f.tails.at_least), at(Some(40), Some(400)));
    assert_eq!(of(f.tails.at_most), at(None, None));
    assert_eq!((f.tails.at_least.min_ns, f.tails.at_most.min_ns), (Some(10), Some(30)));
}

#[test]
fn a_figure_is_off_by_what_the_errors_of_the_calls_allow() {
    let script = "
        0 start main+4
        100 call main+10 f
        110/112/120 ret f+40 main+15
        200 call main+10 f
        215/230/245 ret f+40 main+15
        300 call main+20 f
        300/303/308 ret f+40 main+25";
    let rows = "
        100 +12 complete main+10 error 8
        200 +30 complete main+10 error 15
        300 +3 complete main+20 error 5";
    check(script, rows);
    let f = &analyse(script, Request::default()).functions[0];
    let (low, high) = (f.figures.error.low, f.figures.error.high);
    assert_eq!((low.min_ns, low.p50_ns, low.max_ns), (Some(0), Some(4), Some(15)));
    assert_eq!((high.min_ns, high.p50_ns, high.max_ns), (Some(8), Some(20), Some(45)));
    // 3 +- 5 says nothing but an upper bound.
    assert_eq!((f.figures.error.sum_ns, f.figures.error.max_ns, f.figures.error.shorter), (28, 15, 1));
    let of_callers: Vec<_> = f
        .callers
        .iter()
        .map(|c| (c.figures.latency.count, c.figures.error.sum_ns, c.figures.error.shorter))
        .collect();
    assert_eq!(of_callers, [(2, 23, 0), (1, 5, 1)]);
}

#[test]
fn a_window_takes_whole_calls_by_their_start() {
    let script = "
        50 start f+4
        90 ret f+20 main+5
        100 call main+10 f
        300 ret f+40 main+15
        400 call main+20 f
        600 ret f+40 main+25
        700 call main+30 f
        750 gap 760
        760 resume main+35
        800 call main+30 f";
    let window = |min_ns, max_ns| {
        let starts = Some(StartWindow { start: Ns(0), min_ns, max_ns });
        Request { starts, ..Request::default() }
    };
    // It begins inside of one call, and ends inside of the next: that one is whole.
    check_request(script, window(200, 500), "400 +200 complete main+20");
    check_request(script, window(100, 399), "100 +200 complete main+10");
    check_request(script, window(60, 99), "");
    check_request(script, window(700, 1000), "700 >=50 cut main+30\n800 >=0 open_end main+30");
    // A gap inside of the window is lost whether or not it cut a call that is asked for.
    let calls_cut = |request| analyse(script, request).loss.by_cause[0].calls;
    assert_eq!((calls_cut(window(700, 1000)), calls_cut(window(0, 500))), (1, 0));
}

#[test]
fn latencies_leave_out_open_calls_that_are_certain_not_to_fit() {
    let li = |min_ns, max_ns| Request { latency: LatencyRange { min_ns, max_ns }, ..Request::default() };
    check_request(OPEN_CALLS, li(35, 50), "50 >=10 open_start [unknown]\n620 +40 complete main+10");
    let rows = "
        50 >=10 open_start [unknown]
        200 >=400 cut main+20
        700 >=200 open_end main+30";
    check_request(OPEN_CALLS, li(41, u64::MAX), rows);
}

/// Of the calls from 41 ns on, the least seemed to take 10 ns.
#[test]
fn an_open_call_counts_with_no_less_than_the_latency_that_was_asked_for() {
    let latency = LatencyRange { min_ns: 41, max_ns: u64::MAX };
    let f = &analyse(OPEN_CALLS, Request { latency, ..Request::default() }).functions[0];
    let least = f.tails.at_least;
    assert_eq!(
        (f.tails.calls, least.min_ns, least.p50_ns, least.max_ns),
        (3, Some(41), Some(200), Some(400))
    );
    let seen: Vec<u64> = f.open.longest.iter().map(|row| row.latency_ns).collect();
    assert_eq!(seen, [400, 200, 10]);
}

#[test]
fn an_ancestor_of_a_latency_that_was_not_seen_to_end_fits_if_it_is_long_enough_already() {
    let script = "
        0 start main+4
        100 call main+10 g
        110 call g+10 f
        120 ret f+40 g+15
        200 gap 210
        210 resume main+15
        300 call main+10 g
        310 call g+10 f
        315 ret f+40 g+15";
    let below = |min_ns, max_ns| {
        let latency = LatencyRange { min_ns, max_ns };
        Request { ancestor: Some(Ancestor { function: id("g"), latency }), ..Request::default() }
    };
    check_request(script, below(50, u64::MAX), "110 +10 complete g+10");
    check_request(script, below(10, u64::MAX), "110 +10 complete g+10\n310 +5 complete g+10");
    // How long they took in the end is not known.
    check_request(script, below(10, 1000), "");
}
