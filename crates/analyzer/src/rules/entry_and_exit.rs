//! Frames: entries, exits, tail calls, stubs, recursion.

use super::script::{analyse, check, check_children, id};
use crate::Request;

#[test]
fn a_call_lasts_from_its_first_instruction_to_its_return() {
    let script = "
        0 start main+4
        100 call main+10 f
        160 ret f+20 main+15
        200 icall main+30 f
        230 ret f+20 main+35";
    let rows = "
        100 +60 complete main+10
        200 +30 complete main+30";
    check(script, rows);
}

#[test]
fn a_child_is_a_callee_at_one_site_and_self_is_the_rest() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        115 call g+10 h
        117 ret h+20 g+15
        120 ret g+20 f+15
        130 call f+20 g
        135 ret g+20 f+25
        140 call f+10 g
        144 ret g+20 f+15
        150 call f+30 h
        151 ret h+20 f+35
        160 ret f+40 main+15";
    let children = "
        self x1 40
        call g at f+10 x2 14
        call g at f+20 x1 5
        call h at f+30 x1 1";
    check_children(script, "100 +60 complete main+10", children);
}

#[test]
fn a_tail_callee_is_a_child_and_its_return_ends_both() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+10 g
        150 ret g+20 main+15";
    check_children(script, "100 +50 complete main+10", "tail g at f+10 x1 40\nself x1 10");
}

#[test]
fn a_tail_called_function_is_called_by_the_jump() {
    let script = "
        0 start main+4
        100 call main+10 g
        110 ijmp g+10 f
        130 jcc f+10 h
        150 ret h+20 main+15
        160 ret main+30 k+5";
    check_children(script, "110 +40 complete jump g+10", "tail h at f+10 x1 20\nself x1 20");
}

#[test]
fn a_jump_to_its_own_entry_is_a_loop() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+10 f
        120 jmp f+10 f
        150 ret f+20 main+15";
    check(script, "100 +50 complete main+10");
}

#[test]
fn a_jump_into_the_middle_of_a_function_not_on_the_stack_changes_no_frame() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+10 g+8
        120 ijmp g+10 h+8
        150 ret h+20 main+15";
    check_children(script, "100 +50 complete main+10", "self x1 50");
}

#[test]
fn a_jump_into_the_middle_of_a_function_and_back_changes_no_frame() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+10 g+8
        115 call g+c h
        118 ret h+20 g+11
        120 jmp g+20 f+18
        150 ret f+40 main+15";
    check_children(script, "100 +50 complete main+10", "self x1 47\ncall h at g+c x1 3");
}

#[test]
fn a_jump_to_an_entry_is_a_tail_call_by_the_code_that_jumps() {
    // f runs code of g.  There a jump to g is g's loop, and one to f is g's tail call.
    let script = "
        0 start main+4
        100 call main+10 f
        110 jmp f+10 g+8
        120 jmp g+10 g
        130 ijmp g+18 f
        150 ret f+20 main+15";
    check(script, "100 +50 complete main+10\n130 +20 complete jump g+18 depth 1");
}

#[test]
fn a_return_that_is_a_jump_to_the_own_entry_is_a_loop() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 ret f+10 f
        150 ret f+20 main+15";
    check(script, "100 +50 complete main+10");
}

#[test]
fn chains_of_tail_calls_without_end_are_capped_and_the_cap_is_reported() {
    let mut script = "0 start main+4\n100 call main+10 h\n".to_string();
    for i in 0..10_000 {
        script += &format!("{} jmp h+10 f\n{} jmp f+10 h\n", 200 + 2 * i, 201 + 2 * i);
    }
    script += "90000 ret h+20 main+15";
    let report = analyse(&script, Request::default());
    let f = &report.functions[0];
    assert_eq!((f.calls.complete, f.rows.len()), (10_000, 10_000));
    // 16,384 links are kept; each jump beyond them ends the last one.
    assert_eq!(report.limits.capped_tail_calls, 20_000 - (1 << 14));
    assert_eq!(f.calls.ended_by_jump, report.limits.capped_tail_calls / 2);
    assert_eq!(f.rows[0].latency_ns, 90_000 - 200);
    assert_eq!(f.rows[9_999].latency_ns, 1);
}

#[test]
fn plt_stubs_are_neither_caller_nor_child() {
    let script = "
        0 start main+4
        100 call main+10 plt+40
        103 ijmp plt+46 f
        110 call f+10 plt+20
        114 ijmp plt+26 g
        120 ret g+20 f+15
        160 ret f+40 main+15";
    check_children(script, "103 +57 complete main+10", "self x1 51\ncall g at f+10 x1 6");
}

#[test]
fn the_lazy_binder_is_a_child_that_ends_where_it_jumps_to_its_target() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 plt+20
        112 jmp plt+26 plt+0
        114 ijmp plt+8 loader+100
        115 call loader+110 h
        118 ret h+20 loader+115
        120 ijmp loader+130 g
        127 ret g+20 f+15
        160 ret f+40 main+15";
    let children = "
        self x1 47
        call g at f+10 x1 7
        call loader at f+10 x1 6";
    check_children(script, "100 +60 complete main+10", children);
}

#[test]
fn every_recursive_activation_is_a_call_and_the_outermost_alone_count_for_cpu() {
    let script = "
        off 10 20
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+10 f
        130 ret f+20 f+15
        150 ret f+20 f+15
        200 ret f+20 main+15";
    let rows = "
        100 +100 complete main+10
        110 +40 complete f+10 depth 1
        120 +10 complete f+10 depth 2";
    let children = "self x3 100\nrecursion f at f+10 x2 50";
    check_children(script, rows, children);
    let report = analyse(script, Request::default());
    let outermost = report.functions[0].outermost;
    assert_eq!((outermost.total.count, outermost.total.sum_ns), (1, 100));
    assert_eq!(report.functions[0].outermost.cpu_percent, Some(10.0)); // 100 ns of a span of 1000 ns
    // Without the recursion, the rows are the outermost call.
    assert_eq!((report.functions[0].nested_calls(), report.functions[0].time_once()), (2, Some(100)));
}

#[test]
fn mutual_recursion_keeps_activations_apart() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 call g+10 f
        130 ret f+20 g+15
        140 ret g+20 f+15
        200 ret f+20 main+15";
    let rows = "
        100 +100 complete main+10
        120 +10 complete g+10 depth 1";
    check_children(script, rows, "self x2 80\ncall g at f+10 x1 30");
    // The time of g has that of the call inside of it, which is in *self, too.
    let function = &analyse(script, Request::default()).functions[0];
    assert_eq!(
        (function.outermost.total.sum_ns, function.nested_calls(), function.time_once()),
        (100, 1, None)
    );
}

#[test]
fn a_call_to_the_next_instruction_is_not_a_frame() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f+15
        160 ret f+40 main+15";
    check_children(script, "100 +60 complete main+10", "self x1 60");
}

#[test]
fn a_jump_back_into_the_function_that_tail_called_ends_what_it_called() {
    // As GCC 8 splits off cold code: under a name of its own, `f.cold.3`.
    let script = "
        0 start main+4
        100 call main+10 f
        110 jcc f+10 g
        112 call g+4 h
        117 ret h+20 g+9
        120 jmp g+10 f+20
        130 call f+30 h
        135 ret h+20 f+35
        150 ret f+40 main+15";
    let children = "self x1 35\ntail g at f+10 x1 10\ncall h at f+30 x1 5";
    check_children(script, "100 +50 complete main+10", children);
}

#[test]
fn a_return_to_a_function_entry_is_a_jump() {
    // push $g; ret
    let script = "
        0 start main+4
        100 call main+10 f
        110 ret f+10 g
        150 ret g+20 main+15";
    check_children(script, "100 +50 complete main+10", "tail g at f+10 x1 40\nself x1 10");
}

#[test]
fn a_return_to_the_own_entry_is_a_loop() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 ret f+10 f
        150 ret f+20 main+15";
    check_children(script, "100 +50 complete main+10", "self x1 50");
}

#[test]
fn a_call_into_the_middle_of_its_own_function_is_part_of_it() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f+50
        120 call f+52 g
        125 ret g+20 f+57
        130 ret f+58 f+15
        160 ret f+40 main+15";
    check_children(script, "100 +60 complete main+10", "self x1 55\ncall g at f+52 x1 5");
}

#[test]
fn a_retpoline_is_a_tail_call_of_its_thunk() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 k
        111 call k+5 k+20
        112 ret k+28 g
        150 ret g+20 f+15
        160 ret f+40 main+15";
    check_children(script, "100 +60 complete main+10", "call k at f+10 x1 40\nself x1 20");
}

#[test]
fn a_retpoline_in_the_function_itself_is_an_indirect_call_or_jump() {
    let call = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f+50
        111 call f+50 f+60
        112 ret f+68 g
        150 ret g+20 f+15
        160 ret f+40 main+15";
    check_children(call, "100 +60 complete main+10", "call g at f+10 x1 38\nself x1 22");
    let recursion = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f+50
        111 call f+50 f+60
        112 ret f+68 f
        150 ret f+40 f+15
        160 ret f+40 main+15";
    let rows = "100 +60 complete main+10\n112 +38 complete f+10 depth 1";
    check_children(recursion, rows, "self x2 60\nrecursion f at f+10 x1 38");
    let jump = "
        0 start main+4
        100 call main+10 f
        110 call f+50 f+60
        112 ret f+68 g
        150 ret g+20 main+15";
    check_children(jump, "100 +50 complete main+10", "tail g at f+68 x1 38\nself x1 12");
}

#[test]
fn a_retpoline_does_not_disturb_a_landing() {
    let script = "
        born 0
        0 start main+4
        100 call main+10 f
        110 call f+10 f
        120 call f+20 f
        130 call f+30 throw
        150 ijmp throw+30 f+80
        155 call f+90 k
        156 call k+5 k+20
        157 ret k+28 g
        160 ret g+20 f+95
        170 ret f+a0 f+15
        180 ret f+a0 main+15";
    let rows = "
        100 +80 complete main+10
        110 +60 complete f+10 depth 1
        120 +30 unwound f+20 depth 2";
    check(script, rows);
}

#[test]
fn a_return_address_that_was_changed_for_a_hook_is_a_tail_call_of_it() {
    // f's return address is the hook's; the hook returns to where f should have.
    let script = "
        0 start main+4
        100 call main+10 f
        150 ret f+40 h
        160 ret h+20 main+15";
    check_children(script, "100 +60 complete main+10", "self x1 50\ntail h at f+40 x1 10");
}

#[test]
fn a_return_past_its_call_is_a_landing() {
    // f adds to its return address, or drops it and returns for its caller.
    let skips = "
        0 start main+4
        100 call main+10 f
        150 ret f+40 main+18
        200 call main+20 f
        210 ret f+60 main+25";
    check(skips, "100 +50 unwound main+10\n200 +10 complete main+20");
    let drops = "
        0 start main+4
        90 call main+10 g
        100 call g+10 f
        150 ret f+40 main+15";
    check(drops, "100 +50 unwound g+10");
}

#[test]
fn calls_that_never_return_end_with_the_return_of_their_caller() {
    // f calls k to learn where it is, drops the return address, and returns.
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 f+30
        150 ret f+40 main+15
        160 call main+20 f
        170 ret f+40 main+25";
    check(script, "100 +50 complete main+10\n160 +10 complete main+20");
}

#[test]
fn wanted_functions_are_reported_separately() {
    let script = "
        0 start main+4
        100 call main+10 f
        110 call f+10 g
        120 ret g+20 f+15
        160 ret f+40 main+15";
    let request = Request { functions: vec![id("g"), id("f"), id("h")], ..Request::default() };
    let report = analyse(script, request);
    let counts: Vec<_> = report.functions.iter().map(|f| (f.id, f.calls.complete)).collect();
    assert_eq!(counts, [(id("g"), 1), (id("f"), 1), (id("h"), 0)]);
    let sums: Vec<_> = report.functions.iter().map(|f| f.figures.latency.sum_ns).collect();
    assert_eq!(sums, [10, 60, 0]);
}

#[test]
fn what_a_stub_leads_to_that_was_found_running_is_entered_there() {
    // The call was lost, the entry was not. Where it returns to tells its caller.
    let script = "
        0 start main+4
        100 gap 150
        150 resume plt+20
        150 ijmp plt+26 f
        160 ret f+40 main+15
        170 call main+20 f
        180 ret f+40 main+25";
    check(script, "150 +10 complete [unknown]\n170 +10 complete main+20");
    let script = format!("code call main+10 plt+20\n{script}");
    check(&script, "150 +10 complete main+10\n170 +10 complete main+20");
}
