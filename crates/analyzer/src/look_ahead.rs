//! Events after a landing that only they decide: held back until one hypothesis is left.

use std::collections::VecDeque;

use model::Ns;

use crate::frames::{Frames, Landings, Otherwise};
use crate::held::Held;
use crate::session::Session;
use crate::status::Status;
use crate::thread::Thread;
use crate::undecided::{LandingVerdict, Undecided};

/// Events that one landing may wait for; then the innermost candidate is taken.
const LOOK_AHEAD_MAX: usize = 1 << 16;

/// Times off the CPU that one landing may wait for: as long as a recording grows, all of them are kept. Where
/// no IP filter hides its events, a thread has two events or more for each.
const OFF_CPU_MAX: usize = LOOK_AHEAD_MAX / 2;

/// Events that the landings of all threads may hold back together.
const HELD_MAX: usize = 1 << 20;

impl<'a> Thread<'a> {
    /// Control has landed in one of these frames: decides which, or holds back what follows until that is
    /// known.
    pub(crate) fn decide_or_wait(&mut self, session: &mut Session<'a>, landings: Landings) {
        match landings.frames.as_slice() {
            [only] => self.go_on_in(session, *only, landings.by_return, landings.otherwise),
            _ => {
                let undecided = Undecided::new(self.clock.now, self.control.clone(), landings);
                self.undecided = Some(Box::new(undecided));
            }
        }
    }

    /// The next event while a landing is undecided.
    pub(crate) fn look_ahead(&mut self, session: &mut Session<'a>, next: Held) {
        self.decide_overdue(session, next.event.time().point);
        let held = self.hold(session, next);
        self.work_off(session, held);
    }

    /// No event from before `time` will come: decides a landing that has waited too long.
    pub(crate) fn decide_overdue(&mut self, session: &mut Session<'a>, time: Ns) {
        while self.clock.off_cpu.ended_by(time) >= OFF_CPU_MAX
            && let Some(undecided) = self.undecided.take()
        {
            let held = self.decide(session, *undecided, LandingVerdict::NoMore);
            self.work_off(session, held);
        }
    }

    /// No more events will come of a thread that lives until `end`: decides all that is undecided.
    pub(crate) fn decide_rest(&mut self, session: &mut Session<'a>, end: Ns) {
        self.decide_overdue(session, end);
        while let Some(undecided) = self.undecided.take() {
            let held = self.decide(session, *undecided, LandingVerdict::Decided);
            self.work_off(session, held);
        }
    }

    /// Acts on events that were held back, in a row: one of them may be a landing that holds back the others.
    fn work_off(&mut self, session: &mut Session<'a>, held: Vec<Held>) {
        let mut queue = VecDeque::from(held);
        while let Some(next) = queue.pop_front() {
            for held in self.hold(session, next).into_iter().rev() {
                queue.push_front(held);
            }
        }
    }

    /// Acts on an event, or holds it back while a landing is undecided.  Returns the events held back once
    /// it is decided.
    fn hold(&mut self, session: &mut Session<'a>, next: Held) -> Vec<Held> {
        let Some(undecided) = &mut self.undecided else {
            if next.event.is_in_kernel() {
                self.kernel_event(session, next.space, &next.event, next.counters.as_deref());
                return Vec::new();
            }
            if let Some(counters) = &next.counters {
                self.counting.reach(&next.event, counters);
            }
            match session.code.is_some() {
                true => self.step::<true>(session, next.space, &next.event),
                false => self.step::<false>(session, next.space, &next.event),
            }
            return Vec::new();
        };
        let mut verdict = match next.event.is_in_kernel() {
            true => LandingVerdict::Wait, // it says nothing of frames of user code
            false => undecided.look(session, &self.stack, next.space, &next.event),
        };
        undecided.events.push(next);
        session.held_events += 1;
        if undecided.events.len() >= LOOK_AHEAD_MAX || session.held_events >= HELD_MAX {
            verdict = LandingVerdict::NoMore;
        }
        match self.undecided.take_if(|_| verdict != LandingVerdict::Wait) {
            Some(undecided) => self.decide(session, *undecided, verdict),
            None => Vec::new(),
        }
    }

    /// Takes the innermost candidate that is left.  Returns the events that were held back.
    fn decide(
        &mut self,
        session: &mut Session<'a>,
        undecided: Undecided,
        verdict: LandingVerdict,
    ) -> Vec<Held> {
        session.held_events = session.held_events.saturating_sub(undecided.events.len());
        if let Some(landed) = undecided.innermost() {
            self.clock.now = undecided.now;
            self.certainty.choose();
            let is_guess = undecided.otherwise == Otherwise::InAny;
            let is_unsettled = !is_guess && undecided.verdict() == LandingVerdict::Wait;
            if is_unsettled && undecided.by_return {
                self.stack.doubt(landed + 1..self.stack.len()); // which of them has returned is a guess
            }
            self.go_on_in(session, landed, undecided.by_return, undecided.otherwise);
            if is_unsettled {
                // Those that are open whichever it was go on, unless what comes may be taken for their
                // return.
                let open = if verdict == LandingVerdict::Decided { undecided.open() } else { 0 };
                self.guess(session, open);
            }
            if let Some((marks, transfer)) = &undecided.marks {
                self.pass_marks(session, marks, transfer);
            }
        }
        undecided.events
    }

    /// Control has landed in this frame; `by_return`: see [`Landings::by_return`].
    fn go_on_in(&mut self, session: &mut Session<'a>, frame: usize, by_return: bool, otherwise: Otherwise) {
        if otherwise == Otherwise::InAny {
            self.guess(session, 0);
        }
        if otherwise != Otherwise::Nowhere {
            // Where the function is open more than once an older call of it may have been made from the same
            // place.
            self.doubt_all_but(frame + 1);
        }
        let returns_to = self.get(frame + 1).filter(|_| by_return).and_then(|jumper| jumper.ret.get());
        if let Some(ip) = returns_to {
            let called = self.group_end(frame + 1);
            let left = self.group_end(called);
            // What was left unseen has ended before, and what ran since was taken for it.
            let certain = if self.control.base.is_known() { left } else { called };
            self.stack.doubt(certain..self.stack.len());
            self.close_to(session, left, Status::Unwound);
            self.returns_to(session, ip, true);
            self.pop_group(session, false);
            self.pop_group(session, false);
        }
        self.close_to(session, frame + 1, Status::Unwound);
    }

    /// Which of the frames but the outermost `open` control has left is a guess.
    pub(crate) fn guess(&mut self, session: &mut Session<'a>, open: usize) {
        session.limits.undecided_landings += 1;
        self.stack.doubt(open..self.stack.len());
    }
}
