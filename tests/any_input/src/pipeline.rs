//! From a recording to a report, and what must hold on the way whatever is in it.

use analyzer::{CheckedAnalysis, Report, Request, Surroundings, Violation};
use decoder::{DecodeOptions, DecodeStats, decode};
use image::Image;
use model::{EventSink, FunctionId, Pid, Recording, Schedule, SpaceId, Tid, TraceEvent};

/// Decodes and analyses a recording with one worker and with two.
///
/// # Panics
/// If they differ, or contradict themselves: [`analyzer::check`].
pub(crate) fn check(recording: &Recording<'_>, image: &Image, functions: &[FunctionId], segment_bytes: u64) {
    let schedule = Schedule::new(&recording.sideband);
    let [one, two] =
        [1, 2].map(|workers| Run::new(recording, &schedule, image, functions, workers, segment_bytes));
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
        functions: &[FunctionId],
        workers: usize,
        segment_bytes: u64,
    ) -> Self {
        let around = Surroundings::of(recording, schedule, image);
        let request = Request { functions: functions.to_vec(), ..Request::default() };
        let mut sink = Both { seen: vec![], analysis: CheckedAnalysis::new(&request, around) };
        let options =
            DecodeOptions { workers, all_branches: true, segment_bytes, ..DecodeOptions::default() };
        let stats = decode(recording, schedule, image, image, &options, &|_| (), &mut sink);
        let (report, violations) = sink.analysis.finish();
        Self { stats, seen: sink.seen, report, violations }
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
