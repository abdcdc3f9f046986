//! With an IP filter, code outside is hidden: what it does is known by where control comes back. So is code
//! with a missing file, where returns have addresses ([`Session::passes_gap`]).
//!
//! A call out of the filter opens a hidden frame; if it goes to the entry of a wanted function, that is a
//! call of it. Control that comes in at an entry opens a frame; its caller is known when it returns, by the
//! return address. A jump out ends the jumper, unless it is to a part of its own function that lies outside
//! (`f.cold`).

use model::{Avma, FunctionAt, FunctionKind, Site, Target};

use crate::frames::{Frames, Notice};
use crate::landing::Landing;
use crate::session::Session;
use crate::stack::{EntrySite, Frame, FrameKind};
use crate::status::Status;

pub(crate) trait Filter<'a>: Landing<'a> {
    fn function_outside(&self, session: &mut Session<'a>, to: Option<Avma>) -> FunctionAt {
        to.map_or(FunctionAt::UNKNOWN, |ip| session.map.function_at(self.control().space, ip))
    }

    /// A call of code outside.
    fn call_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) {
        if Some(from.next_ip()) != to {
            let (frame, at_entry) = self.frame_outside(session, from, to);
            self.push(session, frame, at_entry);
        }
    }

    #[inline(always)]
    fn frame_outside(&self, session: &mut Session<'a>, from: Site, to: Option<Avma>) -> (Frame, bool) {
        let FunctionAt { id: function, at_entry } = self.function_outside(session, to);
        let is_inner = session.map.is_inner_call(from.function, function, at_entry);
        let mut frame = self.frame(function, if is_inner { FrameKind::Inner } else { FrameKind::Call });
        frame.site.set(from);
        frame.ret = from.next_ip().into();
        frame.hidden = true;
        (frame, at_entry)
    }

    /// A return to code outside.
    fn ret_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) {
        if let Some(to) = to {
            if session.map.function_at(self.control().space, to).at_entry
                && !self.may_return_to_entry(session, to)
            {
                if self.top().is_some_and(|top| top.kind == FrameKind::Inner) {
                    self.close(session, Status::Complete, false); // a retpoline
                }
                return self.jump_out(session, from, Some(to), true);
            }
            self.returns_to(session, to, false);
            if self.leave_for_call_from_outside(session, to) {
                self.returns_to(session, to, false);
            }
        }
        self.pop_group(session, false);
    }

    /// The frame on top returns to code outside, but was called in sight, elsewhere: what code outside has
    /// called was left unseen before, and calls seemed to go on that were made by it. Leaves what stands
    /// above the innermost call from outside, which may return there; which calls ended so is a guess. False
    /// if the frame on top may return there itself.
    fn leave_for_call_from_outside(&mut self, session: &mut Session<'a>, to: Avma) -> bool {
        let base = self.top_base().and_then(|base| self.get(base));
        if base.is_none_or(|base| !base.ret.is_known() || base.ret.is(to)) {
            return false;
        }
        self.notice(session, Notice::Doubt { from: 0 });
        let caller = self.innermost(|frame| frame.kind == FrameKind::Filter && frame.chain == 0);
        if let Some(base) = caller {
            self.close_to(session, self.group_end(base), Status::Unwound);
        }
        caller.is_some()
    }

    /// The frame on top may return to the first address of a function. As in `ret`, which otherwise is a
    /// jump there: only to the restorer of signals, by a handler or by a frame that was found running.
    fn may_return_to_entry(&self, session: &mut Session<'a>, to: Avma) -> bool {
        match self.top_base().and_then(|base| self.get(base)) {
            Some(base) if base.kind == FrameKind::Filter => session.map.is_restorer(self.control().space, to),
            Some(base) => base.ret.is(to) || !base.ret.is_known(),
            None => true,
        }
    }

    /// A jump to code outside; `may_enter`: it is none that merely runs into the next function.
    fn jump_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>, may_enter: bool) {
        let FunctionAt { id: function, at_entry } = self.function_outside(session, to);
        let Some(top) = self.top() else { return };
        if top.function == function && session.map.kind(function) == FunctionKind::Symbol {
            self.control_mut().away = Some(self.time());
            return;
        }
        let (ret, undecided) = (top.ret, top.undecided || !self.is_certain(self.depth() - 1));
        // As in `jump`: what a call inside a function, or a stub of the PLT, jumps to was called there.
        let (kind, site) = match top.kind {
            FrameKind::Inner => (FrameKind::Call, top.site),
            FrameKind::Call | FrameKind::Tail if top.is_stub() => (top.kind, top.site),
            _ => (FrameKind::Tail, EntrySite::of(self.control().space, from)),
        };
        self.pop_group(session, true);
        if ret.is_known() {
            let mut frame = self.frame(function, kind);
            (frame.site, frame.ret) = (site, ret);
            // It returns for a frame that may be gone.
            (frame.hidden, frame.undecided) = (true, undecided);
            self.push(session, frame, at_entry && may_enter);
        }
    }

    /// Control comes in where it may have come from the part outside that the frame on top has jumped to.
    fn back_from_own_part(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let Some(base) = self.top_base() else { return false };
        if self.get(base).is_some_and(|base| base.ret.is(to.ip)) {
            // It has returned from there to a caller in sight.
            self.control_mut().away = None;
            self.pop_group(session, false);
            return true;
        }
        let is_own = self.top().is_some_and(|top| top.function == to.function);
        // After a call that waits there is rather that one's return than the way back into the same
        // function.
        let is_back = is_own && self.hidden_caller(to.ip).is_none();
        if is_back {
            self.control_mut().away = None;
        }
        is_back
    }

    /// Control comes in from outside.
    fn arrive(&mut self, session: &mut Session<'a>, to: Target) {
        if self.control().away.is_some() {
            if !to.at_entry && self.back_from_own_part(session, to) {
                return;
            }
            self.pop_group(session, true);
        }
        // What throws does not return, though a landing pad may stand behind its call. With an IP filter such
        // a landing is not told from a return.
        let (has_ip_filter, space) = (session.around.has_ip_filter, self.control().space);
        let may_return = |_: &usize| has_ip_filter || !session.map.is_landing_pad(space, to.ip);
        let returned = self.hidden_caller(to.ip).filter(may_return);
        // What was called after a handler had interrupted code there returns first.
        let is_return = !to.at_entry && returned > self.mark_of(to.ip);
        if !is_return && self.goes_on_at_mark(session, to) {
            // A handler out of sight has returned.
        } else if to.at_entry {
            let mut frame = self.frame(to.function, FrameKind::Filter);
            frame.entry = to.ip.into();
            self.push(session, frame, true);
        } else if let Some(i) = returned {
            self.close_to(session, i + 1, Status::Unwound);
            self.pop_group(session, false);
            self.notice(session, Notice::IsProved);
        } else if self
            .top()
            .is_some_and(|top| top.function == to.function && !top.hidden && !top.kind.is_mark())
        {
            // It is where it was: what happened outside left no trace.
        } else if !self.landing(session, to) {
            // Out of sight code may have jumped here; or an older call goes on, and these were unwound.
            self.appears(session, to, true);
        }
    }

    /// The innermost call out of sight that returns to `ip`.
    fn hidden_caller(&self, ip: Avma) -> Option<usize> {
        self.innermost(|frame| frame.hidden && frame.ret.is(ip))
    }
}

impl<'a, F: Frames<'a>> Filter<'a> for F {}
