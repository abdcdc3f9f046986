//! From a recording to a report, and what must hold on the way whatever is in it.

use analyzer::{
    CallRow, CallTree, CheckedAnalysis, Report, Request, Surroundings, TreeSink, Trees, Violation,
};
use decoder::{DecodeOptions, DecodeStats, decode};
use image::Image;
use model::{EventSink, FunctionId, Pid, Recording, Schedule, SpaceId, Tid, TraceEvent};

/// Decodes and analyses a recording with one worker and with two, of which the second looks at the trees of calls, too.
///
/// # Panics
/// If they differ, or contradict themselves: [`analyzer::check`], [`Sums`].
pub(crate) fn check(recording: &Recording<'_>, image: &Image, functions: &[FunctionId], segment_bytes: u64) {
    let schedule = Schedule::new(&recording.sideband);
    let around = Surroundings::of(recording, &schedule, image);
    let request = Request { functions: functions.to_vec(), ..Request::default() };
    let run = |workers, analysis| Run::new(recording, &schedule, image, analysis, workers, segment_bytes);
    let one = run(1, CheckedAnalysis::new(&request, around));
    let mut sums = Sums;
    let two = run(2, CheckedAnalysis::with_trees(&request, around, &mut sums));
    assert_eq!(one.stats, two.stats);
    assert_eq!(one.seen, two.seen);
    assert_eq!(one.report, two.report);
    assert_eq!(one.violations, []);
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

/// Each part of a call's time is of one node of its tree.
struct Sums;

impl TreeSink for Sums {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let own = |of: fn(&analyzer::Total) -> u64| tree.walk().map(|step| of(&step.own)).sum::<u64>();
        assert_eq!(own(|total| total.sum_ns), call.latency_ns, "{call:?}");
        assert_eq!(own(|total| total.off_cpu_ns), call.off_cpu_ns, "{call:?}");
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
}
