//! Calls of kernel functions: entries, interrupts, context switches, ends out of sight.

use super::script::{analyse, callee_text, id, row_text};
use crate::{ChildRow, Request};

fn asks(names: &[&str]) -> Request {
    Request { functions: names.iter().map(|name| id(name)).collect(), rows: true, ..Request::default() }
}

/// The rows of functions, each function's after its name.
#[track_caller]
fn check_rows(script: &str, expected: &[(&str, &[&str])]) {
    let names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    let report = analyse(script, asks(&names));
    for (function, (name, rows)) in report.functions.iter().zip(expected) {
        let found: Vec<String> = function.rows.iter().map(row_text).collect();
        assert_eq!(found, *rows, "{name}");
    }
}

/// The children of a function.
#[track_caller]
fn check_children(script: &str, name: &str, expected: &[&str]) {
    let report = analyse(script, asks(&[name]));
    let children = report.functions[0].figures.children.iter();
    let text = |child: &ChildRow| {
        let callee = callee_text(child.kind, child.function, child.site);
        format!("{callee} x{} {}", child.total.count, child.total.sum_ns)
    };
    let mut found: Vec<String> = children.map(text).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "{name}");
}

/// `read` is called by `sys`, and the user function `f` has one child of it all.
const SYSTEM_CALL: &str = "
    0 start main+4
    100 call main+10 f
    110 syscall f+10 entry
    110 start entry
    112 call entry+10 sys
    115 call sys+8 read
    140 ret read+30 sys+d
    142 ret sys+20 entry+15
    150 syscall entry+20 f+12
    150 start f+12
    200 ret f+40 main+15";

#[test]
fn kernel_functions_have_calls_and_a_system_call_enters_the_first() {
    let rows: [(&str, &[&str]); 3] = [
        ("read", &["115 +25 complete sys+8"]),
        ("entry", &["110 +40 complete f+10"]),
        ("f", &["100 +100 complete main+10"]),
    ];
    check_rows(SYSTEM_CALL, &rows);
    check_children(SYSTEM_CALL, "sys", &["call read at sys+8 x1 25", "self x1 5"]);
}

#[test]
fn what_is_below_has_the_same_stay_whether_kernel_functions_are_asked_for_or_not() {
    check_children(SYSTEM_CALL, "f", &["self x1 60", "syscall at f+10 x1 40"]);
    let both = analyse(SYSTEM_CALL, asks(&["f", "read"]));
    let alone = analyse(SYSTEM_CALL, asks(&["f"]));
    assert_eq!(both.functions[0], alone.functions[0]);
}

#[test]
fn user_frames_stand_below_the_system_call() {
    let mut callers = super::trees::Callers::default();
    super::script::analyse_trees(SYSTEM_CALL, asks(&["read"]), &mut callers);
    assert_eq!(callers.0, ["sys entry f main"]);
}

#[test]
fn an_interrupt_of_kernel_code_is_a_child_of_what_it_interrupts_and_returns_there() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 syscall f+10 entry
        110 start entry
        115 call entry+8 read
        120 async read+10 irq
        121 start irq
        122 call irq+4 sys
        125 ret sys+20 irq+9
        129 syscall irq+20 read+10
        130 start read+10
        140 ret read+30 entry+d
        150 syscall entry+20 f+12
        150 start f+12
        160 async f+20 irq
        161 start irq
        165 syscall irq+20 f+20
        166 start f+20
        200 ret f+40 main+15";
    check_children(script, "read", &["interrupt x1 10", "self x1 15"]);
    let rows: [(&str, &[&str]); 4] = [
        ("read", &["115 +25 complete entry+8"]),
        ("irq", &["121 +9 complete [interrupt]", "161 +5 complete [interrupt]"]),
        ("sys", &["122 +3 complete irq+4"]),
        ("entry", &["110 +40 complete f+10"]),
    ];
    check_rows(script, &rows);
}

#[test]
fn an_exception_that_goes_on_elsewhere_in_the_function_that_it_interrupted_ends_nothing() {
    let script = "
        0 start main+4
        110 syscall main+10 entry
        110 start entry
        115 call entry+8 read
        120 async read+10 irq
        120 start irq
        124 syscall irq+8 irq+a
        124 start irq+a
        129 syscall irq+20 read+80
        129 start read+80
        140 ret read+90 entry+d
        150 syscall entry+20 main+12
        150 start main+12";
    let rows: [(&str, &[&str]); 2] =
        [("read", &["115 +25 complete entry+8"]), ("irq", &["120 +9 complete [interrupt]"])];
    check_rows(script, &rows);
}

/// Tracing of the task stops in `pmu_off` and goes on in `pmu_on`, which another path led to.
const SWITCH: &str = "
    off 122 180
    0 start main+4
    110 syscall main+10 entry
    110 start entry
    112 call entry+10 read
    115 call read+8 sched
    120 call sched+4 pmu_off
    125 async pmu_off+10
    175 start pmu_on+12
    177 ret pmu_on+20 sys+9
    182 ret sys+20 sched+20
    185 call sched+24 irq
    186 ret irq+8 sched+29
    190 ret sched+30 read+d
    195 ret read+30 entry+15
    200 syscall entry+20 main+12
    200 start main+12";

#[test]
fn a_switch_is_off_cpu_time_of_the_calls_that_are_open_across_it() {
    let rows: [(&str, &[&str]); 5] = [
        ("read", &["112 +83 complete entry+10 off 58"]),
        ("sched", &["115 +75 complete read+8 off 58"]),
        ("pmu_off", &["120 >=5 cut sched+4 off 3"]),
        ("pmu_on", &["175 >=2 open_start [unknown] off 2"]),
        ("sys", &["177 >=5 open_start [unknown] off 3"]),
    ];
    check_rows(SWITCH, &rows);
    let sched = analyse(SWITCH, asks(&["sched"]));
    let children = &sched.functions[0].figures.children;
    let sum: u64 = children.iter().map(|child| child.total.sum_ns).sum();
    assert_eq!((children.len(), sum), (3, 75), "pmu_off up to where it was last seen, irq, and self");
}

#[test]
fn a_call_that_the_trace_ends_in_is_open_and_asleep_if_its_thread_is() {
    let entered = "
        0 start main+4
        110 syscall main+10 entry
        110 start entry
        112 call entry+10 read
        115 call read+8 sched";
    check_rows(entered, &[("read", &["112 >=3 open_end entry+10"])]);
    let asleep = format!("off 118\n{entered}\n125 async sched+10");
    check_rows(&asleep, &[("read", &["112 >=888 open_end entry+10 off 882"])]);
}

#[test]
fn a_gap_cuts_kernel_calls_and_what_is_found_after_it_is_the_same_call() {
    let script = "
        0 start main+4
        110 syscall main+10 entry
        110 start entry
        112 call entry+10 read
        115 gap 130
        130 resume read+8
        140 ret read+30 entry+15
        150 syscall entry+20 main+12
        150 start main+12
        160 syscall main+10 entry
        160 start entry
        162 call entry+10 read
        170 ret read+30 entry+15
        180 syscall entry+20 main+12
        180 start main+12";
    let rows: [(&str, &[&str]); 1] = [("read", &["112 >=3 cut entry+10", "162 +8 complete entry+10"])];
    check_rows(script, &rows);
}

#[test]
fn where_kernel_code_is_skipped_the_calls_above_the_entry_are_cut_where_they_were_last_seen() {
    let script = "
        0 start main+4
        110 syscall main+10 entry
        110 start entry
        112 call entry+10 sys
        115 call sys+8 read
        150 start main+12";
    let rows: [(&str, &[&str]); 2] =
        [("read", &["115 >=0 cut sys+8"]), ("entry", &["110 +40 complete main+10"])];
    check_rows(script, &rows);
}

/// Another thread's kernel code comes after the switch, and has the same return addresses.
#[test]
fn where_cpus_are_traced_nothing_is_followed_from_a_switch_to_the_return_to_user_code() {
    let script = "
        whole_cpus
        off 122 180
        0 start main+4
        110 syscall main+10 entry
        110 start entry
        112 call entry+10 read
        115 call read+8 sched
        130 ret sched+30 read+d
        135 ret read+30 entry+15
        200 start main+12";
    let rows: [(&str, &[&str]); 2] =
        [("read", &["112 >=3 cut entry+10"]), ("entry", &["110 +90 complete main+10 off 58"])];
    check_rows(script, &rows);
}

/// The thread itself goes on, and perf's functions have run between its records of the switch.
#[test]
fn where_cpus_are_traced_nothing_is_followed_after_the_switch_in_either() {
    let script = "
        whole_cpus
        off 122 180
        0 start main+4
        110 syscall main+10 entry
        110 start entry
        112 call entry+10 read
        115 call read+8 sched
        118 call sched+4 pmu_off
        121 call pmu_off+8 irq
        130 ret irq+20 pmu_off+d
        182 ret irq+20 pmu_off+d
        184 ret pmu_off+20 sched+9
        190 ret sched+30 read+d
        195 ret read+30 entry+15
        199 syscall entry+20 main+12
        200 start main+12
        210 syscall main+10 entry
        210 start entry
        212 call entry+10 read
        214 ret read+30 entry+15
        220 syscall entry+20 main+12
        220 start main+12";
    let rows: [(&str, &[&str]); 4] = [
        ("irq", &["121 >=0 cut pmu_off+8"]),
        ("pmu_off", &["118 >=3 cut sched+4"]),
        ("read", &["112 >=9 cut entry+10", "212 +2 complete entry+10"]),
        ("entry", &["110 +90 complete main+10 off 58", "210 +10 complete main+10"]),
    ];
    check_rows(script, &rows);
}

/// `f` calls a library with a missing file, which makes a system call.
const MISSING_CALLS: &str = "
    0 start main+4
    100 call main+10 f
    110 out.call f+10 lib+8
    110 gap 120 missing
    120 resume entry
    122 call entry+10 sys
    126 ret sys+20 entry+15
    130 syscall entry+20 lib+30
    130 gap 150 missing
    150 resume f+15
    200 ret f+40 main+15";

#[test]
fn a_system_call_of_missing_code_cuts_neither_its_caller_nor_calls_in_the_kernel() {
    let rows: [(&str, &[&str]); 3] = [
        ("sys", &["122 +4 complete entry+10"]),
        ("entry", &["120 >=10 open_start [unknown]"]),
        ("f", &["100 +100 complete main+10"]),
    ];
    check_rows(MISSING_CALLS, &rows);
    let both = analyse(MISSING_CALLS, asks(&["f", "sys"]));
    let alone = analyse(MISSING_CALLS, asks(&["f"]));
    assert_eq!(both.functions[0], alone.functions[0]);
}

#[test]
fn missing_code_of_the_kernel_cuts_its_calls_and_none_of_those_below() {
    let script = MISSING_CALLS.replace("126 ret", "123 gap 125 missing\n125 resume sys+18\n126 ret");
    let rows: [(&str, &[&str]); 3] = [
        ("sys", &["122 >=1 cut entry+10"]),
        ("entry", &["120 >=3 open_start [unknown]"]),
        ("f", &["100 +100 complete main+10"]),
    ];
    check_rows(&script, &rows);
    let both = analyse(&script, asks(&["f", "sys"]));
    let alone = analyse(&script, asks(&["f"]));
    assert_eq!(both.functions[0], alone.functions[0]);
}

#[test]
fn in_a_filter_a_kernel_function_is_entered_where_tracing_starts() {
    let script = "
        filter
        100 start f
        110 syscall f+10 entry
        120 start read
        122 out.call read+10 sys
        126 start read+15
        130 out.ret read+30 entry+15
        150 start f+12
        160 out.ret f+40 main+15";
    let rows: [(&str, &[&str]); 2] =
        [("read", &["120 +10 complete [unknown]"]), ("f", &["100 +60 complete [unknown]"])];
    check_rows(script, &rows);
    let both = analyse(script, asks(&["f", "read"]));
    assert_eq!(both.functions[0], analyse(script, asks(&["f"])).functions[0], "f is what it is alone");
}

#[test]
fn a_thread_that_is_born_is_found_running_in_the_kernel_and_calls_what_comes_next() {
    let script = "
        100 start pmu_on+12
        102 ret pmu_on+20 sys+9
        104 call sys+10 read
        106 ret read+20 sys+15
        108 ret sys+20 irq+8
        110 jmp irq+10 entry+18
        112 syscall entry+20 main
        112 start main
        120 call main+10 f
        130 ret f+40 main+15";
    let rows: [(&str, &[&str]); 3] = [
        ("read", &["104 +2 complete sys+10"]),
        ("irq", &["108 >=4 open_start [unknown]"]),
        ("f", &["120 +10 complete main+10"]),
    ];
    check_rows(script, &rows);
}
