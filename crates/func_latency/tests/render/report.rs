//! A report that is made up, with some of everything.

use analyzer::histogram::histogram;
use analyzer::{
    CallCounts, CallEnd, CallFigures, CallId, CallRow, CalledFrom, Caller, CallerReport, CauseLoss,
    ChildKind, ChildRow, CpuLoss, Cut, CutCause, ErrorBound, Evidence, FunctionReport, GapPlace, Limits,
    Loss, OffCpuCauses, OpenCaller, OpenCalls, OutermostCalls, Place, Quantiles, Reason, ReasonRow, Report,
    RowDetails, SortedDurations, Stats, Status, Tails, ThreadLoss, ToldBy, Total, TraceSummary, TracedRow,
    Untimed, Waker, WakerRow, WakerStackRow,
};
use func_latency::render::row_limit::RowLimit;
use func_latency::render::{Names, View};
use model::{
    AuxOffset, ClockOffsets, Cpu, FunctionId, GapCause, NoOffCpu, NoTimes, Ns, ObjectId, OffCpuSplit, Pid,
    Svma, Tid,
};

use super::unknown::without_switches;

pub(crate) const FUNCTIONS: [&str; 6] = [
    "[unknown]",
    "row_search_mvcc",
    "btr_pcur_open_with_no_init_func",
    "ha_innobase::index_read",
    "std::vector<std::pair<int, char>, std::allocator<std::pair<int, char> > >::operator[] with a name, \"long\"",
    "on_alarm",
];

pub(crate) struct FakeNames {
    pub(crate) lines: bool,
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

pub(crate) fn place(svma: u64) -> Option<Place> {
    Some(Place { object: ObjectId(0), svma: Svma(svma) })
}

pub(crate) fn child(
    kind: ChildKind,
    function: u32,
    svma: u64,
    count: u64,
    sum_ns: u64,
    off_cpu_ns: u64,
) -> ChildRow {
    ChildRow {
        kind,
        function: FunctionId(function),
        site: if svma == 0 { None } else { place(svma) },
        total: Total { count, sum_ns, off_cpu_ns: Some(off_cpu_ns) },
        error_ns: 0,
        cpu_percent: Some((sum_ns - off_cpu_ns) as f64 / 10_000.0),
        counted: None,
    }
}

pub(crate) fn durations(values: &[u64]) -> SortedDurations {
    values.iter().copied().collect()
}

pub(crate) fn stats(values: &[u64]) -> Stats {
    Stats::of(&durations(values))
}

/// Of calls that are off by 7 ns at most, and the last by 16.
pub(crate) fn error(latency: &[u64]) -> ErrorBound {
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

pub(crate) fn caller(
    caller: Caller,
    svma: u64,
    latency: &[u64],
    off_cpu: &[u64],
    children: &[ChildRow],
) -> CallerReport {
    CallerReport {
        from: CalledFrom { caller, site: if svma == 0 { None } else { place(svma) } },
        figures: figures(latency, off_cpu, children),
    }
}

fn figures(latency: &[u64], off_cpu: &[u64], children: &[ChildRow]) -> CallFigures {
    CallFigures {
        latency: stats(latency),
        off_cpu: Some(stats(off_cpu)),
        error: error(latency),
        histogram: histogram(&durations(latency), Some(&durations(off_cpu))),
        children: children.to_vec(),
        counters: None,
    }
}

pub(crate) fn row(number: u64, status: Status, latency_ns: u64, off_cpu_ns: u64, from: Caller) -> CallRow {
    let known = from != Caller::Unknown;
    CallRow {
        id: CallId { tid: Tid(42), number },
        pid: Some(Pid(40)),
        cpu: known.then_some(Cpu(3)),
        start_ns: Ns(5_133_313_694_755_869 + number),
        latency_ns,
        error_ns: 7,
        off_cpu_ns: Some(off_cpu_ns),
        end: CallEnd {
            cut_by: (status == Status::Cut)
                .then_some(Cut { cause: CutCause::Gap(GapCause::Overflow), cpu: Some(Cpu(3)) }),
            undecided: status == Status::Cut,
            ..CallEnd::of(status)
        },
        from: CalledFrom { caller: from, site: if known { place(0x10) } else { None } },
        function: FunctionId(1),
        depth: 0,
        evidence: Evidence::Traced(TracedRow {
            aux_buffer: known.then_some(2),
            aux_offset: AuxOffset(0x1234),
            ..TracedRow::default()
        }),
    }
}

pub(crate) fn function() -> FunctionReport {
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
        calls: CallCounts {
            complete: 5,
            unwound: 1,
            open_start: 1,
            open_end: 2,
            cut: 1,
            ended_by_jump: 2,
            ..CallCounts::default()
        },
        figures: CallFigures {
            error: ErrorBound { shorter: 1, ..error(&latency) },
            ..figures(&latency, &off_cpu, &children)
        },
        tails: Tails {
            calls: 4,
            at_least: Quantiles::of(&durations(&[&latency[..], &[70, 90, 2_000, 9_000_000]].concat()), 0),
            at_most: Quantiles::of(&durations(&latency), 4),
        },
        outermost: OutermostCalls {
            total: Total { count: 5, sum_ns: 1_312_430, off_cpu_ns: Some(1_250_000) },
            error_ns: error(&latency).sum_ns,
            cpu_percent: Some(404.04),
        },
        callers: vec![
            caller(read, 0x10, &latency[5..], &off_cpu[5..], &children[1..2]),
            caller(long, 0x18, &latency[3..4], &off_cpu[3..4], &children[..1]),
            caller(read, 0x14, &latency[..3], &off_cpu[..3], &children[3..5]),
            caller(Caller::Signal, 0, &latency[4..5], &off_cpu[4..5], &[]),
        ],
        off_cpu_causes: Some(causes()),
        open: OpenCalls { longest: vec![open, cut], ..open_calls(read) },
        rows: vec![complete, open, cut],
        row_details: RowDetails::default(),
        overfull: None,
        sliced: None,
    }
}

/// An event loop that a gap has cut, and a call that was waiting at the end.
pub(crate) fn open_calls(caller: Caller) -> OpenCalls {
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
            OpenCaller { from: CalledFrom { caller, site }, observed: total(1, 9_000_000, Some(8_000_000)) },
            OpenCaller { from: CalledFrom::UNKNOWN, observed: total(1, 500_000, Some(0)) },
        ],
        longest: vec![],
        overfull: None,
    }
}

pub(crate) fn causes() -> OffCpuCauses {
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

pub(crate) fn empty_function() -> FunctionReport {
    FunctionReport {
        id: FunctionId(2),
        calls: CallCounts::default(),
        figures: CallFigures { off_cpu: Some(Stats::default()), ..CallFigures::default() },
        tails: Tails::default(),
        outermost: OutermostCalls { cpu_percent: Some(0.0), ..OutermostCalls::default() },
        callers: vec![],
        off_cpu_causes: None,
        open: OpenCalls::default(),
        rows: vec![],
        row_details: RowDetails::default(),
        overfull: None,
        sliced: None,
    }
}

pub(crate) fn report() -> Report {
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

pub(crate) fn whole_report() -> Report {
    let mut report = report();
    report.loss = Loss { coverage: 1.0, ..Loss::default() };
    report.limits = Limits::default();
    report.functions.truncate(1);
    without_switches(report)
}

/// A report of counts.
pub(crate) fn without_times() -> Report {
    let mut report = without_switches(report());
    report.trace.no_times = Some(NoTimes::NoTscPackets);
    report.trace.no_off_cpu = Some(NoOffCpu::NoTimes);
    report
}

/// A view of the report, without source lines.
pub(crate) fn view(report: &Report) -> View<'_> {
    View {
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: None,
        report,
        names: &FakeNames { lines: false },
        input: "perf.data",
        aux_bytes: 52_100_000,
        decoder: "func_latency",
        inlined: &[],
        only: &[],
        problems: &[],
        srcline: false,
        unfold: false,
        table_rows: RowLimit::default(),
        by: None,
        code_blocks: &[],
    }
}
