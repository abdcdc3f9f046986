//! Where in a call a gap falls, and what the ledger of losses has of it.

use super::script::{analyse, check, check_request, id, row_text};
use crate::{CauseLoss, Report, Request};

/// The calls of `f`, with what cut them.
fn rows(report: &Report) -> Vec<String> {
    let cut_by = |row: &crate::CallRow| {
        row.end.cut_by.map_or(String::new(), |cut| format!(" by {}", cut.cause.name()))
    };
    report.functions[0].rows.iter().map(|row| row_text(row) + &cut_by(row)).collect()
}

/// `cause xCOUNT BYTES NS, CALLS cut`, and where the first is.
fn ledger(table: &[CauseLoss]) -> Vec<String> {
    let row = |c: &CauseLoss| {
        let first = format!("first of {} at {}", c.first.tid.0, c.first.at);
        format!("{} x{} {} B {} ns, {} cut, {first}", c.cause.name(), c.count, c.bytes, c.lost_ns, c.calls)
    };
    table.iter().map(row).collect()
}

#[test]
fn a_gap_over_the_entry_hides_it() {
    // In one the call is seen running after the gap; in the other nothing of it is left.
    let script = "
        0 start main+4
        90 gap 110
        110 resume f+8
        150 ret f+40 main+15
        190 gap 260
        260 resume main+25
        300 call main+30 f
        310 ret f+40 main+35";
    let report = analyse(script, Request::default());
    assert_eq!(rows(&report), ["110 >=40 open_start [unknown]", "300 +10 complete main+30"]);
    assert_eq!(ledger(&report.loss.by_cause), ["overflow x2 32 B 90 ns, 0 cut, first of 7 at 0x1"]);
}

#[test]
fn a_gap_over_the_exit_cuts_and_the_next_call_is_whole() {
    let script = "
        0 start main+4
        100 call main+10 f
        140 gap 190
        190 resume main+1a
        200 call main+20 f
        210 ret f+40 main+25";
    let report = analyse(script, Request::default());
    assert_eq!(rows(&report), ["100 >=40 cut main+10 by overflow", "200 +10 complete main+20"]);
}

#[test]
fn a_gap_cuts_every_frame_that_is_open_once() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 call g+10 f
        125 call f+10 f
        130 gap 150 truncated
        150 resume f+15
        160 ret f+40 f+15
        170 ret f+40 g+15
        180 ret g+40 f+15
        190 ret f+40 main+15";
    let report = analyse(script, Request::default());
    let expect = [
        "100 >=30 cut main+10 by truncated",
        "120 >=10 cut g+10 depth 1 by truncated",
        "125 >=5 cut f+10 depth 2 by truncated",
    ];
    assert_eq!(rows(&report), expect);
    assert_eq!(ledger(&report.loss.by_cause), ["truncated x1 16 B 20 ns, 3 cut, first of 7 at 0x5"]);
}

#[test]
fn of_two_gaps_in_one_call_the_first_cuts_it() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 gap 130
        130 resume f+8
        140 gap 160 desync
        160 resume f+20
        200 ret f+40 main+15";
    let report = analyse(script, Request::default());
    assert_eq!(rows(&report), ["100 >=20 cut main+10 by overflow"]);
    let expect = [
        "overflow x1 16 B 10 ns, 1 cut, first of 7 at 0x2",
        "desync x1 16 B 20 ns, 0 cut, first of 7 at 0x4",
    ];
    assert_eq!(ledger(&report.loss.by_cause), expect);
}

#[test]
fn an_overflow_in_the_middle_of_a_child_cuts_its_caller_and_counts_as_loss() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 gap 150
        150 resume g+8
        160 ret g+20 f+15
        170 call f+20 g
        175 ret g+20 f+25
        200 ret f+40 main+15";
    let report = analyse(script, Request::default());
    assert_eq!(rows(&report), ["100 >=20 cut main+10 by overflow"]);
    let f = &report.functions[0];
    assert_eq!((f.figures.latency.count, f.figures.children.len(), f.callers.len()), (0, 0, 0));
    let thread = &report.loss.threads[0];
    assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (1000, 970, 30));
    assert_eq!(report.loss.overflows, 1);
}

/// That `g` goes on says that `f` has ended, but only where `g` was asked for, too.
#[test]
fn a_call_that_is_found_running_is_the_same_whatever_else_is_asked_for() {
    let script = "
        0 start main+4
        100 call main+10 g
        110 call g+10 f
        120 gap 130
        130 resume g+20
        140 gap 150
        150 resume f+8
        160 ret f+40 g+15";
    let rows = "110 >=10 cut g+10";
    check(script, rows);
    let both = Request { functions: vec![id("f"), id("g")], ..Request::default() };
    check_request(script, both, rows);
}

#[test]
fn an_overflow_without_bytes_is_a_loss_of_time() {
    let report = analyse("0 start main+4\n300 gap 1000", Request::default());
    assert_eq!((report.loss.overflows, report.loss.lost_ns, report.loss.coverage), (1, 700, 0.3));
}

#[test]
fn losses_are_told_apart_by_thread_and_by_cpu() {
    let script = "
        off 140 150 5
        tid 8
        traced 0
        0 start main+4
        tid 7
        0 start main+4
        100 call main+10 f
        130 gap 135
        135 resume main+15
        140 async main+15
        150 start main+15
        160 call main+10 f
        170 gap 190 missing
        190 resume main+15
        tid 8
        200 call main+10 f
        210 gap 220 missing
        220 resume main+15";
    let report = analyse(script, Request::default());
    let missing = |thread, cut, at| format!("missing code x1 16 B {thread} ns, {cut} cut, first of {at}");
    let threads: Vec<_> = report.loss.threads.iter().map(|t| (t.tid.0, ledger(&t.by_cause))).collect();
    let overflow = "overflow x1 16 B 5 ns, 1 cut, first of 7 at 0x3".to_owned();
    let of_7 = missing(20, 1, "7 at 0x8");
    let of_8 = missing(10, 1, "8 at 0xb");
    assert_eq!(threads, [(7, vec![overflow.clone(), of_7.clone()]), (8, vec![of_8.clone()])]);
    let cpus: Vec<_> =
        report.loss.cpus.iter().map(|c| (c.cpu.map(|cpu| cpu.0), ledger(&c.by_cause))).collect();
    // Before its first switch-in record nothing says where thread 7 was.
    assert_eq!(cpus, [(None, vec![overflow]), (Some(3), vec![of_8]), (Some(5), vec![of_7])]);
    let whole = [
        "overflow x1 16 B 5 ns, 1 cut, first of 7 at 0x3",
        "missing code x2 32 B 30 ns, 2 cut, first of 7 at 0x8",
    ];
    assert_eq!(ledger(&report.loss.by_cause), whole);
}

#[test]
fn a_thread_with_an_empty_trace_has_a_window_and_no_calls() {
    let script = "
        tid 8
        traced 300
        died 700
        tid 7
        0 start main+4
        100 call main+10 f
        110 ret f+40 main+15";
    check(script, "100 +10 complete main+10");
    let report = analyse(script, Request::default());
    let windows: Vec<_> =
        report.loss.threads.iter().map(|t| (t.tid.0, t.window_ns, t.observed_ns, t.lost_ns)).collect();
    assert_eq!(windows, [(7, 1000, 1000, 0), (8, 400, 400, 0)]);
    // A trace that is empty because it was lost says so.
    let script = format!("{script}\ntid 8\n300 gap 700 truncated");
    let report = analyse(&script, Request::default());
    let lost = &report.loss.threads[1];
    assert_eq!((lost.window_ns, lost.observed_ns, lost.lost_ns), (400, 0, 400));
}

/// A newborn thread with a buffer of its own is attached to somewhere in its life: the code that ran around
/// that is not known.
#[test]
fn a_thread_that_is_attached_late_has_a_gap_from_its_birth_on() {
    let script = "
        tid 8
        late
        born 300
        traced 350
        died 700
        350 start f+8
        360 ret f+40 main+15
        400 call main+10 g
        420 ret g+40 main+15";
    assert_eq!(rows(&analyse(script, Request::default())), ["350 >=10 open_start [unknown]"]);
    let report = analyse(script, Request::default());
    assert_eq!(ledger(&report.loss.by_cause), ["not yet attached x1 0 B 50 ns, 0 cut, first of 8 at 0x0"]);
    let thread = &report.loss.threads[0];
    assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (400, 350, 50));
    // One that has not run since is not seen at all.
    let never = analyse("tid 8\nlate\nborn 300\ndied 700", Request::default());
    assert_eq!(never.loss.threads[0].lost_ns, 400);
}

#[test]
fn a_call_that_a_stack_switch_cuts_is_no_loss() {
    let script = "
        born 5
        10 start main
        100 call main+10 f
        120 ijmp f+20 lib+8
        130 ret lib+20 main+4";
    let report = analyse(&format!("stack_switches\n{script}"), Request::default());
    assert_eq!(rows(&report), ["100 >=20 cut main+10 by stack switch"]);
    assert_eq!((report.limits.stack_switches, report.loss.by_cause.len()), (1, 0));
}
