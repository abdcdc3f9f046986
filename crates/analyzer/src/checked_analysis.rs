//! An analysis that is checked ([`crate::check`]) from its events to its report.

use model::{
    AuxOwner, DigestSink, DigestedRun, EventSink, EventTime, FunctionSet, Pid, SpaceId, StretchCounters, Tid,
    TraceEvent, WholeRun,
};
use rustc_hash::FxHashMap;

use crate::analysis::Analysis;
use crate::check::{Found, Violation, check_with};
use crate::digest::{RunDigest, RunDigester};
use crate::event_by_event::EventByEvent;
use crate::report::Report;
use crate::request::{Request, Surroundings};
use crate::row_sink::RowSink;
use crate::tree::TreeSink;

/// An [`Analysis`] that is checked.
pub struct CheckedAnalysis<'a> {
    /// With rows and their children, which show whether calls nest.
    analysis: Analysis<'a>,
    /// That of a report that is not checked: [`CheckedAnalysis::digester`].
    unchecked: Option<Analysis<'a>>,
    request: Request,
    around: Surroundings<'a>,
    last: FxHashMap<Tid, EventTime>,
    found: Found,
}

impl<'a> CheckedAnalysis<'a> {
    /// [`Analysis::new`], which keeps rows and their children.
    #[must_use]
    pub fn new(request: &Request, around: Surroundings<'a>) -> Self {
        let request = Request { rows: true, row_children: true, ..request.clone() };
        let analysis = Analysis::new(&request, around);
        Self {
            analysis,
            unchecked: None,
            request,
            around,
            last: FxHashMap::default(),
            found: Found::default(),
        }
    }

    /// [`Analysis::with_trees`], of the first analysis.
    #[must_use]
    pub fn with_trees(
        request: &Request,
        around: Surroundings<'a>,
        sink: &'a mut (dyn TreeSink + 'a),
    ) -> Self {
        let checked = Self::new(request, around);
        Self { analysis: Analysis::with_trees(&checked.request, around, sink), ..checked }
    }

    /// [`Analysis::giving_rows_to`], of the first analysis.
    #[must_use]
    pub fn giving_rows_to(self, sink: &'a mut (dyn RowSink + 'a)) -> Self {
        Self { analysis: self.analysis.giving_rows_to(sink), ..self }
    }

    /// [`Analysis::digester`], of a second analysis: what the workers digest enters that one's report, which
    /// must be the first one's without rows.
    #[must_use]
    pub fn digester(&mut self) -> Option<RunDigester<'a>> {
        let request = Request { rows: false, row_children: false, ..self.request.clone() };
        self.unchecked.insert(Analysis::new(&request, self.around)).digester()
    }

    /// [`Analysis::finish`], and the violations: none, unless this program has a defect.
    #[must_use]
    pub fn finish(self) -> (Report, Vec<Violation>) {
        let Self { analysis, unchecked, mut found, around, .. } = self;
        let report = analysis.finish();
        let is_region = |id| around.functions.region(id).is_some();
        found.0.extend(check_with(&report, is_region));
        if let Some(unchecked) = unchecked {
            found.differences(&unchecked.finish(), &report);
        }
        (report, found.0)
    }

    fn look_at(&mut self, tid: Tid, events: &[TraceEvent]) {
        let last = self.last.entry(tid).or_default();
        for event in events {
            self.found.time_of(tid, last, event);
        }
    }

    fn both(&mut self) -> impl Iterator<Item = &mut Analysis<'a>> {
        [&mut self.analysis].into_iter().chain(&mut self.unchecked)
    }
}

impl EventSink for CheckedAnalysis<'_> {
    fn wants_counters(&self) -> bool {
        self.analysis.wants_counters()
    }

    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.look_at(tid, events);
        self.both().for_each(|analysis| analysis.events(pid, tid, space, events));
    }

    fn counted(
        &mut self,
        pid: Pid,
        tid: Tid,
        space: SpaceId,
        events: &[TraceEvent],
        counters: StretchCounters<'_>,
    ) {
        self.look_at(tid, events);
        self.both().for_each(|analysis| analysis.counted(pid, tid, space, events, counters));
    }

    fn asks_about(&self) -> Option<FunctionSet> {
        self.analysis.asks_about()
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        self.both().for_each(|analysis| analysis.overflows(owner, count));
    }

    fn left_out(&mut self, tid: Tid, transfers: u64) {
        self.both().for_each(|analysis| analysis.left_out(tid, transfers));
    }
}

impl DigestSink<RunDigest> for CheckedAnalysis<'_> {
    fn run(
        &mut self,
        pid: Pid,
        tid: Tid,
        space: SpaceId,
        run: &DigestedRun<RunDigest>,
        whole: &dyn WholeRun<RunDigest>,
    ) {
        whole.give(&mut EventByEvent(|pid, tid, space, events: &[TraceEvent]| {
            self.look_at(tid, events);
            self.analysis.events(pid, tid, space, events);
        }));
        if let Some(unchecked) = &mut self.unchecked {
            unchecked.run(pid, tid, space, run, whole);
        }
    }
}
