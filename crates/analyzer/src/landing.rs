//! Landings: an exception, `longjmp` or the like puts control into a function further out.
//!
//! ```text
//!   main parse(1) read parse(2) read throw   -- lands in `parse` --
//! ```
//! The frames above are unwound. Which `parse`, if several are open, only the *following returns* tell:
//! control returns to where the right one was called from. So the events after such a landing are held back
//! until one candidate is left, or all candidates have had their chance; then they are acted upon. Control
//! may land again meanwhile: then a candidate goes on in each frame below that it can have landed in.

mod undecided;
mod way;

use std::collections::VecDeque;

use model::{SpaceId, Target, TraceEvent};

use crate::report::Status;
use crate::session::Session;
use crate::thread::Thread;

pub(crate) use undecided::Undecided;
use undecided::Verdict;
use way::{Candidate, landings};

/// Events that one landing may wait for; then the innermost candidate is taken.
const LOOK_AHEAD_MAX: usize = 1 << 16;

/// Events that the landings of all threads may hold back together.
const HELD_MAX: usize = 1 << 20;

/// Candidates that are looked at: the innermost.
const CANDIDATES_MAX: usize = 1 << 12;

impl<'a> Thread<'a> {
    /// Control is inside `to.function` without having returned there.  False if the function is not open.
    ///
    /// Decides which frame it is, or holds back what follows until that is known.
    pub(crate) fn landing(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let candidates: Vec<Candidate> = landings(&self.stack, self.stack.len(), to.function)
            .take(CANDIDATES_MAX)
            .map(|frame| Candidate { frame, current: frame, in_restorer: false })
            .collect();
        if candidates.is_empty() {
            return false;
        }
        self.end_is_guess();
        // Where a frame runs the code of another function, where control returns to may tell too late that it
        // is not that one.
        let is_of_another =
            |c: &Candidate| self.stack.get(c.frame).is_some_and(|f| f.function != to.function);
        let is_guess = candidates.iter().any(is_of_another);
        match candidates.as_slice() {
            [only] => {
                if is_guess {
                    self.guess(session, 0);
                }
                self.may_have_left_all(only.frame + 1);
                self.close_to(session, only.frame + 1, Status::Unwound);
            }
            _ => {
                let undecided = Undecided::new(self.now, candidates, is_guess);
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
            let held = self.decide(session, *undecided, Verdict::Decided);
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
            let mut verdict = undecided.look(&session.map, &self.stack, &event);
            undecided.events.push((space, event));
            session.held_events += 1;
            if undecided.events.len() >= LOOK_AHEAD_MAX || session.held_events >= HELD_MAX {
                verdict = Verdict::NoMore;
            }
            match verdict {
                Verdict::Wait => self.undecided = Some(undecided),
                Verdict::Decided | Verdict::NoMore => {
                    for held in self.decide(session, *undecided, verdict).into_iter().rev() {
                        queue.push_front(held);
                    }
                }
            }
        }
    }

    /// Takes the innermost candidate that is left.  Returns the events that were held back.
    fn decide(
        &mut self,
        session: &mut Session<'a>,
        undecided: Undecided,
        verdict: Verdict,
    ) -> Vec<(SpaceId, TraceEvent)> {
        session.held_events = session.held_events.saturating_sub(undecided.events.len());
        let candidates = || undecided.ways.iter().flat_map(|way| &way.candidates);
        if let Some(landed) = candidates().map(|candidate| candidate.frame).max() {
            self.now = undecided.now;
            self.has_chosen = true;
            if undecided.is_guess {
                self.guess(session, 0);
            }
            // Where the function is open more than once an older call of it may have been made from the same
            // place.
            self.may_have_left_all(landed + 1);
            self.close_to(session, landed + 1, Status::Unwound);
            let is_unsettled = !undecided.is_guess && undecided.verdict() == Verdict::Wait;
            if is_unsettled {
                // Those that are open whichever it was go on, unless what comes may be taken for their
                // return.
                let current = candidates().map(|candidate| candidate.current).min();
                let open = current.filter(|_| verdict == Verdict::Decided).map_or(0, |current| current + 1);
                self.guess(session, open);
            }
        }
        undecided.events
    }

    /// Control is where no frame that is open leads: if one had to be chosen before, control has landed in
    /// another than it seemed.
    pub(crate) fn contradicts_choice(&mut self, session: &mut Session<'a>) {
        if self.has_chosen {
            self.guess(session, 0);
            self.is_lost = true;
        }
    }

    /// Which of the frames but the outermost `open` control has left is a guess.
    pub(crate) fn guess(&mut self, session: &mut Session<'a>, open: usize) {
        session.limits.undecided_landings += 1;
        self.stack.iter_mut().skip(open).for_each(|frame| frame.undecided = true);
    }
}
