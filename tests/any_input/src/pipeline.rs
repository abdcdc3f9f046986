//! From a recording to a report, and what must hold on the way whatever is in it.

use std::collections::BTreeMap;

use analyzer::{Analysis, FunctionReport, Report, Request, Surroundings};
use decoder::{DecodeOptions, DecodeStats, decode};
use image::Image;
use model::{
    AuxOwner, EventSink, EventTime, FunctionId, Ns, Pid, Recording, Schedule, SpaceId, Tid, TraceEvent,
};

/// Decodes and analyses a recording with one worker and with two.
///
/// # Panics
/// If they differ, if time runs backwards, or if sums do not add up.
pub(crate) fn check(recording: &Recording<'_>, image: &Image, functions: &[FunctionId], segment_bytes: u64) {
    let schedule = Schedule::new(&recording.sideband);
    let [one, two] =
        [1, 2].map(|workers| Run::new(recording, &schedule, image, functions, workers, segment_bytes));
    assert_eq!(one.stats, two.stats);
    assert_eq!(one.seen.events, two.seen.events);
    assert_eq!(one.report, two.report);
    one.seen.check();
    let report = &one.report;
    report.functions.iter().for_each(sums_add_up);
    for thread in &report.loss.threads {
        assert_eq!(thread.window_ns, thread.observed_ns + thread.lost_ns, "{thread:?}");
    }
}

struct Run {
    stats: DecodeStats,
    seen: Seen,
    report: Report,
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
        let buffers: Vec<(AuxOwner, u32)> = recording.buffers.iter().map(|b| (b.owner, b.index)).collect();
        let around = Surroundings {
            code: image,
            functions: image,
            schedule,
            window: recording.time_span.unwrap_or((Ns(0), Ns(0))),
            scheduler: analyzer::scheduler(recording, schedule),
            has_ip_filter: recording.pt.has_ip_filter,
            buffers: &buffers,
        };
        let request = Request { functions: functions.to_vec(), rows: true, ..Request::default() };
        let mut sink = Both { seen: Seen::default(), analysis: Analysis::new(&request, around) };
        let options = DecodeOptions { workers, all_branches: true, segment_bytes };
        let stats = decode(recording, schedule, image, image, &options, &|_| (), &mut sink);
        Self { stats, seen: sink.seen, report: sink.analysis.finish() }
    }
}

/// All events, kept and analysed.
struct Both<'a> {
    seen: Seen,
    analysis: Analysis<'a>,
}

impl EventSink for Both<'_> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.seen.events.extend(events.iter().map(|event| (pid, tid, space, *event)));
        self.analysis.events(pid, tid, space, events);
    }
}

#[derive(Default)]
struct Seen {
    events: Vec<(Pid, Tid, SpaceId, TraceEvent)>,
}

impl Seen {
    /// Times are inside their bounds, and run forward in each thread.
    fn check(&self) {
        let mut now: BTreeMap<Tid, Ns> = BTreeMap::new();
        for (_, tid, _, event) in &self.events {
            let time = event.time();
            in_bounds(time);
            if let TraceEvent::Gap(gap) = event {
                in_bounds(gap.to);
                assert!(gap.from.point <= gap.to.point, "{gap:?}");
            }
            let last = now.entry(*tid).or_default();
            assert!(*last <= time.point, "{event:?} of {tid:?} comes behind {last:?}");
            *last = time.point;
        }
    }
}

fn in_bounds(time: EventTime) {
    assert!(time.lo <= time.point && time.point <= time.hi, "{time:?}");
}

/// Children and `*self` are the whole, and every call has its row.
fn sums_add_up(function: &FunctionReport) {
    let sum = |children: &[analyzer::ChildRow]| children.iter().map(|c| c.total.sum_ns).sum::<u64>();
    assert_eq!(sum(&function.children), function.latency.sum_ns);
    let calls = function.calls;
    let counted = calls.complete + calls.unwound;
    assert_eq!(function.latency.count, counted);
    assert_eq!(function.rows.len() as u64, counted + calls.open_start + calls.open_end + calls.cut);
    let callers = &function.callers;
    assert_eq!(callers.iter().map(|c| c.latency.count).sum::<u64>(), counted);
    assert_eq!(callers.iter().map(|c| c.latency.sum_ns).sum::<u64>(), function.latency.sum_ns);
    assert!(callers.iter().all(|c| sum(&c.children) == c.latency.sum_ns));
}
