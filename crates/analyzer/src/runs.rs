//! Runs of calls: what one frame calls, one call after the other, as far as each returns to where it was
//! made.
//!
//! ```text
//!   ... ret | call a   call b   ret   ret   call c   ret | start ...      one run: a and c, which the frame below called
//!   ... ret | call a   [call b   ret   call b   ret] gap ...              a does not end: the run is a's
//! ```
//! In a run is nothing but calls, returns, jumps to first instructions, and stays in the kernel after which
//! the call that made them goes on. So what it means does not depend on what was before, nor can it end any
//! frame that is older: it can be analysed on its own.

use std::ops::Range;

use model::{Avma, BranchKind, EndKind, EventTime, Site, Target, TraceEvent, Transfer};

/// What one frame calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Their places.
    pub(crate) events: Range<usize>,
    /// Tracing starts in it.
    pub(crate) starts: bool,
}

/// The runs of at least so many of a thread's events, none within another, in order; `may_stay`: a stay in
/// the kernel from when to when may be in one.
pub(crate) fn runs(
    events: &[TraceEvent],
    events_min: usize,
    may_stay: &dyn Fn(EventTime, EventTime) -> bool,
) -> Vec<Run> {
    let mut search = Search { events, may_stay, open: vec![], run: 0..0, found: vec![], starts: vec![] };
    for (event, at) in events.iter().zip(0..) {
        search.event(event, at);
    }
    search.interrupted();
    let Search { mut found, starts, .. } = search;
    found.retain(|run| run.len() >= events_min);
    found.sort_unstable_by_key(|run| run.start);
    let with_starts = |run: Range<usize>| {
        let first = starts.get(starts.partition_point(|start| *start < run.start));
        Run { starts: first.is_some_and(|start| run.contains(start)), events: run }
    };
    found.into_iter().map(with_starts).collect()
}

/// A call that has not returned.
struct Open {
    /// Its event.
    at: usize,
    ret: Avma,
    /// How many runs were found before it.
    found: usize,
    /// What it has called last.
    run: Range<usize>,
}

struct Search<'e> {
    events: &'e [TraceEvent],
    may_stay: &'e dyn Fn(EventTime, EventTime) -> bool,
    open: Vec<Open>,
    /// What the frame has called last that was there before all that is open.
    run: Range<usize>,
    found: Vec<Range<usize>>,
    /// Events at which open calls go on after a stay in the kernel.
    starts: Vec<usize>,
}

impl Search<'_> {
    fn event(&mut self, event: &TraceEvent, at: usize) {
        match event {
            TraceEvent::Branch(branch) if !branch.transfer.is_in_kernel() => match branch.transfer {
                Transfer::Branch { kind, from, to } => self.branch(kind, from, to, at),
                Transfer::End { kind, from, .. } => self.end(branch.time, kind, from, at),
                Transfer::Start { .. } if self.starts.last() == Some(&at) => (),
                Transfer::Start { .. } => self.interrupted(),
            },
            _ => self.interrupted(),
        }
    }

    /// Control goes into the kernel, or out of sight.
    #[cold]
    fn end(&mut self, left: EventTime, kind: EndKind, from: Site, at: usize) {
        let goes_on_at = |ip| match kind {
            EndKind::Syscall => ip == from.ip || ip == from.next_ip(),
            EndKind::Async(_) => ip == from.ip,
            _ => false,
        };
        if let Some(TraceEvent::Branch(next)) = self.events.get(at + 1)
            && let Transfer::Start { to, after_gap: false } = next.transfer
            && goes_on_at(to.ip)
            && !self.open.is_empty()
            && (self.may_stay)(left, next.time)
        {
            self.starts.push(at + 1);
        } else {
            self.interrupted();
        }
    }

    fn branch(&mut self, kind: BranchKind, from: Site, to: Target, at: usize) {
        match kind {
            BranchKind::Call | BranchKind::IndirectCall => {
                let ret = from.next_ip();
                // A part of its caller, or the program counter that is read.
                if !to.at_entry || ret == to.ip {
                    return self.interrupted();
                }
                self.open.push(Open { at, ret, found: self.found.len(), run: 0..0 });
            }
            BranchKind::Return => match self.open.pop() {
                Some(call) if call.ret == to.ip => self.returned(&call, at + 1),
                Some(call) => {
                    self.open.push(call);
                    self.interrupted();
                }
                None => self.interrupted(),
            },
            BranchKind::Abort => self.interrupted(),
            // Inside of a function.
            _ if from.function == to.function => (),
            _ if !to.at_entry => self.interrupted(),
            // Another function calls from now on, in the place of the one that jumped.
            _ => {
                let run = std::mem::take(self.last_run());
                self.find(run);
            }
        }
    }

    /// What was found in the call is part of a longer one.
    fn returned(&mut self, call: &Open, end: usize) {
        self.found.truncate(call.found);
        let last = self.last_run();
        if last.start < last.end && last.end == call.at {
            last.end = end;
        } else {
            let before = std::mem::replace(last, call.at..end);
            self.find(before);
        }
    }

    /// What the frame on top has called last.
    fn last_run(&mut self) -> &mut Range<usize> {
        self.open.last_mut().map_or(&mut self.run, |open| &mut open.run)
    }

    fn find(&mut self, run: Range<usize>) {
        if !run.is_empty() {
            self.found.push(run);
        }
    }

    /// What is open now is not known to return, and what runs next may be anything.
    fn interrupted(&mut self) {
        let runs = std::mem::take(&mut self.open).into_iter().map(|open| open.run);
        let all: Vec<_> = [std::mem::take(&mut self.run)].into_iter().chain(runs).collect();
        all.into_iter().for_each(|run| self.find(run));
    }
}

#[cfg(test)]
mod tests {
    use model::{AsyncCause, AuxOffset, BranchEvent, EventTime, FunctionId, Ns};

    use super::*;

    /// `+`: a call; `-`: the return from the last one; `!`: a return to elsewhere; `>`: a jump to a function;
    /// `~`: into the middle of one; `|`: tracing starts anew; `s` and `i`: a system call and an interrupt,
    /// `.`: where they go on. The runs as they stand in the script, of two events and more.
    fn found(script: &str) -> Vec<&str> {
        all(script, true).into_iter().filter_map(|run| script.get(run.events)).collect()
    }

    fn all(script: &str, may_stay: bool) -> Vec<Run> {
        let mut calls = Vec::new();
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
                    b'-' => {
                        (BranchKind::Return, Target { ip: calls.pop().unwrap_or_default(), ..entry(false) })
                    }
                    b'!' => (BranchKind::Return, entry(false)),
                    b'>' => (BranchKind::Jump, entry(true)),
                    _ => (BranchKind::IndirectJump, entry(false)),
                };
                let transfer = match word {
                    b'|' => Transfer::Start { to, after_gap: false },
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
        let run = |events, starts| Run { events, starts };
        assert_eq!(all("+-!+i.s.-!+s.+-", true), [run(0..2, false), run(3..9, true), run(13..15, false)]);
        assert_eq!(all("+-!+i.+--", false), [run(0..2, false), run(6..8, false)]);
    }
}
