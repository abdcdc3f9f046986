//! Each check of [`crate::check`] can fail: a sound report is changed in one place, and the check finds
//! that.

use model::{AuxOffset, Cpu, Tid};

use super::script::{analyse, analyse_and_check};
use crate::check::Found;
use crate::{Cut, CutCause, Evidence, Report, Request, Status, TracedRow, check};

const SOUND: &str = "
    filter
    born 0
    off 112 127
    0 start main+4
    100 call main+10 f
    105 call f+10 f
    110 syscall f+10
    130 start f+12
    140 ret f+20 f+15
    150 ret f+40 main+15
    200 call main+20 f
    210 out.call f+10 g
    240 start f+15
    250 ret f+40 main+25
    300 call main+10 f
    320 gap 400
    400 resume main+15
    tid 8
    born 500
    510 start main+4
    520 gap 530
    540 start main+4";

fn sound() -> Report {
    analyse(SOUND, Request::default())
}

/// What is found wrong once `change` was made.
fn found(change: impl FnOnce(&mut Report)) -> Vec<String> {
    let mut report = sound();
    change(&mut report);
    check(&report).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn finds(what: &str, change: impl FnOnce(&mut Report)) {
    let found = found(change);
    assert!(found.iter().any(|violation| violation.contains(what)), "{what}: {found:#?}");
}

#[test]
fn nothing_is_wrong_with_a_sound_report() {
    let report = sound();
    let f = &report.functions[0];
    assert_eq!((f.calls.complete, f.calls.cut, f.figures.off_cpu.unwrap().sum_ns), (3, 1, 30));
    assert_eq!(report.loss.by_cause[0].calls, 1);
    assert_eq!(check(&report), []);
}

#[test]
fn calls_that_do_not_nest_are_found() {
    // f at 105 is inside f at 100, which ends at 150.
    let change = |report: &mut Report| {
        let rows = &mut report.functions[0].rows;
        rows[1].latency_ns += 20;
        rows[1].evidence =
            Evidence::Traced(TracedRow { aux_offset: AuxOffset(0x77), ..TracedRow::default() });
    };
    finds("thread 7 at 105 ns, AUX offset 0x77: this call outlives the one that it began in", change);
}

#[test]
fn children_that_are_not_the_whole_are_found() {
    let of_the_first =
        "thread 7 at 100 ns, AUX offset 0x1: children and *self: (135, Some(30)), not (136, Some(30))";
    finds(of_the_first, |r| r.functions[0].figures.latency.sum_ns += 1);
    finds("children and *self", |r| r.functions[0].figures.children[0].total.off_cpu_ns = None);
    finds("thread 7 at 200 ns, AUX offset 0x7: children and *self", |r| {
        r.functions[0].callers[1].figures.children[0].total.sum_ns -= 1
    });
    finds("thread 7 at 100 ns, AUX offset 0x1: the children of this call took longer", |r| {
        r.functions[0].overfull = Some(r.functions[0].rows[0]);
    });
}

#[test]
fn callers_that_are_not_the_function_are_found() {
    finds("calls of all callers: 4, not 3", |r| r.functions[0].callers[0].figures.latency.count += 1);
    finds("a caller's calls", |r| r.functions[0].callers[0].figures.off_cpu.as_mut().unwrap().sum_ns += 1);
    finds("callers: 2, not 3", |r| drop(r.functions[0].callers.pop()));
    finds("time of all callers", |r| r.functions[0].callers[0].figures.latency.sum_ns += 1);
    finds("off-CPU time of all callers", |r| {
        r.functions[0].callers[0].figures.off_cpu.as_mut().unwrap().sum_ns += 1
    });
}

#[test]
fn counts_that_differ_are_found() {
    finds("calls in the histogram: 3, not 4", |r| r.functions[0].figures.histogram[0].count += 1);
    finds("calls in the histogram: 1, not 2", |r| r.functions[0].callers[0].figures.histogram[0].count += 1);
    finds("thread 7 at 100 ns, AUX offset 0x1: counted calls: 3, not 4", |r| {
        r.functions[0].calls.unwound += 1
    });
    finds("thread 7 at 300 ns, AUX offset 0xb: calls not seen to end: 1, not 2", |r| {
        r.functions[0].calls.open_end += 1
    });
    finds("rows by status", |r| r.functions[0].rows[0].end.status = Status::Unwound);
    finds("time of all rows", |r| r.functions[0].rows[2].latency_ns -= 1);
}

#[test]
fn figures_outside_of_their_bounds_are_found() {
    finds("a figure is outside of its bounds", |r| r.functions[0].figures.error.low.p50_ns = Some(1 << 40));
    finds("a figure is outside of its bounds", |r| {
        r.functions[0].callers[0].figures.error.high.max_ns = None
    });
    finds("percentiles are out of order", |r| {
        r.functions[0].figures.latency.spread.as_mut().unwrap().p90_ns = 0;
    });
}

#[test]
fn open_calls_that_do_not_add_up_are_found() {
    // f at 300, which the gap at 320 cuts.
    finds("thread 7 at 300 ns, AUX offset 0xb: open calls: Total { count: 1, sum_ns: 21", |r| {
        r.functions[0].open.observed.sum_ns += 1;
    });
    finds("open calls: ", |r| r.functions[0].open.resumed.sum_ns += 1);
    finds("callers of open calls", |r| r.functions[0].open.callers[0].observed.count += 1);
    finds("children and *self of open calls", |r| r.functions[0].open.children[0].total.sum_ns += 1);
    finds("children of all open rows", |r| {
        r.functions[0].open.children[0].kind = crate::ChildKind::Interrupt;
    });
    finds("thread 7 at 300 ns, AUX offset 0xb: the children of this open call took longer", |r| {
        r.functions[0].open.overfull = Some(r.functions[0].rows[3]);
    });
}

#[test]
fn losses_that_do_not_add_up_are_found() {
    finds("thread 7 at 320 ns, AUX offset 0xc: observed and lost time are not the window", |r| {
        r.loss.threads[0].observed_ns += 1;
    });
    finds("thread 7 at 320 ns, AUX offset 0xc: losses by cause are not what was lost", |r| {
        r.loss.threads[0].by_cause[0].lost_ns -= 1;
    });
    finds("thread 8 at 520 ns, AUX offset 0xf: more time outside the IP filter than was observed", |r| {
        r.loss.threads[1].outside_ns = Some(1000);
    });
    finds("thread 7 at 320 ns, AUX offset 0xc: losses of all threads are not the whole", |r| {
        r.loss.by_cause[0].bytes += 1
    });
    finds("losses of all CPUs are not the whole", |r| r.loss.cpus[0].by_cause[0].calls += 1);
    finds("lost time of all threads: 90, not 91", |r| r.loss.lost_ns += 1);
}

#[test]
fn cut_calls_that_no_gap_cut_are_found() {
    finds("calls cut by gaps", |r| {
        let cut = Cut { cause: CutCause::StackSwitch, cpu: Some(Cpu(1)) };
        r.functions[0].rows[3].end.cut_by = Some(cut);
    });
    finds("thread 7 at 300 ns, AUX offset 0xb: a call is cut by something, and only a cut one", |r| {
        r.functions[0].rows[3].end.cut_by = None;
    });
}

#[test]
fn a_report_without_rows_that_has_other_figures_is_found() {
    let report = sound();
    let mut unchecked = sound();
    let function = &mut unchecked.functions[0];
    (function.rows, function.row_details.children, function.row_details.reasons) = Default::default();
    let differences = |unchecked: &Report| {
        let mut found = Found::default();
        found.differences(unchecked, &report);
        found.0.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(differences(&unchecked), [""; 0]);
    unchecked.functions[0].figures.children[0].total.sum_ns += 1;
    unchecked.loss.lost_ns += 1;
    assert_eq!(
        differences(&unchecked),
        [
            "the report without rows has `lost_ns: 91,`, not `lost_ns: 90,`",
            "thread 7 at 100 ns, AUX offset 0x1: the report without rows has `sum_ns: 51,`, not `sum_ns: 50,`",
        ]
    );
}

#[test]
fn time_that_runs_backwards_is_found() {
    let script = "
        0 start main+4
        100 call main+10 f
        90 ret f+40 main+15";
    let (_, violations) = analyse_and_check(script, Request::default());
    let first = &violations[0];
    assert_eq!(first.place.map(|place| (place.tid, place.at)), Some((Tid(7), Some(AuxOffset(2)))));
    assert!(first.to_string().contains("AUX offset 0x2: time runs backwards"), "{first}");
}

#[test]
fn times_outside_of_their_bounds_are_found() {
    let (_, violations) = analyse_and_check("20/10/30 start main+4", Request::default());
    assert!(violations[0].what.contains("the time is outside of its bounds"), "{violations:?}");
    let (_, violations) = analyse_and_check("0 start main+4\n100 gap 90", Request::default());
    assert!(violations[0].what.contains("the gap ends before it begins"), "{violations:?}");
    // It is counted as observed and yet takes no time: the window says so, too.
    assert_eq!(violations.len(), 2, "{violations:?}");
}
