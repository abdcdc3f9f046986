//! The trees of calls: their nodes, the parent of each, and its times.

use super::script::{analyse_trees, function_name, id, tree_text};
use crate::{CallRow, CallTree, Paths, Request, TreeSink, Trees};
use model::{AuxOffset, Tid};

/// Keeps trees as text.
struct Text {
    wanted: Trees,
    min_ns: u64,
    lines: Vec<String>,
}

impl Text {
    fn new(wanted: Trees) -> Self {
        Self { wanted, min_ns: 0, lines: Vec::new() }
    }
}

impl TreeSink for Text {
    fn wanted(&self) -> Trees {
        self.wanted.clone()
    }

    fn min_ns(&self) -> u64 {
        self.min_ns
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let root = tree.nodes()[0];
        let of_root = (root.start, root.total.sum_ns, root.total.off_cpu_ns, root.status);
        assert_eq!(of_root, (call.start_ns, call.latency_ns, call.off_cpu_ns, call.end.status));
        assert!(root.error_ns <= call.error_ns, "{root:?} {call:?}");
        self.lines.extend(tree_text(tree));
        let left_out = tree.left_out().count();
        self.lines.extend((left_out > 0).then(|| format!("{left_out} left out")));
    }

    fn thread(&mut self, tid: Tid, trees: &CallTree) {
        self.lines.push(format!("thread {}", tid.0));
        self.lines.extend(tree_text(trees));
    }
}

/// The functions around each call, innermost first.
#[derive(Default)]
pub(super) struct Callers(pub(super) Vec<String>);

impl TreeSink for Callers {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn wants_callers(&self) -> bool {
        true
    }

    fn call(&mut self, _: &CallRow, tree: &CallTree) {
        let names: Vec<&str> = tree.callers().iter().map(|id| function_name(*id)).collect();
        self.0.push(names.join(" "));
    }
}

/// Functions around a call: no stubs, the kernel below a handler as not known, and nothing beyond the seen
/// part.
#[test]
fn callers_are_the_functions_that_were_open() {
    let script = "
        0 start main+4
        100 call main+20 g\n 110 call g+10 f\n 120 ret f+40 g+15
        130 call g+20 f\n 132 call f+10 f\n 134 ret f+40 f+15\n 136 ret f+40 g+25\n 140 ret g+40 main+25
        200 call main+30 plt+40\n 202 ijmp plt+46 h\n 204 call h+10 f\n 210 ret f+40 h+15\n 215 ret h+20 main+35
        300 async main+40\n 305 start handler\n 310 call handler+10 f\n 320 ret f+40 handler+15";
    let mut callers = Callers(Vec::new());
    let _ = analyse_trees(script, Request::default(), &mut callers);
    assert_eq!(callers.0, ["g main", "f g main", "g main", "h main", "handler ? main"]);
}

#[track_caller]
fn check(script: &str, wanted: Trees, expect: &str) {
    check_text(script, Text::new(wanted), expect);
}

#[track_caller]
fn check_text(script: &str, mut text: Text, expect: &str) {
    analyse_trees(script, Request::default(), &mut text);
    let expect: Vec<&str> = expect.lines().filter(|line| !line.trim().is_empty()).collect();
    let margin = expect.first().map_or(0, |line| line.len() - line.trim_start().len());
    let expect: Vec<&str> = expect.iter().map(|line| &line[margin..]).collect();
    assert_eq!(text.lines, expect);
}

const NESTED: &str = "
    off 125 128
    0 start main+4
    10 call main+10 g
    20 ret g+10 main+15
    100 call main+20 f
    110 call f+10 g
    120 call g+10 h
    121 syscall h+4
    130 start h+6
    140 ret h+10 g+15
    141 call g+20 h
    145 jmp h+8 k
    150 ret k+10 g+25
    160 ret g+30 f+15
    170 async f+20
    172 start f+20
    190 call f+30 h
    195 ret h+10 f+35
    200 ret f+40 main+25";

#[test]
fn a_tree_has_every_call_and_the_kernels_part() {
    let tree = "
    call f at main+20 100 +100 self 43 off 3 self 0
      call g at f+10 110 +50 self 21 off 3 self 0
        call h at g+10 120 +20 self 11 off 3 self 0
          syscall at h+4 121 +9 off 3 self 3
        call h at g+20 141 +9 self 4
          tail k at h+8 145 +5
      interrupt 170 +2
      call h at f+30 190 +5";
    check(NESTED, Trees::Outermost, tree);
}

/// The time of calls that are left out is their caller's own. Those in a call that has a tree, too, count
/// in the trees around it.
#[test]
fn a_tree_without_short_calls_counts_them() {
    let tree = "
    call f at main+20 100 +100 self 50 off 3 self 0
      call g at f+10 110 +50 self 30 off 3 self 0
        call h at g+10 120 +20 off 3 self 3
    5 left out";
    check_text(NESTED, Text { min_ns: 10, ..Text::new(Trees::Outermost) }, tree);
    let script = "
        0 start main+4
        100 call main+20 f
        110 call f+10 f
        120 call f+10 g
        121 ret g+10 f+15
        125 call f+20 f
        126 ret f+40 f+25
        150 ret f+40 f+15
        160 call f+20 g
        161 ret g+10 f+25
        200 ret f+40 main+25";
    let trees = "
    call f at f+20 125 +1
    call f at f+10 110 +40
    2 left out
    call f at main+20 100 +100 self 60
      recursion f at f+10 110 +40
    3 left out";
    check_text(script, Text { min_ns: 10, ..Text::new(Trees::Every) }, trees);
}

#[test]
fn calls_that_are_alike_are_one_node_where_that_is_asked_for() {
    let script = "
        0 start main+4
        100 call main+20 f
        110 call f+10 g
        120 call g+10 h
        130 ret h+10 g+15
        140 ret g+30 f+15
        150 call f+20 g
        155 ret g+30 f+25
        160 call f+10 g
        161 call g+10 h
        165 ret h+10 g+15
        166 call g+20 k
        168 ret k+10 g+25
        170 ret g+30 f+15
        200 ret f+40 main+25
        300 call main+20 f
        310 call f+20 g
        320 ret g+10 f+25
        350 ret f+40 main+25";
    let mut paths = Paths::of_calls();
    let report = analyse_trees(script, Request::default(), &mut paths);
    let tree = paths.finish().tree;
    let expect = [
        "call f at main+20 100 +150 self 95 x2",
        "  call g at f+10 110 +40 self 24 x2",
        "    call h at g+10 120 +14 x2",
        "    call k at g+20 166 +2",
        "  call g at f+20 150 +15 x2",
    ];
    assert_eq!(tree_text(&tree), expect);
    let roots: u64 = tree.roots().map(|root| root.total.sum_ns).sum();
    assert_eq!(roots, report.functions[0].outermost.total.sum_ns);
}

const RECURSION: &str = "
    0 start main+4
    100 call main+20 f
    110 call f+10 f
    120 call f+10 g
    130 ret g+10 f+15
    140 ret f+40 f+15
    200 ret f+40 main+25";

#[test]
fn a_call_inside_of_another_has_a_tree_of_its_own_if_it_is_asked_for() {
    let whole = "
    call f at main+20 100 +100 self 70
      recursion f at f+10 110 +30 self 20
        call g at f+10 120 +10";
    check(RECURSION, Trees::Outermost, whole);
    let inner = "
    call f at f+10 110 +30 self 20
      call g at f+10 120 +10";
    check(RECURSION, Trees::EnteredAt(vec![AuxOffset(2)]), inner);
    check(RECURSION, Trees::EnteredAt(vec![AuxOffset(2), AuxOffset(1)]), &format!("{inner}{whole}"));
}

#[test]
fn what_is_nobodys_child_is_its_callers_own_time() {
    // A stub, and a subroutine inside of the function: what that calls is the function's.
    let script = "
        0 start main+4
        100 call main+20 f
        110 call f+10 plt
        112 ijmp plt+4 g
        120 ret g+10 f+15
        130 call f+20 f+30
        132 call f+32 h
        140 ret h+10 f+37
        145 ret f+38 f+25
        200 ret f+40 main+25";
    let tree = "
    call f at main+20 100 +100 self 84
      call g at f+10 112 +8
      call h at f+32 132 +8";
    check(script, Trees::Outermost, tree);
}

#[test]
fn a_handler_is_a_node_from_the_interruption_on() {
    let script = "
        0 start main+4
        100 call main+20 f
        120 async f+20
        125 start handler
        130 call handler+10 g
        140 ret g+10 handler+15
        150 ret handler+20 restorer
        151 syscall restorer+5
        160 start f+20
        200 ret f+40 main+25";
    let tree = "
    call f at main+20 100 +100 self 60
      signal handler 120 +40 self 30
        call g at handler+10 130 +10";
    check(script, Trees::Outermost, tree);
}

#[test]
fn what_interrupts_a_stub_interrupts_its_caller() {
    let script = "
        0 start main+4
        100 call main+20 f
        110 call f+10 plt
        112 async plt+2
        115 start handler
        120 ret handler+20 restorer
        121 syscall restorer+5
        130 start plt+2
        131 ijmp plt+4 g
        140 ret g+10 f+15
        200 ret f+40 main+25";
    let tree = "
    call f at main+20 100 +100 self 73
      signal handler 112 +18
      call g at f+10 131 +9";
    check(script, Trees::Outermost, tree);
}

#[test]
fn a_call_that_was_cut_has_what_was_seen() {
    let script = "
        0 start main+4
        100 call main+20 f
        110 call f+10 g
        120 gap 130
        130 resume g+20
        140 ret g+30 f+15
        200 ret f+40 main+25";
    let tree = "
    call f at main+20 100 +20 self 10 cut
      call g at f+10 110 +10 cut";
    check(script, Trees::Outermost, tree);
}

#[test]
fn a_tree_waits_for_the_ancestor_that_decides() {
    use crate::{Ancestor, LatencyRange};
    let latency = LatencyRange { min_ns: 50, max_ns: u64::MAX };
    let ancestor = Some(Ancestor { function: id("k"), latency });
    let script = "
        0 start main+4
        100 call main+20 k
        110 call k+10 f
        120 ret f+10 k+15
        130 ret k+40 main+25
        200 call main+20 k
        210 call k+10 f
        215 call f+10 g
        218 ret g+10 f+15
        220 ret f+10 k+15
        290 ret k+40 main+25";
    let mut text = Text::new(Trees::Outermost);
    analyse_trees(script, Request { ancestor, ..Request::default() }, &mut text);
    assert_eq!(text.lines, ["call f at k+10 210 +10 self 7", "  call g at f+10 215 +3"]);
}

#[test]
fn a_thread_is_what_was_seen_of_it_below_the_callers_that_returns_tell_of() {
    // g was running, in f, in main: the returns say so.  After the loss nothing of that is known.
    let script = "
        off 60 70
        50 start g+4
        55 syscall g+8
        75 start g+a
        80 ret g+10 f+15
        90 call f+20 h
        95 ret h+10 f+25
        100 ret f+40 main+25
        120 call main+30 h
        130 ret h+10 main+35
        140 gap 150
        150 resume h+4
        160 ret h+10 g+25
        170 call g+30 k
        175 ret k+10 g+35
        180 call g+30 k
        190 ret k+10 g+35";
    let tree = "
    thread 7
    call main 50 +90 self 30 off 10 self 0 open_start
      call f 50 +50 self 15 off 10 self 0 open_start
        call g 50 +30 self 10 off 10 self 0 open_start
          syscall at g+8 55 +20 off 10 self 10
        call h at f+20 90 +5
      call h at main+30 120 +10
    call g 150 +40 self 15 open_start
      call h 150 +10 open_start
      call k at g+30 170 +5
      call k at g+30 180 +10";
    check(script, Trees::Threads, tree);
}

#[test]
fn the_first_call_of_a_thread_begins_when_it_is_entered() {
    let script = "
        50 start main+4
        100 call main+20 f
        110 call f+10 g
        130 ret g+10 f+15
        200 ret f+40 main+25";
    let tree = "
    thread 7
    call main 50 +150 self 50 open_start
      call f at main+20 100 +100 self 80
        call g at f+10 110 +20";
    check(script, Trees::Threads, tree);
}

/// The first `h` may have taken from 5 to 26 ns, and the second, of 3 ns, no less than none.
#[test]
fn a_node_is_off_by_what_its_ends_leave_open_and_its_own_time_by_its_callees_too() {
    let script = "
        0 start main+4
        98/100/101 call main+20 f
        108/110/115 call f+10 h
        120/125/134 ret h+10 f+15
        135/140/147 call f+20 h
        138/143/147 ret h+10 f+25
        199/200/204 ret f+40 main+25";
    let tree = "
    call f at main+20 100 +100 error 6 self 82 error 26
      call h at f+10 110 +15 error 11
      call h at f+20 140 +3 error 9";
    check(script, Trees::Outermost, tree);
    let of_one_site = script.replace("f+20 h", "f+10 h").replace("h+10 f+25", "h+10 f+15");
    let merged = "
    call f at main+20 100 +100 error 6 self 82 error 26
      call h at f+10 110 +18 error 20 x2";
    let mut paths = Paths::of_calls();
    analyse_trees(&of_one_site, Request::default(), &mut paths);
    let expect: Vec<&str> = merged.lines().skip(1).map(|line| &line[4..]).collect();
    assert_eq!(tree_text(&paths.finish().tree), expect);
}

/// No time is below nothing or above that of the node which it is in.
#[test]
fn what_a_node_took_itself_is_a_part_of_it() {
    let script = "
        0 start main+4
        98/100/101 call main+20 f
        99/101/151 call f+10 h
        100/152/152 ret h+10 f+15
        152/153/155 ret f+40 main+25";
    let tree = "
    call f at main+20 100 +53 error 4 self 2 error 55
      call h at f+10 101 +51 error 51";
    check(script, Trees::Outermost, tree);
}

#[test]
fn a_caller_that_a_return_tells_of_is_off_by_when_its_callee_was_first_seen() {
    let script = "
        93/100/101 start g+4
        110 ret g+10 f+15
        200 ret f+40 main+25
        250 ret main+40 lib+15";
    let tree = "
    thread 7
    call lib 100 +150 error 7 self 0 error 14 open_start
      call main 100 +150 error 7 self 50 error 14 open_start
        call f 100 +100 error 7 self 90 error 14 open_start
          call g 100 +10 error 7 open_start";
    check(script, Trees::Threads, tree);
}
