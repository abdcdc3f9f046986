//! What is known of calls that were not seen from end to end.

use super::script::{analyse, check, check_children};
use crate::Request;

#[test]
fn a_call_seen_running_is_open_start() {
    let script = "
        50 start f+4
        160 ret f+40 main+15
        170 ret main+20 k+5";
    check(script, "50 >=110 open_start [unknown]");
}

#[test]
fn a_caller_that_is_returned_into_is_open_start() {
    let script = "
        50 start g+4
        160 ret g+40 f+15
        200 ret f+40 main+15";
    check(script, "160 >=40 open_start [unknown]");
}

#[test]
fn a_recording_that_begins_at_the_entry_address_is_open_start() {
    let script = "
        50 start f
        160 ret f+40 main+15";
    check(script, "50 >=110 open_start [unknown]");
}

#[test]
fn open_start_comes_before_cut() {
    let script = "
        50 start f+4
        60 gap 80
        80 resume main+30";
    check(script, "50 >=10 open_start [unknown]");
}

#[test]
fn a_gap_cuts_what_is_open_and_nothing_after_it_is_guessed() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 gap 150
        150 resume g+8
        160 ret g+20 f+15
        200 ret f+40 main+15
        210 call main+20 f
        220 ret f+40 main+25";
    // The cut call is found running after the gap: it is not counted again.
    check(script, "100 >=20 cut main+10\n210 +10 complete main+20");
    let report = analyse(script, Request::default());
    let calls = report.functions[0].calls;
    assert_eq!((calls.cut, calls.open_start, calls.complete), (1, 0, 1));
}

#[test]
fn a_call_whose_entry_fell_into_a_gap_is_open_start() {
    let script = "
        0 start main+4
        100 gap 150
        150 resume f+8
        200 ret f+40 main+15
        210 call main+20 f
        220 ret f+40 main+25";
    check(script, "150 >=50 open_start [unknown]\n210 +10 complete main+20");
}

#[test]
fn tracing_that_starts_again_at_an_entry_after_a_gap_is_open_start() {
    // It may be a signal handler, or a call that was interrupted at its first instruction inside the gap.
    let script = "
        0 start main+4
        100 gap 150
        150 resume f
        200 ret f+40 restorer+1";
    check(script, "150 >=50 open_start [unknown]");
}

#[test]
fn a_gap_of_no_bytes_and_no_time_cuts_too() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 gap 120
        120 resume main+15
        130 ret main+40 k+5";
    check(script, "100 >=20 cut main+10");
}

#[test]
fn cut_comes_before_open_end() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 gap 150
        150 resume f+8
        200 call f+10 g";
    check(script, "100 >=20 cut main+10");
}

#[test]
fn a_call_in_progress_at_the_end_is_open_at_least_to_the_last_event() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        140 ret g+20 f+15
        145 async f+15";
    check(script, "100 >=45 open_end main+10");
}

#[test]
fn a_call_that_sleeps_at_the_end_is_open_to_the_end_of_the_recording() {
    let script = "
        off 150
        0 start main+4
        100 call main+10 f
        145 syscall f+15";
    check(script, "100 >=900 open_end main+10 off 850");
    let exits = format!("died 147\n{script}");
    check(&exits, "100 >=45 open_end main+10");
    let is_killed_asleep = format!("died 300\n{script}");
    check(&is_killed_asleep, "100 >=200 open_end main+10 off 150");
}

#[test]
fn an_exec_ends_all_calls_of_the_old_program() {
    let script = "
        0 start main+4
        100 call main+10 f
        145 syscall f+15
        space 1
        190 start h
        200 call h+10 f
        210 ret f+40 h+15";
    check(script, "100 >=45 open_end main+10\n200 +10 complete h+10");
}

#[test]
fn incomplete_calls_are_not_in_the_figures() {
    let script = "
        50 start f+4
        60 ret f+20 main+5
        70 call main+10 f
        75 call f+10 g
        80 gap 90
        90 resume main+15
        100 call main+20 f
        103 call f+10 g
        107 ret g+20 f+15
        110 ret f+20 main+25
        120 call main+30 f";
    let rows = "
        50 >=10 open_start [unknown]
        70 >=10 cut main+10
        100 +10 complete main+20
        120 >=0 open_end main+30";
    check_children(script, rows, "self x1 6\ncall g at f+10 x1 4");
    let report = analyse(script, Request::default());
    let f = &report.functions[0];
    assert_eq!((f.figures.latency.count, f.figures.latency.sum_ns, f.callers.len()), (1, 10, 1));
    let open: Vec<_> = f.open.longest.iter().map(|r| (r.start_ns.0, r.latency_ns)).collect();
    assert_eq!(open, [(50, 10), (70, 10), (120, 0)]);
}

#[test]
fn after_an_interrupt_and_a_gap_at_the_entry_it_is_a_resume() {
    let script = "
        filter
        code call k+10 f
        90 start f
        100 async f
        100 gap 150
        150 resume f
        200 out.ret f+40 k+15
        300 resume f
        310 out.ret f+40 k+15";
    let rows = "
        90 >=10 cut [unknown]
        300 +10 complete k+10 undecided";
    check(script, rows);
}

#[test]
fn a_stack_deeper_than_the_analysis_follows_is_cut() {
    let mut script = String::from("0 start main+4\n1 call main+10 f\n");
    for _ in 0..(1 << 20) {
        script += "2 call g+10 g\n";
    }
    let report = analyse(&script, Request::default());
    assert_eq!((report.limits.capped_stacks, report.functions[0].calls.cut), (1, 1));
}

#[test]
fn a_call_that_is_cut_where_its_thread_comes_to_another_cpu_was_off_the_cpu_before() {
    let script = "
        off 150 400
        0 start main+4
        100 call main+10 f
        145 async f+15
        400 gap 500";
    check(script, "100 >=300 cut main+10 off 250");
}

#[test]
fn a_thread_number_that_is_used_again_is_another_thread() {
    // The first dies in f; the second returns from a call of f that looks like the first's.
    let script = "
        born 0
        died 130
        born 300
        died 400
        0 start main+4
        100 call main+10 f
        120 syscall f+10
        310 start main+4
        320 call main+10 f
        350 ret f+40 main+15";
    check(script, "100 >=20 open_end main+10\n320 +30 complete main+10");
    let report = analyse(script, Request::default());
    let thread = &report.loss.threads[0];
    assert_eq!((thread.window_ns, thread.observed_ns, thread.lost_ns), (230, 230, 0));
}

/// Its call ended with the last event, as if it had not slept, because another thread has its number.
#[test]
fn a_thread_that_dies_as_it_wakes_has_slept_also_where_its_number_is_used_again() {
    let script = "
        born 0
        off 125 200
        died 220
        0 start main+4
        100 call main+10 f
        120 syscall f+10";
    let dies = "100 >=100 open_end main+10 off 75";
    check(script, dies);
    let reborn = format!(
        "{script}
        born 300
        off 350 360
        310 start main+4
        320 call main+10 f
        345 syscall f+10
        365 start f+12
        380 ret f+40 main+15"
    );
    check(&reborn, &format!("{dies}\n320 +60 complete main+10 off 10"));
    // Nothing is seen of the next one.
    check(&format!("{script}\nborn 300\noff 350 360"), dies);
}

#[test]
fn what_is_surely_after_a_death_is_of_the_next_thread_with_the_number() {
    // The estimate is before the FORK, within its bounds; the one that died can have no part in it.
    let script = "
        born 0
        died 130
        born 300
        died 400
        0 start main+4
        100 call main+10 f
        120 syscall f+10
        290/295/305 start main+4
        320 call main+10 f
        350 ret f+40 main+15";
    check(script, "100 >=20 open_end main+10\n320 +30 complete main+10");
}
