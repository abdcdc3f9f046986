//! A sink that holds each event of our decoder against the truth.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use model::{
    Avma, BranchEvent, BranchKind, Counters, EndKind, EventSink, EventTime, FunctionLookup, Gap, GapCause,
    Ns, Pid, SpaceId, StretchCounters, Tid, TraceEvent, Transfer,
};

use super::counters::{CounterCheck, CounterVerdict};
use super::expected::{Expected, Item, KernelText, Loss, Shown};
use super::histogram::Histogram;
use crate::truth::File;

/// Events before and after the first difference that are shown.
const CONTEXT: usize = 6;

/// Events after a hole that tell where it ends.
const FORESIGHT: usize = 256;

/// Compares, thread by thread, as the events come.
pub struct EventVerifier<'a> {
    truth: &'a File,
    functions: Option<&'a dyn FunctionLookup>,
    kernel: KernelText,
    threads: BTreeMap<Tid, ThreadEvents<'a>>,
    wants_counters: bool,
    /// The recording's last record.
    recorded_until: Ns,
    verdict: Verdict,
}

/// How well decoder and truth agree.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Each thread of the truth or of the decoder, by id.
    pub threads: Vec<ThreadVerdict>,
    /// Widths of the bounds of matched events, ns.
    pub widths: Histogram,
    /// Distances of the point estimates from the truth, ns.
    pub errors: Histogram,
    /// Jumps of the decoder that the truth takes to be inside one function.
    pub extra_jumps: u64,
    /// Jumps of the truth that the decoder takes to be inside one function.
    pub inner_jumps: u64,
}

/// One thread's part of a [`Verdict`].
#[derive(Clone, Debug, Default)]
pub struct ThreadVerdict {
    /// The thread.
    pub tid: Tid,
    /// Events that are the same on both sides, gaps included.
    pub matched: u64,
    /// How many of them are gaps.
    pub gaps: u64,
    /// Further gaps of a loss in which the thread left its CPU.
    pub gap_parts: u64,
    /// Gaps that the truth does not have: where kernel code was skipped, a return could not be resolved.
    pub holes: u64,
    /// Events of the truth that lie in them.
    pub in_holes: u64,
    /// Events of the truth that the decoder does not have.
    pub left_over: u64,
    /// The first difference, both sides in context.
    pub mismatch: Option<String>,
    /// Matched events with a true time outside of their bounds.
    pub time_violations: u64,
    /// The first of them, and the one that is furthest out.
    pub first_violation: Option<String>,
    /// How far out the furthest is, ns.
    pub worst_violation_ns: u64,
    /// Events with a time before the last one's, or a point outside of its bounds.
    pub disordered: u64,
    /// How the counters agree, if they were asked for.
    pub counters: CounterVerdict,
}

impl Verdict {
    /// All events are the same, in order.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.threads.iter().all(|t| t.mismatch.is_none() && t.left_over == 0)
    }

    /// All true times are inside their bounds, and no time runs backwards.
    #[must_use]
    pub fn times_agree(&self) -> bool {
        self.times_are_ordered() && self.out_of_bounds() == 0
    }

    /// No time runs backwards, and each lies in its own bounds.
    #[must_use]
    pub fn times_are_ordered(&self) -> bool {
        self.threads.iter().all(|t| t.disordered == 0)
    }

    /// Events with a true time outside of their bounds.
    #[must_use]
    pub fn out_of_bounds(&self) -> u64 {
        self.threads.iter().map(|t| t.time_violations).sum()
    }

    /// Events that are the same on both sides.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.threads.iter().map(|t| t.matched).sum()
    }

    /// Events of the truth that lie in gaps which it does not have.
    #[must_use]
    pub fn in_holes(&self) -> u64 {
        self.threads.iter().map(|t| t.holes + t.in_holes).sum()
    }

    /// Gaps that are the same on both sides.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.threads.iter().map(|t| t.gaps).sum()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for t in &self.threads {
            let (tid, matched, gaps, left_over) = (t.tid.0, t.matched, t.gaps, t.left_over);
            write!(f, "thread {tid}: matched {matched}, of these gaps {gaps}; left over {left_over}; ")?;
            write!(f, "in {} further gaps {}; ", t.holes, t.in_holes)?;
            writeln!(f, "times out of bounds {}, out of order {}", t.time_violations, t.disordered)?;
            if let Some(violation) = &t.first_violation {
                writeln!(f, "  first: {violation}; worst: {} ns out", t.worst_violation_ns)?;
            }
            if let Some(mismatch) = &t.mismatch {
                writeln!(f, "{mismatch}")?;
            }
        }
        let (extra, inner) = (self.extra_jumps, self.inner_jumps);
        writeln!(f, "jumps that only the decoder takes for transfers: {extra}; only the truth: {inner}")?;
        writeln!(f, "width of bounds, ns: {}", self.widths)?;
        writeln!(f, "|point - truth|, ns: {}", self.errors)
    }
}

struct ThreadEvents<'a> {
    expected: std::iter::Peekable<Shown<'a>>,
    verdict: ThreadVerdict,
    last: EventTime,
    kernel: KernelText,
    /// After a gap that the truth does not have, and nothing has matched again.
    in_hole: bool,
    counters: CounterCheck,
    /// The last events that matched, and then the first that do not.
    context: VecDeque<TraceEvent>,
    /// Events still to be shown after the difference.
    after: usize,
}

impl<'a> EventVerifier<'a> {
    /// `functions`: what the decoder used to leave out jumps inside one function; without it every jump from
    /// one function to another that the truth has is demanded.
    #[must_use]
    pub fn new(truth: &'a File, functions: Option<&'a dyn FunctionLookup>, kernel: KernelText) -> Self {
        let threads = truth
            .threads()
            .iter()
            .map(|t| {
                let thread = ThreadEvents {
                    expected: Shown::new(truth.events(t), kernel).peekable(),
                    verdict: ThreadVerdict { tid: t.tid, ..ThreadVerdict::default() },
                    last: EventTime::default(),
                    kernel,
                    in_hole: false,
                    counters: CounterCheck::default(),
                    context: VecDeque::new(),
                    after: 0,
                };
                (t.tid, thread)
            })
            .collect();
        let (recorded_until, verdict) = (Ns::MAX, Verdict::default());
        Self { truth, functions, kernel, threads, wants_counters: false, recorded_until, verdict }
    }

    /// The recording's last record is of this time: a loss of another thread on the CPU to which a thread
    /// comes then is no gap of its own, as that would have no length.
    #[must_use]
    pub fn recorded_until(self, recorded_until: Ns) -> Self {
        Self { recorded_until, ..self }
    }

    /// Holds the counters at the events against the truth, too.
    #[must_use]
    pub fn with_counters(self) -> Self {
        Self { wants_counters: true, ..self }
    }

    /// All events have come.
    #[must_use]
    pub fn finish(self) -> Verdict {
        let mut verdict = self.verdict;
        for (_, mut thread) in self.threads {
            let has_no_length = |item: &Item| {
                item.what == Expected::Gap(Loss::OfBefore) && self.truth.ns(item.tsc) >= self.recorded_until
            };
            thread.expected.next_if(has_no_length);
            let first = thread.expected.peek().copied();
            let left_over = thread.expected.by_ref().count() as u64;
            thread.verdict.left_over = left_over;
            thread.verdict.counters = thread.counters.verdict;
            if let (Some(item), None) = (first, &thread.verdict.mismatch) {
                let missing = show_item(self.truth, &item);
                let text = format!("  the decoder lacks {left_over} events, the first: {missing}");
                thread.verdict.mismatch = Some(text);
            }
            verdict.threads.push(thread.verdict);
        }
        verdict.threads.sort_by_key(|t| t.tid);
        verdict
    }
}

impl EventSink for EventVerifier<'_> {
    fn wants_counters(&self) -> bool {
        self.wants_counters
    }

    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        let none = StretchCounters { before: Counters::default(), at_events: &[], has_cycles: false };
        self.counted(pid, tid, space, events, none);
    }

    fn counted(
        &mut self,
        _: Pid,
        tid: Tid,
        space: SpaceId,
        events: &[TraceEvent],
        counters: StretchCounters<'_>,
    ) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            let mismatch = events.first().map(|e| format!("  no such thread; {}", show_event(e)));
            self.verdict.threads.push(ThreadVerdict { tid, mismatch, ..ThreadVerdict::default() });
            return;
        };
        let same = |from, to| {
            let id = |ip| self.functions.map(|f| f.function_at(space, ip).id);
            id(from).is_some() && id(from) == id(to)
        };
        for (i, event) in events.iter().enumerate().filter(|(_, event)| self.kernel.counts(event)) {
            let after = events.get(i + 1..).unwrap_or_default();
            thread.check(self.truth, (event, counters.at(i)), after, &same, &mut self.verdict);
        }
    }
}

impl ThreadEvents<'_> {
    fn check(
        &mut self,
        truth: &File,
        (event, counters): (&TraceEvent, Option<Counters>),
        after: &[TraceEvent],
        same_function: &dyn Fn(Avma, Avma) -> bool,
        all: &mut Verdict,
    ) {
        if self.verdict.mismatch.is_some() {
            self.show_after(event);
            return;
        }
        self.check_order(event);
        if self.is_hole(event) || self.in_hole && !self.ends_hole(truth, event, after) {
            return;
        }
        let continued = self.continued_gap(event);
        let is_later = |item: &Item| continued.is_some_and(|gap| truth.ns(item.tsc) > gap.to.hi);
        let fitting = self.next_fitting(event, same_function);
        if let Some((skipped, item)) = fitting.filter(|(_, item)| !is_later(item)) {
            all.inner_jumps += self.expected.by_ref().take(skipped).filter(Item::is_jump).count() as u64;
            self.matches(truth, &item, event, all);
            match counters {
                Some(counters) if matches!(event, TraceEvent::Branch(_)) => {
                    self.counters.check(&item, counters, || show_event(event));
                }
                _ => self.counters.lose(),
            }
            return;
        }
        if continued.is_some() {
            self.verdict.gap_parts += 1;
        } else if !is_jump(event) {
            self.differs(truth, event);
        } else if !is_inner_jump(event) {
            all.extra_jumps += 1;
        }
    }

    /// The next event of the truth that this one may be, and how many are skipped on the way: the decoder
    /// need not have jumps inside one function, nor calls to the next instruction.
    fn next_fitting(
        &self,
        event: &TraceEvent,
        same_function: &dyn Fn(Avma, Avma) -> bool,
    ) -> Option<(usize, Item)> {
        for (skipped, item) in self.expected.clone().enumerate() {
            let may_lack =
                |item: &Item| item.is_call_to_next() || item.is_jump() && same_function(item.from, item.to);
            match fits(&item, event) {
                true => return Some((skipped, item)),
                false if may_lack(&item) => (),
                false => break,
            }
        }
        None
    }

    /// A compressed return needed a call that skipped kernel code has hidden.
    fn is_hole(&mut self, event: &TraceEvent) -> bool {
        let is_hole = matches!(event, TraceEvent::Gap(gap) if matches!(gap.cause, GapCause::Desync { .. }));
        let may_be = is_hole && self.kernel != KernelText::There;
        self.verdict.holes += u64::from(may_be);
        self.in_hole |= may_be;
        if may_be {
            self.counters.lose();
        }
        may_be
    }

    /// Leaves out what the truth has in a hole, up to an event that fits, in its bounds: of several
    /// (recursion) the one after which most fits.
    fn ends_hole(&mut self, truth: &File, event: &TraceEvent, after: &[TraceEvent]) -> bool {
        let time = event.time();
        let around = self.expected.clone().take_while(|item| truth.ns(item.tsc) <= time.hi);
        let fitting = around
            .enumerate()
            .filter(|(_, item)| fits(item, event) && truth.ns(item.tsc) >= time.lo)
            .map(|(skipped, _)| skipped);
        let Some(skipped) = fitting.min_by_key(|&skipped| Reverse(self.agreement(skipped + 1, after))) else {
            // How tracing starts again after the hole the truth does not know; all but jumps it must.
            let starts =
                matches!(event, TraceEvent::Branch(b) if matches!(b.transfer, Transfer::Start { .. }));
            return !starts && !is_jump(event);
        };
        self.expected.by_ref().take(skipped).for_each(drop);
        self.verdict.in_holes += skipped as u64;
        self.in_hole = false;
        true
    }

    /// How many events, jumps apart, fit what the truth has after the next `skipped`.
    fn agreement(&self, skipped: usize, events: &[TraceEvent]) -> usize {
        let expected = self.expected.clone().skip(skipped).filter(|item| !item.is_jump());
        let counts = |event: &&TraceEvent| !is_jump(event) && self.kernel.counts(event);
        let pairs = expected.filter(|item| !item.is_call_to_next()).zip(events.iter().filter(counts));
        pairs.take(FORESIGHT).take_while(|(item, event)| fits(item, event)).count()
    }

    /// The loss is that of the gap before: the thread left, and came back to a CPU with its trace still lost.
    fn continued_gap<'e>(&self, event: &'e TraceEvent) -> Option<&'e Gap> {
        match (self.context.back(), event) {
            (Some(TraceEvent::Gap(before)), TraceEvent::Gap(gap)) => {
                let parts = matches!(gap.cause, GapCause::Truncated | GapCause::DamagedPacket);
                (before.cause == gap.cause && parts).then_some(gap)
            }
            _ => None,
        }
    }

    fn check_order(&mut self, event: &TraceEvent) {
        let time = event.time();
        let last = std::mem::replace(&mut self.last, time);
        let backward = time.lo < last.lo || time.point < last.point;
        if backward || time.point < time.lo || time.point > time.hi {
            self.verdict.disordered += 1;
        }
    }

    fn matches(&mut self, truth: &File, item: &Item, event: &TraceEvent, all: &mut Verdict) {
        self.expected.next();
        self.verdict.matched += 1;
        self.context.push_back(*event);
        if self.context.len() > CONTEXT {
            self.context.pop_front();
        }
        let true_time = truth.ns(item.tsc);
        let time = event.time();
        let outside = match event {
            TraceEvent::Branch(_) => {
                all.widths.add(time.hi.since(time.lo));
                all.errors.add(true_time.0.abs_diff(time.point.0));
                time.lo.since(true_time).max(true_time.since(time.hi))
            }
            TraceEvent::Gap(gap) => {
                self.verdict.gaps += 1;
                self.last = gap.to;
                gap.from.lo.since(true_time).max(true_time.since(gap.to.hi))
            }
        };
        if outside > 0 {
            self.verdict.time_violations += 1;
            self.verdict.worst_violation_ns = self.verdict.worst_violation_ns.max(outside);
            if self.verdict.first_violation.is_none() {
                let (item, event) = (show_item(truth, item), show_event(event));
                self.verdict.first_violation = Some(format!("truth {item}, decoder {event}"));
            }
        }
    }

    fn differs(&mut self, truth: &File, event: &TraceEvent) {
        let mut text = format!("  differs after {} events\n", self.verdict.matched);
        for before in &self.context {
            text += &format!("    both     {}\n", show_event(before));
        }
        for item in self.expected.clone().take(CONTEXT) {
            text += &format!("    truth    {}\n", show_item(truth, &item));
        }
        text += &format!("    decoder  {}", show_event(event));
        self.verdict.mismatch = Some(text);
        self.after = CONTEXT - 1;
    }

    fn show_after(&mut self, event: &TraceEvent) {
        if let (Some(after), Some(text)) = (self.after.checked_sub(1), &mut self.verdict.mismatch) {
            self.after = after;
            *text += &format!("\n    decoder  {}", show_event(event));
        }
    }
}

fn jump_kind(event: &TraceEvent) -> Option<(&model::Site, &model::Target)> {
    match event {
        TraceEvent::Branch(BranchEvent {
            transfer:
                Transfer::Branch {
                    kind: BranchKind::Jump | BranchKind::IndirectJump | BranchKind::ConditionalJump,
                    from,
                    to,
                },
            ..
        }) => Some((from, to)),
        _ => None,
    }
}

fn is_jump(event: &TraceEvent) -> bool {
    jump_kind(event).is_some()
}

fn is_inner_jump(event: &TraceEvent) -> bool {
    jump_kind(event).is_some_and(|(from, to)| from.function == to.function)
}

/// The decoder's event says what the truth says.
fn fits(item: &Item, event: &TraceEvent) -> bool {
    let transfer = match event {
        TraceEvent::Gap(gap) => {
            return matches!(item.what, Expected::Gap(loss) if loss.is_told_by(gap.cause));
        }
        TraceEvent::Branch(branch) => &branch.transfer,
    };
    match (item.what, transfer) {
        (Expected::Branch(expected), Transfer::Branch { kind, from, to }) => {
            *kind == expected && from.ip == item.from && to.ip == item.to
        }
        (Expected::Start { after_overflow }, Transfer::Start { to, after_gap }) => {
            to.ip == item.to && (*after_gap || !after_overflow)
        }
        (Expected::End(expected), Transfer::End { kind, from, to }) => {
            let target = *to == Some(item.to) || item.to == Avma(0) && to.is_none();
            // Where code that is skipped was left from is not known.
            same_end(expected, *kind) && (from.ip == item.from || expected == EndKind::Skipped) && target
        }
        _ => false,
    }
}

/// The truth says that a conditional jump left the filter also where execution merely ran on past its end.
fn same_end(expected: EndKind, kind: EndKind) -> bool {
    let ran_on = expected == EndKind::Branch(BranchKind::ConditionalJump) && kind == EndKind::FallThrough;
    kind == expected || ran_on
}

fn show_item(truth: &File, item: &Item) -> String {
    let Ns(ns) = truth.ns(item.tsc);
    format!("{:?} {} -> {} @{ns}", item.what, item.from, item.to)
}

fn show_event(event: &TraceEvent) -> String {
    let time = |t: EventTime| format!("{} [{}, {}]", t.point.0, t.lo.0, t.hi.0);
    match event {
        TraceEvent::Gap(g) => {
            let (from, to) = (time(g.from), time(g.to));
            format!("gap {} {} bytes @{from} to {to} AUX {}", g.cause.name(), g.bytes, g.at)
        }
        TraceEvent::Branch(b) => {
            let what = match b.transfer {
                Transfer::Branch { kind, from, to } => format!("{kind:?} {} -> {}", from.ip, to.ip),
                Transfer::Start { to, after_gap } => format!("start (after gap: {after_gap}) {}", to.ip),
                Transfer::End { kind, from, to } => format!("end {kind:?} {} -> {to:?}", from.ip),
            };
            format!("{what} @{} AUX {}", time(b.time), b.at)
        }
    }
}

#[cfg(test)]
mod tests;
