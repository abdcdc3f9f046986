//! What calls execute: counters at events in, counts of calls out.

use super::any_events::random_script;
use super::script::{analyse, callee_text, id};
use crate::{
    ChildRow, Counted, CountersAsked, Evidence, FunctionReport, Metric, Report, Request, RowChild,
    RowChildren, TracedRow,
};

fn counting() -> Request {
    let counters = Some(CountersAsked { kernel: false, bus_khz: Some(100_000) });
    Request { functions: vec![id("f"), id("g")], counters, rows: true, ..Request::default() }
}

/// A script's counters are its times: each ns is an instruction, a branch of either kind, a call and a cycle,
/// as certain as the time is.
#[track_caller]
fn is_its_time(what: &str, counted: Option<Counted>, (sum_ns, error_ns): (u64, u64)) {
    let Some(Counted { executed, cycles: Some(cycles), .. }) = counted else { panic!("{what}: {counted:?}") };
    assert_eq!(executed.instructions, sum_ns, "{what}");
    assert_eq!(executed.conditional_branches, 2 * sum_ns, "{what}");
    assert_eq!(executed.kernel_instructions, 3 * sum_ns, "{what}");
    assert_eq!(cycles.count, sum_ns, "{what}");
    assert!(cycles.error <= error_ns, "{what}: {cycles:?}, {error_ns}");
}

fn children_are_their_times(what: &str, children: &[ChildRow]) {
    for child in children {
        let what = format!("{what}: {}", callee_text(child.kind, child.function, child.site));
        // The error of a row is narrowed to what its time can be, that of cycles is not.
        is_its_time(&what, child.counted, (child.total.sum_ns, u64::MAX));
    }
}

#[test]
fn calls_children_and_callers_have_what_ran_in_them() {
    let (mut calls, mut children, mut with_gaps) = (0, 0, 0);
    for seed in 1..=400 {
        let script = random_script(seed, seed % 2 == 0);
        let report = analyse(&script, counting());
        for f in &report.functions {
            let what = format!("seed {seed}");
            for row in &f.rows {
                match row.end.status.counted() {
                    true => is_its_time(&what, row.counted().copied(), (row.latency_ns, row.error_ns)),
                    false => assert_eq!(row.counted(), None, "{what}"),
                }
            }
            for (at, row) in f.rows.iter().enumerate() {
                let is_known = row.counted().is_some_and(|counted| counted.is_known());
                for child in f.row_details.children.of(at) {
                    let known = is_known.then_some(child.total.sum_ns);
                    assert_eq!(child.work.map(|work| work.instructions), known, "{what}: {:?}", row.id);
                }
            }
            let counters = f.figures.counters.as_ref().unwrap();
            is_its_time(&what, Some(counters.sum), (f.figures.latency.sum_ns, f.figures.error.sum_ns));
            assert_eq!(counters.get(Metric::Instructions).unwrap().count, counters.known.0);
            assert_eq!(counters.known.0 + counters.with_gaps, f.figures.latency.count);
            with_gaps += counters.with_gaps;
            children_are_their_times(&what, &f.figures.children);
            for caller in &f.callers {
                let sum = caller.figures.counters.as_ref().map(|counters| counters.sum);
                is_its_time(&what, sum, (caller.figures.latency.sum_ns, caller.figures.error.sum_ns));
                children_are_their_times(&what, &caller.figures.children);
            }
            calls += f.figures.latency.count;
            children += f.figures.children.len();
        }
    }
    assert_eq!((calls, children), (4347, 3483), "calls and rows of children that were looked at");
    assert!(with_gaps < calls, "{with_gaps}");
}

fn without_counters(mut report: Report) -> Report {
    let forget = |children: &mut Vec<ChildRow>| children.iter_mut().for_each(|child| child.counted = None);
    for f in &mut report.functions {
        f.figures.counters = None;
        for row in &mut f.rows {
            row.evidence = Evidence::Traced(TracedRow { counted: None, ..*row.traced().unwrap() });
        }
        let mut children = RowChildren::default();
        children.keys.clone_from(&f.row_details.children.keys);
        for row in 0..f.rows.len() {
            let forgotten =
                f.row_details.children.of(row).iter().map(|child| RowChild { work: None, ..*child });
            children.push(&forgotten.collect::<Vec<_>>());
        }
        // Where children of rows were not asked for, there is no row.
        if !f.row_details.children.keys.is_empty() {
            f.row_details.children = children;
        }
        forget(&mut f.figures.children);
        for caller in &mut f.callers {
            caller.figures.counters = None;
            forget(&mut caller.figures.children);
        }
    }
    report
}

#[test]
fn counters_change_nothing_else() {
    for seed in 1..=200 {
        let script = random_script(seed, seed % 2 == 0);
        let plain = analyse(&script, Request { counters: None, ..counting() });
        let counted = analyse(&script, counting());
        assert!(without_counters(counted.clone()) == plain, "seed {seed}");
        assert!(counted == plain || counted.functions.iter().any(|f| f.figures.counters.is_some()));
    }
}

fn only(script: &str, request: Request) -> FunctionReport {
    let request = Request { functions: vec![id("f")], ..request };
    analyse(script, request).functions.swap_remove(0)
}

const TWO_CALLS: &str = "
    10 start main+1
    20 call main+10 f
    30 call f+10 g
    42 ret g+5 f+15
    50 ret f+20 main+15
    60 call main+20 f
    90 ret f+20 main+25
    95 call main+20 f
    98 gap 99
";

#[test]
fn figures_are_of_the_counted_calls() {
    let f = only(TWO_CALLS, counting());
    let counters = f.figures.counters.unwrap();
    let spread = |metric| {
        let spread = counters.get(metric).unwrap().spread.unwrap();
        (spread.min.value, spread.mean, spread.p50.value, spread.max.value)
    };
    assert_eq!(spread(Metric::Instructions), (30, 30.0, 30, 30));
    assert_eq!(spread(Metric::Branches), (90, 90.0, 90, 90));
    assert_eq!(spread(Metric::MilliIpc), (1000, 1000.0, 1000, 1000));
    assert_eq!(spread(Metric::Frequency), (1000, 1000.0, 1000, 1000), "10 times the bus clock");
    assert_eq!(counters.get(Metric::KernelInstructions), None, "no kernel code was traced");
    let own = f.figures.children.iter().find(|child| child.site.is_none()).unwrap().counted.unwrap();
    assert_eq!((own.executed.instructions, own.ipc()), (60 - 12, Some((1.0, 0.0))));
    let buckets = &counters.get(Metric::Instructions).unwrap().histogram;
    assert_eq!(buckets.iter().map(|b| (b.low, b.high, b.count)).collect::<Vec<_>>(), [(16, 32, 2)]);
}

#[test]
fn without_cyc_packets_cycles_are_not_known() {
    let f = only(&format!("no_cyc\n{TWO_CALLS}"), counting());
    let counters = f.figures.counters.unwrap();
    assert_eq!(counters.sum.executed.instructions, 60);
    assert_eq!((counters.sum.cycles, counters.get(Metric::Cycles)), (None, None));
    assert_eq!((counters.get(Metric::MilliIpc), counters.get(Metric::Frequency)), (None, None));
    assert!(f.figures.children.iter().all(|child| child.counted.unwrap().cycles.is_none()));
}

/// The second call contains missing code: its instructions are unknown, and so are those of the missing
/// callee. What the call executed itself is known.
#[test]
fn a_call_with_missing_code_has_no_numbers() {
    let script = "
        0 start main+4
        10 call main+10 f
        20 call f+10 g
        25 ret g+5 f+15
        30 ret f+20 main+15
        100 call main+10 f
        110 out.call f+10 lib+8
        112 gap 150 missing
        150 resume f+15
        160 call f+30 g
        165 ret g+5 f+35
        200 ret f+40 main+15";
    let f = only(script, counting());
    assert!(f.rows.iter().all(|row| row.end.status.counted()));
    let known: Vec<bool> = f.rows.iter().map(|row| row.counted().unwrap().is_known()).collect();
    assert_eq!(known, [true, false]);
    let counters = f.figures.counters.as_ref().unwrap();
    assert_eq!((counters.known.0, counters.known.1.executed.instructions, counters.with_gaps), (1, 20, 1));
    let instructions = counters.get(Metric::Instructions).unwrap();
    assert_eq!((instructions.count, instructions.sum), (1, 20));
    let children = f.figures.children.iter().map(|child| {
        let counted = child.counted.unwrap();
        let text = callee_text(child.kind, child.function, child.site);
        (text, counted.is_known().then_some(counted.executed.instructions))
    });
    let mut children: Vec<_> = children.collect();
    children.sort();
    let expected = [
        ("call g at f+10", Some(5)),
        ("call g at f+30", Some(5)),
        ("call lib at f+10", None),
        ("self", Some(20 - 5 + 100 - 40 - 5)),
    ];
    assert_eq!(children, expected.map(|(text, known)| (text.to_owned(), known)));
    let work = |row: usize| f.row_details.children.of(row).iter().map(|child| child.work).collect::<Vec<_>>();
    assert!(work(0).iter().all(Option::is_some) && work(1).iter().all(Option::is_none));
}
