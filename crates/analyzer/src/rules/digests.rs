//! Whether a worker, a worker of another process or the joining thread analyses a run: the same report, and
//! the same rows.

use model::{DigestSink, DigestedRun, Digester, EventSink, Pid, RunPart, SpaceId, Tid, TraceEvent, WholeRun};

use crate::digest::{RunDigest, RunDigester};
use crate::{
    Analysis, CallRow, Reason, Report, Request, RowGap, RowParts, RowSink, SlowestCalls, Surroundings,
};

/// All that a sink of rows is given, in order.
#[derive(Default, PartialEq, Debug)]
struct GivenRows(Vec<String>);

impl RowSink for GivenRows {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.0.push(format!("{function} {row:?} {waited_for:?}"));
    }

    fn wants_parts(&self) -> bool {
        true
    }

    fn parts(&mut self, _: &CallRow, parts: &RowParts) {
        self.0.push(format!("{parts:?}"));
    }

    fn gap(&mut self, gap: &RowGap) {
        self.0.push(format!("{gap:?}"));
    }
}

/// A sink that takes the rows of the slowest calls only.
#[derive(Default)]
struct GivenSlowest(SlowestCalls);

impl RowSink for GivenSlowest {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.0.add(function, row, waited_for);
    }

    fn takes_all(&self) -> bool {
        false
    }
}

/// What a thread did, some of it digested.
struct Digested {
    tid: Tid,
    space: SpaceId,
    parts: Vec<RunPart<RunDigest>>,
    /// What each part was digested from.
    below: Vec<Option<Self>>,
}

type DigestedPart = (RunPart<RunDigest>, Option<Digested>);

impl Digested {
    fn of(tid: Tid, space: SpaceId) -> Self {
        Self { tid, space, parts: Vec::new(), below: Vec::new() }
    }

    fn push(&mut self, part: RunPart<RunDigest>, below: Option<Self>) {
        self.parts.push(part);
        self.below.push(below);
    }

    fn extend(&mut self, parts: impl Iterator<Item = DigestedPart>) {
        parts.for_each(|(part, below)| self.push(part, below));
    }

    fn into_parts(self) -> impl Iterator<Item = DigestedPart> {
        self.parts.into_iter().zip(self.below)
    }

    /// The parts, with runs of them as one each, searched in so many parts at once.
    fn joined(self, digester: &RunDigester<'_>, at_once: usize) -> Self {
        let (tid, space) = (self.tid, self.space);
        let mut joined = Self::of(tid, space);
        let mut rest = self.into_parts().peekable();
        while rest.peek().is_some() {
            let mut chunk = Self::of(tid, space);
            chunk.extend(rest.by_ref().take(at_once));
            let runs = digester.join(tid, space, &chunk.parts);
            let (mut parts, mut next) = (chunk.into_parts(), 0);
            for run in runs {
                joined.extend(parts.by_ref().take(run.places.start - next));
                next = run.places.end;
                let mut below = Self::of(tid, space);
                below.extend(parts.by_ref().take(run.places.len()));
                joined.push(RunPart::Run(stored(digester, run)), Some(below));
            }
            joined.extend(parts);
        }
        joined
    }
}

/// The run as another process has it, if that has a use for it.
fn stored(digester: &RunDigester<'_>, run: DigestedRun<RunDigest>) -> DigestedRun<RunDigest> {
    let DigestedRun { places, events, first, last, digest } = run;
    let bytes = digester.pack(&digest);
    let run = DigestedRun { places: places.clone(), events, first, last, digest: () };
    let digest = bytes.map_or(digest, |bytes| digester.unpack(&bytes, &run).unwrap());
    DigestedRun { places, events, first, last, digest }
}

impl WholeRun<RunDigest> for Digested {
    fn give(&self, sink: &mut dyn DigestSink<RunDigest>) {
        for (part, below) in self.parts.iter().zip(&self.below) {
            match part {
                RunPart::Event(event) => sink.events(Pid(7), self.tid, self.space, &[*event]),
                RunPart::Run(run) => sink.run(Pid(7), self.tid, self.space, run, below.as_ref().unwrap()),
            }
        }
    }
}

/// Events that come one by one, events that come together, events with runs that are analysed ahead, and runs
/// that are joined make the same report and the same rows.
pub(super) fn check_ways_to_analyse(
    request: &Request,
    around: Surroundings<'_>,
    events: &[(Tid, SpaceId, TraceEvent)],
) {
    let stretches = events.chunk_by(|(tid, space, _), (next, its, _)| (tid, space) == (next, its));
    let stretches: Vec<(Tid, SpaceId, Vec<TraceEvent>)> = stretches
        .map(|stretch| (stretch[0].0, stretch[0].1, stretch.iter().map(|(_, _, event)| *event).collect()))
        .collect();
    let one_by_one = |mut analysis: Analysis<'_>| {
        for (tid, space, event) in events {
            analysis.events(Pid(7), *tid, *space, &[*event]);
        }
        Some(analysis.finish())
    };
    let together = |mut analysis: Analysis<'_>| {
        for (tid, space, events) in &stretches {
            analysis.events(Pid(7), *tid, *space, events);
        }
        Some(analysis.finish())
    };
    // So many events are digested together; these are joined, so many parts at once, and at last all.
    let ahead = |mut analysis: Analysis<'_>, together: usize, at_once: &[usize]| {
        let digester = analysis.digester()?.of_shortest_runs();
        for (tid, space, events) in &stretches {
            let mut all = Digested::of(*tid, *space);
            for events in events.chunks(together) {
                all.extend(digested(&digester, *tid, *space, events).into_parts());
            }
            for at_once in at_once {
                all = all.joined(&digester, *at_once);
            }
            all.give(&mut analysis);
        }
        Some(analysis.finish())
    };
    let made_by = |way: &dyn Fn(Analysis<'_>) -> Option<Report>| {
        let report = way(Analysis::new(request, around))?;
        let mut rows = GivenRows::default();
        let with_rows = way(Analysis::new(request, around).giving_rows_to(&mut rows))?;
        assert_eq!(with_rows, report, "rows change nothing");
        let mut slowest = GivenSlowest::default();
        let with_slowest = way(Analysis::new(request, around).giving_rows_to(&mut slowest))?;
        assert_eq!(with_slowest, report, "rows of the slowest calls change nothing");
        let row = |(wanted, row, why): (usize, &CallRow, Option<&Reason>)| (wanted, *row, why.cloned());
        let mut slowest: Vec<_> = slowest.0.rows().map(row).collect();
        slowest.sort_by_key(|(wanted, row, _)| (*wanted, row.id));
        Some((report, rows, slowest))
    };
    let expected = made_by(&one_by_one);
    assert_eq!(made_by(&together), expected);
    let ways = [(usize::MAX, &[][..]), (5, &[usize::MAX]), (1, &[3, 7, usize::MAX])];
    let few = if events.len() < 100_000 { ways.len() } else { 1 }; // the rest would take a minute
    for (together, at_once) in ways.into_iter().take(few) {
        // Not all that can be asked for is analysed ahead.
        if let Some(ahead) = made_by(&|analysis| ahead(analysis, together, at_once)) {
            assert_eq!(Some(ahead), expected, "{together} events together, {at_once:?} parts at once");
        }
    }
}

fn digested(digester: &RunDigester<'_>, tid: Tid, space: SpaceId, events: &[TraceEvent]) -> Digested {
    let mut all = Digested::of(tid, space);
    let push = |all: &mut Digested, events: &[TraceEvent]| {
        events.iter().for_each(|event| all.push(RunPart::Event(*event), None));
    };
    let mut next = 0;
    for run in digester.digest(tid, space, events) {
        let places = run.places.clone();
        push(&mut all, &events[next..places.start]);
        next = places.end;
        let mut below = Digested::of(tid, space);
        push(&mut below, &events[places]);
        all.push(RunPart::Run(stored(digester, run)), Some(below));
    }
    push(&mut all, &events[next..]);
    all
}
