//! The whole: events of all threads in, one report out.

use std::collections::BTreeSet;

use model::{
    AuxOwner, DigestSink, DigestedRun, EventSink, FunctionSet, Ns, Pid, SpaceId, StretchCounters, Tid,
    TraceEvent, WholeRun,
};
use rustc_hash::FxHashMap;

use crate::call_sums::CallSums;
use crate::digest::{RunDigest, RunDigester};
use crate::finished::FinishedThreads;
use crate::nowhere;
use crate::own_code::{CodeDetail, CodeRequest, CodeSums, OwnCode};
use crate::report::{Report, TraceSummary};
use crate::request::{Request, Surroundings};
use crate::row_sink::RowSink;
use crate::session::Session;
use crate::summary::{Summary, SummedRecording};
use crate::thread::Thread;
use crate::tree::TreeSink;

/// Turns the events of all threads into a [`Report`], in one pass.
pub struct Analysis<'a> {
    session: Session<'a>,
    /// Those that may still have events; `None`: not asked for.
    threads: FxHashMap<Tid, Option<Thread<'a>>>,
    finished: FinishedThreads,
    tids: Vec<Tid>,
    events: u64,
}

impl<'a> Analysis<'a> {
    /// An analysis that has seen nothing yet.
    #[must_use]
    pub fn new(request: &Request, around: Surroundings<'a>) -> Self {
        Self::start(request, Session::new(request, around))
    }

    fn start(request: &Request, session: Session<'a>) -> Self {
        let (threads, finished, tids) =
            (FxHashMap::default(), FinishedThreads::default(), request.tids.clone());
        let mut analysis = Self { session, threads, finished, tids, events: 0 };
        analysis.meet_threads();
        analysis.session.rows.end_start();
        analysis
    }

    /// Enters the threads that the schedule names and that are not known yet.
    fn meet_threads(&mut self) {
        for (tid, life) in self.session.around.schedule.threads() {
            let is_late = life.dead.iter().any(|dead| dead.not_yet_attached.is_some());
            let is_late = is_late || life.not_yet_attached().is_some();
            let is_traced = life.trace_start.is_some() || is_late || self.finished.has(tid);
            if is_traced || self.threads.contains_key(&tid) {
                // Traced, though it may never have run.
                if let (session, Some(thread)) = self.thread(tid) {
                    thread.add_late(session);
                }
            }
        }
    }

    /// An analysis that gives the trees of calls to `sink`. It needs every call that the wanted functions led
    /// to, so that nothing may be left out ([`EventSink::asks_about`]).
    #[must_use]
    pub fn with_trees(
        request: &Request,
        around: Surroundings<'a>,
        sink: &'a mut (dyn TreeSink + 'a),
    ) -> Self {
        Self::start(request, Session::new(request, around).with_trees(sink))
    }

    /// The same, which gives the rows of calls to `sink` as they end, whether the report keeps them or not.
    #[must_use]
    pub fn giving_rows_to(mut self, sink: &'a mut (dyn RowSink + 'a)) -> Self {
        self.session.rows.give_to(sink);
        self
    }

    /// Makes an analysis that follows calls through their own code, for [`Self::finish_with_code`].
    #[must_use]
    pub fn with_code(mut self, request: CodeRequest<'a>) -> Self {
        let functions = self.session.asked.request.functions.len();
        self.session.code = Some(CodeSums::new(request, functions));
        self
    }

    /// The digester that analyses calls that are whole in a stretch, on the decoder's workers; `None` where a
    /// sink takes each of them in order.
    #[must_use]
    pub fn digester(&self) -> Option<RunDigester<'a>> {
        RunDigester::of(&self.session)
    }

    /// The thread's state; `None` if it was not asked for.
    fn thread(&mut self, tid: Tid) -> (&mut Session<'a>, &mut Option<Thread<'a>>) {
        let Self { session, threads, finished, tids, .. } = self;
        let wanted = tid.0 > 0 && (tids.is_empty() || tids.contains(&tid));
        let new = || Thread::new(tid, session).after(finished);
        let thread = threads.entry(tid).or_insert_with(|| wanted.then(new));
        (session, thread)
    }

    /// The recording is over: closes open calls and does the sums.
    #[must_use]
    pub fn finish(self) -> Report {
        self.finish_with_code().0
    }

    /// [`Self::finish`], and what calls did in their functions' own code, by wanted function and group; empty
    /// unless that was asked for ([`Self::with_code`]).
    #[must_use]
    pub fn finish_with_code(self) -> (Report, Vec<Vec<OwnCode>>) {
        let (summary, code) = self.summarise();
        (summary.into_report(), code)
    }

    /// Threads with events that wait until a landing is decided: they need what the schedule has of the time
    /// of those events.
    #[must_use]
    pub fn undecided_threads(&self) -> BTreeSet<Tid> {
        let undecided = self.threads.values().flatten().filter(|thread| thread.undecided.is_some());
        undecided.map(|thread| thread.tid).collect()
    }

    /// Stops for a while, in which the recording grows. All events from before `until` were given out: of
    /// threads that are not [undecided](Self::undecided_threads) the schedule may forget times off the CPU
    /// that ended earlier.
    #[must_use]
    pub fn pause(self, until: Ns) -> PausedAnalysis {
        let nowhere = nowhere::surroundings();
        let Self { mut session, mut threads, finished, tids, events } = self;
        for thread in threads.values_mut().flatten() {
            thread.pass_time(&mut session, until);
            session.sums.causes.keep_from(thread.tid, thread.off_cpu_from_ns());
        }
        let threads = threads.into_iter();
        let threads = threads.map(|(tid, thread)| (tid, thread.map(|thread| thread.grown(nowhere))));
        let (session, threads) = (session.grown(nowhere), threads.collect());
        PausedAnalysis(Analysis { session, threads, finished, tids, events })
    }

    /// No more events of these threads will come, though of others with their numbers: closes their open
    /// calls, which no sink takes, as at the end of the recording. Of the threads, sums are left. The
    /// schedule has their lives still, and forgets them before the next part.
    pub fn finish_threads(&mut self, ended: &[Tid]) {
        for tid in ended {
            if let Some(Some(mut thread)) = self.threads.remove(tid) {
                let end = thread.life_end(&self.session);
                thread.decide_rest(&mut self.session, end);
                let rows = std::mem::take(&mut self.session.rows);
                thread.finish(&mut self.session, thread.last_ns());
                self.session.rows = rows;
                self.finished.add(&thread);
            }
            self.session.sums.causes.forget(*tid);
        }
    }

    /// No more events will come: ends the calls that a landing leaves open until it is decided.
    pub fn decide_rest(&mut self) {
        let mut threads: Vec<&mut Thread<'a>> = self.threads.values_mut().flatten().collect();
        threads.sort_unstable_by_key(|thread| thread.tid);
        for thread in threads {
            let end = thread.life_end(&self.session);
            thread.decide_rest(&mut self.session, end);
        }
    }

    /// Takes the sums of the calls that have ended since they were taken last; the summary at the end has the
    /// others.
    pub fn take_calls(&mut self) -> CallSums {
        CallSums::new(self.session.sums.take(&mut self.session.map))
    }

    /// Time lost so far, of all threads.
    #[must_use]
    pub fn lost_ns(&self) -> u64 {
        self.session.loss.lost_ns()
    }

    /// Closes open calls: returns the sums that the report is made of.
    #[must_use]
    pub fn finish_with_summary(self) -> Summary {
        self.summarise().0
    }

    fn summarise(self) -> (Summary, Vec<Vec<OwnCode>>) {
        let Self { mut session, threads, finished, events, .. } = self;
        let mut threads: Vec<Thread<'a>> = threads.into_values().flatten().collect();
        threads.sort_unstable_by_key(|thread| thread.tid);
        let window = session.around.window;
        let end = threads.iter().map(Thread::last_ns).fold(window.1.max(finished.last_ns()), Ns::max);
        let mut windows = Vec::with_capacity(threads.len());
        for thread in &mut threads {
            thread.finish(&mut session, end);
            windows.push(thread.window.finish(thread.tid));
        }
        let windows = finished.with(&windows);
        let trace = TraceSummary {
            window: (window.0, end),
            span_ns: end.since(window.0),
            threads: windows.len() as u64,
            events,
            no_times: session.around.no_times,
            no_off_cpu: session.around.no_off_cpu(),
        };
        let told_by = session.sums.causes.told_by();
        let functions = session.sums.take(&mut session.map);
        let off_cpu = session.sums.calls.off_cpu();
        let code = session.code.take().map(|code| code.finish(&mut session.map, off_cpu));
        let recording =
            SummedRecording { trace, ledger: session.loss, threads: windows, limits: session.limits };
        let summary = Summary::new(functions, recording, told_by, session.asked.request.counters);
        (summary, code.unwrap_or_default())
    }
}

/// An analysis of a recording that grows, between two parts of it: it refers to nothing.
pub struct PausedAnalysis(Analysis<'static>);

impl PausedAnalysis {
    /// Goes on with a recording that has grown. Its functions and objects have the numbers that they had.
    #[must_use]
    pub fn resume(self, around: Surroundings<'_>) -> Analysis<'_> {
        let Analysis { session, threads, finished, tids, events } = self.0;
        let threads = threads.into_iter();
        let threads = threads.map(|(tid, thread)| (tid, thread.map(|thread| thread.grown(around))));
        let (session, threads) = (session.grown(around), threads.collect());
        let mut analysis = Analysis { session, threads, finished, tids, events };
        analysis.meet_threads();
        analysis
    }
}

impl EventSink for Analysis<'_> {
    fn asks_about(&self) -> Option<FunctionSet> {
        self.session.asks_about()
    }

    fn takes_jumps_of(&self) -> Option<FunctionSet> {
        let needs_jumps = |code: &CodeSums<'_>| code.detail() == CodeDetail::Instructions;
        let is_asked = self.session.code.as_ref().is_some_and(needs_jumps);
        is_asked.then(|| {
            let wanted = self.session.asked.request.functions.iter().copied();
            wanted.chain(self.session.asked.regions.functions().iter()).collect()
        })
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        let is_of_others = |tid| !self.tids.is_empty() && !self.tids.contains(&tid);
        if !matches!(owner, AuxOwner::Thread(tid) if is_of_others(tid)) {
            self.session.loss.overflows += count;
        }
    }

    fn left_out(&mut self, tid: Tid, transfers: u64) {
        if tid.0 <= 0 || self.thread(tid).1.is_some() {
            self.events += transfers;
        }
    }

    fn wants_counters(&self) -> bool {
        self.session.asked.counts()
    }

    fn events(&mut self, _pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.in_turn(tid, space, events, None);
    }

    fn counted(
        &mut self,
        _pid: Pid,
        tid: Tid,
        space: SpaceId,
        events: &[TraceEvent],
        counters: StretchCounters<'_>,
    ) {
        self.in_turn(tid, space, events, Some(&counters));
    }
}

impl<'a> Analysis<'a> {
    fn in_turn(
        &mut self,
        tid: Tid,
        space: SpaceId,
        events: &[TraceEvent],
        counters: Option<&StretchCounters<'_>>,
    ) {
        let (session, thread) = self.thread(tid);
        if let (Some(thread), Some(first)) = (thread.as_mut(), events.first()) {
            thread.meet(session, first.time());
        }
        match (thread, counters) {
            (Some(thread), Some(counters)) if session.asked.counts() => {
                thread.counted(session, space, events, counters);
            }
            (Some(thread), _) => thread.events(session, space, events),
            // What no thread lost is still lost.
            (None, _) if tid.0 <= 0 => {
                for event in events {
                    if let TraceEvent::Gap(gap) = event {
                        session.lose(tid, None, gap, 0);
                    }
                }
            }
            (None, _) => return,
        }
        self.events += events.len() as u64;
    }
}

impl DigestSink<RunDigest> for Analysis<'_> {
    fn run(
        &mut self,
        _: Pid,
        tid: Tid,
        space: SpaceId,
        run: &DigestedRun<RunDigest>,
        whole: &dyn WholeRun<RunDigest>,
    ) {
        let (session, thread) = self.thread(tid);
        if let Some(thread) = thread {
            thread.meet(session, run.first);
        }
        match thread {
            Some(thread) if thread.takes(run) => thread.take(session, space, run),
            Some(_) => return whole.give(self),
            // No thread's: there is no gap in a run.
            None if tid.0 <= 0 => (),
            None => return,
        }
        self.events += run.events;
    }
}
