//! Landings: an exception, `longjmp` or the like puts control into a function further out.
//!
//! ```text
//!   main parse(1) read parse(2) read throw   -- lands in `parse` --
//! ```
//! The frames above are unwound.  Which `parse`, if several are open, only the *following returns* tell: control
//! returns to where the right one was called from.  So the events after such a landing are held back
//! until one candidate is left, or all candidates have had their chance; then they are acted upon.

use std::collections::VecDeque;

use model::{Avma, BranchKind, EndKind, EventTime, SpaceId, Target, TraceEvent, Transfer};

use crate::report::Status;
use crate::session::Session;
use crate::stack::{Frame, FrameKind, NOT_KNOWN};
use crate::thread::Thread;

/// Events that one landing may wait for; then the innermost candidate is taken.
const LOOK_AHEAD_MAX: usize = 1 << 16;

/// Events that the landings of all threads may hold back together.
const HELD_MAX: usize = 1 << 20;

/// Candidates that are looked at: the innermost.
const CANDIDATES_MAX: usize = 1 << 12;

/// A landing in a function that is open more than once.
pub(crate) struct Undecided {
    now: EventTime,
    /// Innermost first; never empty.
    candidates: Vec<Candidate>,
    /// Where the frames return to that were opened after the landing.
    above: Vec<Avma>,
    /// Where the signal handlers that were entered after the landing return to.
    interrupted: Vec<Held>,
    /// How the events after the landing left the traced code.
    left: Option<Held>,
    events: Vec<(SpaceId, TraceEvent)>,
}

#[derive(Clone, Copy)]
struct Candidate {
    /// The frame landed in.
    frame: usize,
    /// The frame that control is in now, if so.
    current: usize,
}

/// As [`crate::kernel::Left`], as far as it matters here.
#[derive(Clone, Copy)]
enum Held {
    Kernel { syscall: bool, from: model::Site },
    OutOfFilter,
}

impl Held {
    /// The kernel lets the interrupted code go on at this address.
    fn goes_on_at(self, ip: Avma) -> bool {
        match self {
            Self::Kernel { syscall, from } => ip == from.ip || syscall && ip == from.next_ip(),
            Self::OutOfFilter => false,
        }
    }
}

/// What an event says of an undecided landing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Wait,
    /// The candidates that are left are as good as each other.
    Decided,
}

impl<'a> Thread<'a> {
    /// Control is inside `to.function` without having returned there.  False if the function is not open.
    ///
    /// Decides which frame it is, or holds back what follows until that is known.
    pub(crate) fn landing(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let fits = |i: &usize| {
            let tail_called = self.stack.get(i + 1).is_some_and(|above| above.chain != 0);
            let frame = |f: &Frame| f.function == to.function && !f.hidden && !f.kind.is_mark();
            self.stack.get(*i).is_some_and(frame) && !tail_called
        };
        let candidates: Vec<Candidate> = (0..self.stack.len())
            .rev()
            .filter(fits)
            .take(CANDIDATES_MAX)
            .map(|frame| Candidate { frame, current: frame })
            .collect();
        match candidates.as_slice() {
            [] => return false,
            [only] => self.close_to(session, only.frame + 1, Status::Unwound),
            _ => {
                let undecided = Undecided {
                    now: self.now,
                    candidates,
                    above: Vec::new(),
                    interrupted: Vec::new(),
                    left: None,
                    events: Vec::new(),
                };
                self.undecided = Some(Box::new(undecided));
            }
        }
        true
    }

    /// The next event while a landing is undecided.
    pub(crate) fn look_ahead(&mut self, session: &mut Session<'a>, space: SpaceId, event: &TraceEvent) {
        self.work_off(session, VecDeque::from([(space, *event)]));
    }

    /// No more events will come: decides all that is undecided.
    pub(crate) fn decide_rest(&mut self, session: &mut Session<'a>) {
        while let Some(undecided) = self.undecided.take() {
            let held = self.decide(session, *undecided);
            self.work_off(session, held.into());
        }
    }

    /// Acts on events, or holds them back as long as a landing is undecided.
    fn work_off(&mut self, session: &mut Session<'a>, mut queue: VecDeque<(SpaceId, TraceEvent)>) {
        while let Some((space, event)) = queue.pop_front() {
            let Some(mut undecided) = self.undecided.take() else {
                self.step(session, space, &event);
                continue;
            };
            let mut verdict = undecided.look(&self.stack, &event);
            undecided.events.push((space, event));
            session.held_events += 1;
            if undecided.events.len() >= LOOK_AHEAD_MAX || session.held_events >= HELD_MAX {
                session.limits.undecided_landings += 1;
                verdict = Verdict::Decided;
            }
            match verdict {
                Verdict::Wait => self.undecided = Some(undecided),
                Verdict::Decided => {
                    for held in self.decide(session, *undecided).into_iter().rev() {
                        queue.push_front(held);
                    }
                }
            }
        }
    }

    /// Takes the innermost candidate that is left.  Returns the events that were held back.
    fn decide(&mut self, session: &mut Session<'a>, undecided: Undecided) -> Vec<(SpaceId, TraceEvent)> {
        session.held_events = session.held_events.saturating_sub(undecided.events.len());
        if let Some(landed) = undecided.candidates.first() {
            self.now = undecided.now;
            self.close_to(session, landed.frame + 1, Status::Unwound);
        }
        undecided.events
    }
}

impl Undecided {
    /// Follows one event with a stack of return addresses above the candidates.
    fn look(&mut self, stack: &[Frame], event: &TraceEvent) -> Verdict {
        let TraceEvent::Branch(branch) = event else { return Verdict::Decided };
        match branch.transfer {
            Transfer::Branch { kind: BranchKind::Call | BranchKind::IndirectCall, from, to } => {
                if from.next_ip() != to.ip {
                    self.above.push(from.next_ip());
                }
            }
            Transfer::Branch { kind: BranchKind::Return, to, .. } => {
                return self.look_at_return(stack, to.ip, false);
            }
            Transfer::Branch { .. } => (),
            Transfer::Start { to, .. } => self.look_at_start(to),
            Transfer::End { kind, from, to } => return self.look_at_end(stack, kind, from, to),
        }
        Verdict::Wait
    }

    fn look_at_start(&mut self, to: Target) {
        match self.left.take() {
            Some(left @ Held::Kernel { .. }) if !left.goes_on_at(to.ip) => {
                // The interrupted instruction may be the first of a function: a handler's return, no new handler.
                if let Some(i) = self.interrupted.iter().rposition(|held| held.goes_on_at(to.ip)) {
                    self.interrupted.truncate(i);
                } else if to.at_entry {
                    self.interrupted.push(left);
                    self.above.push(NOT_KNOWN);
                }
            }
            Some(Held::OutOfFilter) if self.above.last() == Some(&to.ip) => {
                self.above.pop();
            }
            _ => (),
        }
    }

    fn look_at_end(
        &mut self,
        stack: &[Frame],
        kind: EndKind,
        from: model::Site,
        to: Option<Avma>,
    ) -> Verdict {
        match kind {
            EndKind::Syscall | EndKind::Async(_) => {
                self.left = Some(Held::Kernel { syscall: kind == EndKind::Syscall, from });
                return Verdict::Wait;
            }
            EndKind::Branch(_) | EndKind::FallThrough | EndKind::Skipped => {
                self.left = Some(Held::OutOfFilter)
            }
        }
        match kind {
            EndKind::Branch(BranchKind::Call | BranchKind::IndirectCall) if Some(from.next_ip()) != to => {
                self.above.push(from.next_ip());
            }
            EndKind::Branch(BranchKind::Return) => {
                return self.look_at_return(stack, to.unwrap_or(NOT_KNOWN), true);
            }
            _ => (),
        }
        Verdict::Wait
    }

    /// A return below the landing is what tells the candidates apart.
    fn look_at_return(&mut self, stack: &[Frame], to: Avma, out_of_filter: bool) -> Verdict {
        if let Some(i) = self.above.iter().rposition(|&ret| ret == to || ret == NOT_KNOWN) {
            self.above.truncate(i);
            return Verdict::Wait;
        }
        if !self.above.is_empty() {
            return Verdict::Decided; // another landing
        }
        let returned = |candidate: &Candidate| {
            let chain = stack.get(candidate.current)?.chain as usize;
            let current = candidate.current.checked_sub(chain)?;
            let base = stack.get(current)?;
            let fits_any = base.ret == NOT_KNOWN && (base.kind != FrameKind::Filter || out_of_filter);
            (base.ret == to || fits_any).then_some(Candidate { frame: candidate.frame, current })
        };
        let mut left: Vec<Candidate> = self.candidates.iter().filter_map(returned).collect();
        if left.is_empty() {
            return Verdict::Decided;
        }
        let at_bottom = left.iter().any(|candidate| candidate.current == 0);
        for candidate in &mut left {
            candidate.current = candidate.current.saturating_sub(1);
        }
        self.candidates = left;
        if self.candidates.len() == 1 || at_bottom { Verdict::Decided } else { Verdict::Wait }
    }
}
