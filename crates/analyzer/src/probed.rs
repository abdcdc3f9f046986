//! Calls that probes have paired: the same figures, from less.
//!
//! ```text
//!   calls of children -> price: without what probes added -> sums by the call that called them
//!   calls             -> price -> slices: whether it enters the figures -> row, with what its children took
//!                                                              -> row sink, with its parts, if one is there
//!                                                                       -> sums -> Report
//! ```
//! A call is known by its entry and its end; its caller by the address that it returns to; a child if it was
//! probed, too.  What was unwound was not seen to end: it is cut.

mod price;
mod slices;
mod sums;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    Avma, FunctionId, LostCalls, NoOffCpu, Ns, OffCpuInterval, OffCpuSplit, ProbeCost, ProbeSink, ProbeTime,
    ProbedCall, ProbedEnd, ProbedThread, SpaceId, Tid,
};
use rustc_hash::FxHashMap;

use crate::call_row::{CallId, CallRow, Evidence, ProbedRow, SliceKind};
use crate::children::{ChildKey, ChildSums};
use crate::code_map::CodeMap;
use crate::loss::LossLedger;
use crate::off_cpu_causes::{Intervals, Reason, StackNames, longest};
use crate::place::{CalledFrom, Caller, ChildKind};
use crate::report::{FunctionReport, Limits, Report, TraceSummary};
use crate::request::{Request, Surroundings};
use crate::row_reasons::RowReasons;
use crate::row_sink::{RowGap, RowParts, RowSink, parts_of_row};
use crate::status::{CallEnd, Cut, CutCause, Status};
use crate::total::{OffCpuKnown, RunningTotal};
use price::{Cleared, Prices};
use slices::Slices;
use sums::{IntervalSums, ProbedSums};
use threads::ProbedThreads;

/// Turns probed calls into a [`Report`].
pub struct ProbedAnalysis<'a> {
    around: Surroundings<'a>,
    map: CodeMap<'a>,
    request: Request,
    /// Which function a call's number stands for: those that were asked for first, in their order, then
    /// children.
    functions: Vec<(FunctionId, ProbeCost)>,
    sums: IntervalSums,
    /// What children took of calls that have not ended yet, by thread and number.
    children: FxHashMap<Tid, BTreeMap<u64, ChildSums<ChildKey>>>,
    prices: Prices,
    slices: Slices,
    off_cpu: ProbedOffCpu<'a>,
    kept: KeptParts,
    threads: ProbedThreads,
    /// Calls that have ended.
    seen: u64,
}

/// Times off the CPU.
struct ProbedOffCpu<'a> {
    intervals: Intervals,
    /// Names for the stacks of waits.
    names: &'a dyn StackNames,
}

/// What is kept of each call.
struct KeptParts {
    /// By wanted function, what it waited for, if rows are asked for.
    reasons: Vec<BTreeMap<CallId, Vec<(Reason, OffCpuSplit)>>>,
    /// `None`: they are not asked for.
    parts: Option<BTreeMap<(CallId, Ns), RowParts>>,
}

/// What rows are made of, and what was not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbedParts {
    /// Of each row of the report that has any, by its number and entry: a number may be given to another
    /// thread.
    pub of_calls: BTreeMap<(CallId, Ns), RowParts>,
    /// Of each thread, in its order.
    pub gaps: Vec<RowGap>,
}

/// More calls of a thread are not open at once: those with children that are older were lost.
const OPEN_MAX: usize = 256;

impl<'a> ProbedAnalysis<'a> {
    /// An analysis of calls of these functions; `threads` are known to have lived when it began.
    #[must_use]
    pub fn new(
        request: &Request,
        functions: Vec<(FunctionId, ProbeCost)>,
        threads: &[Tid],
        around: Surroundings<'a>,
        names: &'a dyn StackNames,
    ) -> Self {
        Self {
            around,
            map: CodeMap::new(around),
            request: request.clone(),
            prices: Prices::new(any_hit(functions.iter().map(|(_, cost)| cost))),
            functions,
            sums: IntervalSums::new(ProbedSums::new(Arc::new(request.clone()), OffCpuKnown(true))),
            children: FxHashMap::default(),
            slices: Slices::default(),
            off_cpu: ProbedOffCpu { intervals: Intervals::default(), names },
            kept: KeptParts {
                reasons: request.functions.iter().map(|_| BTreeMap::new()).collect(),
                parts: None,
            },
            threads: ProbedThreads::of(threads),
            seen: 0,
        }
    }

    /// The probes do not follow the scheduler: time off the CPU is not known.
    #[must_use]
    pub fn without_scheduler(self) -> Self {
        let sums = ProbedSums::new(Arc::new(self.request.clone()), OffCpuKnown(false));
        Self { sums: IntervalSums::new(sums), ..self }
    }

    /// Keeps what each row is made of, for [`Self::finish_with_parts`].
    #[must_use]
    pub fn keeping_parts(self) -> Self {
        Self { kept: KeptParts { parts: Some(BTreeMap::new()), ..self.kept }, ..self }
    }

    /// The figures of the calls that have ended since the interval before, which ended at `span.0`; they
    /// enter the report, too. Rows are not kept.
    #[must_use]
    pub fn take_interval(&mut self, span: (Ns, Ns)) -> Vec<FunctionReport> {
        self.sums.take().finish(&self.slices, span, 1.0)
    }

    /// The figures of the calls of all intervals that were taken, in a window up to now.
    #[must_use]
    pub fn so_far(&self, window: (Ns, Ns)) -> Vec<FunctionReport> {
        let sums = self.sums.earlier().cloned();
        sums.map_or_else(Vec::new, |sums| sums.finish(&self.slices, window, 1.0))
    }

    /// Time in which calls were lost since it was asked last, added up over threads.
    #[must_use]
    pub fn take_lost_ns(&mut self) -> u64 {
        self.threads.take_lost_ns()
    }

    fn is_asked_for(&self, tid: Tid) -> bool {
        self.request.tids.is_empty() || self.request.tids.contains(&tid)
    }

    /// Everything was seen: does the sums.
    #[must_use]
    pub fn finish(self, window: (Ns, Ns), limits: Limits) -> Report {
        self.finish_with_parts(window, limits).0
    }

    /// [`Self::finish`], with the parts of rows if they were kept.
    #[must_use]
    pub fn finish_with_parts(mut self, window: (Ns, Ns), limits: Limits) -> (Report, ProbedParts) {
        let mut ledger = LossLedger::default();
        let (threads, gaps) = self.threads.losses(window, &mut ledger);
        let parts = ProbedParts { of_calls: self.kept.parts.take().unwrap_or_default(), gaps };
        let loss = ledger.finish(threads);
        let off_cpu = self.sums.now.off_cpu();
        let mut functions = self.sums.whole().finish(&self.slices, window, loss.coverage);
        for (function, reasons) in functions.iter_mut().zip(&self.kept.reasons) {
            function.row_details.reasons = RowReasons::of_rows(&function.rows, reasons);
        }
        let report = Report {
            trace: TraceSummary {
                window,
                span_ns: window.1.since(window.0),
                threads: loss.threads.len() as u64,
                events: self.seen,
                no_times: None,
                no_off_cpu: (!off_cpu.0).then_some(NoOffCpu::NotFollowed),
            },
            functions,
            loss,
            limits,
        };
        (report, parts)
    }

    fn row(
        &mut self,
        call: &ProbedCall,
        function: FunctionId,
        cleared: Cleared,
        inside: RunningTotal,
    ) -> CallRow {
        let (status, cut_by) = status(call.end_kind, self.request.stack_switches);
        let off_cpu_ns = call.off_cpu.total_ns().min(call.end.since(call.start)).max(inside.off_cpu_ns);
        let cleared = cleared.at_least(inside.sum_ns.max(off_cpu_ns));
        CallRow {
            id: CallId { tid: call.tid, number: call.number },
            pid: Some(call.pid),
            cpu: Some(call.cpu),
            start_ns: call.start,
            latency_ns: cleared.latency_ns,
            error_ns: cleared.error_ns(),
            off_cpu_ns: self.sums.now.off_cpu().ns(off_cpu_ns),
            end: CallEnd { status, cut_by, by_jump: call.end_kind == ProbedEnd::Jump, undecided: false },
            from: self.called_from(call),
            function,
            depth: call.depth,
            evidence: Evidence::Probed(ProbedRow {
                measured_ns: call.end.since(call.start),
                measured_off_cpu_ns: cleared.measured_off_cpu_ns,
                least_ns: cleared.least_ns,
                most_ns: cleared.most_ns,
                rare_ns: cleared.rare_ns,
                began: self.slices.kind(call.start),
                with_children: self.with_children(call, cleared.latency_ns, off_cpu_ns, inside),
            }),
        }
    }

    /// What was seen of a call with its children: up to the end of the slice that it began in.
    fn with_children(
        &self,
        call: &ProbedCall,
        latency_ns: u64,
        off_cpu_ns: u64,
        inside: RunningTotal,
    ) -> RunningTotal {
        if self.slices.kind(call.start) != SliceKind::WithChildren {
            return RunningTotal::default();
        }
        let measured_ns = call.end.since(call.start);
        let seen_ns =
            self.slices.end(call.start).map_or(measured_ns, |end| measured_ns.min(end.since(call.start)));
        let part = |ns: u64| {
            let part = u128::from(ns) * u128::from(seen_ns) / u128::from(measured_ns.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        RunningTotal {
            count: 1,
            sum_ns: part(latency_ns).max(inside.sum_ns),
            off_cpu_ns: part(off_cpu_ns).max(inside.off_cpu_ns),
            error_ns: inside.error_ns,
        }
    }

    /// Where a call comes from, by the address that it returns to.
    fn called_from(&mut self, call: &ProbedCall) -> CalledFrom {
        let space = self.around.code.space(call.pid, call.start);
        let is_region = (self.functions.get(call.function))
            .is_some_and(|(id, _)| self.around.functions.region(*id).is_some());
        let begin = self.map.function_at(space, call.entry);
        if is_region && !begin.at_entry {
            let caller = Caller::Function { function: begin.id, tail: false };
            return CalledFrom { caller, site: self.map.place(space, Some(call.entry)) };
        }
        let Some(ret) = call.return_address else { return CalledFrom::UNKNOWN };
        if self.map.is_restorer(space, ret) {
            return CalledFrom { caller: Caller::Signal, site: None };
        }
        let Some(site) = self.site(space, ret, call.entry) else { return CalledFrom::UNKNOWN };
        let function = self.map.function_at(space, site).id;
        let caller = Caller::Function { function, tail: false };
        CalledFrom { caller, site: self.map.place(space, Some(site)) }
    }

    fn keep_reasons(&mut self, call: &ProbedCall, id: CallId) {
        let reasons = self.off_cpu.intervals.reasons_of(call);
        if let Some(of_calls) = self.kept.reasons.get_mut(call.function).filter(|_| !reasons.is_empty()) {
            of_calls.insert(id, reasons);
        }
    }

    fn site(&mut self, space: SpaceId, ret: Avma, entry: Avma) -> Option<Avma> {
        self.map.call_before(space, ret, Some(entry))
    }

    /// A child's call ends: it counts if the call that it is in has called it.
    fn child(&mut self, call: &ProbedCall, parent: u64, function: FunctionId, cleared: Cleared) {
        if !matches!(call.end_kind, ProbedEnd::Return | ProbedEnd::Jump) {
            return;
        }
        let CalledFrom { caller, site } = self.called_from(call);
        let is_direct =
            matches!(caller, Caller::Function { function, .. } if self.request.functions.contains(&function));
        if !is_direct {
            return;
        }
        let key = ChildKey { kind: ChildKind::Call, function, site };
        let off_cpu_ns = call.off_cpu.total_ns().min(call.end.since(call.start));
        let (sum_ns, error_ns) = (cleared.latency_ns, cleared.error_ns());
        let total = RunningTotal { count: 1, sum_ns, off_cpu_ns, error_ns };
        let of_thread = self.children.entry(call.tid).or_default();
        of_thread.entry(parent).or_default().add(key, total);
        if of_thread.len() > OPEN_MAX {
            of_thread.pop_first();
        }
    }

    /// What the children of a call took that has ended.
    fn take_children(&mut self, call: &ProbedCall) -> ChildSums<ChildKey> {
        let of_thread = self.children.get_mut(&call.tid);
        of_thread.and_then(|of_thread| of_thread.remove(&call.number)).unwrap_or_default()
    }

    /// Takes a call that has ended, as [`ProbeSink::call`] does; one that was asked for goes to `rows`, too.
    /// The sink is asked after each row whether it wants the parts of that call.
    pub fn call_giving(&mut self, call: &ProbedCall, rows: Option<&mut dyn RowSink>) {
        let Some(&(function, cost)) = self.functions.get(call.function) else { return };
        if !self.is_asked_for(call.tid) {
            return;
        }
        self.seen += 1;
        self.threads.meet(call.tid);
        let probes = if call.end_kind == ProbedEnd::Jump { cost.jumped } else { cost.returned };
        let added = self.prices.added(call, probes);
        let cleared = self.prices.clear(call, added);
        let call = &ProbedCall { off_cpu: cleared.off_cpu, ..*call };
        if let Some(parent) = call.parent {
            return self.child(call, parent, function, cleared);
        }
        let children = self.take_children(call);
        let began = self.slices.kind(call.start);
        let children: Vec<_> = match began {
            SliceKind::WithChildren => children.iter().collect(),
            // Not all of them were probed.
            SliceKind::Alone | SliceKind::Between => Vec::new(),
        };
        let mut inside = RunningTotal::default();
        children.iter().for_each(|(_, total)| inside.add(*total));
        let row = self.row(call, function, cleared, inside);
        let is_reported = self.sums.now.add(call.function, &row, &children);
        if is_reported && self.request.rows {
            self.keep_reasons(call, row.id);
        }
        if let Some(rows) = rows.filter(|_| is_reported) {
            self.give(call, &row, &children, rows);
        }
        if is_reported && self.kept.parts.is_some() {
            let parts = self.parts_of(call, &row, children);
            let is_any = !(parts.children.is_empty() && parts.waits.is_empty());
            let kept = self.kept.parts.as_mut().filter(|_| is_any);
            kept.and_then(|kept| kept.insert((row.id, row.start_ns), parts));
        }
        let counts = is_reported && row.end.status.counted() && row.depth == 0;
        let mut sums = if counts { self.sums.now.causes(call.function, began) } else { None };
        sums.iter_mut().for_each(|sums| sums.add_split(call.off_cpu));
        self.off_cpu.intervals.of_call(call, sums);
    }

    fn give(
        &self,
        call: &ProbedCall,
        row: &CallRow,
        children: &[(ChildKey, RunningTotal)],
        rows: &mut dyn RowSink,
    ) {
        let reasons = self.off_cpu.intervals.reasons_of(call);
        rows.row(call.function, row, longest(&reasons));
        if rows.wants_parts() {
            rows.parts(row, &self.parts_of(call, row, children.to_vec()));
        }
    }

    fn parts_of(
        &self,
        call: &ProbedCall,
        row: &CallRow,
        children: Vec<(ChildKey, RunningTotal)>,
    ) -> RowParts {
        let has_children = row.began() == SliceKind::WithChildren;
        let off_cpu = self.sums.now.off_cpu();
        let children = if has_children { parts_of_row(children, row, off_cpu) } else { Vec::new() };
        RowParts { children, waits: self.off_cpu.intervals.waits_of(call) }
    }
}

/// One probe of any of these kinds.
fn any_hit<'a>(costs: impl Iterator<Item = &'a ProbeCost>) -> ProbeTime {
    costs.map(|cost| cost.hit).reduce(ProbeTime::or).unwrap_or_default()
}

impl ProbeSink for ProbedAnalysis<'_> {
    fn costs(&mut self, costs: &[ProbeCost]) {
        for ((_, cost), now) in self.functions.iter_mut().zip(costs) {
            *cost = *now;
        }
        self.prices.set_hit(any_hit(costs.iter()));
    }

    fn slice_begins(&mut self, start: Ns, children: bool) {
        self.slices.begins(start, children);
    }

    fn slice_ends(&mut self, end: Ns) {
        self.slices.ends(end);
    }

    fn call(&mut self, call: &ProbedCall) {
        self.call_giving(call, None);
    }

    fn off_cpu(&mut self, interval: &OffCpuInterval) {
        if self.is_asked_for(interval.tid) {
            self.off_cpu.intervals.add(interval, self.off_cpu.names);
        }
    }

    fn lost(&mut self, lost: &LostCalls) {
        if self.is_asked_for(lost.tid) {
            self.threads.lose(lost);
            self.off_cpu.intervals.forget(lost.tid);
        }
    }

    fn thread(&mut self, thread: &ProbedThread) {
        if thread.died.is_some() {
            self.prices.forget(thread.tid);
            self.off_cpu.intervals.forget(thread.tid);
            self.children.remove(&thread.tid);
        }
        if self.is_asked_for(thread.tid) {
            self.threads.lives(thread);
        }
    }
}

/// An unwound call has no end to go by, and so no latency: it is cut.
const fn status(end: ProbedEnd, stack_switches: bool) -> (Status, Option<Cut>) {
    match end {
        ProbedEnd::Return | ProbedEnd::Jump => (Status::Complete, None),
        ProbedEnd::Unwound if !stack_switches => {
            (Status::Cut, Some(Cut { cause: CutCause::UnwoundUnseen, cpu: None }))
        }
        ProbedEnd::Unseen | ProbedEnd::Unwound => {
            (Status::Cut, Some(Cut { cause: CutCause::Unseen, cpu: None }))
        }
        ProbedEnd::Anew => (Status::Cut, Some(Cut { cause: CutCause::BegunAnew, cpu: None })),
        ProbedEnd::NoEntry => (Status::OpenStart, None),
        ProbedEnd::ThreadEnd | ProbedEnd::Open => (Status::OpenEnd, None),
    }
}
