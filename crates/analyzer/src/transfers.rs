//! Each change of control, and where tracing starts and stops.

use model::{Avma, BranchKind, EndKind, FunctionAt, Site, Target, Transfer};

use crate::branches::Branches;
use crate::control::{Left, StackBase};
use crate::frames::{Frames, Notice};
use crate::kernel::Kernel;
use crate::request::Surroundings;
use crate::session::Session;

pub(crate) trait Transfers<'a>: Branches<'a> + Kernel<'a> {
    /// One change of control of user code.
    #[inline(always)]
    fn transfer(&mut self, session: &mut Session<'a>, transfer: &Transfer) {
        match transfer {
            Transfer::Branch { kind, from, to } => {
                self.come_back(session);
                match kind {
                    BranchKind::Call | BranchKind::IndirectCall => self.call(session, from, to),
                    BranchKind::Return => self.ret(session, from, to),
                    // Into the code of another function, too, which is no call of that.
                    BranchKind::RunsOn => (),
                    // Inside of a function, also of one that was jumped into: a loop. The decoder leaves
                    // these out unless it is asked for all.
                    _ if from.function == to.function => (),
                    BranchKind::Jump | BranchKind::ConditionalJump => self.jump(session, *from, *to, false),
                    BranchKind::IndirectJump | BranchKind::Abort => self.jump(session, *from, *to, true),
                }
            }
            Transfer::Start { to, after_gap } => self.start(session, *to, *after_gap),
            Transfer::End { kind, from, to } => self.end(session, *kind, *from, *to),
        }
    }

    /// Notes that control is in traced code again, which no event of its own has said.
    #[inline]
    fn come_back(&mut self, session: &mut Session<'a>) {
        if self.control().left.is_some() {
            let control = self.control_mut();
            (control.left, control.away) = (None, None);
            self.notice(session, Notice::ComesIn { starts: false });
        }
    }

    /// Tracing stops.
    #[inline(never)]
    fn end(&mut self, session: &mut Session<'a>, kind: EndKind, from: Site, to: Option<Avma>) {
        self.come_back(session);
        if !session.around.has_ip_filter
            && let (EndKind::Branch(kind), Some(ip)) = (kind, to)
            && self.leaves_for_missing(session, kind, from, ip)
        {
            return;
        }
        match kind {
            EndKind::Syscall | EndKind::Async(_) => self.leave_to_kernel(kind == EndKind::Syscall, from, to),
            EndKind::Branch(BranchKind::Call | BranchKind::IndirectCall) => self.call_out(session, from, to),
            EndKind::Branch(BranchKind::Return) => self.ret_out(session, from, to),
            EndKind::Branch(_) => self.jump_out(session, from, to, true),
            EndKind::FallThrough => {
                self.jump_out(session, from, Some(to.unwrap_or(from.next_ip())), false);
            }
            EndKind::Skipped => (), // only of kernel code
        }
        if !matches!(kind, EndKind::Syscall | EndKind::Async(_)) {
            self.control_mut().left = Some(Left::OutOfSight);
            self.notice(session, Notice::GoesOut);
        }
    }

    /// Control leaves for missing code: what of that is not as it is out of the IP filter.
    fn leaves_for_missing(
        &mut self,
        session: &mut Session<'a>,
        kind: BranchKind,
        from: Site,
        ip: Avma,
    ) -> bool {
        let Some(ret) = self.top().map(|top| top.ret) else { return false };
        match kind {
            BranchKind::Call | BranchKind::IndirectCall => return false,
            // Where it goes to it was not called from: on another stack, say. The gap that follows cuts.
            BranchKind::Return => return ret.is_known() && !ret.is(ip),
            _ if !ret.is_known() => return false,
            _ => {
                let FunctionAt { id: function, at_entry } = session.map.function_at(self.control().space, ip);
                self.jump_to_missing(session, from, Target { ip, function, at_entry });
            }
        }
        self.control_mut().left = Some(Left::OutOfSight);
        true
    }

    /// Nothing is known of what ran before.
    fn is_without_past(&self) -> bool {
        self.depth() == 0 && self.control().left.is_none() && !self.control().base.is_known()
    }

    /// Tracing starts.
    #[inline(never)]
    fn start(&mut self, session: &mut Session<'a>, to: Target, after_gap: bool) {
        self.notice(session, Notice::ComesIn { starts: true });
        let (now, is_empty) = (self.time().time, self.depth() == 0);
        let is_without_past = self.is_without_past();
        let Surroundings { has_ip_filter, is_part, .. } = session.around;
        let control = self.control_mut();
        let resumed = control.interrupted_at.take() == Some(to.ip);
        let first = std::mem::take(&mut control.is_new);
        // What was lost may have been that it was interrupted there.
        let is_after_gap = after_gap || !first && is_without_past;
        let may_be_first = first && !after_gap && !is_part;
        if first && control.is_from_first(now) {
            control.base = StackBase::Seen;
        } else if may_be_first && !has_ip_filter && to.at_entry {
            control.base = StackBase::Assumed;
        }
        let is_entered = has_ip_filter && to.at_entry && !resumed;
        match control.left.take() {
            Some(Left::Kernel(entry)) if !is_empty => self.back_from_kernel(session, entry, to),
            Some(Left::OutOfSight) => self.arrive(session, to),
            _ if !is_empty || is_entered => self.arrive(session, to),
            _ => self.found(session, to),
        }
        if is_after_gap && has_ip_filter && to.at_entry {
            let from = self.depth().saturating_sub(1);
            self.notice(session, Notice::Doubt { from });
        }
    }
}

impl<'a, F: Frames<'a>> Transfers<'a> for F {}
