//! The report's text, JSON and rows, held against `tests/goldens`. `UPDATE_GOLDENS=1` writes them anew: read
//! the diff.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod golden;
mod unknown;

use analyzer::histogram::histogram;
use analyzer::{
    CallCounts, CallId, CallRow, Caller, CallerReport, CauseLoss, ChildKind, ChildRow, CpuLoss, Cut,
    CutCause, ErrorBound, FunctionReport, GapPlace, Limits, Loss, OffCpuCauses, OpenCaller, OpenCalls, Place,
    Quantiles, Reason, ReasonRow, Report, RowChildren, RowReasons, RowSink, SortedDurations, Stats, Status,
    Tails, ThreadLoss, ToldBy, Total, TraceSummary, Untimed, Waker, WakerRow, WakerStackRow,
};
use func_latency::config::{RowsFile, RowsForm};
use func_latency::render::rows::{self, RowsWriter};
use func_latency::render::{Names, View, json, text};
use golden::check_golden;
use model::{
    AuxOffset, ClockOffsets, Cpu, FunctionId, GapCause, NoOffCpu, NoTimes, Ns, ObjectId, OffCpuSplit, Pid,
    Svma, Tid,
};
use unknown::without_switches;

const FUNCTIONS: [&str; 6] = [
    "[unknown]",
    "row_search_mvcc",
    "btr_pcur_open_with_no_init_func",
    "ha_innobase::index_read",
    "std::vector<std::pair<int, char>, std::allocator<std::pair<int, char> > >::operator[] with a name, \"long\"",
    "on_alarm",
];

struct FakeNames {
    lines: bool,
}

impl Names for FakeNames {
    fn function(&self, id: FunctionId) -> String {
        FUNCTIONS[id.0 as usize].to_owned()
    }

    fn object_of(&self, id: FunctionId) -> Option<String> {
        (id != FunctionId::UNKNOWN).then(|| self.object(ObjectId(0)))
    }

    fn object(&self, id: ObjectId) -> String {
        ["/usr/sbin/mysqld", "/usr/lib/libz.so.1"][id.0 as usize].to_owned()
    }

    fn site(&self, place: Place) -> String {
        format!("mysqld+{}", place.svma)
    }

    fn line(&self, place: Place) -> Option<String> {
        (self.lines && place.svma.0 != 0x30).then(|| format!("row0sel.cc:{}", place.svma.0))
    }
}

fn place(svma: u64) -> Option<Place> {
    Some(Place { object: ObjectId(0), svma: Svma(svma) })
}

fn child(kind: ChildKind, function: u32, svma: u64, count: u64, sum_ns: u64, off_cpu_ns: u64) -> ChildRow {
    ChildRow {
        kind,
        function: FunctionId(function),
        site: if svma == 0 { None } else { place(svma) },
        total: Total { count, sum_ns, off_cpu_ns: Some(off_cpu_ns) },
        error_ns: 0,
        cpu_percent: Some((sum_ns - off_cpu_ns) as f64 / 10_000.0),
    }
}

fn durations(values: &[u64]) -> SortedDurations {
    values.iter().copied().collect()
}

fn stats(values: &[u64]) -> Stats {
    Stats::of(&durations(values))
}

/// Of calls that are off by 7 ns at most, and the last by 16.
fn error(latency: &[u64]) -> ErrorBound {
    let errors = |i| if i + 1 == latency.len() { 16 } else { 7 };
    let calls = || latency.iter().enumerate().map(|(i, ns)| (*ns, errors(i)));
    let quantiles = |of: fn((u64, u64)) -> u64| Quantiles::of(&calls().map(of).collect(), 0);
    ErrorBound {
        sum_ns: calls().map(|(_, error)| error).sum(),
        max_ns: calls().map(|(_, error)| error).max().unwrap_or(0),
        shorter: calls().filter(|(ns, error)| ns < error).count() as u64,
        low: quantiles(|(ns, error)| ns - error),
        high: quantiles(|(ns, error)| ns + error),
    }
}

fn caller(
    caller: Caller,
    svma: u64,
    latency: &[u64],
    off_cpu: &[u64],
    children: &[ChildRow],
) -> CallerReport {
    CallerReport {
        caller,
        site: if svma == 0 { None } else { place(svma) },
        latency: stats(latency),
        off_cpu: Some(stats(off_cpu)),
        error: error(latency),
        histogram: histogram(&durations(latency), Some(&durations(off_cpu))),
        children: children.to_vec(),
    }
}

fn row(number: u64, status: Status, latency_ns: u64, off_cpu_ns: u64, from: Caller) -> CallRow {
    let known = from != Caller::Unknown;
    CallRow {
        id: CallId { tid: Tid(42), number },
        pid: Some(Pid(40)),
        tid: Tid(42),
        cpu: known.then_some(Cpu(3)),
        start_ns: Ns(5_133_313_694_755_869 + number),
        latency_ns,
        error_ns: 7,
        off_cpu_ns: Some(off_cpu_ns),
        status,
        cut_by: (status == Status::Cut)
            .then_some(Cut { cause: CutCause::Gap(GapCause::Overflow), cpu: Some(Cpu(3)) }),
        caller: from,
        site: if known { place(0x10) } else { None },
        function: FunctionId(1),
        depth: 0,
        ended_by_jump: false,
        hidden: false,
        undecided: status == Status::Cut,
        aux_buffer: known.then_some(2),
        aux_offset: Some(AuxOffset(0x1234)),
        probed: None,
    }
}

fn function() -> FunctionReport {
    let read = Caller::Function { function: FunctionId(3), tail: false };
    let long = Caller::Function { function: FunctionId(4), tail: true };
    let children = [
        child(ChildKind::Call, 2, 0x20, 3, 7_000, 0),
        child(ChildKind::Syscall, 0, 0x40, 1, 1_300_000, 1_250_000),
        child(ChildKind::Call, 2, 0x24, 2, 4_000, 0),
        child(ChildKind::Own, 0, 0, 6, 600, 0),
        child(ChildKind::Signal, 5, 0, 1, 450, 0),
        child(ChildKind::Tail, 4, 0x30, 2, 300, 0),
        child(ChildKind::Recursion, 1, 0x34, 1, 90, 0),
        child(ChildKind::Interrupt, 0, 0, 1, 80, 0),
    ];
    let latency = [40, 130, 150, 5_600, 6_600, 1_300_000];
    let off_cpu = [0, 0, 0, 0, 0, 1_250_000];
    let open = row(7, Status::OpenEnd, 9_000_000, 8_000_000, read);
    let cut = row(8, Status::Cut, 70, 0, Caller::Unknown);
    let complete = row(1, Status::Complete, 1_300_000, 1_250_000, Caller::Signal);
    FunctionReport {
        id: FunctionId(1),
        calls: CallCounts { complete: 5, unwound: 1, open_start: 1, open_end: 2, cut: 1 },
        ended_by_jump: 2,
        hidden: 0,
        undecided: 0,
        latency: stats(&latency),
        off_cpu: Some(stats(&off_cpu)),
        error: ErrorBound { shorter: 1, ..error(&latency) },
        tails: Tails {
            calls: 4,
            at_least: Quantiles::of(&durations(&[&latency[..], &[70, 90, 2_000, 9_000_000]].concat()), 0),
            at_most: Quantiles::of(&durations(&latency), 4),
        },
        outermost: Total { count: 5, sum_ns: 1_312_430, off_cpu_ns: Some(1_250_000) },
        cpu_percent: Some(404.04),
        histogram: histogram(&durations(&latency), Some(&durations(&off_cpu))),
        children: children.to_vec(),
        callers: vec![
            caller(read, 0x10, &latency[5..], &off_cpu[5..], &children[1..2]),
            caller(long, 0x18, &latency[3..4], &off_cpu[3..4], &children[..1]),
            caller(read, 0x14, &latency[..3], &off_cpu[..3], &children[3..5]),
            caller(Caller::Signal, 0, &latency[4..5], &off_cpu[4..5], &[]),
        ],
        off_cpu_causes: Some(causes()),
        longest_open: vec![open, cut],
        open: open_calls(read),
        rows: vec![complete, open, cut],
        row_children: RowChildren::default(),
        row_reasons: RowReasons::default(),
        overfull: None,
        sliced: None,
    }
}

/// An event loop that a gap has cut, and a call that was waiting at the end.
fn open_calls(caller: Caller) -> OpenCalls {
    let total = |count, sum_ns, off_cpu_ns| Total { count, sum_ns, off_cpu_ns };
    let site = Some(Place { object: ObjectId(0), svma: Svma(0x10) });
    OpenCalls {
        observed: total(2, 9_500_000, Some(8_000_000)),
        resumed: total(1, 400_000, Some(0)),
        children: vec![
            child(ChildKind::Syscall, 0, 0x40, 3, 8_200_000, 8_000_000),
            child(ChildKind::Call, 2, 0x20, 12, 1_290_000, 0),
            child(ChildKind::Own, 0, 0, 2, 10_000, 0),
        ],
        callers: vec![
            OpenCaller { caller, site, observed: total(1, 9_000_000, Some(8_000_000)) },
            OpenCaller { caller: Caller::Unknown, site: None, observed: total(1, 500_000, Some(0)) },
        ],
        overfull: None,
    }
}

fn causes() -> OffCpuCauses {
    let split = |blocked_ns, runnable_ns, preempted_ns| OffCpuSplit { blocked_ns, runnable_ns, preempted_ns };
    let reason = |reason, count, split| ReasonRow { reason, count, split };
    let thread = Waker::Thread { pid: Pid(70), tid: Tid(77), name: "flusher".to_owned() };
    let from = WakerStackRow { functions: vec![FunctionId(2), FunctionId(1)], count: 2, blocked_ns: 900_000 };
    OffCpuCauses {
        told_by: ToldBy::Scheduler,
        split: split(1_100_000, 100_000, 50_000),
        reasons: vec![
            reason(Reason::Syscall(74), 3, split(1_000_000, 90_000, 0)),
            reason(Reason::Kernel("folio_wait_bit_common".to_owned()), 1, split(100_000, 10_000, 0)),
            reason(Reason::Preempted, 2, split(0, 0, 50_000)),
        ],
        wakers: vec![
            WakerRow { waker: thread, count: 3, blocked_ns: 1_000_000, stacks: vec![from] },
            WakerRow { waker: Waker::Interrupt, count: 1, blocked_ns: 100_000, stacks: vec![] },
        ],
    }
}

fn empty_function() -> FunctionReport {
    FunctionReport {
        id: FunctionId(2),
        calls: CallCounts::default(),
        ended_by_jump: 0,
        hidden: 0,
        undecided: 0,
        latency: stats(&[]),
        off_cpu: Some(stats(&[])),
        error: ErrorBound::default(),
        tails: Tails::default(),
        outermost: Total::default(),
        cpu_percent: Some(0.0),
        histogram: vec![],
        children: vec![],
        callers: vec![],
        off_cpu_causes: None,
        longest_open: vec![],
        open: OpenCalls::default(),
        rows: vec![],
        row_children: RowChildren::default(),
        row_reasons: RowReasons::default(),
        overfull: None,
        sliced: None,
    }
}

fn report() -> Report {
    let cause = |cause, count, bytes, lost_ns, calls, tid| CauseLoss {
        cause,
        count,
        bytes,
        lost_ns,
        calls,
        first: GapPlace { time: Ns(5_133_313_694_000_500), tid: Tid(tid), at: AuxOffset(0x12f0) },
    };
    let missing = GapCause::MissingCode { object: ObjectId(1) };
    let by_cause =
        vec![cause(GapCause::Overflow, 3, 0, 8_000, 1, 42), cause(missing, 2, 1_200_000, 4_000, 0, 42)];
    let unowned = vec![cause(GapCause::NoSync, 1, 4_096, 0, 0, -1)];
    Report {
        trace: TraceSummary {
            window: (Ns(5_133_313_694_000_000), Ns(5_133_314_694_000_000)),
            span_ns: 1_000_000_000,
            threads: 2,
            events: 12_345,
            no_times: None,
            no_off_cpu: None,
        },
        loss: Loss {
            overflows: 3,
            truncated: 1,
            errors: 0,
            lost_ns: 12_000,
            coverage: 0.999_993_333,
            by_cause: [&by_cause[..], &unowned].concat(),
            threads: vec![
                ThreadLoss {
                    tid: Tid(42),
                    window_ns: 1_000_000_000,
                    observed_ns: 999_988_000,
                    lost_ns: 12_000,
                    outside_ns: Some(300_000_000),
                    by_cause: by_cause.clone(),
                },
                ThreadLoss {
                    tid: Tid(43),
                    window_ns: 800_000_000,
                    observed_ns: 800_000_000,
                    lost_ns: 0,
                    outside_ns: Some(0),
                    by_cause: vec![],
                },
            ],
            cpus: vec![
                CpuLoss { cpu: None, by_cause: unowned.clone() },
                CpuLoss { cpu: Some(Cpu(3)), by_cause },
            ],
            unowned,
            untimed: Untimed { count: 1, bytes: 4_096 },
        },
        functions: vec![function(), empty_function()],
        limits: Limits { stack_switches: 4, ..Limits::default() },
    }
}

fn whole_report() -> Report {
    let mut report = report();
    report.loss = Loss { coverage: 1.0, ..Loss::default() };
    report.limits = Limits::default();
    report.functions.truncate(1);
    without_switches(report)
}

/// A report of counts.
fn without_times() -> Report {
    let mut report = without_switches(report());
    report.trace.no_times = Some(NoTimes::NoTscPackets);
    report.trace.no_off_cpu = Some(NoOffCpu::NoTimes);
    report
}

fn check_text(name: &str, report: &Report, srcline: bool, unfold: bool, width: usize) {
    let problems = ["/usr/lib/libz.so.1 is missing (looked for /usr/lib/libz.so.1)".to_owned()];
    let only = ["that start from 5 to 9 ns (--ti)".to_owned(), "of 100 ns or more (--li)".to_owned()];
    let view = View {
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: Some(321),
        report,
        names: &FakeNames { lines: srcline },
        input: "perf.data",
        aux_bytes: 52_100_000,
        decoder: "func_latency",
        inlined: &[Some(17), Some(0)],
        only: if unfold { &only } else { &[] },
        problems: if report.loss.coverage < 1.0 { &problems } else { &[] },
        srcline,
        unfold,
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

/// It said "0 ns +- 0" of each call.
#[test]
fn text_without_times_has_counts_alone() {
    check_text("no-times.txt", &without_times(), false, false, 120);
    let mut out = vec![];
    text::write(&mut out, &json_view(&without_times()), 120).unwrap();
    let text = String::from_utf8(out).unwrap();
    for time in [" us", "0 ns", "average", "total", "CPU %"] {
        assert!(!text.contains(time), "{time}: {text}");
    }
}

#[test]
fn text_folded_with_lines_without_loss_and_switches() {
    check_text("whole-srcline.txt", &whole_report(), true, false, 100);
}

/// "exact, ns" stood over latencies whose error bound was greater than they.
#[test]
fn no_latency_is_called_exact() {
    let view = View {
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: None,
        report: &report(),
        names: &FakeNames { lines: false },
        input: "perf.data",
        aux_bytes: 0,
        decoder: "func_latency",
        inlined: &[],
        only: &[],
        problems: &[],
        srcline: false,
        unfold: false,
    };
    let mut out = vec![];
    text::write(&mut out, &view, 120).unwrap();
    let text = String::from_utf8(out).unwrap();
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
        if site.latency.spread.as_ref().is_some_and(|spread| spread.max_ns == 1_300_000) {
            let above = Some(2_100_000);
            site.error = ErrorBound { sum_ns: 800_000, max_ns: 800_000, ..site.error };
            site.error.high = Quantiles { min_ns: above, max_ns: above, ..site.error.high };
        }
    }
    let view = View {
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: None,
        report: &report,
        names: &FakeNames { lines: false },
        input: "perf.data",
        aux_bytes: 0,
        decoder: "func_latency",
        inlined: &[],
        only: &[],
        problems: &[],
        srcline: false,
        unfold: false,
    };
    let mut out = vec![];
    text::write(&mut out, &view, 120).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("count: 4, average: 300 us, min: 40 ns, max: 1.3 ms ("), "{text}");
    assert!(text.contains("ha_innobase::index_read (2 sites)   300 us  "), "{text}");
}

/// Tables of children had averages of 30 ns under calls of which only "< 2 us" was known.
#[test]
fn errors_as_large_as_the_figures_stand_at_histogram_and_children() {
    let mut report = whole_report();
    let text = |report: &Report| {
        let view = View {
            clock_offsets: ClockOffsets::default(),
            sched_apart_ns: None,
            report,
            names: &FakeNames { lines: false },
            input: "perf.data",
            aux_bytes: 0,
            decoder: "func_latency",
            inlined: &[],
            only: &[],
            problems: &[],
            srcline: false,
            unfold: false,
        };
        let mut out = vec![];
        text::write(&mut out, &view, 120).unwrap();
        String::from_utf8(out).unwrap()
    };
    let buckets = "which bucket is theirs is not certain";
    let certain = text(&report);
    // Average, total and share.
    let bounds_of_syscall = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("  [syscall] ")).unwrap();
        row.matches("< ").count()
    };
    assert_eq!((bounds_of_syscall(&certain), certain.contains(buckets)), (0, false), "{certain}");
    let function = &mut report.functions[0];
    function.error.shorter = 4;
    function.error.sum_ns = function.latency.sum_ns;
    for child in function.children.iter_mut().filter(|child| child.kind == ChildKind::Syscall) {
        child.error_ns = child.total.sum_ns;
    }
    // One caller of four is as uncertain; the others are not.
    let caller = &mut function.callers[1];
    caller.error.shorter = 1;
    caller.error.sum_ns = 8_000;
    let text = text(&report);
    let note = format!(
        "  4 calls (66.7 %) took less than their own error: {buckets}\n            ns                 : count"
    );
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
    let view = View {
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: None,
        report: &report,
        names: &FakeNames { lines: false },
        input: "perf.data",
        aux_bytes: 0,
        decoder: "func_latency",
        inlined: &[],
        only: &[],
        problems: &[],
        srcline: false,
        unfold: false,
    };
    let mut out = vec![];
    text::write(&mut out, &view, 120).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("1 open at end") && !text.contains("CPU percent"), "{text}");
}

#[test]
fn json_report() {
    check_json("report.json", &report());
}

/// Unknown was 0 in sums and counts, and CPU percent was that of all time, asleep or not.
#[test]
fn json_without_switch_records_has_null() {
    check_json("report-no-switches.json", &without_switches(report()));
}

/// Each latency was 0.
#[test]
fn json_without_times_has_null_and_a_reason() {
    check_json("report-no-times.json", &without_times());
}

fn check_json(name: &str, report: &Report) {
    let mut out = vec![];
    let problems = &["/usr/lib/libz.so.1 is missing".to_owned()];
    json::write(&mut out, &View { problems, ..json_view(report) }).unwrap();
    check_golden(name, &out);
}

fn json_view(report: &Report) -> View<'_> {
    View {
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: None,
        report,
        names: &FakeNames { lines: true },
        input: "perf.data",
        aux_bytes: 52_100_000,
        decoder: "func_latency",
        inlined: &[Some(17)],
        only: &[],
        problems: &[],
        srcline: true,
        unfold: false,
    }
}

#[test]
fn rows_in_both_forms() {
    let mut report = report();
    // A name that CSV must quote.
    report.functions[0].rows[1].caller = Caller::Function { function: FunctionId(4), tail: true };
    for (name, form) in [("rows.jsonl", RowsForm::JsonLines), ("rows.csv", RowsForm::Csv)] {
        let mut out = vec![];
        rows::write(&mut out, form, &report, &FakeNames { lines: false }).unwrap();
        check_golden(name, &out);
    }
}

/// It was 0.
#[test]
fn rows_without_switch_records_say_no_off_cpu_time() {
    let report = without_switches(report());
    let count = report.functions[0].rows.len();
    let written = |form| {
        let mut out = vec![];
        rows::write(&mut out, form, &report, &FakeNames { lines: false }).unwrap();
        String::from_utf8(out).unwrap()
    };
    let lines = written(RowsForm::JsonLines);
    assert_eq!(lines.matches("\"off_cpu_ns\":null,").count(), count, "{lines}");
    let csv = written(RowsForm::Csv);
    let cells: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').nth(6)).collect();
    assert_eq!(cells, vec![Some(""); count], "{csv}");
}

/// However few of them there is room for, and whatever the order in which the calls ended.
#[test]
fn rows_that_wait_on_disk_are_the_same() {
    let mut report = report();
    let function = report.functions[0].clone();
    report.functions.push(FunctionReport { rows: function.rows[1..].to_vec(), ..function });
    let directory = tempfile::tempdir().unwrap();
    let names = FakeNames { lines: false };
    for (name, form) in [("rows.jsonl", RowsForm::JsonLines), ("rows.csv", RowsForm::Csv)] {
        let mut in_memory = vec![];
        rows::write(&mut in_memory, form, &report, &names).unwrap();
        let target = RowsFile { path: directory.path().join(name), form };
        for bound in [0, 700, 1 << 20] {
            let mut writer = RowsWriter::with_bound(&target, &names, bound);
            for (number, function) in report.functions.iter().enumerate().rev() {
                function.rows.iter().rev().for_each(|row| writer.row(number, row, None));
            }
            writer.finish().unwrap();
            assert_eq!(std::fs::read(&target.path).unwrap(), in_memory, "{name}, {bound}");
        }
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2); // nothing else has stayed
}
