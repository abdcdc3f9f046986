//! Calls that are whole in a stretch of events are analysed by the decoder's workers, and only added up, or
//! handed over one by one, in order.
//!
//! ```text
//!   worker    events --runs--> of each run: a thread of its own, with one frame that stands for the caller
//!                              -> figures of the wanted calls, or these calls; children of that frame
//!   in order  the run's frame is the one on top: both are added, and the events are not looked at
//!             or they cannot be (a landing is undecided, the thread was off its CPU, ...): event by event
//! ```
//! Both ways run the same rules, so no figure depends on which it was, nor on the number of workers. Another
//! process may as well digest a run: its digest has no reference to anything.
//!
//! Digests of neighbours join to one of a longer run: a worker's thread takes them as the one in order does.

mod item;

use std::sync::{Arc, Mutex};

use model::{AuxOffset, DigestedRun, Digester, EventTime, FunctionId, RunPart, SpaceId, Tid, TraceEvent};
use serde::{Deserialize, Serialize};

use crate::asked::Asked;
use crate::call_row::CallRow;
use crate::children::{Child, RunningSums};
use crate::code_map::CodeMap;
use crate::control::{Control, Left};
use crate::entered::Open;
use crate::frames::Frames;
use crate::kept_calls::{Keeps, RunCalls};
use crate::off_cpu::OffCpuClock;
use crate::off_cpu_causes::{CauseSums, Reason};
use crate::passed::{OuterSites, Passed};
use crate::place::ChildKind;
use crate::report::Limits;
use crate::request::{Request, Roles, Surroundings};
use crate::row_output::RowOutput;
use crate::running::{Activation, EndedCall};
use crate::runs::{Run, RunItem, Sight, runs};
use crate::session::Session;
use crate::sparse::Sparse;
use crate::stack::{DEPTH_MAX, FrameKind, FrameRole};
use crate::taken::{RunSums, TakenCalls};
use crate::thread::Thread;
use crate::traced_causes::TracedCauses;
use crate::window::ThreadWindow;
use item::DigestedItem;

/// A shorter run costs more than it saves.
const EVENTS_MIN: u64 = 16;

/// Events of the shortest run that pays where a run meets many wanted functions: the sums of each take 3 KB
/// until the run's turn, and are then added one by one.
const EVENTS_MIN_OF_MANY: u64 = 4096;

/// Wanted functions beyond which they are many.
const FEW_FUNCTIONS: usize = 64;

/// Analyses runs of calls ahead of an [`Analysis`](crate::Analysis).
pub struct RunDigester<'a> {
    request: Arc<Request>,
    roles: Arc<Roles>,
    /// What workers that digest nothing now have looked up.
    known: Mutex<Vec<(CodeMap<'a>, TracedCauses<'a>)>>,
    around: Surroundings<'a>,
    /// Of a run.
    events_min: u64,
    keeps: Keeps,
    /// Of the analysis that takes the runs.
    taken: Option<TakenCalls>,
}

/// What the analysis of a run gave.
#[derive(Serialize, Deserialize)]
pub struct RunDigest {
    needs: RunNeeds,
    /// Packet of its last event.
    last_at: AuxOffset,
    /// By wanted function.
    open: Sparse<Open>,
    calls: Arc<RunSums>,
    /// Those that are given out one by one; [`Digester::pack`] adds what of them is kept.
    #[serde(skip)]
    kept: RunCalls,
    /// Of the frame that made the calls; which of them are of its own function is known when it is its turn.
    children: RunningSums<Child>,
    /// Sites of calls by code outside that returned there, and those that entered wanted functions.
    passed: Passed,
    outer_sites: OuterSites,
    /// Functions that were entered as handlers of signals.
    handlers: Vec<FunctionId>,
    /// Time outside of the IP filter.
    outside_ns: u64,
    /// Of times off the CPU in calls that are in no other call of the function in the run.
    causes: Sparse<CauseSums>,
    off_cpu: RunOffCpu,
}

/// What a thread that takes a run has to be like.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct RunNeeds {
    /// Where control is.
    caller: Sight,
    /// Tracing starts in the run.
    starts: bool,
    /// Frames that are open at once in the run, at most.
    depth: usize,
}

/// A thread's time off the CPU, as it was taken to be when a run was digested.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct RunOffCpu {
    /// At the begin.
    before_ns: u64,
    /// Times off the CPU that were still to come at the begin, and at the end.
    left: (usize, usize),
}

impl RunDigest {
    /// It can be of such a run, for a request of so many functions: sums of counts of any number of runs fit.
    fn is_plausible(&self, run: &DigestedRun<()>, functions: usize) -> bool {
        let events = run.events;
        let is_wanted = |wanted: u32| (wanted as usize) < functions;
        self.calls.iter().all(|(wanted, sums)| is_wanted(wanted) && sums.is_of_at_most(events))
            && self.open.iter().all(|(wanted, open)| is_wanted(wanted) && open.entered <= events)
            && self.causes.iter().all(|(wanted, _)| is_wanted(wanted))
            && self.off_cpu.left.1 <= self.off_cpu.left.0
            && self.needs.depth as u64 <= events
            && self.outside_ns <= run.last.point.since(run.first.point)
    }
}

impl<'a> RunDigester<'a> {
    /// `None` if trees, counters, a function's own code or regions are asked for, or the ancestor decides.
    pub(crate) fn of(session: &Session<'a>) -> Option<Self> {
        let Asked { request, roles, regions, .. } = &session.asked;
        let keeps = match &session.rows {
            _ if request.rows => Keeps::All,
            RowOutput::Sink(rows) if rows.takes_all() => Keeps::All,
            RowOutput::Sink(_) => Keeps::Slowest,
            _ => Keeps::Nothing,
        };
        let is_followed = session.trees.is_some() || session.asked.counts() || session.code.is_some();
        let in_turn = is_followed || !regions.is_empty();
        let events_min =
            if request.functions.len() > FEW_FUNCTIONS { EVENTS_MIN_OF_MANY } else { EVENTS_MIN };
        let alone = !in_turn && request.ancestor.is_none();
        alone.then(|| Self {
            request: Arc::clone(request),
            roles: Arc::clone(roles),
            known: Mutex::default(),
            around: session.around,
            events_min,
            keeps,
            taken: session.sums.taken.clone(),
        })
    }

    /// The digester for a store, where it is not known yet if the slowest calls will be asked for.
    #[must_use]
    pub fn for_store(self) -> Self {
        Self { keeps: Keeps::Slowest, ..self }
    }

    fn digest_items<I: DigestedItem>(
        &self,
        tid: Tid,
        space: SpaceId,
        items: &[I],
    ) -> Vec<DigestedRun<RunDigest>> {
        self.taken.iter().for_each(TakenCalls::add_up);
        let runs = runs(items, self.events_min);
        if runs.is_empty() {
            return Vec::new();
        }
        let mut session = self.session();
        let mut thread = Thread::new(tid, &session);
        let digest = |run: Run| {
            let of_run = items.get(run.places.clone()).unwrap_or_default();
            session.rows = RowOutput::Run(RunCalls::new(self.keeps));
            thread.digest(&mut session, space, run, of_run)
        };
        let digested = runs.into_iter().filter_map(digest).collect();
        if let Ok(mut known) = self.known.lock() {
            known.push((session.map, session.sums.causes));
        }
        digested
    }

    fn session(&self) -> Session<'a> {
        let asked = Asked::of_run(Arc::clone(&self.request), Arc::clone(&self.roles));
        let known = self.known.lock().ok().and_then(|mut known| known.pop());
        let (map, causes) = known
            .unwrap_or_else(|| (CodeMap::new(self.around), TracedCauses::new(self.around, &self.request)));
        Session::with(asked, self.around, (map, causes))
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
    type Digest = RunDigest;

    fn digest(&self, tid: Tid, space: SpaceId, events: &[TraceEvent]) -> Vec<DigestedRun<RunDigest>> {
        self.digest_items(tid, space, events)
    }

    fn join(&self, tid: Tid, space: SpaceId, parts: &[RunPart<RunDigest>]) -> Vec<DigestedRun<RunDigest>> {
        self.digest_items(tid, space, parts)
    }

    fn pack(&self, digest: &RunDigest) -> Option<Vec<u8>> {
        let slowest: Vec<(usize, &CallRow, Option<&Reason>)> = match &digest.kept {
            RunCalls::Nothing => Vec::new(),
            RunCalls::Slowest(slowest) => slowest.rows().collect(),
            RunCalls::All(_) => return None,
        };
        postcard::to_allocvec(&(digest, postcard::to_allocvec(&slowest).ok()?)).ok()
    }

    fn unpack(&self, bytes: &[u8], run: &DigestedRun<()>) -> Option<RunDigest> {
        self.taken.iter().for_each(TakenCalls::add_up);
        if self.keeps == Keeps::All {
            return None;
        }
        let (mut digest, slowest): (RunDigest, &[u8]) = postcard::from_bytes(bytes).ok()?;
        digest.kept = RunCalls::new(self.keeps);
        if let RunCalls::Slowest(kept) = &mut digest.kept {
            let rows: Vec<(usize, CallRow, Option<Reason>)> = postcard::from_bytes(slowest).ok()?;
            for (wanted, row, waited_for) in &rows {
                let function = self.request.functions.get(*wanted);
                kept.add(*wanted, row, waited_for.as_ref());
                function.filter(|function| **function == row.function)?;
            }
        }
        Some(digest).filter(|digest| digest.is_plausible(run, self.request.functions.len()))
    }

    /// Digesting adds 5 to 10 % to the work of a report on few functions, of which the analysis is at most a
    /// third.
    fn workers_min(&self) -> usize {
        if self.request.functions.len() > FEW_FUNCTIONS { 2 } else { 3 }
    }
}

impl<'a> Session<'a> {
    /// The times of a thread off the CPU from `first` on: those that ended before have passed. Whether they
    /// have is asked when it is the run's turn.
    fn off_cpu_from(&mut self, tid: Tid, first: EventTime) -> OffCpuClock<'a> {
        let all = self.around.schedule.thread(tid).map_or(&[][..], |life| &life.off_cpu);
        let passed = all.partition_point(|off| off.to.is_some_and(|to| to <= first.point));
        let left = all.get(passed..).unwrap_or_default();
        // Where none is left no call asks when they were.
        let before_ns = if left.is_empty() { 0 } else { self.sums.causes.off_cpu_before(tid, first.point) };
        OffCpuClock::after(before_ns, left)
    }
}

impl<'a> Thread<'a> {
    /// Analyses a run of calls, whatever made them.
    fn digest<I: DigestedItem>(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        run: Run,
        items: &[I],
    ) -> Option<DigestedRun<RunDigest>> {
        let first = items.first()?.first();
        let left = (run.caller == Sight::Out).then_some(Left::OutOfSight);
        self.control = Control::default();
        self.control.left = left;
        self.clock.off_cpu = session.off_cpu_from(self.tid, first);
        let (before_ns, left_before) = (self.clock.off_cpu.total_ns(), self.clock.off_cpu.left()?);
        let outside_since = (run.caller == Sight::Out).then_some(first.point);
        self.window = ThreadWindow::of_run(session.around.has_ip_filter, outside_since);
        let mut caller = self.frame(FunctionId::UNKNOWN, FrameKind::Found);
        // It gathers children as a wanted function's does, and is none.
        caller.role = FrameRole::Wanted;
        self.stack.push(caller);
        self.stack.activations.push(Activation::default());
        let is_whole = I::pass(items, self, session, space);
        let caller = self.stack.activations.pop().filter(|_| self.stack.len() == 1);
        self.stack.clear();
        let calls = session.sums.calls.take().into_functions();
        let causes = session.sums.causes.take_met();
        let kept = session.rows.take_run();
        let open = std::mem::take(&mut self.entered.open);
        let outer_sites = std::mem::take(&mut self.entered.outer_sites);
        let is_within_limits = std::mem::take(&mut session.limits) == Limits::default();
        let is_back = self.control.left.is_some() == left.is_some() && self.control.away.is_none();
        let is_overfull = calls.iter().any(|(_, sums)| sums.overfull.is_some());
        let is_plain = is_whole && is_within_limits && is_back && !is_overfull && !outer_sites.was_asked();
        let Activation { children, passed, .. } = caller.filter(|_| is_plain)?;
        let Run { places, caller, starts } = run;
        let digest = RunDigest {
            needs: RunNeeds { caller, starts, depth: I::depth(items) },
            last_at: self.clock.at,
            open,
            calls: Arc::new(calls),
            kept,
            children,
            passed,
            outer_sites,
            handlers: self.control.handlers().to_vec(),
            outside_ns: self.window.outside_ns(),
            causes,
            off_cpu: RunOffCpu { before_ns, left: (left_before, self.clock.off_cpu.left()?) },
        };
        let events = items.iter().map(RunItem::events).sum();
        Some(DigestedRun { places, events, first, last: self.clock.now, digest })
    }

    /// Control is where the run's caller is, and nothing that is known before changes what the run's calls
    /// are.
    pub(crate) fn takes(&self, run: &DigestedRun<RunDigest>) -> bool {
        let &DigestedRun { first, last, digest: RunDigest { needs, off_cpu: of_run, .. }, .. } = run;
        let RunNeeds { caller, starts, depth } = needs;
        let is_outside = caller == Sight::Out;
        let is_there = match self.control.left {
            None => !is_outside,
            Some(Left::OutOfSight) => is_outside,
            Some(Left::Kernel(_)) => false,
        };
        let is_decided = self.undecided.is_none() && self.control.away.is_none() && !self.kernel.is_entered();
        let lives =
            self.window.dead.first().is_none_or(|dead| last.point < dead.reborn && last.lo <= dead.died);
        let has_room = self.stack.len() + depth < DEPTH_MAX;
        let may_call = match self.stack.last() {
            // A stub makes room for what it led to.
            Some(top) if is_outside => !(top.kind.is_mark() || top.hidden && top.is_stub()),
            Some(top) => top.is_plain(),
            None => is_outside,
        };
        // What tracing starts for may be another thing, or prove that the caller was not left.
        let has_past = self.control.is_new || self.control.interrupted_at.is_some();
        let is_met = !(starts && (has_past || !self.certainty.is_of_all()));
        let is_in_window = self.window.passes(first.point, is_outside);
        // The first event passes the clock; outside of the IP filter, tracing starts with that event.
        let mut off_cpu = self.clock.off_cpu;
        off_cpu.pass(first);
        if is_outside {
            off_cpu.start(EventTime::exact(first.point));
        }
        let is_same_off_cpu = off_cpu.left() == Some(of_run.left.0);
        let is_same_thread = lives && is_same_off_cpu && is_in_window;
        is_there && is_decided && is_same_thread && is_met && has_room && may_call
    }

    /// Adds the calls of a run, instead of its events.
    pub(crate) fn take(&mut self, session: &mut Session<'a>, space: SpaceId, run: &DigestedRun<RunDigest>) {
        let DigestedRun { first, last, digest: run, .. } = run;
        (self.clock.now, self.clock.at) = (*last, run.last_at);
        self.control.space = space;
        run.handlers.iter().for_each(|handler| self.control.add_handler(*handler));
        self.clock.off_cpu.count_to(run.off_cpu.left.0);
        self.hand_over_kept(session, run);
        for (wanted, of_run) in run.open.iter() {
            let Some(open) = self.entered.open.meet(wanted) else { continue };
            open.entered = open.entered.saturating_add(of_run.entered);
            open.is_recursive |= of_run.is_recursive || open.depth > 0 && of_run.entered > 0;
        }
        let open = &self.entered.open;
        let is_open = |wanted| open.get(wanted).is_some_and(|open| open.depth > 0);
        session.sums.take_run(&run.calls, is_open);
        let outermost = run.causes.iter().filter(|(wanted, _)| !is_open(*wanted));
        outermost.for_each(|(wanted, causes)| session.sums.causes.merge(wanted, causes));
        self.clock.off_cpu.count_to(run.off_cpu.left.1);
        self.window.add_outside(first.point, run.outside_ns, self.clock.now.point);
        match self.stack.activations.last_mut() {
            Some(innermost) => innermost.passed.add_all(&run.passed),
            None => self.entered.outer_sites.add_all(&run.outer_sites),
        }
        let caller = self.stack.iter().rev().find(|frame| !frame.is_part_of_caller());
        let caller = caller.map(|frame| frame.function);
        if !self.stack.gathers() {
            return;
        }
        for (child, total) in run.children.all() {
            // The run's stand-in for the caller has no function: only here it is known what recursion is.
            let kind = match child.kind {
                ChildKind::Call | ChildKind::Recursion => ChildKind::of_call(child.function, caller),
                other => other,
            };
            let depth = self.stack.len();
            self.stack.add_child(&mut session.pool.places, depth, (Child { kind, ..*child }, *total), None);
        }
    }

    /// Hands over the calls of a run, before which others were entered, or are open.
    fn hand_over_kept(&self, session: &mut Session<'a>, run: &RunDigest) {
        let in_thread = |wanted: u32, row: &CallRow| {
            let mut row = *row;
            if let Some(before) = self.entered.open.get(wanted) {
                row.id.number = row.id.number.saturating_add(before.entered);
                row.depth = row.depth.saturating_add(before.depth);
            }
            row
        };
        let before = self.clock.off_cpu.total_ns();
        let off_cpu = |ns: u64| ns.saturating_sub(run.off_cpu.before_ns).saturating_add(before);
        match &run.kept {
            RunCalls::Nothing => (),
            RunCalls::Slowest(slowest) => {
                for (wanted, row, waited_for) in slowest.rows() {
                    let wanted = wanted as u32;
                    session.rows.row(wanted, &in_thread(wanted, row), waited_for);
                }
            }
            RunCalls::All(calls) => {
                for (wanted, call) in calls.iter() {
                    let (from, to) = call.off_cpu_ns;
                    let (row, off_cpu_ns) = (in_thread(wanted, call.row), (off_cpu(from), off_cpu(to)));
                    session.call(wanted, &EndedCall { row: &row, off_cpu_ns, ..call }, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{EventTime, Ns};

    use super::*;
    use crate::place::CalledFrom;

    fn digest() -> RunDigest {
        RunDigest {
            needs: RunNeeds { caller: Sight::In, starts: false, depth: 0 },
            last_at: AuxOffset(0),
            open: Sparse::default(),
            calls: Arc::default(),
            kept: RunCalls::Nothing,
            children: RunningSums::default(),
            passed: Passed::default(),
            outer_sites: OuterSites::default(),
            handlers: Vec::new(),
            outside_ns: 0,
            causes: Sparse::default(),
            off_cpu: RunOffCpu::default(),
        }
    }

    /// The numbers of a digest in a file may be any: sums over many of them must fit.
    #[test]
    fn a_digest_has_no_more_than_its_run() {
        let (first, last) = (EventTime::exact(Ns(100)), EventTime::exact(Ns(150)));
        let run = DigestedRun { places: 0..10, events: 10, first, last, digest: () };
        let is_plausible = |change: &dyn Fn(&mut RunDigest)| {
            let mut digest = digest();
            change(&mut digest);
            digest.is_plausible(&run, 3)
        };
        let entered = |wanted, entered| {
            is_plausible(&|digest| {
                digest.open.meet(wanted).into_iter().for_each(|open| open.entered = entered);
            })
        };
        assert_eq!([entered(2, 10), entered(2, 11), entered(3, 10)], [true, false, false]);
        let outside = |outside_ns| is_plausible(&|digest| digest.outside_ns = outside_ns);
        assert_eq!([outside(50), outside(51)], [true, false]);
        let called = |wanted, calls| {
            is_plausible(&|digest| {
                Arc::make_mut(&mut digest.calls).meet(wanted).into_iter().for_each(|sums| {
                    let known = sums.alone.callers.entry(CalledFrom::UNKNOWN).or_default();
                    (0..calls).for_each(|ns| known.latency_ns.add(ns));
                });
            })
        };
        assert_eq!([called(0, 10), called(0, 11), called(7, 1)], [true, false, false]);
    }
}
