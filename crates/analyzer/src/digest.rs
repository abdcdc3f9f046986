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

use std::sync::{Arc, Mutex};

use model::{AuxOffset, DigestedRun, Digester, FunctionId, SpaceId, Tid, TraceEvent};
use serde::{Deserialize, Serialize};

use crate::aggregate::FunctionSums;
use crate::call_row::CallRow;
use crate::children::{Child, RunningSums};
use crate::code_map::CodeMap;
use crate::control::{Control, Left};
use crate::entered::Open;
use crate::frames::Frames;
use crate::kept_calls::{Keeps, RunCalls};
use crate::off_cpu::{OffCpuClock, may_be_off_cpu};
use crate::passed::{OuterSites, Passed};
use crate::place::ChildKind;
use crate::report::Limits;
use crate::request::{Request, Roles, Surroundings};
use crate::running::{Activation, EndedCall};
use crate::runs::{Run, Sight, runs};
use crate::session::Session;
use crate::sparse::Sparse;
use crate::stack::{DEPTH_MAX, FrameKind};
use crate::thread::Thread;
use crate::window::ThreadWindow;

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
    keeps: Keeps,
}

/// What the analysis of a run gave.
#[derive(Serialize, Deserialize)]
pub struct RunDigest {
    caller: Sight,
    /// Tracing starts in it.
    starts: bool,
    /// Packet of its last event.
    last_at: AuxOffset,
    /// By wanted function.
    open: Sparse<Open>,
    calls: Sparse<FunctionSums<Child>>,
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
}

impl RunDigest {
    /// It can be of such a run, for a request of so many functions: sums of counts of any number of runs fit.
    fn is_plausible(&self, run: &DigestedRun<()>, functions: usize) -> bool {
        let events = run.events.len() as u64;
        let is_wanted = |wanted: u32| (wanted as usize) < functions;
        self.calls.iter().all(|(wanted, sums)| is_wanted(wanted) && sums.is_of_at_most(events))
            && self.open.iter().all(|(wanted, open)| is_wanted(wanted) && open.entered <= events)
            && self.outside_ns <= run.last.point.since(run.first.point)
    }
}

impl<'a> RunDigester<'a> {
    /// `None` if trees, counters, a function's own code or regions are asked for, or the ancestor decides.
    pub(crate) fn of(session: &Session<'a>) -> Option<Self> {
        let request = session.calls.request();
        let keeps = match &session.rows {
            _ if request.rows => Keeps::All,
            Some(rows) if rows.takes_all() => Keeps::All,
            Some(_) => Keeps::Slowest,
            None => Keeps::Nothing,
        };
        let is_followed = session.trees.is_some() || session.counts || session.code.is_some();
        let in_turn = is_followed || !session.regions.is_empty();
        let events_min =
            if request.functions.len() > FEW_FUNCTIONS { EVENTS_MIN_OF_MANY } else { EVENTS_MIN };
        let alone = !in_turn && session.ancestor.is_none();
        alone.then(|| Self {
            request: Arc::clone(request),
            roles: Arc::clone(&session.roles),
            maps: Mutex::default(),
            around: session.around,
            events_min,
            keeps,
        })
    }

    /// The digester for a store, where it is not known yet if the slowest calls will be asked for.
    #[must_use]
    pub fn for_store(self) -> Self {
        Self { keeps: Keeps::Slowest, ..self }
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
    type Digest = RunDigest;

    fn digest(&self, tid: Tid, space: SpaceId, events: &[TraceEvent]) -> Vec<DigestedRun<RunDigest>> {
        let off_cpu = self.around.schedule.thread(tid).map_or(&[][..], |life| &life.off_cpu);
        let may_stay = |left, back| !may_be_off_cpu(off_cpu, left, back);
        let runs = runs(events, self.events_min, &may_stay);
        if runs.is_empty() {
            return Vec::new();
        }
        let (request, roles) = (Arc::clone(&self.request), Arc::clone(&self.roles));
        let mut session = Session::with(request, roles, self.around, self.map());
        let mut thread = Thread::new(tid, &session);
        // Whether it was off the CPU or dead meanwhile, or is new, is asked when it is the run's turn.
        thread.off_cpu = OffCpuClock::new(&[]);
        let digest = |run: Run| {
            let calls = events.get(run.events.clone()).unwrap_or_default();
            session.kept = RunCalls::new(self.keeps);
            thread.digest(&mut session, space, run, calls)
        };
        let digested = runs.into_iter().filter_map(digest).collect();
        self.keep_map(session.map);
        digested
    }

    fn pack(&self, digest: &RunDigest) -> Option<Vec<u8>> {
        let slowest: Vec<(u32, CallRow)> = match &digest.kept {
            RunCalls::Nothing => Vec::new(),
            RunCalls::Slowest(slowest) => {
                slowest.rows().map(|(wanted, row, _)| (wanted as u32, *row)).collect()
            }
            RunCalls::All(_) => return None,
        };
        postcard::to_allocvec(&(digest, postcard::to_allocvec(&slowest).ok()?)).ok()
    }

    fn unpack(&self, bytes: &[u8], run: &DigestedRun<()>) -> Option<RunDigest> {
        if self.keeps == Keeps::All {
            return None;
        }
        let (mut digest, slowest): (RunDigest, &[u8]) = postcard::from_bytes(bytes).ok()?;
        digest.kept = RunCalls::new(self.keeps);
        if let RunCalls::Slowest(kept) = &mut digest.kept {
            let rows: Vec<(u32, CallRow)> = postcard::from_bytes(slowest).ok()?;
            for (wanted, row) in &rows {
                let function = self.request.functions.get(*wanted as usize);
                kept.add(*wanted as usize, row, None);
                function.filter(|function| **function == row.function)?;
            }
        }
        Some(digest).filter(|digest| digest.is_plausible(run, self.request.functions.len()))
    }
}

impl<'a> Thread<'a> {
    /// Analyses a run of calls, whatever made them.
    fn digest(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        run: Run,
        events: &[TraceEvent],
    ) -> Option<DigestedRun<RunDigest>> {
        let left = (run.caller == Sight::Out).then_some(Left::OutOfSight);
        self.control = Control::default();
        self.control.left = left;
        self.window = ThreadWindow::of_run(session.around.has_ip_filter);
        let mut caller = self.frame(FunctionId::UNKNOWN, FrameKind::Found);
        // It gathers children as a wanted function's does, and is none.
        (caller.is_active, caller.gathers) = (true, true);
        self.stack.push(caller);
        self.stack.activations.push(Activation::default());
        self.events(session, space, events);
        let caller = self.stack.activations.pop().filter(|_| self.stack.len() == 1);
        self.stack.clear();
        let calls = session.calls.take().into_functions();
        let kept = std::mem::take(&mut session.kept);
        let open = std::mem::take(&mut self.entered.open);
        let outer_sites = std::mem::take(&mut self.entered.outer_sites);
        let is_within_limits = std::mem::take(&mut session.limits) == Limits::default();
        let is_back = self.control.left.is_some() == left.is_some() && self.control.away.is_none();
        let is_overfull = calls.iter().any(|(_, sums)| sums.overfull.is_some());
        let is_plain = is_within_limits && is_back && !is_overfull && !outer_sites.was_asked();
        let Activation { children, passed, .. } = caller.filter(|_| is_plain)?;
        let (first, last) = (events.first()?.time(), self.now);
        let Run { events, caller, starts } = run;
        let digest = RunDigest {
            caller,
            starts,
            last_at: self.at,
            open,
            calls,
            kept,
            children,
            passed,
            outer_sites,
            handlers: self.control.handlers().to_vec(),
            outside_ns: self.window.outside_ns(),
        };
        Some(DigestedRun { events, first, last, digest })
    }

    /// Control is where the run's caller is, and nothing that is known before changes what the run's calls
    /// are.
    pub(crate) fn takes(&self, run: &DigestedRun<RunDigest>) -> bool {
        let &DigestedRun { first, last, digest: RunDigest { caller, starts, .. }, .. } = run;
        let is_outside = caller == Sight::Out;
        let is_there = match self.control.left {
            None => !is_outside,
            Some(Left::OutOfSight) => is_outside,
            Some(Left::Kernel(_)) => false,
        };
        let is_decided = self.undecided.is_none() && self.control.away.is_none() && !self.kernel.is_entered();
        let lives =
            self.window.dead.first().is_none_or(|(died, reborn)| last.point < *reborn && last.lo <= *died);
        let has_room = self.stack.len() + run.events.len() < DEPTH_MAX;
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
        // The thread was not off the CPU in a stay of the run: that would not be part of it.
        let stays_on_cpu = self.off_cpu.stands_still_until(last.lo);
        let is_same_thread = lives && stays_on_cpu && is_in_window;
        is_there && is_decided && is_same_thread && is_met && has_room && may_call
    }

    /// Adds the calls of a run, instead of its events.
    pub(crate) fn take(&mut self, session: &mut Session<'a>, space: SpaceId, run: &DigestedRun<RunDigest>) {
        let DigestedRun { first, last, digest: run, .. } = run;
        (self.now, self.at) = (*last, run.last_at);
        self.control.space = space;
        run.handlers.iter().for_each(|handler| self.control.add_handler(*handler));
        self.hand_over_kept(session, &run.kept);
        for (wanted, of_run) in run.open.iter() {
            let Some(open) = self.entered.open.meet(wanted) else { continue };
            open.entered = open.entered.saturating_add(of_run.entered);
            open.is_recursive |= of_run.is_recursive || open.depth > 0 && of_run.entered > 0;
        }
        let open = &self.entered.open;
        let is_open = |wanted| open.get(wanted).is_some_and(|open| open.depth > 0);
        session.calls.merge_whole_calls(&run.calls, is_open);
        self.window.add_outside(first.point, run.outside_ns, self.now.point);
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
            self.stack.add_child(&mut session.places, depth, (Child { kind, ..*child }, *total), None);
        }
    }

    /// Hands over the calls of a run, before which others were entered, or are open.
    fn hand_over_kept(&self, session: &mut Session<'a>, kept: &RunCalls) {
        let now = self.off_cpu.total_ns();
        let in_thread = |wanted: u32, row: &CallRow| {
            let mut row = *row;
            if let Some(before) = self.entered.open.get(wanted) {
                row.id.number = row.id.number.saturating_add(before.entered);
                row.depth = row.depth.saturating_add(before.depth);
            }
            row
        };
        match kept {
            RunCalls::Nothing => (),
            RunCalls::Slowest(slowest) => {
                for (wanted, row, _) in slowest.rows() {
                    session.slow_call(wanted as u32, &in_thread(wanted as u32, row), now);
                }
            }
            RunCalls::All(calls) => {
                for (wanted, row, children) in calls.iter() {
                    let (row, off_cpu_ns) = (in_thread(wanted, row), (now, now));
                    let ended = EndedCall { row: &row, children, counted: &[], code: &[], off_cpu_ns };
                    session.call(wanted, &ended, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{EventTime, Ns};

    use super::*;
    use crate::place::Caller;

    fn digest() -> RunDigest {
        RunDigest {
            caller: Sight::In,
            starts: false,
            last_at: AuxOffset(0),
            open: Sparse::default(),
            calls: Sparse::default(),
            kept: RunCalls::Nothing,
            children: RunningSums::default(),
            passed: Passed::default(),
            outer_sites: OuterSites::default(),
            handlers: Vec::new(),
            outside_ns: 0,
        }
    }

    /// The numbers of a digest in a file may be any: sums over many of them must fit.
    #[test]
    fn a_digest_has_no_more_than_its_run() {
        let (first, last) = (EventTime::exact(Ns(100)), EventTime::exact(Ns(150)));
        let run = DigestedRun { events: 0..10, first, last, digest: () };
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
                digest.calls.meet(wanted).into_iter().for_each(|sums| {
                    let caller = (Caller::Unknown, None);
                    let known = sums.alone.callers.entry(caller).or_default();
                    (0..calls).for_each(|ns| known.latency_ns.add(ns));
                });
            })
        };
        assert_eq!([called(0, 10), called(0, 11), called(7, 1)], [true, false, false]);
    }
}
