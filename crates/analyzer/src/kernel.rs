//! Stays in the kernel, and the signals that it delivers.
//!
//! ```text
//!   End Async at X     Start at X       an interrupt, a fault, a switch
//!   End Syscall at S   Start after S   a system call (or at S: it is restarted)
//!   End at X           Start at entry   a signal handler; below it a mark remembers X
//!   (handler returns; End Syscall in the restorer is rt_sigreturn)   Start at X: the mark ends
//! ```

use model::{Avma, FunctionKind, Site, Target};

use crate::control::{KernelEntry, Left};
use crate::filter::Filter;
use crate::frames::{Frames, Notice};
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::Status;

pub(crate) trait Kernel<'a>: Filter<'a> {
    fn leave_to_kernel(&mut self, syscall: bool, from: Site, to: Option<Avma>) {
        let since = self.time();
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
            return self.execute(session, entry.since.time, to);
        }
        if self.goes_on_at_mark(session, to) {
            return;
        }
        if self.enters_handler(session, self.top(), to) {
            return self.signal(session, entry, to);
        }
        self.notice(session, Notice::KernelStay(&entry));
        self.put_elsewhere(session, to);
    }

    /// The system call of a restorer: the frame on top is the mark.
    fn sigreturn(&mut self, session: &mut Session<'a>, to: Target) {
        let interrupted = self.depth().checked_sub(2).and_then(|below| self.get(below));
        let enters_handler = self.enters_handler(session, interrupted, to);
        let goes_on = |mark: &Frame| !mark.site.ip.is_known() || mark.goes_on_at(to.ip);
        let is_known_handler = enters_handler && self.control().is_handler(to.function);
        if !self.top().is_some_and(goes_on) && !is_known_handler {
            // The handler changed where to go on; or it is another one, as control has landed elsewhere than
            // it seemed. That may have interrupted a function at its first instruction.
            self.notice(session, Notice::ContradictsChoice);
        }
        let Some(mark) = self.top().copied() else { return };
        self.close(session, Status::Complete, false);
        if mark.goes_on_at(to.ip) {
            return;
        }
        if !mark.site.ip.is_known() {
            return self.after_unknown_handler(session, to);
        }
        if enters_handler {
            // The next signal was pending.
            let mut next = self.frame(to.function, mark.kind);
            (next.site, next.undecided) = (mark.site, mark.undecided && !is_known_handler);
            return self.push_handler(session, next, to);
        }
        if !self.goes_on_at_mark(session, to) {
            self.put_elsewhere(session, to);
        }
    }

    /// Goes on at `to` after the return of a handler that was entered out of sight. The interrupted code is
    /// not known either, and may go on at the first instruction of a function. Only a function known as a
    /// handler is one: the next signal was pending.
    fn after_unknown_handler(&mut self, session: &mut Session<'a>, to: Target) {
        if to.at_entry && self.control().is_handler(to.function) {
            let mark = self.frame(to.function, FrameKind::InterruptedSyscall);
            self.push_handler(session, mark, to);
        } else {
            self.found(session, to);
        }
    }

    /// The kernel enters a handler.
    fn signal(&mut self, session: &mut Session<'a>, entry: KernelEntry, to: Target) {
        let kind = if entry.syscall { FrameKind::InterruptedSyscall } else { FrameKind::Interrupted };
        let mut mark = self.frame(to.function, kind);
        if entry.syscall {
            self.notice(session, Notice::KernelStay(&entry));
            mark.site.ip = entry.from.next_ip().into();
        } else {
            (mark.site.ip, mark.begun) = (entry.from.ip.into(), entry.since);
        }
        self.push_handler(session, mark, to);
    }

    /// Opens a handler's frame, on a mark for the code that it has interrupted. What is in doubt of the mark
    /// (it may stand for a frame that is gone) is of the handler.
    fn push_handler(&mut self, session: &mut Session<'a>, mark: Frame, to: Target) {
        self.control_mut().add_handler(to.function);
        self.push(session, mark, false);
        let mut handler = self.frame(to.function, FrameKind::Signal);
        (handler.entry, handler.undecided) = (to.ip.into(), mark.undecided);
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
    /// no known entry. `runs`: what the kernel has interrupted.
    fn enters_handler(&self, session: &Session<'a>, runs: Option<&Frame>, to: Target) -> bool {
        let same = runs.is_some_and(|frame| frame.function == to.function);
        to.at_entry || !same && session.map.kind(to.function) == FunctionKind::Unnamed
    }
}

impl<'a, F: Frames<'a>> Kernel<'a> for F {}
