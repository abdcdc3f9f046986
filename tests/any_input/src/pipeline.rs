//! From a recording to a report, and what must hold on the way whatever is in it.

use analyzer::branch_path::{BranchPath, BranchRecorder};
use analyzer::ledger::{Parts, Side};
use analyzer::{
    Analysis, CallRow, CallTree, CheckedAnalysis, ChildKey, Ledger, Report, Request, Step, Surroundings,
    TreeSink, Trees, Violation,
};
use decoder::{Context, DecodeOptions, DecodeStats, OwnDecoder, decode, decode_digested};
use image::Image;
use model::{AuxOwner, EventSink, FunctionId, Pid, Recording, Schedule, SpaceId, Tid, TraceEvent};

/// Decodes and analyses a recording with one worker and with two, of which the second looks at the trees of
/// calls, too.
///
/// # Panics
/// If they differ, or contradict themselves: [`analyzer::check`], [`Sums`].
pub(crate) fn check(recording: &Recording<'_>, image: &Image, functions: &[FunctionId], segment_bytes: u64) {
    let schedule = Schedule::new(&recording.sideband);
    let around = Surroundings::of(recording, &schedule, image);
    let request = Request { functions: functions.to_vec(), ..Request::default() };
    let run = |workers, analysis| Run::new(recording, &schedule, image, analysis, workers, segment_bytes);
    let one = run(1, CheckedAnalysis::new(&request, around));
    let mut sums = Sums::new(&schedule, functions);
    let two = run(2, CheckedAnalysis::with_trees(&request, around, &mut sums));
    assert_eq!(one.stats, two.stats);
    assert_eq!(one.seen, two.seen);
    assert_eq!(one.report, two.report);
    assert_eq!(one.violations, []);
    sums.check_ledger();
    check_branches(&one, image);
    let report = |workers| {
        report(recording, &schedule, image, Analysis::new(&request, around), workers, segment_bytes)
    };
    assert_eq!(report(1), report(3));
}

/// With three workers calls are analysed ahead of their turn.
fn report(
    recording: &Recording<'_>,
    schedule: &Schedule,
    image: &Image,
    mut analysis: Analysis<'_>,
    workers: usize,
    segment_bytes: u64,
) -> Report {
    let digester = analysis.digester();
    let context = Context::new(recording, schedule, image, false);
    let options = DecodeOptions { workers, segment_bytes, ..DecodeOptions::default() };
    let decoder = Box::<OwnDecoder>::default();
    decode_digested(decoder, &context, &options, &|_| (), digester.as_ref(), &mut analysis);
    analysis.finish()
}

struct Run {
    stats: DecodeStats,
    seen: Vec<(Pid, Tid, SpaceId, TraceEvent)>,
    report: Report,
    violations: Vec<Violation>,
}

impl Run {
    fn new(
        recording: &Recording<'_>,
        schedule: &Schedule,
        image: &Image,
        analysis: CheckedAnalysis<'_>,
        workers: usize,
        segment_bytes: u64,
    ) -> Self {
        let mut sink = Both { seen: vec![], analysis };
        let options =
            DecodeOptions { workers, all_branches: true, segment_bytes, ..DecodeOptions::default() };
        let stats = decode(recording, schedule, image, image, &options, &|_| (), &mut sink);
        let (report, violations) = sink.analysis.finish();
        Self { stats, seen: sink.seen, report, violations }
    }
}

/// Each part of a call's time is of one node of its tree, and in one row of a ledger.
struct Sums<'a> {
    schedule: &'a Schedule,
    /// The ledger compares odd calls of this function with even ones.
    function: Option<FunctionId>,
    ledger: Ledger<ChildKey>,
    latencies_ns: (u64, u64),
    calls: u64,
}

impl<'a> Sums<'a> {
    fn new(schedule: &'a Schedule, functions: &[FunctionId]) -> Self {
        let function = functions.first().copied();
        Self { schedule, function, ledger: Ledger::default(), latencies_ns: (0, 0), calls: 0 }
    }

    fn check_ledger(&self) {
        let Some(comparison) = self.ledger.compare() else { return };
        assert_eq!(comparison.sums_ns, self.latencies_ns);
        let rows = &comparison.rows;
        assert_eq!(rows.iter().map(|row| row.difference.ns).sum::<i64>(), comparison.difference.ns);
        assert_eq!(rows.iter().map(|row| row.sums_ns.0).sum::<u64>(), self.latencies_ns.0);
        assert_eq!(rows.iter().map(|row| row.sums_ns.1).sum::<u64>(), self.latencies_ns.1);
        rows.iter().for_each(|row| assert!(!self.ledger.descend(row).levels.is_empty()));
    }
}

impl TreeSink for Sums<'_> {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let own_ns: u64 = tree.walk().map(|step| step.own.sum_ns).sum();
        assert_eq!(own_ns, call.latency_ns, "{call:?}");
        let off_cpu_ns: Option<u64> = tree.walk().map(|step| step.own.off_cpu_ns).sum();
        assert_eq!(off_cpu_ns, call.off_cpu_ns, "{call:?}");
        if Some(call.function) != self.function {
            return;
        }
        self.calls += 1;
        let (side, sum_ns) = match self.calls % 2 {
            0 => (Side::Base, &mut self.latencies_ns.1),
            _ => (Side::These, &mut self.latencies_ns.0),
        };
        *sum_ns += call.latency_ns;
        let spent = |step: &Step<'_>| Parts::of(step, call.id.tid, self.schedule);
        self.ledger.add(Some(side), tree, spent, |node| node.key());
    }
}

/// The branches of the first calls: those that a call has in common with itself are all, and there it does
/// not part.
fn check_branches(run: &Run, image: &Image) {
    let Some(rows) = run.report.functions.first().map(|function| &function.rows) else { return };
    let rows: Vec<CallRow> = rows.iter().take(8).copied().collect();
    let mut recorder: BranchRecorder<'_, BranchPath> = BranchRecorder::new(&rows, image);
    for (pid, tid, space, event) in &run.seen {
        recorder.events(*pid, *tid, *space, &[*event]);
    }
    let paths: Vec<_> = recorder.finish().into_iter().flatten().collect();
    for (path, next) in paths.iter().zip(paths.iter().skip(1)) {
        assert_eq!((path.parts_from(path), path.other_trips(&[path]).len()), (None, 0));
        assert_eq!(path.common(next), next.common(path));
        assert_eq!(
            path.parts_from(next).map(|parting| parting.at),
            next.parts_from(path).map(|parting| parting.at)
        );
    }
}

/// All events, kept and analysed.
struct Both<'a> {
    seen: Vec<(Pid, Tid, SpaceId, TraceEvent)>,
    analysis: CheckedAnalysis<'a>,
}

impl EventSink for Both<'_> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.seen.extend(events.iter().map(|event| (pid, tid, space, *event)));
        self.analysis.events(pid, tid, space, events);
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        self.analysis.overflows(owner, count);
    }
}
