//! With an IP filter, code outside is hidden: what it does is known by where control comes back.
//!
//! A call out of the filter opens a hidden frame; if it goes to the entry of a wanted function, that is a
//! call of it. Control that comes in at an entry opens a frame whose caller is known when it returns, by the
//! address that it returns to. A jump out ends the jumper, unless it is to a part of its own function that
//! lies outside (`f.cold`).

use model::{
    Avma, BranchKind, EndKind, FunctionAt, FunctionId, FunctionKind, Site, SpaceId, Target, TraceEvent,
    Transfer,
};

use crate::report::Status;
use crate::session::Session;
use crate::stack::{DEPTH_MAX, Frame, FrameKind, NOT_KNOWN};
use crate::thread::Thread;

impl<'a> Thread<'a> {
    fn function_outside(&self, session: &mut Session<'a>, to: Option<Avma>) -> FunctionAt {
        to.map_or(FunctionAt::UNKNOWN, |ip| session.map.function_at(self.space, ip))
    }

    /// A call of code outside.
    pub(crate) fn call_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) {
        if Some(from.next_ip()) != to {
            let (frame, at_entry) = self.frame_outside(session, from, to);
            self.push(session, frame, at_entry);
        }
    }

    #[inline(always)]
    fn frame_outside(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) -> (Frame, bool) {
        let FunctionAt { id: function, at_entry } = self.function_outside(session, to);
        let is_inner = session.map.is_inner_call(from.function, function, at_entry);
        let mut frame = self.frame(function, if is_inner { FrameKind::Inner } else { FrameKind::Call });
        (frame.site, frame.caller, frame.ret) = (from.ip, from.function, from.next_ip());
        frame.hidden = true;
        (frame, at_entry)
    }

    /// Two events that are a call of code outside and nothing else, as nearly all calls out of the filter
    /// are: control comes back behind it, and all that the call can matter to is the frame on top. So it
    /// needs no frame. False if there may be more to them.
    #[inline]
    pub(crate) fn calls_outside(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        event: &TraceEvent,
        next: &TraceEvent,
    ) -> bool {
        let (TraceEvent::Branch(end), TraceEvent::Branch(start)) = (event, next) else { return false };
        let Transfer::End { kind: EndKind::Branch(kind), from, to } = end.transfer else { return false };
        let Transfer::Start { to: back, .. } = start.transfer else { return false };
        let is_call = matches!(kind, BranchKind::Call | BranchKind::IndirectCall);
        let returns = back.ip == from.next_ip() && to != Some(back.ip) && !back.at_entry;
        if !is_call || !returns || from.ip.is_kernel() || back.ip.is_kernel() || !self.is_plainly_inside() {
            return false;
        }
        self.reaches(space, end);
        let (frame, at_entry) = self.frame_outside(session, from, to);
        if at_entry && session.roles.get(frame.function).is_some() {
            return false;
        }
        self.window.leaves_filter(self.now.point);
        self.reaches(space, start);
        self.off_cpu.start(self.now);
        self.window.is_in_filter(self.now.point);
        self.add_child_above(session, &frame);
        true
    }

    /// Control is in the frame on top, and nothing that was before, nor what somebody wants to know, makes
    /// more of a call than a child of that.
    #[inline(always)]
    fn is_plainly_inside(&self) -> bool {
        let is_inside = self.left.is_none() && self.away.is_none() && !self.is_new;
        let may_be_interrupted = self.interrupted_at.is_some() || !self.handlers.is_empty();
        let is_certain = self.undecided.is_none() && self.unproved == 0 && self.dead.is_empty();
        let has_room = (1..DEPTH_MAX).contains(&self.stack.len());
        is_inside && !may_be_interrupted && is_certain && has_room && !self.trees.is_open()
    }

    /// A return to code outside.
    pub(crate) fn ret_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) {
        if let Some(to) = to {
            if session.map.function_at(self.space, to).at_entry && !self.may_return_to_entry(session, to) {
                if self.stack.last().is_some_and(|top| top.kind == FrameKind::Inner) {
                    self.close(session, Status::Complete, false); // a retpoline
                }
                return self.jump_out(session, from, Some(to), true);
            }
            if self.stack.last().is_some_and(|top| top.ret == to) {
                self.goes_on_as_it_must();
            }
            self.find_caller(session, to);
            self.returns_out_of_sight();
        }
        self.pop_group(session, false);
    }

    /// The frame on top returns to a caller out of sight: of the calls that are open below, those whose
    /// callers may have made it may have been left.
    fn returns_out_of_sight(&mut self) {
        let Some(top) = self.stack.len().checked_sub(1) else { return };
        let base = self.group_base(top);
        let Some(&Frame { kind: FrameKind::Filter, site, .. }) = self.stack.get(base) else { return };
        let group = self.stack.iter().skip(base).filter(|frame| frame.is_active).count();
        let below = self.stack.activations.len().saturating_sub(group);
        let (below, group) = self.stack.activations.split_at_mut(below);
        match below.last_mut() {
            Some(open) => open.passed.add(site),
            None => group.iter().filter_map(|call| call.wanted).for_each(|wanted| {
                self.outer_sites.add(wanted, site);
            }),
        }
    }

    /// The frame on top may return to the first address of a function. As in `ret`, which otherwise is a jump
    /// there: only to the restorer of signals, by a handler or by what was found running.
    fn may_return_to_entry(&self, session: &mut Session<'a>, to: Avma) -> bool {
        let Some(top) = self.stack.len().checked_sub(1) else { return true };
        match self.stack.get(self.group_base(top)) {
            Some(base) if base.kind == FrameKind::Filter => session.map.is_restorer(self.space, to),
            Some(base) => base.ret == to || base.ret == NOT_KNOWN,
            None => true,
        }
    }

    /// A jump to code outside; `may_enter`: it is none that merely runs into the next function.
    pub(crate) fn jump_out(
        &mut self,
        session: &mut Session<'a>,
        from: Site,
        to: Option<Avma>,
        may_enter: bool,
    ) {
        let FunctionAt { id: function, at_entry } = self.function_outside(session, to);
        let Some(top) = self.stack.last() else { return };
        if top.function == function && session.map.kind(function) == FunctionKind::Symbol {
            self.away = Some(self.clocks());
            return;
        }
        let ret = top.ret;
        // As in `jump`: what a call inside a function, or a stub of the PLT, jumps to was called there.
        let (kind, site, caller) = match top.kind {
            FrameKind::Inner => (FrameKind::Call, top.site, top.caller),
            FrameKind::Call | FrameKind::Tail if top.is_stub() => (top.kind, top.site, top.caller),
            _ => (FrameKind::Tail, from.ip, from.function),
        };
        self.pop_group(session, true);
        if ret != NOT_KNOWN {
            let mut frame = self.frame(function, kind);
            (frame.site, frame.caller, frame.ret) = (site, caller, ret);
            frame.hidden = true;
            self.push(session, frame, at_entry && may_enter);
        }
    }

    /// The frame on top returns to `ret`: if it was entered from outside, that tells who called it.
    ///
    /// A handler and a function that a hidden handler calls look alike until here: a handler's return
    /// address, the restorer, has no call in front.
    #[inline]
    pub(crate) fn find_caller(&mut self, session: &mut Session<'a>, ret: Avma) {
        let Some(top) = self.stack.len().checked_sub(1) else { return };
        let base = self.group_base(top);
        let hidden_caller = match self.stack.get(base).map(|frame| frame.kind) {
            Some(FrameKind::Filter) => true,
            Some(FrameKind::Signal) => session.around.has_ip_filter,
            _ => false,
        };
        if hidden_caller && !self.came_by_stub(base, ret) {
            self.name_caller(session, base, ret);
        }
    }

    /// The frame on `base` returns for a hidden stub of the PLT: that was only in the way of its caller.
    fn came_by_stub(&mut self, base: usize, ret: Avma) -> bool {
        let Some(below) = base.checked_sub(1) else { return false };
        let gathers = below.checked_sub(1).and_then(|i| self.stack.get(i)).is_some_and(|frame| frame.gathers);
        let Some([stub, frame]) = self.stack.get_mut(below..=base) else { return false };
        let is_stub = stub.hidden && stub.ret == ret && stub.is_stub();
        if is_stub {
            (frame.kind, frame.site, frame.caller) = (stub.kind, stub.site, stub.caller);
            (stub.kind, stub.gathers) = (FrameKind::Inner, gathers);
        }
        is_stub
    }

    fn name_caller(&mut self, session: &mut Session<'a>, base: usize, ret: Avma) {
        let space = self.space;
        let Some(frame) = self.stack.get_mut(base) else { return };
        let entry = frame.entry;
        if let Some(site) = session.map.call_before(space, ret, entry) {
            frame.kind = FrameKind::Filter;
            frame.site = site;
            frame.caller = session.map.function_at(space, site).id;
            let below = base.checked_sub(1).and_then(|i| self.stack.get_mut(i));
            if let Some(mark) = below.filter(|below| below.kind.is_mark()) {
                // It is not the handler, but what that has called, or somebody for it.
                mark.function = FunctionId::UNKNOWN;
            }
        }
    }

    /// Control comes in where it may have come from the part outside that the frame on top has jumped to.
    fn back_from_own_part(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let Some(top) = self.stack.len().checked_sub(1) else { return false };
        if self.stack.get(self.group_base(top)).is_some_and(|base| base.ret == to.ip) {
            // It has returned from there to a caller in sight.
            self.away = None;
            self.pop_group(session, false);
            return true;
        }
        let is_own = self.stack.get(top).is_some_and(|top| top.function == to.function);
        // Behind a call that waits there is rather that one's return than the way back into the same
        // function.
        let is_back = is_own && !self.stack.iter().any(|frame| frame.hidden && frame.ret == to.ip);
        if is_back {
            self.away = None;
        }
        is_back
    }

    /// Control comes in from outside.
    pub(crate) fn arrive(&mut self, session: &mut Session<'a>, to: Target) {
        if self.away.is_some() {
            if !to.at_entry && self.back_from_own_part(session, to) {
                return;
            }
            self.pop_group(session, true);
        }
        let returned = self.stack.iter().rposition(|frame| frame.hidden && frame.ret == to.ip);
        // What was called after a handler had interrupted code there returns first.
        let is_return = !to.at_entry && returned > self.mark_of(to.ip);
        if !is_return && self.goes_on_at_mark(session, to) {
            // A handler out of sight has returned.
        } else if to.at_entry {
            let mut frame = self.frame(to.function, FrameKind::Filter);
            frame.entry = to.ip;
            self.push(session, frame, true);
        } else if let Some(i) = returned {
            self.close_to(session, i + 1, Status::Unwound);
            self.pop_group(session, false);
            self.goes_on_as_it_must();
        } else if self
            .stack
            .last()
            .is_some_and(|top| top.function == to.function && !top.hidden && !top.kind.is_mark())
        {
            // It is where it was: what happened outside left no trace.
        } else if !self.landing(session, to) {
            // Out of sight code may have jumped here; or an older call goes on, and these were unwound.
            self.may_have_left_all(self.stack.len());
            self.found(session, to);
        }
    }
}
