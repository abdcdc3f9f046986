//! Why calls were off the CPU, by the events of the scheduler or by switch records alone.

use model::{OffCpuSplit, Pid, Tid};

use super::script::{analyse, in_parts};
use crate::{OffCpuCauses, Reason, ReasonRow, Request, ToldBy, Waker, WakerRow};

fn causes(script: &str) -> OffCpuCauses {
    let causes = analyse(script, Request::default()).functions.swap_remove(0).off_cpu_causes;
    assert_eq!(in_parts(script).0.functions[0].off_cpu_causes, causes, "{script}");
    causes.unwrap()
}

fn split(blocked_ns: u64, runnable_ns: u64) -> OffCpuSplit {
    OffCpuSplit { blocked_ns, runnable_ns, preempted_ns: 0 }
}

/// What was before the call, and after it, is not its own.
#[test]
fn the_calls_own_time_by_what_it_waited_for_and_who_woke_it() {
    let causes = causes(
        "
        off 2 5
        slept 20 35 30 8 40
        slept 120 202 140 9 150
        slept 160 35 161 8 162
        slept 320 202 340 9 350
        0 start main+4
        10 syscall main+8
        45 start main+a
        100 call main+10 f
        110 syscall f+10
        152 start f+12
        155 syscall f+14
        165 start f+16
        200 ret f+20 main+15
        310 syscall main+18
        360 start main+1a",
    );
    assert_eq!((causes.told_by, causes.split), (ToldBy::Scheduler, split(21, 11)));
    let reason = |number, split| ReasonRow { reason: Reason::Syscall(number), count: 1, split };
    assert_eq!(causes.reasons, [reason(202, split(20, 10)), reason(35, split(1, 1))]);
    let waker = |tid, blocked_ns| WakerRow {
        waker: Waker::Thread { pid: Pid(7), tid: Tid(tid), name: "w".to_owned() },
        count: 1,
        blocked_ns,
        stacks: vec![],
    };
    assert_eq!(causes.wakers, [waker(9, 20), waker(8, 1)]);
}

/// The estimate of when it is back is in a time off the CPU, and so is all that the bounds behind a PSB leave
/// for what follows.
#[test]
fn a_time_off_the_cpu_that_ends_after_the_last_event_of_a_call_may_be_in_it() {
    let report = analyse(
        "
        filter
        slept 10 202 15 8 20
        slept 52 35 60 9 80
        22 start f
        24 out.ret f+20 main+15
        40 start f
        42 out.call f+10 lib
        45/54/100 start f+15
        50/55/60 out.ret f+20 main+15",
        Request::default(),
    );
    let reason = ReasonRow { reason: Reason::Syscall(35), count: 1, split: split(8, 20) };
    assert_eq!(report.functions[0].off_cpu_causes.as_ref().unwrap().reasons, [reason]);
}

#[test]
fn only_outermost_activations_are_summed() {
    let causes = causes(
        "
        slept 120 202 140 9 150
        0 start main+4
        100 call main+10 f
        105 call f+10 f
        110 syscall f+10
        152 start f+12
        160 ret f+20 f+15
        200 ret f+20 main+15",
    );
    assert_eq!(causes.split, split(20, 10));
}

#[test]
fn each_call_has_its_own_reasons_also_those_inside_of_others() {
    let script = "
        off 2 5
        slept 112 35 114 9 115
        slept 120 202 140 9 150
        0 start main+4
        100 call main+10 f
        110 syscall f+2
        116 start f+4
        117 call f+10 f
        118 syscall f+10
        152 start f+12
        160 ret f+20 f+15
        200 ret f+20 main+15
        300 call main+20 f
        310 ret f+20 main+25";
    let request = Request { rows: true, row_children: true, ..Request::default() };
    let function = analyse(script, request).functions.swap_remove(0);
    let reasons = &function.row_details.reasons.reasons;
    assert_eq!(*reasons, [Reason::Syscall(35), Reason::Syscall(202)]);
    let of = |row: usize| {
        let reasons = function.row_details.reasons.of(row).iter();
        reasons.map(|r| (r.reason, r.split.total_ns())).collect::<Vec<_>>()
    };
    let starts: Vec<u64> = function.rows.iter().map(|row| row.start_ns.0).collect();
    assert_eq!(starts, [100, 117, 300]);
    assert_eq!([of(0), of(1), of(2)], [vec![(0, 3), (1, 30)], vec![(1, 30)], vec![]]);
    let longest = |row| function.row_details.reasons.longest_of(row);
    let slept = Some(&Reason::Syscall(202));
    assert_eq!([longest(0), longest(1), longest(2)], [slept, slept, None]);
}

#[test]
fn switch_records_alone_tell_of_no_wake_up() {
    let causes = causes(
        "
        off 112 127
        0 start main+4
        100 call main+10 f
        110 syscall f+10
        130 start f+12
        200 ret f+40 main+15",
    );
    assert_eq!((causes.told_by, causes.split), (ToldBy::SwitchRecords, split(15, 0)));
    assert_eq!(causes.wakers, []);
}
