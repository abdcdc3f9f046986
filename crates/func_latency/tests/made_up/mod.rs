//! A report of calls that were never made, with a cause for the slow ones: what draws calls is tested with
//! it.
//!
//! ```text
//! 8 threads, 4 call sites, children `lookup` and sometimes `copy`, and `buf_page_get` at three sites
//! in thread 1003, from 40 to 45 % of the time, one call in four waits in `fsync`: off its CPU, and it takes
//!     a hundred times as long
//! one call in a thousand is slow for nothing; the last ones of some threads did not end
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use analyzer::{
    CallCounts, CallEnd, CallFigures, CallId, CallRow, CalledFrom, Caller, ChildKey, ChildKind, Evidence,
    FunctionReport, Loss, OpenCalls, OutermostCalls, Place, ProbedRow, Report, RowChild, RowDetails,
    SliceKind, Sliced, Stats, Status, Total, TraceSummary, TracedRow,
};
use func_latency::render::row_limit::RowLimit;
use func_latency::render::{Names, View};
use model::{AuxOffset, ClockOffsets, Cpu, FunctionId, Ns, ObjectId, Pid, Svma, Tid};

/// When the recording begins.
pub(crate) const BEGIN_NS: u64 = 5_133_313_694_755_869;

/// How long it is.
pub(crate) const SPAN_NS: u64 = 2_000_000_000;

const THREADS: u64 = 8;
const SLOW_THREAD: u64 = 3;

pub(crate) const FUNCTIONS: [&str; 10] = [
    "[unknown]",
    "row_search_mvcc",
    "ha_innobase::index_read",
    "ha_innobase::general_fetch(</script><img src=x onerror=alert(1)>)",
    "lookup",
    "copy",
    "fsync",
    "buf_page_get",
    "main_loop",
    "reload(\"'\u{202e}daoler\u{7}&lt;)",
];

/// Names of it; two of them are hostile.
pub(crate) struct MadeUpNames;

impl Names for MadeUpNames {
    fn function(&self, id: FunctionId) -> String {
        FUNCTIONS[id.0 as usize].to_owned()
    }

    fn object_of(&self, _: FunctionId) -> Option<String> {
        Some("/usr/sbin/mysqld".to_owned())
    }

    fn object(&self, _: ObjectId) -> String {
        "/usr/sbin/mysqld".to_owned()
    }

    fn site(&self, place: Place) -> String {
        format!("mysqld+{}", place.svma)
    }

    fn line(&self, _: Place) -> Option<String> {
        None
    }
}

/// Dice that give the same numbers on every run.
struct Dice(u64);

impl Dice {
    /// From 0 to below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Around `middle`, half to double, with a short tail.
    fn around(&mut self, middle: u64) -> u64 {
        let spread = 1 << (self.roll(1024).trailing_ones() / 2);
        middle / 2 + self.roll(middle) + self.roll(middle * spread / 8 + 1)
    }
}

/// A report of one function with `calls` calls.
pub(crate) fn report(calls: u64) -> Report {
    let mut dice = Dice(7);
    let mut numbers = [0; THREADS as usize];
    let mut function = FunctionReport { id: FunctionId(1), ..no_calls() };
    let children = [(4, 0x40), (5, 0x50), (6, 0x60), (7, 0x70), (7, 0x74), (7, 0x78)];
    function.row_details.children.keys = children.map(|(function, svma)| child_key(function, svma)).to_vec();
    for call in 0..calls {
        let start = SPAN_NS / 50 + call * (SPAN_NS / calls / 100 * 96) + dice.roll(50);
        let thread = dice.roll(THREADS);
        let waits = thread == SLOW_THREAD && (40..45).contains(&(100 * start / SPAN_NS)) && dice.roll(4) == 0;
        // What is left of the recording is less than it would take.
        let is_open = call + 3 >= calls;
        let (row, children) = one_call(&mut dice, (thread, numbers[thread as usize]), start, waits, is_open);
        numbers[thread as usize] += 1;
        function.rows.push(row);
        function.row_details.children.push(&children);
    }
    let counted = function.rows.iter().filter(|row| row.end.status.counted());
    function.figures.latency = Stats::of(&counted.map(|row| row.latency_ns).collect());
    function.calls.complete = function.figures.latency.count;
    function.calls.open_end = calls - function.figures.latency.count;
    Report {
        trace: TraceSummary {
            window: (Ns(BEGIN_NS), Ns(BEGIN_NS + SPAN_NS)),
            span_ns: SPAN_NS,
            threads: THREADS,
            events: 10 * calls,
            no_times: None,
            no_off_cpu: None,
        },
        loss: Loss { coverage: 0.9991, ..Loss::default() },
        functions: vec![function],
        ..Report::default()
    }
}

/// A report of no call.
pub(crate) fn no_calls() -> FunctionReport {
    FunctionReport {
        id: FunctionId(1),
        calls: CallCounts::default(),
        figures: CallFigures { off_cpu: Some(Stats::default()), ..CallFigures::default() },
        tails: Default::default(),
        outermost: OutermostCalls { cpu_percent: Some(0.0), ..OutermostCalls::default() },
        callers: vec![],
        open: OpenCalls::default(),
        rows: vec![],
        off_cpu_causes: None,
        row_details: RowDetails::default(),
        overfull: None,
        sliced: None,
    }
}

fn child_key(function: u32, svma: u64) -> ChildKey {
    ChildKey { kind: ChildKind::Call, function: FunctionId(function), site: place(svma) }
}

fn place(svma: u64) -> Option<Place> {
    Some(Place { object: ObjectId(0), svma: Svma(svma) })
}

/// Makes calls such as probes have timed: those that were off the CPU began while children were probed.
pub(crate) fn probed(mut report: Report) -> Report {
    let function = &mut report.functions[0];
    for row in &mut function.rows {
        let off_cpu_ns = row.off_cpu_ns.unwrap();
        let began = if off_cpu_ns > 0 { SliceKind::WithChildren } else { SliceKind::Alone };
        row.evidence = Evidence::Probed(ProbedRow::exact(row.latency_ns, off_cpu_ns, began));
    }
    function.sliced = Some(Sliced {
        figures_of: SliceKind::Alone,
        figures_span_ns: SPAN_NS / 2,
        children_calls: 1,
        children_mean_ns: None,
        children_span_ns: SPAN_NS / 2,
    });
    report
}

/// How far off each child of a call may be.
pub(crate) const CHILD_ERROR_NS: u64 = 30;

fn one_call(
    dice: &mut Dice,
    (thread, number): (u64, u64),
    start: u64,
    waits: bool,
    is_open: bool,
) -> (CallRow, Vec<RowChild>) {
    let slow = if dice.roll(1000) == 0 { 30 } else { 1 };
    let lookup = dice.around(900) * slow;
    let copy = (dice.roll(3) == 0).then(|| dice.around(4_000));
    let fsync = waits.then(|| dice.around(300_000));
    let pages = [(); 3].map(|()| Some(dice.around(20)));
    let children: Vec<RowChild> = [Some(lookup), copy, fsync]
        .into_iter()
        .chain(pages)
        .zip(0..)
        .filter_map(|(ns, key)| {
            let off_cpu_ns = Some(if key == 2 { ns? - 5_000 } else { 0 });
            let total = Total { count: 1, sum_ns: ns?, off_cpu_ns };
            Some(RowChild { key, total, error_ns: CHILD_ERROR_NS, work: None })
        })
        .collect();
    let inside: u64 = children.iter().map(|child| child.total.sum_ns).sum();
    let caller = if dice.roll(5) == 0 { 3 } else { 2 };
    let tid = Tid(1000 + thread as i32);
    let row = CallRow {
        id: CallId { tid, number },
        pid: Some(Pid(70)),
        cpu: Some(Cpu(dice.roll(4) as u32)),
        start_ns: Ns(BEGIN_NS + start),
        latency_ns: if is_open { 9_000_000 } else { inside + dice.around(200) },
        error_ns: 5 + dice.roll(20),
        off_cpu_ns: Some(fsync.map_or(0, |ns| ns - 5_000)),
        end: CallEnd::of(if is_open { Status::OpenEnd } else { Status::Complete }),
        from: CalledFrom {
            caller: Caller::Function { function: FunctionId(caller), tail: false },
            site: place(0x100 + u64::from(caller) + dice.roll(2)),
        },
        function: FunctionId(1),
        depth: 0,
        evidence: Evidence::Traced(TracedRow {
            aux_buffer: Some(0),
            aux_offset: AuxOffset(start),
            ..TracedRow::default()
        }),
    };
    (row, children)
}

/// A view of it.
pub(crate) fn view(report: &Report) -> View<'_> {
    View {
        report,
        names: &MadeUpNames,
        input: "perf.data",
        aux_bytes: 0,
        decoder: "func_latency",
        clock_offsets: ClockOffsets::default(),
        sched_apart_ns: None,
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
