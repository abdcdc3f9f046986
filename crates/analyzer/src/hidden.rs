//! Code outside the IP filter, as the report has it: calls that need no frame, and callers of code inside.

use model::{Avma, BranchKind, EndKind, FunctionId, SpaceId, TraceEvent, Transfer};

use crate::control::Control;
use crate::filter::Filter;
use crate::frames::{Frames, Notice};
use crate::session::Session;
use crate::stack::{DEPTH_MAX, Frame, FrameKind, FrameRole};
use crate::thread::Thread;

impl<'a> Thread<'a> {
    /// Two events that are a call of code outside and nothing else, as nearly all calls out of the filter
    /// are: control comes back after it, and all that the call can matter to is the frame on top. So it
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
        let may_be_marked = session.asked.regions.functions().contains(back.function);
        if !is_call
            || !returns
            || may_be_marked
            || from.ip.is_kernel()
            || back.ip.is_kernel()
            || self.kernel.is_entered()
            || !self.is_plainly_inside()
        {
            return false;
        }
        self.reaches(space, end);
        let (frame, at_entry) = self.frame_outside(session, from, to);
        if at_entry && session.asked.roles.get(frame.function).is_some() {
            return false;
        }
        self.notice(session, Notice::GoesOut);
        self.reaches(space, start);
        self.notice(session, Notice::ComesIn { starts: true });
        // It was out of sight, where nothing is counted.
        let counted = self.counting.is_on().then(|| self.counting.nothing());
        self.add_child_above(session, &frame, counted.as_ref());
        true
    }

    /// Control is in the frame on top, and neither the past nor the request makes more of a call than a child
    /// of that.
    #[inline(always)]
    pub(crate) fn is_plainly_inside(&self) -> bool {
        let Control { left, away, is_new, interrupted_at, .. } = &self.control;
        let is_inside = left.is_none() && away.is_none() && !is_new;
        let may_be_interrupted = interrupted_at.is_some() || self.control.has_handlers();
        let is_certain =
            self.undecided.is_none() && self.certainty.is_of_all() && self.window.dead.is_empty();
        let has_room = (1..DEPTH_MAX).contains(&self.depth());
        is_inside && !may_be_interrupted && is_certain && has_room && !self.trees.is_open()
    }

    /// The frame on top returns to a caller out of sight: open calls below may have been left, if their
    /// callers may have made this call.
    pub(crate) fn passes(&mut self) {
        let Some(base) = self.top_base() else { return };
        let Some(&Frame { kind: FrameKind::Filter, site, .. }) = self.get(base) else { return };
        let site = site.ip;
        let group = self.stack.iter().skip(base).filter(|frame| frame.role.is_active()).count();
        let below = self.stack.activations.len().saturating_sub(group);
        let (below, group) = self.stack.activations.split_at_mut(below);
        let below = below.last_mut();
        if below.as_ref().is_none_or(|below| below.is_floor()) {
            for wanted in group.iter().filter_map(|call| call.role.wanted) {
                self.entered.outer_sites.add(wanted, site);
            }
        }
        if let Some(open) = below {
            open.passed.add(site);
        }
    }

    /// The frame on top returns to `ret`: if it was entered from outside, that tells its caller.
    ///
    /// A handler and a function that a hidden handler calls look alike until here: a handler's return
    /// address, the restorer, has no call in front.
    #[inline]
    pub(crate) fn name_hidden_caller(&mut self, session: &mut Session<'a>, ret: Avma) {
        let Some(base) = self.top_base() else { return };
        let hidden_caller = match self.get(base).map(|frame| frame.kind) {
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
        let role = FrameRole::part_of(below.checked_sub(1).and_then(|i| self.get(i)));
        let Some([stub, frame]) = self.stack.get_mut(below..=base) else { return false };
        let is_stub = stub.hidden && stub.ret.is(ret) && stub.is_stub();
        if is_stub {
            (frame.kind, frame.site) = (stub.kind, stub.site);
            (stub.kind, stub.role) = (FrameKind::Inner, role);
        }
        is_stub
    }

    fn name_caller(&mut self, session: &mut Session<'a>, base: usize, ret: Avma) {
        let space = self.control.space;
        let Some(frame) = self.stack.get_mut(base) else { return };
        let entry = frame.entry;
        if let Some(site) = session.map.call_before(space, ret, entry.get()) {
            frame.kind = FrameKind::Filter;
            (frame.site.function, frame.site.ip) = (session.map.function_at(space, site).id, site.into());
            let below = base.checked_sub(1).and_then(|i| self.stack.get_mut(i));
            if let Some(mark) = below.filter(|below| below.kind.is_mark()) {
                // It is not the handler, but what that has called.
                mark.function = FunctionId::UNKNOWN;
            }
        }
    }
}
