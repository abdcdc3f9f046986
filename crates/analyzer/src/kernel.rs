//! Stays in the kernel, and the signals that it delivers.
//!
//! ```text
//!   End Async at X     Start at X       an interrupt, a fault, a switch
//!   End Syscall at S   Start after S   a system call (or at S: it is restarted)
//!   End at X           Start at entry   a signal handler; below it a mark remembers X
//!   (handler returns; End Syscall in the restorer is rt_sigreturn)   Start at X: the mark ends
//! ```

use model::{Avma, EventTime, FunctionKind, Site, Target};

use crate::control::{KernelEntry, Left};
use crate::filter::Filter;
use crate::frames::{Frames, Notice};
use crate::maybe_ip::MaybeIp;
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::Status;

pub(crate) trait Kernel<'a>: Filter<'a> {
    fn leave_to_kernel(&mut self, syscall: bool, from: Site, to: Option<Avma>) {
        let since = self.clocks();
        let control = self.control_mut();
        control.left = Some(Left::Kernel(KernelEntry { syscall, from, to, space: control.space, since }));
    }

    /// Control is back in user code, perhaps at another place.
    fn back_from_kernel(&mut self, session: &mut Session<'a>, entry: KernelEntry, to: Target) {
        if entry.syscall
            && let Some(mark) = self.top().filter(|top| top.kind.is_mark())
        {
            // A signal that came before its rt_sigreturn was done has that restarted: the mark stays.
            let is_restarted = to.ip == entry.from.ip && !mark.goes_on_at(to.ip);
            if !is_restarted {
                self.sigreturn(session, to);
            }
            return;
        }
        if entry.goes_on_at(to.ip) {
            return self.notice(session, Notice::KernelStay(&entry));
        }
        let is_sigreturn = || session.map.is_after_restorer(entry.space, entry.from.next_ip());
        let is_restorer =
            |top: &Frame| top.kind == FrameKind::Found && (top.entry.is_known() || is_sigreturn());
        if entry.syscall && self.top().is_some_and(is_restorer) {
            self.close_to(session, 0, Status::Unwound);
            return self.after_unknown_handler(session, to);
        }
        if entry.syscall && entry.space != self.control().space {
            // The process executes another program: nothing of the old one goes on.
            return self.execute(session, entry.since.0, to);
        }
        if self.goes_on_at_mark(session, to) {
            return;
        }
        if self.enters_handler(session, to) {
            return self.signal(session, entry, to);
        }
        self.notice(session, Notice::KernelStay(&entry));
        self.put_elsewhere(session, to);
    }

    /// The system call of a restorer: the frame on top is the mark.
    fn sigreturn(&mut self, session: &mut Session<'a>, to: Target) {
        let Some(mark) = self.top().copied() else { return };
        self.close(session, Status::Complete, false);
        if mark.goes_on_at(to.ip) {
            return;
        }
        if !mark.site.is_known() {
            return self.after_unknown_handler(session, to);
        }
        if self.enters_handler(session, to) {
            // The next signal was pending.
            return self.push_handler(session, mark.kind, mark.site, self.clocks(), to);
        }
        // The handler changed where to go on; or it is another one, as control has landed elsewhere than it
        // seemed.
        self.notice(session, Notice::ContradictsChoice);
        if !self.goes_on_at_mark(session, to) {
            self.put_elsewhere(session, to);
        }
    }

    /// Goes on at `to` after the return of a handler that was entered out of sight. The interrupted code is
    /// not known either, and may go on at the first instruction of a function. Only a function known as a
    /// handler is one: the next signal was pending.
    fn after_unknown_handler(&mut self, session: &mut Session<'a>, to: Target) {
        if to.at_entry && self.control().is_handler(to.function) {
            self.push_handler(session, FrameKind::InterruptedSyscall, MaybeIp::UNKNOWN, self.clocks(), to);
        } else {
            self.found(session, to);
        }
    }

    /// The kernel enters a handler.
    fn signal(&mut self, session: &mut Session<'a>, entry: KernelEntry, to: Target) {
        if entry.syscall {
            self.notice(session, Notice::KernelStay(&entry));
            let after = entry.from.next_ip();
            self.push_handler(session, FrameKind::InterruptedSyscall, after.into(), self.clocks(), to);
        } else {
            self.push_handler(session, FrameKind::Interrupted, entry.from.ip.into(), entry.since, to);
        }
    }

    fn push_handler(
        &mut self,
        session: &mut Session<'a>,
        kind: FrameKind,
        interrupted: MaybeIp,
        since: (EventTime, u64),
        to: Target,
    ) {
        self.control_mut().add_handler(to.function);
        let mut mark = self.frame(to.function, kind);
        (mark.site, mark.start, mark.off_cpu_ns) = (interrupted, since.0, since.1);
        self.push(session, mark, false);
        let mut handler = self.frame(to.function, FrameKind::Signal);
        handler.entry = to.ip.into();
        self.push(session, handler, to.at_entry);
    }

    /// The kernel (restartable sequences, a changed signal frame), or code out of sight, put control at `to`.
    fn put_elsewhere(&mut self, session: &mut Session<'a>, to: Target) {
        if session.around.has_ip_filter {
            return self.arrive(session, to);
        }
        let Some(top) = self.top() else { return self.found(session, to) };
        if top.function == to.function && !top.kind.is_mark() {
            return;
        }
        if !self.landing(session, to) {
            self.appears(session, to, false);
        }
    }

    /// The kernel starts user code in the middle of nowhere only to run a handler; one in stripped code has
    /// no known entry.
    fn enters_handler(&self, session: &Session<'a>, to: Target) -> bool {
        let same = self.top().is_some_and(|top| top.function == to.function);
        to.at_entry || !same && session.map.kind(to.function) == FunctionKind::Unnamed
    }
}

impl<'a, F: Frames<'a>> Kernel<'a> for F {}
