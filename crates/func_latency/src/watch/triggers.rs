//! What makes a capture: a slow call, a function that is entered, a gap. Looked for while the trace is
//! analysed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use analyzer::{Analysis, CallRow, EventByEvent, Reason, RowGap, RowSink, RunDigest};
use model::{
    AuxOwner, DigestSink, DigestedRun, EventSink, FunctionId, FunctionSet, GapCause, Ns, Pid, SpaceId,
    StretchCounters, Tid, TraceEvent, Transfer, WholeRun,
};

use super::outside::Event;
use super::recent::Recent;
use crate::render::screen::figures::ListedCall;
use crate::render::units::duration;
use crate::trigger_words::Over;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Calls above this.
    pub(super) over: Option<Over>,
    /// Functions that are entered, as they were named.
    pub(super) on: Vec<String>,
    /// Gaps.
    pub(super) on_gap: bool,
}

/// Something for which there is to be a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// What made it, in words.
    pub(super) trigger: String,
    /// Short, for the name of the capture.
    pub(super) name: String,
    /// The function that was called, if it is a call.
    pub(super) function: Option<FunctionId>,
    pub(super) tid: Option<Tid>,
    /// When it began and ended.
    pub(super) span: (Ns, Ns),
    /// How long the call took; `None`: it is no call.
    pub(super) latency_ns: Option<u64>,
    /// Asked for by hand (SIGUSR2, `--until`, a key): no limit is for it.
    pub(super) is_asked: bool,
}

impl Hit {
    /// A call that has ended.
    fn of_call(row: &CallRow, trigger: String) -> Self {
        Self {
            trigger,
            name: row.id.to_string(),
            function: Some(row.function),
            tid: Some(row.id.tid),
            span: (row.start_ns, Ns(row.end_ns())),
            latency_ns: Some(row.latency_ns),
            is_asked: false,
        }
    }

    /// A call that was chosen on the screen.
    pub(super) fn chosen(call: &ListedCall, function: Option<FunctionId>) -> Self {
        Self {
            trigger: "chosen on the screen".to_owned(),
            name: call.id.clone(),
            function,
            tid: Some(Tid(call.tid)),
            span: (Ns(call.start_ns), Ns(call.end_ns())),
            latency_ns: Some(call.latency_ns),
            is_asked: true,
        }
    }

    /// A function of `--on` was entered.
    pub(super) fn entered(time: Ns, tid: Tid, function: &str) -> Self {
        Self::at(time, Some(tid), "on", format!("{function} was entered"))
    }

    /// Something outside of the target that was waited for.
    pub(super) fn of_event(time: Ns, event: Event) -> Self {
        Self { is_asked: true, ..Self::at(time, None, event.name, event.trigger) }
    }

    /// Something that has no length.
    pub(super) fn at(time: Ns, tid: Option<Tid>, name: &str, trigger: String) -> Self {
        let name = name.to_owned();
        let span = (time, time);
        Self { trigger, name, function: None, tid, span, latency_ns: None, is_asked: false }
    }
}

/// The triggers and what they know.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    asked: Asked,
    /// By watched function.
    recent: Vec<Recent>,
    /// A call of the function is slow above this; `None`: none is.
    thresholds_ns: Vec<Option<u64>>,
    hits: Vec<Hit>,
    /// Hits that were left out because there were too many.
    left_out: u64,
    /// The slowest calls of this part by function, hits or not; `None`: they are not wanted.
    slowest: Option<BTreeMap<usize, Vec<Hit>>>,
    /// The last call that ended is a hit, or one of the slowest.
    has_noticed_last: bool,
}

/// Calls of a function that are the slowest ones of a part.
const SLOWEST_MAX: usize = 32;

/// Hits that are kept in one part: of more, the slowest.
const HITS_MAX: usize = 1 << 14;

impl Triggers {
    pub(super) fn new(asked: Asked) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Keeps the slowest calls of each part, too.
    pub(super) fn with_slowest(self) -> Self {
        Self { slowest: Some(BTreeMap::new()), ..self }
    }

    /// The slowest calls since they were asked for last, by function.
    pub(super) fn take_slowest(&mut self) -> Vec<Hit> {
        let slowest = self.slowest.as_mut().map(std::mem::take).unwrap_or_default();
        slowest.into_values().flatten().collect()
    }

    /// Keeps a call that has ended if it is one of the slowest so far. Returns whether it is.
    fn note_slow(&mut self, function: usize, row: &CallRow) -> bool {
        let Some(slowest) = &mut self.slowest else { return false };
        let slowest = slowest.entry(function).or_default();
        let at = slowest.partition_point(|hit| hit.latency_ns >= Some(row.latency_ns));
        if at < SLOWEST_MAX {
            slowest.insert(at, Hit::of_call(row, String::new()));
            slowest.truncate(SLOWEST_MAX);
        }
        at < SLOWEST_MAX
    }

    /// The last call that ended is a hit, or one of the slowest of this part so far.
    #[cfg(feature = "bpf")]
    pub(super) const fn has_noticed_last(&self) -> bool {
        self.has_noticed_last
    }

    /// The option that asks for what only a trace has; `None`: there is none.
    #[cfg(feature = "bpf")]
    pub(super) fn needs_trace(&self) -> Option<&'static str> {
        match &self.asked {
            Asked { on, .. } if !on.is_empty() => Some("--on"),
            Asked { on_gap: true, .. } => Some("--on-gap"),
            _ => None,
        }
    }

    /// What they look for, probes must see where nothing is decoded.
    pub(super) const fn need_probes(&self) -> bool {
        self.asked.over.is_some() || !self.asked.on.is_empty()
    }

    /// Calls above a latency are looked for.
    #[cfg(feature = "bpf")]
    pub(super) const fn has_over(&self) -> bool {
        self.asked.over.is_some()
    }

    /// The names of the functions of `--on`.
    pub(super) fn names_on(&self) -> &[String] {
        &self.asked.on
    }

    /// A part of the recording begins, which ends at `time`. Thresholds are of the calls before it.
    pub(super) fn begin(&mut self, functions: usize, time: Ns) {
        self.recent.resize_with(functions, Recent::default);
        let over = self.asked.over;
        let threshold = |recent: &Recent| match over? {
            Over::Latency(latency) => Some(latency.0),
            Over::Percentile(percentile, floor) => Some(recent.percentile(percentile)?.max(floor.0)),
        };
        self.thresholds_ns = self.recent.iter().map(threshold).collect();
        self.recent.iter_mut().for_each(|recent| recent.begin(time));
    }

    /// What was hit since it was asked last, by time, with these.
    pub(super) fn take_hits(&mut self, more: Vec<Hit>) -> Vec<Hit> {
        self.keep_slowest();
        let mut hits = std::mem::take(&mut self.hits);
        hits.extend(more);
        hits.sort_by_key(|hit| (hit.span.1, hit.span.0, hit.tid));
        hits
    }

    /// The number of hits that were left out since it was asked last.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// Adds a hit. Of twice [`HITS_MAX`] the slower half stays: the cost of a hit does not grow with their
    /// number.
    fn hit(&mut self, hit: Hit) {
        self.hits.push(hit);
        if self.hits.len() >= 2 * HITS_MAX {
            self.keep_slowest();
        }
    }

    fn keep_slowest(&mut self) {
        let Some(more) = self.hits.len().checked_sub(HITS_MAX).filter(|more| *more > 0) else { return };
        // Stable: of one latency the first stay.
        self.hits.sort_by_key(|hit| Reverse(hit.latency_ns));
        self.hits.truncate(HITS_MAX);
        self.left_out += more as u64;
    }
}

impl RowSink for Triggers {
    fn row(&mut self, function: usize, row: &CallRow, _: Option<&Reason>) {
        self.has_noticed_last = false;
        if row.end.status.counted() {
            self.recent.get_mut(function).into_iter().for_each(|recent| recent.add(row.latency_ns));
            self.has_noticed_last = self.note_slow(function, row);
        }
        let Some(threshold_ns) = self.thresholds_ns.get(function).copied().flatten() else { return };
        if row.latency_ns <= threshold_ns {
            return;
        }
        let which = match self.asked.over {
            Some(Over::Percentile(percentile, _)) => format!("{percentile}, "),
            _ => String::new(),
        };
        self.has_noticed_last = true;
        self.hit(Hit::of_call(row, format!("over {which}{}", duration(threshold_ns))));
    }

    fn gap(&mut self, RowGap { tid, gap, .. }: &RowGap) {
        // What was left out is not there to be kept.
        if !self.asked.on_gap || gap.cause == GapCause::NotDecoded {
            return;
        }
        let trigger = format!("a gap: {}", gap.cause.name());
        let span = (gap.from.point, gap.to.point);
        self.hit(Hit { span, ..Hit::at(span.0, *tid, "gap", trigger) });
    }
}

/// An analysis, and the entries of functions of `--on` among its events.
pub(super) struct Noticing<'s, 'a> {
    pub(super) analysis: &'s mut Analysis<'a>,
    pub(super) on: &'s [(FunctionId, String)],
    /// Where one was entered.
    pub(super) hits: Vec<Hit>,
    /// Entries that were left out because there were too many.
    pub(super) left_out: u64,
}

impl Noticing<'_, '_> {
    fn look_at(&mut self, tid: Tid, events: &[TraceEvent]) {
        if self.on.is_empty() {
            return;
        }
        for event in events {
            let TraceEvent::Branch(branch) = event else { continue };
            let to = match branch.transfer {
                Transfer::Branch { to, .. } | Transfer::Start { to, after_gap: false } => to,
                _ => continue,
            };
            let entered = self.on.iter().find(|(id, _)| *id == to.function && to.at_entry);
            let Some((_, name)) = entered else { continue };
            if self.hits.len() >= HITS_MAX {
                self.left_out += 1;
            } else {
                self.hits.push(Hit::entered(branch.time.point, tid, name));
            }
        }
    }
}

impl EventSink for Noticing<'_, '_> {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.look_at(tid, events);
        self.analysis.events(pid, tid, space, events);
    }

    fn wants_counters(&self) -> bool {
        self.analysis.wants_counters()
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
        self.analysis.counted(pid, tid, space, events, counters);
    }

    fn asks_about(&self) -> Option<FunctionSet> {
        let asked = self.analysis.asks_about()?;
        Some(asked.iter().chain(self.on.iter().map(|(id, _)| *id)).collect())
    }

    fn takes_jumps_of(&self) -> Option<FunctionSet> {
        self.analysis.takes_jumps_of()
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        self.analysis.overflows(owner, count);
    }

    fn left_out(&mut self, tid: Tid, transfers: u64) {
        self.analysis.left_out(tid, transfers);
    }
}

impl DigestSink<RunDigest> for Noticing<'_, '_> {
    fn run(
        &mut self,
        pid: Pid,
        tid: Tid,
        space: SpaceId,
        run: &DigestedRun<RunDigest>,
        whole: &dyn WholeRun<RunDigest>,
    ) {
        whole.give(&mut EventByEvent(|_, tid, _, events: &[TraceEvent]| self.look_at(tid, events)));
        self.analysis.run(pid, tid, space, run, whole);
    }
}
