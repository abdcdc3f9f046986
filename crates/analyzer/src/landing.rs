//! Where control goes on without a call or return: landings, and code that a handler of a signal interrupted.
//!
//! ```text
//!   main parse(1) read parse(2) read throw   -- lands in `parse` --
//! ```
//! An exception or `longjmp` unwinds frames. Which `parse` control has landed in, if several are open, the
//! program's tables of landing pads tell of an exception: that goes on in the innermost frame with a landing
//! pad for its last call. Of `longjmp` only the *following returns* tell: they lead to where the right one
//! was called from ([`crate::undecided`]).

use model::{Avma, Site, Target};

use crate::frames::{Frames, Landings, Notice, Otherwise};
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::Status;

/// Candidates that are looked at: the innermost.
const CANDIDATES_MAX: usize = 1 << 12;

pub(crate) trait Landing<'a>: Frames<'a> {
    /// Control is inside `to.function` without having returned there.  False if that function is not open.
    fn landing(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let is_caught = session.map.is_landing_pad(self.control().space, to.ip) && !self.may_be_gone();
        let landings = if is_caught { self.caught_in(session, to) } else { self.open_in(to) };
        match (landings.frames.as_slice(), landings.otherwise) {
            // In a frame that is older than what was seen of this stack.
            ([], _) if is_caught => self.appears(session, to, false),
            ([], _) => return false,
            ([_], Otherwise::Nowhere) => self.land_in(session, landings),
            _ => {
                self.notice(session, Notice::EndsAreGuess);
                self.land_in(session, landings);
            }
        }
        true
    }

    /// The frame on top, which code out of sight has entered, cannot have returned to `ip` in sight: the call
    /// that has gone out of sight last does not wait there.
    fn cannot_return_to(&self, ip: Avma) -> bool {
        let Some(base) = self.top_base().filter(|&base| base > 0) else { return false };
        let is_entered_unseen = self.get(base).is_some_and(|frame| frame.kind == FrameKind::Filter);
        is_entered_unseen && self.get(base - 1).is_some_and(|below| below.hidden && !below.ret.is(ip))
    }

    /// Ends an older call of the function that returns to `ip`, and all that was called in it, which was left
    /// unseen. Code out of sight has jumped to the function, for a call that waits at `ip`. If there are
    /// several such calls, what follows tells which has returned. False if there is none.
    fn end_older_call(&mut self, session: &mut Session<'a>, from: &Site, ip: Avma) -> bool {
        if session.asked.request.stack_switches {
            return false; // the function may run on another stack
        }
        let waits = |&i: &usize| self.get(i).is_some_and(|frame| frame.hidden && frame.ret.is(ip));
        let is_called = |i: &usize| {
            let called = self.get(i + 1).is_some_and(|called| called.kind == FrameKind::Filter);
            called && (i + 1..self.group_end(i + 1)).any(|i| self.has_code_of(i, from.function))
        };
        let caller = |i: usize| self.group_base(i).checked_sub(1).filter(|&caller| self.may_go_on(caller));
        let jumpers = (0..self.depth()).rev().filter(waits).filter(is_called);
        let frames: Vec<usize> = jumpers.filter_map(caller).take(CANDIDATES_MAX).collect();
        if frames.is_empty() {
            return false;
        }
        self.notice(session, Notice::EndsAreGuess);
        self.land_in(session, Landings { frames, by_return: true, otherwise: Otherwise::InOlder });
        true
    }

    /// The frames that run code of `to.function`.
    fn open_in(&self, to: Target) -> Landings {
        let may_be_in = |i: &usize| self.has_code_of(*i, to.function) && self.may_go_on(*i);
        let frames: Vec<usize> = (0..self.depth()).rev().filter(may_be_in).take(CANDIDATES_MAX).collect();
        // Where a frame runs the code of another function, where control returns to may tell too late that it
        // is not that one.
        let is_of_another = |&i: &usize| self.get(i).is_some_and(|f| f.function != to.function);
        let is_guess = frames.iter().any(is_of_another);
        let otherwise = if is_guess { Otherwise::InAny } else { Otherwise::InOlder };
        Landings { frames, by_return: false, otherwise }
    }

    /// The frames that an exception which goes on at the landing pad `to` can have come to: the innermost
    /// that has made a call with this landing pad. Had the exception passed that, it would pass those further
    /// out.
    fn caught_in(&self, session: &mut Session<'a>, to: Target) -> Landings {
        let space = self.control().space;
        let (mut frames, mut otherwise) = (Vec::new(), Otherwise::InOlder);
        for i in (0..self.depth()).rev().filter(|i| self.may_go_on(*i)) {
            match self.returns_into(i) {
                Some(ret) if session.map.pad_of_call(space, ret) == Some(to.ip) => {
                    frames.push(i);
                    let is_open = self.is_certain(i) && self.get(i).is_some_and(|frame| !frame.undecided);
                    if is_open && otherwise == Otherwise::InOlder {
                        otherwise = Otherwise::Nowhere;
                    }
                    break;
                }
                Some(_) => (),
                None if self.has_code_of(i, to.function) && frames.len() < CANDIDATES_MAX => frames.push(i),
                // What runs makes no call; of other frames it is not known which they made.
                None if i + 1 < self.depth() => otherwise = Otherwise::InAny,
                None => (),
            }
        }
        Landings { frames, by_return: false, otherwise }
    }

    /// Frames in sight may have ended unseen: code out of sight has called them, and may have caught an
    /// exception. Hidden frames on top do not count: they may be the code that throws.
    fn may_be_gone(&self) -> bool {
        let frames = (0..self.depth()).rev().filter_map(|i| self.get(i));
        let mut up_to_seen = frames.skip_while(|frame| frame.hidden);
        up_to_seen.any(|frame| frame.hidden || frame.kind == FrameKind::Filter)
    }

    /// Control may go on in frame `i`, as it seems.
    fn may_go_on(&self, i: usize) -> bool {
        let is_own = |f: &Frame| !f.hidden && !f.kind.is_mark() && f.kind != FrameKind::Inner;
        let tail_called = || self.get(i + 1).is_some_and(|above| above.chain != 0);
        self.get(i).is_some_and(is_own) && !tail_called()
    }

    /// Where the call that frame `i` has made last returns to; `None`: it is not known.
    fn returns_into(&self, i: usize) -> Option<Avma> {
        let is_call = |above: &&Frame| above.kind == FrameKind::Call && above.chain == 0;
        self.get(i + 1).filter(is_call)?.ret.get()
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
