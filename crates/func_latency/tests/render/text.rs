//! The report's text.

use analyzer::{CallCounts, ChildKind, ErrorBound, FunctionReport, Quantiles, Report};
use func_latency::render::row_limit::RowLimit;
use func_latency::render::{View, json, text};

use super::golden::check_golden;
use super::report::{FakeNames, empty_function, report, view, whole_report, without_times};

fn text_of(report: &Report) -> String {
    let mut out = vec![];
    text::write(&mut out, &view(report), 120).unwrap();
    String::from_utf8(out).unwrap()
}

fn check_text(name: &str, report: &Report, srcline: bool, unfold: bool, width: usize) {
    let problems = ["/usr/lib/libz.so.1 is missing (looked for /usr/lib/libz.so.1)".to_owned()];
    let only = ["that start from 5 to 9 ns (--ti)".to_owned(), "of 100 ns or more (--li)".to_owned()];
    let view = View {
        sched_apart_ns: Some(321),
        names: &FakeNames { lines: srcline },
        inlined: &[Some(17), Some(0)],
        only: if unfold { &only } else { &[] },
        problems: if report.loss.coverage < 1.0 { &problems } else { &[] },
        srcline,
        unfold,
        table_rows: if unfold { RowLimit::ALL } else { RowLimit::default() },
        code_blocks: &[],
        ..view(report)
    };
    let mut out = vec![];
    text::write(&mut out, &view, width).unwrap();
    check_golden(name, &out);
}

#[test]
fn text_folded() {
    check_text("folded.txt", &report(), false, false, 120);
}

#[test]
fn text_unfolded_with_lines() {
    check_text("unfolded-srcline.txt", &report(), true, true, 140);
}

#[test]
fn text_unfolded() {
    check_text("unfolded.txt", &report(), false, true, 100);
}

/// It said "0 B of trace" where probes had seen no call.
#[test]
fn probes_see_calls_and_no_trace() {
    let mut none = report();
    none.trace.events = 0;
    let mut out = vec![];
    text::write(&mut out, &View { decoder: "uprobe", aux_bytes: 0, ..view(&none) }, 120).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("perf.data: 1.00 s of 2 threads, 0 calls\n"), "{text}");
    assert!(text_of(&none).starts_with("perf.data: 1.00 s of 2 threads, 52.1 MB of trace\n"));
}

/// It said "0 ns +- 0" of each call.
#[test]
fn text_without_times_has_counts_alone() {
    check_text("no-times.txt", &without_times(), false, false, 120);
    let text = text_of(&without_times());
    for time in [" us", "0 ns", "average", "total", "CPU %"] {
        assert!(!text.contains(time), "{time}: {text}");
    }
}

#[test]
fn text_folded_with_lines_without_loss_and_switches() {
    check_text("whole-srcline.txt", &whole_report(), true, false, 100);
}

/// Callers had more time than there was, and nothing said why.
#[test]
fn callers_say_that_nested_calls_count_twice() {
    let text = text_of(&report());
    let note = "  calls inside another one count here, too: totals, CPU % and shares have their time again\n";
    assert!(text.contains(&format!("Callers of [row_search_mvcc]\n{note}")), "{text}");
    // A table of all, and a section of each caller.
    assert_eq!(text.matches(note).count(), 4, "{text}");
}

/// "exact, ns" stood over latencies smaller than their error bounds.
#[test]
fn no_latency_is_called_exact() {
    let text = text_of(&report());
    assert!(!text.contains("exact"), "{text}");
    let error = "error of one latency: at most 8.50 ns on average, 16 ns for the least certain call";
    // Nor without how far off it may be.
    assert!(text.contains("\n  p50       150 ns        150      7"), "{text}");
    assert!(text.contains(error), "{text}");
}

/// "CPU percent: 0.0 %" stood under a `main` that had run for the whole recording. One uncertain call took
/// the digits of the least of all ("min: < 770 ns" beside "average: < 380 ns"), and the table of callers had
/// averages as if they were exact.
#[test]
fn callers_have_the_digits_of_their_own_error() {
    let mut report = whole_report();
    for site in &mut report.functions[0].callers {
        if site.figures.latency.spread.as_ref().is_some_and(|spread| spread.max_ns == 1_300_000) {
            let above = Some(2_100_000);
            site.figures.error = ErrorBound { sum_ns: 800_000, max_ns: 800_000, ..site.figures.error };
            site.figures.error.high = Quantiles { min_ns: above, max_ns: above, ..site.figures.error.high };
        }
    }
    let text = text_of(&report);
    assert!(text.contains("count: 4, average: 300 us, min: 40 ns, max: 1.3 ms ("), "{text}");
    assert!(text.contains("ha_innobase::index_read (2 sites)   300 us  "), "{text}");
}

/// Tables of children had averages of 30 ns under calls of which only "< 2 us" was known.
#[test]
fn errors_as_large_as_the_figures_stand_at_histogram_and_children() {
    let mut report = whole_report();
    let buckets = "which bucket is theirs is not certain";
    let certain = text_of(&report);
    // Average, total and share.
    let bounds_of_syscall = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("  [syscall] ")).unwrap();
        row.matches("< ").count()
    };
    assert_eq!((bounds_of_syscall(&certain), certain.contains(buckets)), (0, false), "{certain}");
    let function = &mut report.functions[0];
    function.figures.error.shorter = 4;
    function.figures.error.sum_ns = function.figures.latency.sum_ns;
    for child in function.figures.children.iter_mut().filter(|child| child.kind == ChildKind::Syscall) {
        child.error_ns = child.total.sum_ns;
    }
    // One caller of four is as uncertain; the others are not.
    let caller = &mut function.callers[1];
    caller.figures.error.shorter = 1;
    caller.figures.error.sum_ns = 8_000;
    let text = text_of(&report);
    let note =
        format!("  4 calls (66.7 %) took less than their own error: {buckets}\n       ns            : count");
    assert!(text.contains(&note), "{text}");
    assert_eq!(text.matches(buckets).count(), 2, "{text}");
    assert_eq!(bounds_of_syscall(&text), 3, "{text}");
}

#[test]
fn no_counted_call_no_cpu_percent() {
    let mut report = whole_report();
    let function = &mut report.functions[0];
    *function =
        FunctionReport { calls: CallCounts { open_end: 1, ..CallCounts::default() }, ..empty_function() };
    let text = text_of(&report);
    assert!(text.contains("1 open at end") && !text.contains("CPU percent"), "{text}");
}

/// Each table has its heaviest rows, and says what it left out.
#[test]
fn text_of_the_heaviest_rows() {
    let heaviest = RowLimit { top: Some(2), min_share_percent: 0.5 };
    let mut out = vec![];
    text::write(&mut out, &View { table_rows: heaviest, ..view(&report()) }, 120).unwrap();
    check_golden("heaviest-rows.txt", &out);
}

/// A column of four figures said of three of them that they were what stood beside it.
#[test]
fn open_calls_that_change_no_figure_are_a_line() {
    let mut report = whole_report();
    let function = &mut report.functions[0];
    let max_ns = function.tails.at_least.max_ns;
    function.tails.at_least = Quantiles { max_ns, ..function.figures.error.low };
    function.tails.at_most = Quantiles { max_ns: None, ..function.figures.error.high };
    let text = text_of(&report);
    let lines = "  max      1.30 ms  1,300,000     16
  count: 6, total: 1.31 ms
  with the 4 calls not seen to end: max 9.00 ms or more, the other figures within their errors
  error of one latency: ";
    assert!(text.contains(lines) && !text.contains("with open calls"), "{text}");
}

/// p99.9 of four calls was their longest, once more.
#[test]
fn percentiles_need_as_many_calls_as_they_tell_apart() {
    let mut report = whole_report();
    let titles = [9, 10, 99, 100, 999, 1000].map(|count| {
        report.functions[0].figures.latency.count = count;
        let text = text_of(&report);
        let rows = ["\n  p50 ", "\n  p90 ", "\n  p99 ", "\n  p99.9 "];
        rows.map(|row| text.split("Children of").next().unwrap().contains(row))
    });
    let with = |p90, p99, p999| [true, p90, p99, p999];
    let some = [with(true, false, false), with(true, true, false)];
    assert_eq!(
        titles,
        [with(false, false, false), some[0], some[0], some[1], some[1], with(true, true, true)]
    );
}

#[test]
fn rounded_latencies_are_told() {
    let json_of = |report: &Report| {
        let mut out = vec![];
        json::write(&mut out, &view(report)).unwrap();
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()
    };
    let mut report = report();
    assert!(!text_of(&report).contains("rounded"));
    assert_eq!(json_of(&report)["functions"][0]["latency_ns"].get("rounded"), None);
    report.functions[0].figures.latency.rounded = true;
    let note = "more than 1,048,576 latencies are different: percentiles and stddev are of latencies rounded";
    assert!(text_of(&report).contains(note), "{}", text_of(&report));
    assert_eq!(json_of(&report)["functions"][0]["latency_ns"]["rounded"], true);
}
