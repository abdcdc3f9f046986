//! Runs of calls: what one frame calls, one call after the other, as far as each returns to where it was
//! made.
//!
//! ```text
//!   ret | call a  call b  ret  ret  call c  ret | start   one run: a and c, which the frame below called
//!   ret | call a  [call b  ret  call b  ret] gap          a does not end: the run is a's
//!   out | in f  call out  in g  out  back  out |          with an IP filter: f and g are called by code
//!       | in f  out | gap                                 outside, g by what f called there
//!   ret | call a  in h  ret  sigreturn  ret | start       a handler of a signal, h, interrupts a
//! ```
//! In a run is nothing but calls, returns, direct jumps, jumps to first instructions, stays in the kernel and
//! outside of an IP filter after which the call that made them goes on, calls from outside that return there,
//! and handlers of signals after which the call that they interrupted goes on. So its meaning does not depend
//! on earlier events, nor can it end any frame that is older: it can be analysed on its own. A run that was
//! found before is as good as its calls: so runs of neighbours are parts of longer ones.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use model::{Avma, BranchEvent, BranchKind, EndKind, EventTime, Site, Target, TraceEvent, Transfer};

use crate::stack::SYSCALL_LEN;

/// Where control is, and so what calls next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sight {
    /// A frame that is traced.
    In,
    /// Code outside of the IP filter.
    Out,
}

/// What runs are searched in.
pub(crate) trait RunItem {
    /// What it is.
    fn kind(&self) -> ItemKind<'_>;

    /// The time of its first event.
    fn first(&self) -> EventTime;

    /// How many events it is.
    fn events(&self) -> u64;
}

/// What a thread does next.
pub(crate) enum ItemKind<'s> {
    Event(&'s TraceEvent),
    /// Calls by `caller`, all that a run is; tracing `starts` in it.
    Run {
        caller: Sight,
        starts: bool,
    },
}

impl RunItem for TraceEvent {
    fn kind(&self) -> ItemKind<'_> {
        ItemKind::Event(self)
    }

    fn first(&self) -> EventTime {
        self.time()
    }

    fn events(&self) -> u64 {
        1
    }
}

/// What one caller calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Places of its items.
    pub(crate) places: Range<usize>,
    pub(crate) caller: Sight,
    /// Tracing starts in it; known once all events were searched.
    pub(crate) starts: bool,
}

impl Run {
    fn new(places: Range<usize>, caller: Sight) -> Self {
        Self { places, caller, starts: false }
    }
}

/// The runs of two items of a thread or more, with at least `events_min` events, none within another, in
/// order.
pub(crate) fn runs<I: RunItem>(items: &[I], events_min: u64) -> Vec<Run> {
    let run = Run::new(0..0, Sight::In);
    let mut search = Search { items, next: 0, open: vec![], base: None, run, found: vec![], starts: vec![] };
    while let Some(item) = items.get(search.next) {
        let at = search.next;
        search.next += 1;
        match item.kind() {
            ItemKind::Event(event) => search.event(event, at),
            ItemKind::Run { caller, starts } => search.run_found(caller, starts, at),
        }
    }
    search.interrupted(None);
    let Search { mut found, starts, .. } = search;
    let of = |run: &Run| items.get(run.places.clone()).unwrap_or_default();
    found
        .retain(|run| run.places.len() > 1 && of(run).iter().map(RunItem::events).sum::<u64>() >= events_min);
    found.sort_unstable_by_key(|run| run.places.start);
    for run in &mut found {
        let first = starts.get(starts.partition_point(|start| *start < run.places.start));
        run.starts = first.is_some_and(|start| run.places.contains(start));
    }
    found
}

/// A call that has not returned.
struct PendingCall {
    /// Its event.
    at: usize,
    end: ReturnsBy,
    /// How many runs were found before it.
    found: usize,
    /// What it has called last.
    run: Run,
}

/// How a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReturnsBy {
    /// By a branch to this address.
    Branch(Avma),
    /// Tracing starts at this address: it was a call of code outside.
    Start(Avma),
    /// Tracing ends: it was a call by code outside.
    End,
    /// Any return: it is a handler of a signal.
    Handler(Interrupted),
    /// Tracing starts where the handler came, after the system call of the restorer that it has returned to.
    Sigreturn(Interrupted),
}

impl ReturnsBy {
    /// What is left to do after a return.
    fn after_return(self) -> Self {
        match self {
            Self::Handler(came) => Self::Sigreturn(came),
            other => other,
        }
    }
}

/// Where a handler came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interrupted {
    by_syscall: bool,
    at: Site,
}

impl Interrupted {
    /// [`crate::stack::Frame::goes_on_at`], of the handler's mark.
    fn goes_on_at(self, ip: Avma) -> bool {
        match self.by_syscall {
            true => ip == self.at.next_ip() || ip.plus(SYSCALL_LEN) == self.at.next_ip(),
            false => ip == self.at.ip,
        }
    }
}

struct Search<'e, I> {
    items: &'e [I],
    /// The place of the next item.
    next: usize,
    open: Vec<PendingCall>,
    /// Where control is where nothing is open, if that is known.
    base: Option<Sight>,
    /// What was called last where nothing was open.
    run: Run,
    found: Vec<Run>,
    /// Events at which open calls go on after a stay, or tracing starts for a call.
    starts: Vec<usize>,
}

impl<I: RunItem> Search<'_, I> {
    #[inline(always)]
    fn event(&mut self, event: &TraceEvent, at: usize) {
        let TraceEvent::Branch(branch) = event else { return self.interrupted(None) };
        match &branch.transfer {
            Transfer::Branch { kind, from, to } if !from.ip.is_kernel() => match self.caller() {
                Some(Sight::Out) => self.interrupted(Some(Sight::In)),
                _ => self.branch(*kind, from, to, at),
            },
            Transfer::End { kind, from, to } if !from.ip.is_kernel() => self.end(*kind, *from, *to, at),
            Transfer::Start { to, after_gap } if !to.ip.is_kernel() => {
                if self.starts.last() != Some(&at) {
                    self.start(*to, *after_gap, at);
                }
            }
            _ => self.interrupted(None),
        }
    }

    /// Where control is.
    fn caller(&self) -> Option<Sight> {
        match self.open.last() {
            Some(open) => Some(open.run.caller),
            None => self.base,
        }
    }

    /// Control goes into the kernel, or out of sight.
    #[cold]
    fn end(&mut self, kind: EndKind, from: Site, to: Option<Avma>, at: usize) {
        let is_in_sight = self.caller() != Some(Sight::Out);
        match kind {
            EndKind::Syscall if matches!(self.last_end(), Some(ReturnsBy::Sigreturn(_))) => {
                self.sigreturn(at + 1)
            }
            EndKind::Syscall | EndKind::Async(_) if is_in_sight && self.goes_on(kind, from, at + 1) => {
                self.starts.push(at + 1);
            }
            EndKind::Syscall | EndKind::Async(_) if is_in_sight && self.enters_handler(at + 1) => {
                self.starts.push(at + 1);
                let interrupted = Interrupted { by_syscall: kind == EndKind::Syscall, at: from };
                self.enter(at, ReturnsBy::Handler(interrupted), Sight::In);
            }
            EndKind::Syscall | EndKind::Async(_) | EndKind::Skipped => self.interrupted(None),
            EndKind::Branch(BranchKind::Call | BranchKind::IndirectCall)
                if is_in_sight && to != Some(from.next_ip()) =>
            {
                self.enter(at, ReturnsBy::Start(from.next_ip()), Sight::Out);
            }
            EndKind::Branch(BranchKind::Return) => self.returns(ReturnsBy::End, at, Sight::Out),
            EndKind::Branch(_) | EndKind::FallThrough => self.interrupted(Some(Sight::Out)),
        }
    }

    /// A call that is open goes on after a stay in the kernel, at the event at `next`.
    fn goes_on(&self, kind: EndKind, from: Site, next: usize) -> bool {
        let goes_on_at = |ip| ip == from.ip || kind == EndKind::Syscall && ip == from.next_ip();
        !self.open.is_empty() && self.start_at(next).is_some_and(|to| goes_on_at(to.ip))
    }

    /// A call that is open is interrupted by a handler, which the event at `next` enters.
    fn enters_handler(&self, next: usize) -> bool {
        !self.open.is_empty() && self.start_at(next).is_some_and(|to| to.at_entry)
    }

    /// The restorer that a handler has returned to makes its system call: the event at `next` is to be where
    /// the handler came.
    fn sigreturn(&mut self, next: usize) {
        match (self.last_end(), self.start_at(next)) {
            (Some(end @ ReturnsBy::Sigreturn(came)), Some(to)) if came.goes_on_at(to.ip) => {
                self.starts.push(next);
                self.returns(end, next, Sight::In);
            }
            _ => self.interrupted(None),
        }
    }

    /// Where tracing starts by the event at `at`, if nothing was lost.
    fn start_at(&self, at: usize) -> Option<Target> {
        match self.items.get(at)?.kind() {
            ItemKind::Event(TraceEvent::Branch(BranchEvent {
                transfer: Transfer::Start { to, after_gap: false },
                ..
            })) => Some(*to),
            _ => None,
        }
    }

    /// How the call on top returns.
    fn last_end(&self) -> Option<ReturnsBy> {
        self.open.last().map(|open| open.end)
    }

    /// Control comes in.
    fn start(&mut self, to: Target, after_gap: bool, at: usize) {
        if after_gap || self.caller() != Some(Sight::Out) {
            return self.interrupted(Some(Sight::In));
        }
        self.starts.push(at);
        if to.at_entry {
            self.enter(at, ReturnsBy::End, Sight::In);
        } else {
            self.returns(ReturnsBy::Start(to.ip), at, Sight::In);
        }
    }

    #[inline(always)]
    fn branch(&mut self, kind: BranchKind, from: &Site, to: &Target, at: usize) {
        let goes_on = Some(Sight::In);
        match kind {
            BranchKind::Call | BranchKind::IndirectCall => {
                let ret = from.next_ip();
                // A part of its caller, or the program counter that is read.
                if !to.at_entry || ret == to.ip {
                    return self.interrupted(goes_on);
                }
                if let Some(end) = self.leaf_end(ret) {
                    self.base = self.base.or(goes_on);
                    self.next = end;
                    return self.called(at..end, Sight::In);
                }
                self.enter(at, ReturnsBy::Branch(ret), Sight::In);
            }
            BranchKind::Return => match self.open.last_mut() {
                Some(PendingCall { end: end @ ReturnsBy::Handler(_), .. }) => *end = end.after_return(),
                _ => self.returns(ReturnsBy::Branch(to.ip), at, Sight::In),
            },
            BranchKind::Abort => self.interrupted(goes_on),
            BranchKind::RunsOn => (),
            // Inside of a function.
            _ if from.function == to.function => (),
            // A direct jump goes on in the call that is open, whatever function's code that is.
            _ if !to.at_entry && (kind != BranchKind::Jump || self.open.is_empty()) => {
                self.interrupted(goes_on);
            }
            // Another function calls from now on, in the place of the one that jumped.
            _ => {
                let run = std::mem::take(&mut self.last_run().places);
                self.find(Run::new(run, Sight::In));
            }
        }
    }

    /// Where the call that returns to `ret` has ended, if it only jumps from function to function: most calls
    /// need not be opened.
    #[inline]
    fn leaf_end(&self, ret: Avma) -> Option<usize> {
        for (end, item) in (self.next + 1..).zip(self.items.get(self.next..)?) {
            let ItemKind::Event(TraceEvent::Branch(branch)) = item.kind() else { return None };
            let Transfer::Branch { kind, from, to } = &branch.transfer else { return None };
            match kind {
                _ if from.ip.is_kernel() => return None,
                BranchKind::Return => return (to.ip == ret).then_some(end),
                BranchKind::Jump | BranchKind::ConditionalJump | BranchKind::IndirectJump
                    if to.at_entry && from.function != to.function => {}
                _ => return None,
            }
        }
        None
    }

    /// A call begins, in which `caller` calls.
    fn enter(&mut self, at: usize, end: ReturnsBy, caller: Sight) {
        if self.open.is_empty() {
            // Where it was not known where control is, this tells.
            self.base = Some(if end == ReturnsBy::End { Sight::Out } else { Sight::In });
        }
        let run = Run::new(0..0, caller);
        self.open.push(PendingCall { at, end, found: self.found.len(), run });
    }

    /// Control returns to `caller`, by the event at `at`, which the call on top has to end by. What was found
    /// in that call is part of a longer run.
    #[inline]
    fn returns(&mut self, by: ReturnsBy, at: usize, caller: Sight) {
        let Some(&PendingCall { at: begin, found, .. }) = self.open.last().filter(|call| call.end == by)
        else {
            return self.interrupted(Some(caller));
        };
        self.open.pop();
        self.found.truncate(found);
        self.called(begin..at + 1, caller);
    }

    /// A run that was found before: control is again where it was.
    fn run_found(&mut self, caller: Sight, starts: bool, at: usize) {
        if self.caller() != Some(caller) {
            self.interrupted(Some(caller));
        }
        if starts {
            self.starts.push(at);
        }
        self.called(at..at + 1, caller);
    }

    /// The frame on top has called next what is at these places.
    #[inline]
    fn called(&mut self, places: Range<usize>, caller: Sight) {
        let last = self.last_run();
        if last.places.start < last.places.end && last.places.end == places.start {
            last.places.end = places.end;
        } else {
            let before = std::mem::replace(last, Run::new(places, caller));
            self.find(before);
        }
    }

    /// What the frame on top has called last.
    fn last_run(&mut self) -> &mut Run {
        self.open.last_mut().map_or(&mut self.run, |open| &mut open.run)
    }

    fn find(&mut self, run: Run) {
        if !run.places.is_empty() {
            self.found.push(run);
        }
    }

    /// Open calls are not known to return, and any code may run next; control is at `base`.
    fn interrupted(&mut self, base: Option<Sight>) {
        self.base = base;
        let outermost = std::mem::take(&mut self.run.places);
        self.find(Run::new(outermost, self.run.caller));
        for open in std::mem::take(&mut self.open) {
            self.find(open.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{AsyncCause, AuxOffset, BranchEvent, EventTime, FunctionId, Ns};

    use super::*;

    /// The runs as they stand in the script, of two events and more.
    ///
    /// `+`: a call; `-`: the return from the last one; `!`: a return to elsewhere; `>`: a jump to a function;
    /// `~`: into the middle of one, `*`: an indirect jump into it; `|`: tracing starts anew; `s` and `i`: a
    /// system call and an interrupt, `.`: where they go on; `h`: a handler is entered, `r`: where it came
    /// goes on; `c`: a call out of the IP filter, `b`: where it goes on; `(`: control comes in at a first
    /// instruction, `)`: it returns out of the filter; `j`: it jumps out.
    fn found(script: &str) -> Vec<&str> {
        all(script).into_iter().filter_map(|run| script.get(run.places)).collect()
    }

    fn all(script: &str) -> Vec<Run> {
        let (mut calls, mut came) = (Vec::new(), Vec::new());
        let events: Vec<TraceEvent> = (0..)
            .zip(script.bytes())
            .map(|(number, word)| {
                let from = Site { ip: Avma(0x1000 + number * 16), function: FunctionId(1), len: 5 };
                let interrupted = Avma(from.ip.0 - 16);
                let entry = |at_entry| Target { ip: Avma(0x9000), function: FunctionId(2), at_entry };
                let (kind, to) = match word {
                    b'+' => {
                        calls.push(from.next_ip());
                        (BranchKind::Call, entry(true))
                    }
                    b'c' => {
                        calls.push(from.next_ip());
                        (BranchKind::Call, entry(true))
                    }
                    b'-' | b'b' => {
                        (BranchKind::Return, Target { ip: calls.pop().unwrap_or_default(), ..entry(false) })
                    }
                    b'!' | b')' => (BranchKind::Return, entry(false)),
                    b'>' | b'(' => (BranchKind::Jump, entry(true)),
                    b'~' => (BranchKind::Jump, entry(false)),
                    _ => (BranchKind::IndirectJump, entry(false)),
                };
                let transfer = match word {
                    b'|' | b'b' | b'(' => Transfer::Start { to, after_gap: false },
                    b'c' | b')' | b'j' => Transfer::End { kind: EndKind::Branch(kind), from, to: None },
                    b'h' => {
                        came.push(interrupted);
                        Transfer::Start { to: entry(true), after_gap: false }
                    }
                    b'r' => {
                        let ip = came.pop().unwrap_or_default();
                        Transfer::Start { to: Target { ip, ..entry(false) }, after_gap: false }
                    }
                    b'.' => Transfer::Start { to: Target { ip: interrupted, ..to }, after_gap: false },
                    b's' => Transfer::End { kind: EndKind::Syscall, from, to: None },
                    b'i' => Transfer::End { kind: EndKind::Async(AsyncCause::Unknown), from, to: None },
                    _ => Transfer::Branch { kind, from, to },
                };
                TraceEvent::Branch(BranchEvent {
                    time: EventTime::exact(Ns(number)),
                    at: AuxOffset(number),
                    transfer,
                })
            })
            .collect();
        runs(&events, 2)
    }

    #[test]
    fn calls_one_after_the_other_are_one() {
        assert_eq!(found("+-++--+-"), ["+-++--+-"]);
        assert_eq!(found("+>--"), ["+>-"]);
    }

    #[test]
    fn a_frame_that_was_there_before_ends_one_where_it_ends() {
        assert_eq!(found("+-+--+-"), ["+-+-", "+-"]);
        assert_eq!(found("+->+-"), ["+-", "+-"]);
    }

    #[test]
    fn of_a_call_that_does_not_return_those_that_it_made_are_left() {
        assert_eq!(found("+-++-+-|+-"), ["+-", "+-+-", "+-"]);
        assert_eq!(found("+-++-+-!+-"), ["+-", "+-+-", "+-"]);
        assert_eq!(found("+-+>+-*+-"), ["+-", "+-", "+-"]);
    }

    #[test]
    fn what_was_found_in_a_call_that_returns_is_part_of_it() {
        assert_eq!(found("+-++->+--+-"), ["+-++->+--+-"]);
        assert_eq!(found("++->+--"), ["++->+--"]);
        assert_eq!(found("++-~+--"), ["++-~+--"]);
        // It may go back into a caller that is older.
        assert_eq!(found("+-~+-"), ["+-", "+-"]);
    }

    #[test]
    fn a_stay_in_the_kernel_is_part_of_a_call_that_goes_on() {
        assert_eq!(found("+-+s.-+i.i.-"), ["+-+s.-+i.i.-"]);
        assert_eq!(found("+-+s|+-+-"), ["+-", "+-+-"]);
        assert_eq!(found("+-s.+-"), ["+-", "+-"]);
        assert_eq!(found("+-+s+-|"), ["+-", "+-"]);
        let run = |places, starts| Run { places, caller: Sight::In, starts };
        assert_eq!(all("+-!+i.s.-!+s.+-"), [run(0..2, false), run(3..9, true), run(13..15, false)]);
    }

    #[test]
    fn a_handler_is_part_of_a_call_that_goes_on_after_it() {
        assert_eq!(found("+-+ih+-!sr-+-"), ["+-+ih+-!sr-+-"]);
        assert_eq!(found("+ih+ih!sr-!i.sr-"), ["+ih+ih!sr-!i.sr-"]);
        // Of a call that does not return.
        assert_eq!(found("+ih!sr+-|"), ["ih!sr+-"]);
        // Nothing is known to go on after it, or the system call is another one.
        assert_eq!(found("+-ih+-!sr+-"), ["+-", "+-", "+-"]);
        assert_eq!(found("+-+ih+-!s|-"), ["+-", "+-"]);
    }

    #[test]
    fn what_a_frame_calls_outside_is_part_of_it() {
        assert_eq!(found("+-cbcb+-!"), ["+-cbcb+-"]);
        assert_eq!(found("+cb-c+-b"), ["+cb-"]);
        assert_eq!(found("+-c|cb"), ["+-", "cb"]);
    }

    #[test]
    fn what_code_outside_calls_is_a_run_of_its_own() {
        let run = |places, caller| Run { places, caller, starts: true };
        // Where control is before the first event is not known.
        assert_eq!(found("()(+-)(cb)"), ["(+-)(cb)"]);
        assert_eq!(all("()()"), [run(2..4, Sight::Out)]);
        assert_eq!(all("c(+-)(cb)b"), [run(0..10, Sight::In)]);
        assert_eq!(all("c(+-)(cb)|cb"), [run(1..9, Sight::Out), run(10..12, Sight::In)]);
        assert_eq!(found("c(+-j()"), ["+-", "()"]);
    }
}
