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
//! In a run is nothing but calls, returns, jumps to first instructions, stays in the kernel and outside of
//! an IP filter after which the call that made them goes on, calls from outside that return there, and
//! handlers of signals after which the call that they interrupted goes on. So its meaning does not depend
//! on earlier events, nor can it end any frame that is older: it can be analysed on its own.

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

/// What one caller calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Their places.
    pub(crate) events: Range<usize>,
    pub(crate) caller: Sight,
    /// Tracing starts in it; known once all events were searched.
    pub(crate) starts: bool,
}

impl Run {
    fn new(events: Range<usize>, caller: Sight) -> Self {
        Self { events, caller, starts: false }
    }
}

/// The runs of at least `events_min` of a thread's events, none within another, in order; `may_stay`: a stay
/// in the kernel, or outside of the IP filter, from when to when may be in one.
pub(crate) fn runs(
    events: &[TraceEvent],
    events_min: usize,
    may_stay: &dyn Fn(EventTime, EventTime) -> bool,
) -> Vec<Run> {
    let run = Run::new(0..0, Sight::In);
    let mut search =
        Search { events, may_stay, open: vec![], base: None, run, found: vec![], starts: vec![] };
    for (event, at) in events.iter().zip(0..) {
        search.event(event, at);
    }
    search.interrupted(None);
    let Search { mut found, starts, .. } = search;
    found.retain(|run| run.events.len() >= events_min);
    found.sort_unstable_by_key(|run| run.events.start);
    for run in &mut found {
        let first = starts.get(starts.partition_point(|start| *start < run.events.start));
        run.starts = first.is_some_and(|start| run.events.contains(start));
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

struct Search<'e> {
    events: &'e [TraceEvent],
    may_stay: &'e dyn Fn(EventTime, EventTime) -> bool,
    open: Vec<PendingCall>,
    /// Where control is where nothing is open, if that is known.
    base: Option<Sight>,
    /// What was called last where nothing was open.
    run: Run,
    found: Vec<Run>,
    /// Events at which open calls go on after a stay, or tracing starts for a call.
    starts: Vec<usize>,
}

impl Search<'_> {
    fn event(&mut self, event: &TraceEvent, at: usize) {
        match event {
            TraceEvent::Branch(branch) if !branch.transfer.is_in_kernel() => match branch.transfer {
                Transfer::Branch { .. } if self.caller() == Some(Sight::Out) => {
                    self.interrupted(Some(Sight::In));
                }
                Transfer::Branch { kind, from, to } => self.branch(kind, from, to, at),
                Transfer::End { kind, from, to } => self.end(kind, from, to, at),
                Transfer::Start { .. } if self.starts.last() == Some(&at) => (),
                Transfer::Start { to, after_gap } => self.start(to, after_gap, at),
            },
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
        let goes_on = self.start_at(next).is_some_and(|to| goes_on_at(to.ip));
        goes_on && !self.open.is_empty() && self.stays_until(next)
    }

    /// A call that is open is interrupted by a handler, which the event at `next` enters.
    fn enters_handler(&self, next: usize) -> bool {
        let is_entered = matches!(self.start_at(next), Some(to) if to.at_entry);
        is_entered && !self.open.is_empty() && self.stays_until(next)
    }

    /// The restorer that a handler has returned to makes its system call: the event at `next` is to be where
    /// the handler came.
    fn sigreturn(&mut self, next: usize) {
        let goes_on_at = self.start_at(next).filter(|_| self.stays_until(next));
        match (self.last_end(), goes_on_at) {
            (Some(end @ ReturnsBy::Sigreturn(came)), Some(to)) if came.goes_on_at(to.ip) => {
                self.starts.push(next);
                self.returns(end, next, Sight::In);
            }
            _ => self.interrupted(None),
        }
    }

    /// Where tracing starts by the event at `at`, if nothing was lost.
    fn start_at(&self, at: usize) -> Option<Target> {
        match self.events.get(at)? {
            TraceEvent::Branch(BranchEvent {
                transfer: Transfer::Start { to, after_gap: false }, ..
            }) => Some(*to),
            _ => None,
        }
    }

    /// How the call on top returns.
    fn last_end(&self) -> Option<ReturnsBy> {
        self.open.last().map(|open| open.end)
    }

    /// What is before the event at `back` may be a stay, or time spent outside.
    fn stays_until(&self, back: usize) -> bool {
        let Some([left, back]) = back.checked_sub(1).and_then(|left| self.events.get(left..=back)) else {
            return false;
        };
        (self.may_stay)(left.time(), back.time())
    }

    /// Control comes in.
    fn start(&mut self, to: Target, after_gap: bool, at: usize) {
        let comes_back = !after_gap && self.caller() == Some(Sight::Out) && self.stays_until(at);
        if !comes_back {
            return self.interrupted(Some(Sight::In));
        }
        self.starts.push(at);
        if to.at_entry {
            self.enter(at, ReturnsBy::End, Sight::In);
        } else {
            self.returns(ReturnsBy::Start(to.ip), at, Sight::In);
        }
    }

    fn branch(&mut self, kind: BranchKind, from: Site, to: Target, at: usize) {
        let goes_on = Some(Sight::In);
        match kind {
            BranchKind::Call | BranchKind::IndirectCall => {
                let ret = from.next_ip();
                // A part of its caller, or the program counter that is read.
                if !to.at_entry || ret == to.ip {
                    return self.interrupted(goes_on);
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
            _ if !to.at_entry => self.interrupted(goes_on),
            // Another function calls from now on, in the place of the one that jumped.
            _ => {
                let run = std::mem::take(&mut self.last_run().events);
                self.find(Run::new(run, Sight::In));
            }
        }
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
        let Some(call) = self.open.pop_if(|call| call.end == by) else {
            return self.interrupted(Some(caller));
        };
        self.found.truncate(call.found);
        let last = self.last_run();
        if last.events.start < last.events.end && last.events.end == call.at {
            last.events.end = at + 1;
        } else {
            let run = Run::new(call.at..at + 1, caller);
            let before = std::mem::replace(last, run);
            self.find(before);
        }
    }

    /// What the frame on top has called last.
    fn last_run(&mut self) -> &mut Run {
        self.open.last_mut().map_or(&mut self.run, |open| &mut open.run)
    }

    fn find(&mut self, run: Run) {
        if !run.events.is_empty() {
            self.found.push(run);
        }
    }

    /// Open calls are not known to return, and any code may run next; control is at `base`.
    fn interrupted(&mut self, base: Option<Sight>) {
        self.base = base;
        let outermost = std::mem::take(&mut self.run.events);
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

    /// `+`: a call; `-`: the return from the last one; `!`: a return to elsewhere; `>`: a jump to a function;
    /// `~`: into the middle of one; `|`: tracing starts anew; `s` and `i`: a system call and an interrupt,
    /// `.`: where they go on; `h`: a handler is entered, `r`: where it came goes on; `c`: a call out of the
    /// IP filter, `b`: where it goes on; `(`: control comes in at a first instruction, `)`: it returns out of
    /// the filter; `j`: it jumps out. The runs as they stand in the script, of two events and more.
    fn found(script: &str) -> Vec<&str> {
        all(script, true).into_iter().filter_map(|run| script.get(run.events)).collect()
    }

    fn all(script: &str, may_stay: bool) -> Vec<Run> {
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
        runs(&events, 2, &|left, back| may_stay && left.point < back.point)
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
        assert_eq!(found("+-+>+-~+-"), ["+-", "+-", "+-"]);
    }

    #[test]
    fn what_was_found_in_a_call_that_returns_is_part_of_it() {
        assert_eq!(found("+-++->+--+-"), ["+-++->+--+-"]);
        assert_eq!(found("++->+--"), ["++->+--"]);
    }

    #[test]
    fn a_stay_in_the_kernel_is_part_of_a_call_that_goes_on() {
        assert_eq!(found("+-+s.-+i.i.-"), ["+-+s.-+i.i.-"]);
        assert_eq!(found("+-+s|+-+-"), ["+-", "+-+-"]);
        assert_eq!(found("+-s.+-"), ["+-", "+-"]);
        assert_eq!(found("+-+s+-|"), ["+-", "+-"]);
        let run = |events, starts| Run { events, caller: Sight::In, starts };
        assert_eq!(all("+-!+i.s.-!+s.+-", true), [run(0..2, false), run(3..9, true), run(13..15, false)]);
        assert_eq!(all("+-!+i.+--", false), [run(0..2, false), run(6..8, false)]);
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
        let run = |events, caller| Run { events, caller, starts: true };
        // Where control is before the first event is not known.
        assert_eq!(found("()(+-)(cb)"), ["(+-)(cb)"]);
        assert_eq!(all("()()", true), [run(2..4, Sight::Out)]);
        assert_eq!(all("c(+-)(cb)b", true), [run(0..10, Sight::In)]);
        assert_eq!(all("c(+-)(cb)|cb", true), [run(1..9, Sight::Out), run(10..12, Sight::In)]);
        assert_eq!(found("c(+-j()"), ["+-", "()"]);
        assert_eq!(all("c()()b", false), []);
    }
}
