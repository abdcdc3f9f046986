//! System calls, interrupts and signal handlers.

use super::script::{analyse, check, check_children, check_request, id, row_text};
use crate::Request;

#[test]
fn system_calls_are_a_row_per_site_and_interrupts_one_row_in_all() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 syscall f+10
        130 start f+12
        140 syscall f+20
        141 start f+22
        142 syscall f+10
        150 start f+12
        160 async f+30
        163 start f+30
        170 async f+38
        172 start f+38
        200 ret f+40 main+15";
    let children = "
        self x1 66
        syscall at f+10 x2 28
        interrupt x2 5
        syscall at f+20 x1 1";
    check_children(script, "100 +100 complete main+10", children);
}

#[test]
fn off_the_cpu_in_a_system_call_is_so_though_nothing_after_is_certain_to_be_later() {
    let script = "
        off 112 118
        0 start main+4
        100 call main+10 f
        110 syscall f+10
        112/119/125 start f+12
        113/130/135 ret f+40 main+15";
    check(script, "100 +30 complete main+10 error 17 off 6");
}

#[test]
fn a_thread_that_is_first_seen_to_return_is_new_until_tracing_starts() {
    let script = "
        50 ret k+8 main+15
        100 call main+20 f
        101 async f
        110 start f
        200 ret f+40 main+25
        210 call main+30 g
        220 ijmp g+8 lib+10";
    let report = analyse(script, Request::default());
    assert_eq!(report.limits.stack_switches, 1);
}

#[test]
fn where_a_system_call_ends_is_in_the_filter_whatever_was_lost_before() {
    let script = "
        filter
        0 start main+4
        10 gap 20
        30 ret g+5 main+15
        40 call main+20 f
        50 syscall f+10
        60 start f+12
        70 ret f+40 main+25";
    let report = analyse(script, Request::default());
    assert_eq!(report.loss.threads[0].outside_ns, Some(40));
}

#[test]
fn an_interrupt_at_the_entry_is_no_second_entry() {
    let script = "
        0 start main+4
        100 call main+10 f
        101 async f
        110 start f
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 91\ninterrupt x1 9");
}

#[test]
fn an_interrupt_at_the_return_is_in_the_call() {
    let script = "
        0 start main+4
        100 call main+10 f
        150 async f+40
        160 start f+40
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 90\ninterrupt x1 10");
}

#[test]
fn a_restarted_system_call_is_a_system_call() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 syscall f+10
        120 start f+10
        120 syscall f+10
        125 start f+12
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 85\nsyscall at f+10 x2 15");
}

#[test]
fn a_handler_is_a_child_from_the_interruption_until_it_has_returned() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        135 call handler+10 g
        140 ret g+20 handler+15
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        160 start f+20
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 60\nsignal handler x1 40");
}

#[test]
fn a_handler_that_interrupts_a_system_call_starts_when_that_ends() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 syscall f+20
        130 start handler
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        160 start f+22
        200 ret f+40 main+15";
    let children = "
        self x1 60
        signal handler x1 30
        syscall at f+20 x1 10";
    check_children(script, "100 +100 complete main+10", children);
    let restarted = script.replace("160 start f+22", "160 start f+20\n160 syscall f+20\n170 start f+22");
    let children = "
        self x1 50
        signal handler x1 30
        syscall at f+20 x2 20";
    check_children(&restarted, "100 +100 complete main+10", children);
}

#[test]
fn a_wanted_handler_is_called_by_the_kernel() {
    let script = "
        0 start main+4
        100 async main+20
        110 start f
        130 ret f+30 restorer+1
        131 syscall restorer+8
        140 start main+20
        150 call main+30 f
        160 ret f+30 main+35";
    check(script, "110 +20 complete [signal]\n150 +10 complete main+30");
}

#[test]
fn pending_signals_are_handled_one_after_the_other() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        155 start h
        158 ret h+30 restorer+1
        159 syscall restorer+8
        170 start f+20
        200 ret f+40 main+15";
    let children = "
        self x1 50
        signal handler x1 35
        signal h x1 15";
    check_children(script, "100 +100 complete main+10", children);
}

#[test]
fn a_handler_may_interrupt_the_return_from_another() {
    // The second signal comes at the restorer's system call, which is then made again.
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        160 start handler
        170 ret handler+30 restorer+1
        171 syscall restorer+8
        180 start restorer+8
        181 syscall restorer+8
        190 start f+20
        200 ret f+40 main+15";
    check(script, "100 +100 complete main+10");
}

#[test]
fn a_handler_may_interrupt_another_in_front_of_its_sigreturn() {
    // The second handler's own sigreturn leads to the first's: it is done, and not made again.
    let script = "
        0 start main+4
        90 call main+10 h
        100 call h+10 f
        110 jmp f+20 h+50
        120 async h+54
        130 start handler
        150 ret handler+30 restorer+1
        151 async restorer+8
        160 start handler
        170 ret handler+30 restorer+1
        171 syscall restorer+8
        180 start restorer+8
        181 syscall restorer+8
        190 start h+54
        200 ret h+60 h+15";
    check(script, "100 +100 complete h+10");
}

#[test]
fn a_handler_may_interrupt_the_restorer_of_another_at_its_first_instruction() {
    // To there the second returns, which is not yet its sigreturn.
    let script = "
        code sigreturn restorer
        0 start main+4
        100 call main+10 f
        110 async f
        120 start handler
        130 ret handler+30 restorer
        131 async restorer
        140 start handler
        150 ret handler+30 restorer
        151 syscall restorer+5
        160 start restorer
        161 syscall restorer+5
        170 start f
        200 ret f+40 main+15";
    check(script, "100 +100 complete main+10");
}

#[test]
fn only_a_handler_returns_to_the_restorer() {
    // Control was in the handler, and not in what it had called. Random program 6001398.
    let script = "
        code sigreturn restorer
        born 0
        0 start main+4
        100 call main+10 f
        110 async f
        120 start handler
        130 call handler+10 g
        140 ret g+20 restorer
        141 syscall restorer+5
        150 start f
        200 ret f+40 main+15";
    check(script, "100 +100 complete main+10");
}

#[test]
fn handlers_nest() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        135 async handler+8
        140 start h
        145 ret h+30 restorer+1
        146 syscall restorer+8
        148 start handler+8
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        160 start f+20
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 60\nsignal handler x1 40");
}

#[test]
fn a_handler_in_stripped_code_has_no_entry_and_is_a_handler_all_the_same() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start unnamed+30
        150 ret unnamed+38 restorer+1
        151 syscall restorer+8
        160 start f+20
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 60\nsignal unnamed x1 40");
}

#[test]
fn a_restartable_sequence_that_is_aborted_stays_in_its_function() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start f+80
        200 ret f+40 main+15";
    check_children(script, "100 +100 complete main+10", "self x1 90\ninterrupt x1 10");
}

#[test]
fn a_handler_may_run_the_wanted_function_that_it_interrupted() {
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        135 call handler+10 f
        140 ret f+20 handler+15
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        160 start f+20
        200 ret f+40 main+15";
    let report = analyse(script, Request { functions: vec![id("f")], ..Request::default() });
    let rows: Vec<String> = report.functions[0].rows.iter().map(row_text).collect();
    assert_eq!(rows, ["100 +100 complete main+10", "135 +5 complete handler+10 depth 1"]);
    assert_eq!(report.functions[0].outermost.total.sum_ns, 100);
}

#[test]
fn a_function_that_a_handler_had_the_kernel_call_returns_to_what_was_interrupted() {
    // The handler changed where to go on to g, with a return address to the interrupted code (Go's
    // preemption).
    let script = "
        0 start main+4
        100 call main+10 f
        120 async f+20
        130 start handler
        150 ret handler+30 restorer+1
        151 syscall restorer+8
        160 start g
        170 ret g+20 f+20
        180 call f+30 h
        185 ret h+20 f+35
        200 ret f+40 main+15
        210 ret main+50 k+5";
    let children = "
        self x1 45
        signal handler x1 40
        signal g x1 10
        call h at f+30 x1 5";
    check_children(script, "100 +100 complete main+10", children);
}

#[test]
fn a_handler_that_was_entered_out_of_sight_returns_to_no_new_handler() {
    let script = "
        0 start main+4
        10 gap 90
        100 resume handler+8
        110 ret handler+20 restorer
        110 syscall restorer+5
        120 start f
        130 ret f+20 main+15";
    check(script, "120 >=10 open_start [unknown]");
    let in_the_restorer = "
        code sigreturn restorer
        0 start main+4
        10 gap 90
        100 resume restorer+5
        110 syscall restorer+5
        120 start f
        130 ret f+20 main+15";
    check(in_the_restorer, "120 >=10 open_start [unknown]");
}

#[test]
fn after_a_handler_that_was_entered_out_of_sight_a_known_handler_is_entered() {
    let script = "
        0 start main+4
        2 async main+10
        3 start f
        5 ret f+20 restorer
        5 syscall restorer+5
        6 start main+10
        10 gap 90
        100 resume f+8
        110 ret f+20 restorer
        110 syscall restorer+5
        120 start f
        130 ret f+20 restorer
        130 syscall restorer+5
        140 start main+30";
    check(script, "3 +2 complete [signal]\n100 >=10 open_start [unknown]\n120 +10 complete [signal]");
}

#[test]
fn what_handlers_after_one_that_was_entered_out_of_sight_return_to_is_no_handler() {
    // f is known as a handler, and entered when the first has returned; g is where the first had come.
    let script = "
        0 start main+4
        2 async main+10
        3 start f
        5 ret f+20 restorer
        5 syscall restorer+5
        6 start main+10
        10 gap 90
        100 resume handler+8
        110 ret handler+20 restorer
        110 syscall restorer+5
        120 start f
        130 ret f+20 restorer
        130 syscall restorer+5
        140 start g
        150 ret g+20 main+15";
    check(script, "3 +2 complete [signal]\n120 +10 complete [signal]");
    let of_g = Request { functions: vec![id("g")], ..Request::default() };
    check_request(script, of_g, "140 >=10 open_start [unknown]");
}
