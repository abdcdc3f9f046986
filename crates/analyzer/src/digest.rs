//! Calls that are whole in a stretch of events are analysed by the decoder's workers, and only added up in
//! order.
//!
//! ```text
//!   worker    events --runs--> of each run: a thread of its own, with one frame that stands for whoever called
//!                              -> figures of the wanted calls, children of that frame
//!   in order  the run's frame is the one on top: both are added, and the events are not looked at
//!             or they cannot be (a landing is undecided, a wanted function is open already, ...): event by event
//! ```
//! It is the same code that analyses either way, so nothing depends on which it was, nor on the number of
//! workers.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use model::{AuxOffset, Digest, Digester, EventTime, FunctionId, SpaceId, Tid, TraceEvent};

use crate::aggregate::Aggregate;
use crate::children::{Child, RunningSums};
use crate::code_map::CodeMap;
use crate::entered::Open;
use crate::frames::Frames;
use crate::off_cpu::{OffCpuClock, may_be_off_cpu};
use crate::place::ChildKind;
use crate::report::Limits;
use crate::request::{Request, Roles, Surroundings};
use crate::running::Activation;
use crate::runs::{Run, runs};
use crate::session::Session;
use crate::sparse::Sparse;
use crate::stack::{DEPTH_MAX, FrameKind};
use crate::thread::Thread;

/// A shorter run costs more than it saves.
const EVENTS_MIN: usize = 16;

/// Events of the shortest run that pays where a run meets many wanted functions: the sums of each take 3 KB
/// until the run's turn, and are then added one by one.
const EVENTS_MIN_OF_MANY: usize = 4096;

/// Wanted functions beyond which they are many.
const FEW_FUNCTIONS: usize = 64;

/// Analyses runs of calls ahead of an [`Analysis`](crate::Analysis).
pub struct RunDigester<'a> {
    request: Arc<Request>,
    roles: Arc<Roles>,
    /// What workers that digest nothing now have looked up.
    maps: Mutex<Vec<CodeMap<'a>>>,
    around: Surroundings<'a>,
    /// Of a run.
    events_min: usize,
}

/// A run, and what came of it.
pub(crate) struct DigestedRun {
    pub(crate) events: Range<usize>,
    /// Time and packet of its last event.
    last: (EventTime, AuxOffset),
    /// See [`Run::starts`].
    starts: bool,
    /// By wanted function.
    open: Sparse<Open>,
    calls: Aggregate<Child>,
    /// Of the frame that made the calls; none of them is known to be of its own function.
    children: RunningSums,
}

impl<'a> RunDigester<'a> {
    /// `None` if somebody takes each call in its turn, or its ancestor decides.
    pub(crate) fn of(session: &Session<'a>) -> Option<Self> {
        let request = session.calls.request();
        let in_turn = session.rows.is_some() || session.trees.is_some() || request.rows;
        let events_min =
            if request.functions.len() > FEW_FUNCTIONS { EVENTS_MIN_OF_MANY } else { EVENTS_MIN };
        let alone = !in_turn && session.ancestor.is_none();
        alone.then(|| Self {
            request: Arc::clone(request),
            roles: Arc::clone(&session.roles),
            maps: Mutex::default(),
            around: session.around,
            events_min,
        })
    }
}

impl<'a> RunDigester<'a> {
    fn map(&self) -> CodeMap<'a> {
        let known = self.maps.lock().ok().and_then(|mut maps| maps.pop());
        known.unwrap_or_else(|| CodeMap::new(self.around))
    }

    fn keep_map(&self, map: CodeMap<'a>) {
        if let Ok(mut maps) = self.maps.lock() {
            maps.push(map);
        }
    }
}

#[cfg(test)]
impl RunDigester<'_> {
    /// The same, of a single call, too.
    pub(crate) fn of_shortest_runs(self) -> Self {
        Self { events_min: 2, ..self }
    }
}

impl Digester for RunDigester<'_> {
    fn digest(&self, tid: Tid, space: SpaceId, events: &[TraceEvent]) -> Option<Digest> {
        // With an IP filter where tracing starts may say more than that the kernel is left.
        let has_ip_filter = self.around.has_ip_filter;
        let off_cpu = self.around.schedule.thread(tid).map_or(&[][..], |life| &life.off_cpu);
        let may_stay = |left, back| !has_ip_filter && !may_be_off_cpu(off_cpu, left, back);
        let runs = runs(events, self.events_min, &may_stay);
        if runs.is_empty() {
            return None;
        }
        let (request, roles) = (Arc::clone(&self.request), Arc::clone(&self.roles));
        let mut session = Session::with(request, roles, self.around, self.map());
        let mut thread = Thread::new(tid, &session);
        // Whether it was off the CPU or dead meanwhile, or is new, is asked when it is the run's turn.
        (thread.off_cpu, thread.window.dead) = (OffCpuClock::new(&[]), &[]);
        let of_run = |Run { events: run, starts }: Run| {
            let calls = events.get(run.clone()).unwrap_or_default();
            let digested = thread.digest(&mut session, space, calls)?;
            Some(DigestedRun { events: run, starts, ..digested })
        };
        let digested: Vec<DigestedRun> = runs.into_iter().filter_map(of_run).collect();
        self.keep_map(session.map);
        Some(Box::new(digested))
    }
}

impl<'a> Thread<'a> {
    /// Analyses a run of calls that anybody may have made.
    fn digest(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
    ) -> Option<DigestedRun> {
        let mut caller = self.frame(FunctionId::UNKNOWN, FrameKind::Found);
        // It gathers children as a wanted function's does, and is none.
        (caller.is_active, caller.gathers) = (true, true);
        self.stack.push(caller);
        self.stack.activations.push(Activation::default());
        self.events(session, space, events);
        let caller = self.stack.activations.pop().filter(|_| self.stack.len() == 1);
        self.stack.clear();
        let children = caller?.children;
        let calls = session.calls.take();
        let open = std::mem::take(&mut self.entered.open);
        let is_plain = std::mem::take(&mut session.limits) == Limits::default() && !calls.is_overfull();
        let last = (self.now, self.at);
        is_plain.then_some(DigestedRun { events: 0..0, last, starts: false, open, calls, children })
    }

    /// The frame on top can have made the calls of the run, and nothing that is known before changes what
    /// they are.
    pub(crate) fn takes(&self, run: &DigestedRun) -> bool {
        let (last, _) = run.last;
        let is_inside =
            self.undecided.is_none() && self.control.left.is_none() && self.control.away.is_none();
        let lives =
            self.window.dead.first().is_none_or(|(died, reborn)| last.point < *reborn && last.lo <= *died);
        let has_room = self.stack.len() + run.events.len() < DEPTH_MAX;
        let may_call = self.stack.last().is_some_and(|top| !top.hidden && !top.kind.is_mark());
        let is_open = |wanted| self.entered.open.get(wanted).is_some_and(|open| open.depth > 0);
        let are_outermost = run.open.iter().all(|(wanted, run)| run.entered == 0 || !is_open(wanted));
        let is_met = !(run.starts && self.control.is_new);
        // Nor was it off the CPU in a stay of the run: that would not be part of it.
        let stays_on_cpu = self.off_cpu.stands_still_until(last.lo);
        is_inside && is_met && lives && has_room && may_call && are_outermost && stays_on_cpu
    }

    /// Adds the calls of a run, instead of its events.
    pub(crate) fn take(&mut self, session: &mut Session<'a>, space: SpaceId, run: &DigestedRun) {
        (self.now, self.at) = run.last;
        self.control.space = space;
        for (wanted, of_run) in run.open.iter() {
            let Some(open) = self.entered.open.meet(wanted) else { continue };
            open.entered += of_run.entered;
            open.is_recursive |= of_run.is_recursive;
        }
        session.calls.merge_whole_calls(&run.calls);
        let caller = self.stack.iter().rev().find(|frame| !frame.is_part_of_caller());
        let caller = caller.map(|frame| frame.function);
        if !self.stack.gathers() {
            return;
        }
        for (child, total) in run.children.all() {
            let is_own = child.kind == ChildKind::Call && caller == Some(child.function);
            let kind = if is_own { ChildKind::Recursion } else { child.kind };
            self.stack.add_child(&mut session.places, Child { kind, ..*child }, *total);
        }
    }
}
