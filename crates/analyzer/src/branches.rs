//! Calls, returns and jumps between traced instructions.

use model::{Avma, FunctionKind, Site, Target};

use crate::frames::{Frames, Notice};
use crate::landing::Landing;
use crate::session::Session;
use crate::stack::{CHAIN_MAX, Frame, FrameKind};
use crate::status::Status;

pub(crate) trait Branches<'a>: Landing<'a> {
    #[inline(always)]
    fn call(&mut self, session: &mut Session<'a>, from: &Site, to: &Target) {
        let ret = from.next_ip();
        if ret == to.ip {
            return; // `call +0` reads the program counter: no code returns from it
        }
        let is_inner = session.map.is_inner_call(from.function, to.function, to.at_entry);
        let mut frame = self.frame(to.function, if is_inner { FrameKind::Inner } else { FrameKind::Call });
        frame.site.set(*from);
        frame.ret = ret.into();
        self.push(session, frame, to.at_entry);
    }

    #[inline(always)]
    fn ret(&mut self, session: &mut Session<'a>, from: &Site, to: &Target) {
        match self.caller_in_sight(to.ip) {
            Some(base) => {
                while self.depth() > base {
                    self.close(session, Status::Complete, false);
                }
            }
            None => self.ret_with_care(session, *from, *to),
        }
    }

    /// Where the group of the frame on top begins, if it returns to a call at `ip`, and all that is known of
    /// the two is that: nearly always.
    #[inline(always)]
    fn caller_in_sight(&self, ip: Avma) -> Option<usize> {
        let top = self.top()?;
        let base = self.group_base(self.depth() - 1);
        let is_known = top.ret.is(ip) && self.is_certain(base);
        let is_call = !matches!(self.get(base)?.kind, FrameKind::Filter | FrameKind::Signal);
        (is_known && is_call && self.is_plain(base.checked_sub(1)?)).then_some(base)
    }

    #[inline(never)]
    fn ret_with_care(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        match self.top() {
            None => self.returned_to_unknown(session, to),
            Some(top) if top.ret.is(to.ip) || !top.ret.is_known() => {
                let is_from_older = self.cannot_return_to(to.ip);
                if is_from_older && self.end_older_call(session, &from, to.ip) {
                    return;
                }
                self.returns_to(session, to.ip, true);
                self.pop_group(session, false);
                match self.top() {
                    None => self.returned_to_unknown(session, to),
                    // It was entered by a jump out of sight: its hidden jumper has ended, too.
                    Some(below) if below.hidden && below.ret.is(to.ip) => self.pop_group(session, false),
                    // A handler had the kernel go on in a function as if the interrupted code had called it.
                    // (A handler that interrupted the restorer itself only returns to it.)
                    Some(mark)
                        if mark.goes_on_at(to.ip)
                            && !session.map.is_restorer(self.control().space, to.ip) =>
                    {
                        self.close(session, Status::Complete, false);
                    }
                    // Code out of sight has jumped to it, for a call that is older than all that are open.
                    Some(_) if is_from_older && !session.map.is_restorer(self.control().space, to.ip) => {
                        self.appears(session, to, true);
                    }
                    Some(_) => (),
                }
            }
            Some(_) if self.is_of_handler(session, to) => self.return_of_handler(session, from, to),
            Some(top) if to.at_entry => {
                // A return that is a jump: `push target; ret`, or a retpoline, which overwrites the return
                // address of a call that it makes for that.
                if top.kind == FrameKind::Inner {
                    self.close(session, Status::Complete, false);
                }
                self.jump(session, from, to, true);
            }
            Some(_) => self.return_elsewhere(session, from, to),
        }
    }

    /// A return to this place is a handler's: it is the restorer of signals.
    fn is_of_handler(&self, session: &Session<'a>, to: Target) -> bool {
        let control = self.control();
        control.has_handlers() && session.map.is_restorer(control.space, to.ip)
    }

    /// Only handlers return to the restorer: the innermost one that is open does, and control has landed in
    /// it before, and not in the frame on top.
    fn return_of_handler(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        self.notice(session, Notice::ContradictsChoice);
        match self.innermost(|frame| frame.kind == FrameKind::Signal) {
            Some(handler) => {
                let end = self.group_end(handler);
                self.close_to(session, end, Status::Unwound);
                self.returns_to(session, to.ip, true);
                self.pop_group(session, false);
            }
            None if to.at_entry => self.jump(session, from, to, true),
            None => self.return_elsewhere(session, from, to),
        }
    }

    /// A return to another place than where the frame on top returns to.
    fn return_elsewhere(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        let is_of = |frame: &Frame| frame.function == from.function;
        // The function was called anew since it was called from there: one call returns for another only on
        // another stack.
        let is_called_anew = self.top().is_some_and(|top| is_of(top) && top.kind != FrameKind::Inner);
        let may_switch = self.may_switch_stacks(session);
        self.notice(session, Notice::EndsAreGuess);
        let mut innermost = None;
        let mut group_top = self.depth();
        for base in (0..self.depth()).rev() {
            let Some(frame) = self.get(base).filter(|frame| frame.chain == 0) else { continue };
            if frame.ret.is(to.ip) {
                innermost.get_or_insert(base);
                if (base..group_top).any(|i| self.get(i).is_some_and(is_of)) {
                    if is_called_anew && may_switch {
                        return self.appears(session, to, false);
                    }
                    self.close_to(session, group_top, Status::Unwound); // calls that never return
                    self.pop_group(session, false);
                    return;
                }
            }
            group_top = base;
        }
        if self.landing(session, to) {
            return;
        }
        match innermost {
            Some(base) => self.close_to(session, base, Status::Unwound),
            None => self.appears(session, to, false),
        }
    }

    #[inline(never)]
    fn jump(&mut self, session: &mut Session<'a>, from: Site, to: Target, indirect: bool) {
        let Some(top) = self.top() else { return self.found(session, to) };
        let (function, kind, top_is) = (top.function, top.kind, top.code);
        let enters = to.at_entry || session.map.kind(to.function) == FunctionKind::Plt;
        let is_inner = kind == FrameKind::Inner;
        // Back from code that it has jumped into the middle of, or `push; ret` to its own entry.
        let is_inside = to.function == function && !enters || to.function == from.function && !is_inner;
        let is_in_table =
            top_is == FunctionKind::Plt && session.map.kind_of_entered(to.function) == FunctionKind::Plt;
        if is_inside && top_is != FunctionKind::Plt || is_in_table {
            return;
        }
        let binder = top_is == FunctionKind::Loader
            && matches!(kind, FrameKind::Call | FrameKind::Tail)
            && indirect
            && enters;
        if top_is == FunctionKind::Plt || binder || is_inner && enters {
            self.replace_top(session, to, false);
        } else if enters {
            self.tail_call(session, from, to, false);
        } else if !indirect {
            self.back_in_group(session, to);
        } else if !self.landing(session, to) {
            // Into the middle of a function that is not known to run: code that functions of an object share,
            // or a landing in a frame that is older than the recording, or on another stack.
            let is_far = |session: &mut Session<'a>| {
                session.map.in_other_object(from.function, to.function)
                    || session.map.is_after_call(self.control().space, to.ip)
            };
            if session.map.kind(to.function) != FunctionKind::Symbol {
                return;
            }
            if is_far(session) {
                self.appears(session, to, false);
            } else {
                self.run_code_of(to.function, true);
            }
        }
    }

    /// A direct jump into the middle of a function. If that has tail-called the running code, the call ended:
    /// code that the compiler split off under a name of its own (GCC 8: `f.cold.3`) comes back like this.
    fn back_in_group(&mut self, session: &mut Session<'a>, to: Target) {
        if session.map.kind(to.function) != FunctionKind::Symbol {
            return; // code without a name may be many functions
        }
        let Some(base) = self.top_base() else { return };
        let is_there = |&i: &usize| self.get(i).is_some_and(|frame| frame.function == to.function);
        let caller = (base..self.depth() - 1).rev().find(is_there);
        // What was found in that code may be a frame of another function that has jumped there, too; and a
        // frame of that function may have jumped to what was found.
        let outermost = caller.unwrap_or(base);
        if self.get(outermost).is_some_and(|frame| frame.kind == FrameKind::Found) {
            self.notice(session, Notice::Doubt { from: outermost + 1 });
        }
        match caller {
            Some(caller) => self.close_to(session, caller + 1, Status::Complete),
            None => self.run_code_of(to.function, false),
        }
    }

    /// A jump to code with a missing file, for a frame that is known to return to code in sight: its return
    /// will be seen. The code that a stub of the PLT led to is known by the stub.
    fn jump_to_missing(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        match self.top() {
            Some(top) if top.is_stub() || top.kind == FrameKind::Inner => self.replace_top(session, to, true),
            _ => self.tail_call(session, from, to, true),
        }
    }

    /// The frame on top jumped to the entry of another function; `hidden`: out of sight.
    fn tail_call(&mut self, session: &mut Session<'a>, from: Site, to: Target, hidden: bool) {
        let is_capped = self.top().is_some_and(|top| top.chain >= CHAIN_MAX);
        if is_capped {
            self.close(session, Status::Complete, true);
        }
        self.notice(session, Notice::TailCall { is_capped });
        let mut frame = self.frame(to.function, FrameKind::Tail);
        frame.site.set(from);
        frame.hidden = hidden;
        if let Some(top) = self.top() {
            (frame.ret, frame.chain) = (top.ret, top.chain + 1);
            frame.undecided = top.undecided; // it returns for a frame that may be gone
        }
        self.push(session, frame, to.at_entry || !hidden);
    }

    /// The frame on top was only in the way: its caller enters `to`; `hidden`: out of sight.
    fn replace_top(&mut self, session: &mut Session<'a>, to: Target, hidden: bool) {
        let Some(stub) = self.top().copied() else { return };
        self.close(session, Status::Complete, false);
        let kind = match stub.kind {
            FrameKind::Inner => FrameKind::Call,
            // The caller of the stub was not seen; where it leads to is entered here.
            FrameKind::Found if to.at_entry && !hidden => FrameKind::Filter,
            kind => kind,
        };
        let mut frame = self.frame(if hidden && stub.is_stub() { stub.function } else { to.function }, kind);
        (frame.site, frame.hidden) = (stub.site, hidden);
        (frame.ret, frame.chain) = (stub.ret, stub.chain);
        self.push(session, frame, to.at_entry);
    }

    /// What no frame explains is another stack, and no frame that is older than the recording.
    fn may_switch_stacks(&self, session: &Session<'a>) -> bool {
        self.control().base.is_known() || session.asked.request.stack_switches
    }
}

impl<'a, F: Frames<'a>> Branches<'a> for F {}
