//! Where control goes on without a call or return: landings, and code that a handler of a signal interrupted.
//!
//! ```text
//!   main parse(1) read parse(2) read throw   -- lands in `parse` --
//! ```
//! An exception or `longjmp` unwinds frames. Which `parse` control has landed in, if several are open, only
//! the *following returns* tell: they lead to where the right one was called from ([`crate::undecided`]).

use model::{Avma, Target};

use crate::frames::{Frames, Notice};
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::Status;

/// Candidates that are looked at: the innermost.
const CANDIDATES_MAX: usize = 1 << 12;

pub(crate) trait Landing<'a>: Frames<'a> {
    /// Control is inside `to.function` without having returned there.  False if the function is not open.
    fn landing(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let may_be_in = |i: &usize| {
            let is_own = |f: &Frame| !f.hidden && !f.kind.is_mark() && f.kind != FrameKind::Inner;
            let tail_called = || self.get(i + 1).is_some_and(|above| above.chain != 0);
            self.has_code_of(*i, to.function) && self.get(*i).is_some_and(is_own) && !tail_called()
        };
        let candidates = (0..self.depth()).rev().filter(may_be_in).take(CANDIDATES_MAX);
        let candidates: Vec<usize> = candidates.collect();
        if candidates.is_empty() {
            return false;
        }
        self.notice(session, Notice::EndsAreGuess);
        // Where a frame runs the code of another function, where control returns to may tell too late that it
        // is not that one.
        let is_of_another = |&i: &usize| self.get(i).is_some_and(|f| f.function != to.function);
        let is_guess = candidates.iter().any(is_of_another);
        self.land_in(session, candidates, is_guess);
        true
    }

    /// The innermost code that goes on there, if any, was interrupted by a handler that is left now.
    ///
    /// While a handler runs in sight, the first instruction of a function is rather that of a call.
    fn goes_on_at_mark(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let mark = match to.at_entry {
            true => self.top().filter(|top| top.goes_on_at(to.ip)).map(|_| self.depth() - 1),
            false => self.mark_of(to.ip),
        };
        let Some(mark) = mark else { return false };
        self.close_to(session, mark + 1, Status::Unwound);
        self.close(session, Status::Complete, false);
        if to.at_entry && session.around.has_ip_filter {
            // A handler out of sight may have left it (`siglongjmp`), and this is the next call.
            let from = self.depth().saturating_sub(1);
            self.notice(session, Notice::Doubt { from });
        }
        true
    }

    /// The innermost interrupted code that goes on at `ip`.
    fn mark_of(&self, ip: Avma) -> Option<usize> {
        if !self.control().has_handlers() {
            return None;
        }
        self.innermost(|frame| frame.goes_on_at(ip))
    }
}

impl<'a, F: Frames<'a>> Landing<'a> for F {}
