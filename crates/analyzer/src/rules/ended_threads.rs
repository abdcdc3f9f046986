//! Threads that are let go while their recording grows: the report is that of the recording as a whole.

use model::Tid;

use super::script::{analyse, in_parts, row_text};
use crate::{FunctionReport, Request};

/// The figures of `f`, which are those of the whole; `left`: the threads that are known at the end.
#[track_caller]
fn figures(script: &str, left: &[i32]) -> FunctionReport {
    let mut whole = analyse(script, Request::default());
    let function = &mut whole.functions[0];
    (function.rows, function.row_details.children, function.row_details.reasons) = Default::default();
    let (mut grown, known) = in_parts(script);
    assert_eq!(grown, whole, "{script}");
    assert_eq!(known.threads().map(|(tid, _)| tid.0).collect::<Vec<_>>(), left, "{script}");
    grown.functions.swap_remove(0)
}

/// The calls that had not ended, and the number of complete ones.
#[track_caller]
fn check(script: &str, left: &[i32], open: &[&str], complete: u64) {
    let function = figures(script, left);
    assert_eq!(function.open.longest.iter().map(row_text).collect::<Vec<_>>(), open, "{script}");
    assert_eq!(function.calls.complete, complete, "{script}");
}

#[test]
fn a_thread_that_has_ended_is_let_go_with_its_calls_in_the_sums() {
    let script = "
        ends 9000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        100 start main
        110 call main+10 f
        200 ret f+40 main+15
        250 call main+20 f
        died 300
        tid 7
        off 1000000297 1000000298
        1000000299 call main+10 f
        5000000000 ret f+40 main+15";
    check(script, &[7], &["250 >=0 open_end main+20"], 2);
    // Something of it may still come.
    let script = script.replace("5000000000", "1000000300");
    let (_, known) = in_parts(&script.replace("ends 9000000000", "ends 1000000300"));
    assert_eq!(known.threads().count(), 2);
}

/// The schedule had forgotten times off the CPU that the waiting events still needed.
#[test]
fn what_a_landing_leaves_open_is_decided_when_the_thread_has_ended() {
    let script = "
        ends 9000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        off 145 148
        100 start main
        110 call main+10 f
        120 call f+10 f
        130 call f+20 throw
        135 ijmp throw+30 f+80
        140 call f+85 f
        144 syscall f+2
        149 start f+4
        150 ret f+40 f+8a
        died 300
        tid 7
        off 1000000297 1000000298
        1000000299 call main+10 f
        5000000000 ret f+40 main+15";
    let function = figures(script, &[7]);
    assert_eq!((function.calls.complete, function.figures.off_cpu.map(|off| off.sum_ns)), (2, Some(3)));
}

/// Times off the CPU that had passed before a thread ended were no part of its open call.
#[test]
fn a_call_is_open_for_as_long_as_its_thread_was_seen_to_wait() {
    let script = "
        ends 9000000000
        tid 7
        2 start main+4
        tid 8
        born 50
        off 160 1500000000
        100 start main
        110 call main+10 f
        150 syscall f+10
        died 1600000000
        tid 7
        off 4500000000 4600000000
        2000000000 call main+10 f
        4000000000 ret f+40 main+15
        6000000000 call main+10 f
        6000000001 ret f+40 main+15";
    check(script, &[7], &["110 >=1499999890 open_end main+10 off 1499999840"], 2);
}

/// A dying thread leaves its CPU after its EXIT, which was no time off the CPU while it lived.
#[test]
fn a_thread_that_was_killed_as_it_slept_was_off_its_cpu_until_then() {
    let script = "
        ends 9000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        off 125 200
        off 225
        90 start main
        100 call main+10 f
        120 syscall f+10
        died 220
        tid 7
        off 4500000000 4600000000
        400 call main+10 f
        5000000000 ret f+40 main+15";
    check(script, &[7], &["100 >=100 open_end main+10 off 75"], 1);
}

/// Nothing is seen of the second one.
#[test]
fn a_call_is_not_off_the_cpu_as_the_next_thread_with_the_number_is() {
    let script = "
        ends 9000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        off 125 200
        90 start main
        100 call main+10 f
        120 syscall f+10
        died 220
        born 300
        off 350 500
        tid 7
        off 8500000000 8600000000
        400 call main+10 f
        600 ret f+40 main+15
        700 call main+10 f
        800 ret f+40 main+15";
    check(script, &[7, 8], &["100 >=100 open_end main+10 off 75"], 2);
}

/// A report has the number's whole life, from when it was seen first.
#[test]
fn a_thread_of_which_nothing_is_seen_has_the_number_of_one_that_was_let_go() {
    let script = "
        ends 90000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        off 210 220
        100 start main
        110 call main+10 f
        200 ret f+40 main+15
        died 300
        tid 7
        off 1000000297 1000000298
        3000000000 call main+10 f
        4000000000 ret f+40 main+15
        tid 8
        born 5000000000
        died 6000000000
        tid 7
        6500000000 call main+10 f
        off 6500000001 6500000002
        8000000000 ret f+40 main+15
        9000000000 call main+10 f
        9000000100 ret f+40 main+15";
    check(script, &[7], &[], 4);
}

/// With calls that are numbered on, gaps, and an IP filter. What one of them did says nothing of the next.
#[test]
fn the_threads_that_had_one_number_are_one_row_of_the_report() {
    let script = "
        ends 90000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        100 start main
        110 call main+10 f
        200 ret f+40 main+15
        210 gap 260 truncated
        270 resume main+15
        280 call main+10 f
        died 300
        tid 7
        1000000400 call main+10 f
        2000000000 ret f+40 main+15
        tid 8
        born 3000000000
        off 3000000100 3000000300
        3000000010 start main
        3000000020 call main+10 f
        3000000090 syscall f+10
        3000000310 start f+12
        3000000400 ret f+40 main+15
        3000000500 call main+20 f
        3000000600 gap 3000000700 truncated
        3000000800 resume main+30
        died 3000001000
        tid 7
        off 5000000000 5000000100
        7000000000 call main+10 f
        7000000001 ret f+40 main+15
        7000000002 call main+10 f
        7000000003 ret f+40 main+15";
    let open = ["3000000500 >=100 cut main+20", "280 >=0 open_end main+10"];
    check(script, &[7], &open, 5);
    check(&format!("filter\n{script}"), &[7], &open, 5);
    let numbers = |script: &str| {
        let report = in_parts(script).0;
        report.functions[0].open.longest.iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(script), ["8-3", "8-1"]);
}

/// A report had the life of the first one in the window of the number.
#[test]
fn a_number_begins_with_its_first_thread_of_which_anything_is_seen() {
    let script = "
        filter
        ends 90000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        off 60 70
        died 300
        tid 7
        off 1000000297 1000000298
        1000000400 call main+10 f
        2000000000 ret f+40 main+15
        tid 8
        born 3000000000
        3000000010 start main
        3000000020 call main+10 f
        3000000090 ret f+40 main+15
        died 3000001000
        born 3000001100
        traced 3000001100
        died 3000001300
        tid 7
        off 5000000000 5000000100
        7000000000 call main+10 f
        7000000001 ret f+40 main+15
        8000000002 call main+10 f
        8000000003 ret f+40 main+15";
    let windows = |script: &str| {
        check(script, &[7], &[], 4);
        let threads = analyse(script, Request::default()).loss.threads;
        let of = |tid| threads.iter().find(|thread| thread.tid.0 == tid).map(|thread| thread.window_ns);
        (of(8), threads.len())
    };
    assert_eq!(windows(script), (Some(1200), 2));
    assert_eq!(windows(&script.replace("born 50\n", "born 50\n traced 55\n")), (Some(1450), 2));
}

/// An IP filter hides what it does meanwhile. As long as the landing waits all of them are kept.
#[test]
fn a_landing_waits_for_a_bounded_number_of_times_off_the_cpu() {
    let undecided = |naps: u64, returns: &str| {
        let off: String = (1..=naps).map(|nap| format!("off {} {}\n", 1000 * nap, 1000 * nap + 9)).collect();
        let script = format!(
            "
            filter
            ends 90000000000
            tid 8
            100 start main
            110 call main+10 f
            120 call f+10 f
            130 call f+20 throw
            135 ijmp throw+30 f+80
            140 out.call f+85 k
            {off}
            tid 7
            32000000 start main+4
            32768500 call main+10 f
            tid 8
            {returns}
            tid 7
            32769200 ret f+40 main+15
            32769300 call main+10 f"
        );
        let whole = analyse(&script, Request::default());
        let (grown, schedule) = in_parts(&script);
        assert_eq!(grown.limits, whole.limits, "{naps} {returns}");
        assert_eq!(grown.functions[0].calls, whole.functions[0].calls, "{naps} {returns}");
        assert_eq!(grown.loss, whole.loss, "{naps} {returns}");
        (whole.limits.undecided_landings, schedule.thread(Tid(8)).map_or(0, |life| life.off_cpu.len()))
    };
    let returns = "32769000 start f+8a\n 32769100 ret f+90 main+15";
    let most = (1 << 15) - 1;
    assert_eq!([undecided(most, returns), undecided(most, "")], [(0, 0), (1, most as usize)]);
    assert_eq!([undecided(most + 1, returns), undecided(most + 1, "")], [(1, 0), (1, 0)]);
}

/// The kernel was still at it.
#[test]
fn a_thread_that_leaves_its_cpu_long_after_its_exit_is_no_next_one() {
    let script = "
        ends 9000000000
        tid 7
        0 start main+4
        tid 8
        born 50
        100 start main
        110 call main+10 f
        200 ret f+40 main+15
        died 300
        off 5000000000
        tid 7
        1000000400 call main+10 f
        4000000000 ret f+40 main+15
        4000000100 call main+10 f
        6000000000 ret f+40 main+15";
    check(script, &[], &[], 3);
}

/// The kernel gives it the number of the first thread, and no EXIT tells of the number that it had.
#[test]
fn the_number_of_a_thread_ends_as_it_executes_a_program() {
    let script = "
        ends 9000000000
        tid 7
        0 start main+4
        died 30
        tid 8
        born 50
        100 start main
        110 call main+10 f
        200 ret f+40 main+15
        350 call main+20 f
        tid 7
        executed 400
        off 5000000000 5000000100
        500 start main
        1000000500 call main+10 f
        4000000000 ret f+40 main+15
        4000000100 call main+10 f
        6000000000 ret f+40 main+15";
    // A buffer of 8's own would go on until 7 dies.
    check(script, &[7, 8], &["350 >=0 open_end main+20"], 3);
    let report = analyse(script, Request::default());
    assert_eq!(report.loss.threads.last().map(|thread| thread.window_ns), Some(350));
}
