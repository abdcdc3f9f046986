//! With an IP filter, code outside is hidden: what it does is known by where control comes back.
//!
//! A call out of the filter opens a hidden frame.  Control that comes in at an entry opens a frame whose caller is
//! known when it returns, by the address that it returns to.  A jump out ends the jumper, unless it
//! is to a part of its own function that lies outside (`f.cold`).

use model::{Avma, FunctionId, FunctionKind, Site, Target};

use crate::report::Status;
use crate::session::Session;
use crate::stack::{FrameKind, NOT_KNOWN};
use crate::thread::Thread;

impl<'a> Thread<'a> {
    fn function_outside(&self, session: &mut Session<'a>, to: Option<Avma>) -> FunctionId {
        to.map_or(FunctionId::UNKNOWN, |ip| session.map.function_at(self.space, ip).id)
    }

    /// A call of code outside.
    pub(crate) fn call_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) {
        let ret = from.next_ip();
        if Some(ret) == to {
            return;
        }
        let function = self.function_outside(session, to);
        let mut frame = self.frame(function, FrameKind::Call);
        (frame.site, frame.caller, frame.ret) = (from.ip, from.function, ret);
        frame.hidden = true;
        self.push(session, frame, false);
    }

    /// A return to code outside.
    pub(crate) fn ret_out(&mut self, session: &mut Session<'a>, to: Option<Avma>) {
        if let Some(to) = to {
            self.find_caller(session, to);
        }
        self.pop_group(session, false);
    }

    /// A jump to code outside.
    pub(crate) fn jump_out(&mut self, session: &mut Session<'a>, from: Site, to: Option<Avma>) {
        let function = self.function_outside(session, to);
        let Some(top) = self.stack.last() else { return };
        if top.function == function && session.map.kind(function) == FunctionKind::Symbol {
            self.away = Some((self.now, self.off_cpu.total_ns()));
            return;
        }
        let ret = top.ret;
        self.pop_group(session, true);
        if ret != NOT_KNOWN {
            let mut frame = self.frame(function, FrameKind::Tail);
            (frame.site, frame.caller, frame.ret) = (from.ip, from.function, ret);
            frame.hidden = true;
            self.push(session, frame, false);
        }
    }

    /// The frame on top returns to `ret`: if it was entered from outside, that tells who called it.
    ///
    /// A handler and a function that a hidden handler calls look alike until here: a handler's return address, the
    /// restorer, has no call in front.
    pub(crate) fn find_caller(&mut self, session: &mut Session<'a>, ret: Avma) {
        let Some(top) = self.stack.len().checked_sub(1) else { return };
        let base = self.group_base(top);
        let space = self.space;
        let Some(frame) = self.stack.get_mut(base) else { return };
        let hidden_caller = match frame.kind {
            FrameKind::Filter => true,
            FrameKind::Signal => session.around.has_ip_filter,
            _ => false,
        };
        if !hidden_caller {
            return;
        }
        let entry = frame.entry;
        if let Some(site) = session.map.call_before(space, ret, entry) {
            frame.kind = FrameKind::Filter;
            frame.site = site;
            frame.caller = session.map.function_at(space, site).id;
        }
    }

    /// Control comes in from outside.
    pub(crate) fn arrive(&mut self, session: &mut Session<'a>, to: Target) {
        if self.away.is_some() {
            if !to.at_entry && self.stack.last().is_some_and(|top| top.function == to.function) {
                self.away = None;
                return;
            }
            self.pop_group(session, true);
        }
        if to.at_entry {
            self.enter_from_outside(session, to);
        } else if let Some(mark) = self.mark_of(to.ip) {
            self.close_to(session, mark + 1, Status::Unwound);
            self.close(session, Status::Complete, false);
        } else if let Some(i) = self.stack.iter().rposition(|f| f.hidden && f.ret == to.ip) {
            self.close_to(session, i + 1, Status::Unwound);
            self.pop_group(session, false);
        } else if self
            .stack
            .last()
            .is_some_and(|top| top.function == to.function && !top.hidden && !top.kind.is_mark())
        {
            // It is where it was: what happened outside left no trace.
        } else if !self.landing(session, to) {
            self.found(session, to);
        }
    }

    fn enter_from_outside(&mut self, session: &mut Session<'a>, to: Target) {
        let behind_stub =
            |top: &crate::stack::Frame| top.hidden && session.map.kind(top.function) == FunctionKind::Plt;
        if self.stack.last().is_some_and(behind_stub) {
            self.replace_top(session, to);
        } else {
            let mut frame = self.frame(to.function, FrameKind::Filter);
            frame.entry = to.ip;
            self.push(session, frame, true);
        }
    }
}
