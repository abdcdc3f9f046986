//! Stays in the kernel, and the signals that it delivers.
//!
//! ```text
//!   End Async at X     Start at X       an interrupt, a fault, a switch
//!   End Syscall at S   Start behind S   a system call (or at S: it is restarted)
//!   End at X           Start at entry   a signal handler; below it a mark remembers X
//!   (handler returns; End Syscall in the restorer is rt_sigreturn)   Start at X: the mark ends
//! ```

use model::{Avma, EventTime, FunctionKind, Site, SpaceId, Target, TraceEvent, Transfer};

use crate::report::{ChildKind, Status};
use crate::session::Session;
use crate::stack::{Frame, FrameKind, NOT_KNOWN, StartDoubt};
use crate::thread::Thread;

/// Functions of a thread that are remembered as handlers: there are 64 signals.
const HANDLERS_MAX: usize = 64;

/// How control left the traced code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    /// Into the kernel.
    Kernel(KernelEntry),
    /// By a branch out of the IP filter.
    OutOfFilter,
}

/// Where and when the kernel was entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelEntry {
    /// By a far transfer; otherwise asynchronously.
    pub(crate) syscall: bool,
    /// The instruction, or the one that was interrupted.
    pub(crate) from: Site,
    space: SpaceId,
    /// Time, and the thread's off-CPU time then.
    since: (EventTime, u64),
}

impl KernelEntry {
    /// Control is back where the kernel returns to if nothing happens.
    pub(crate) fn goes_on_at(&self, ip: Avma) -> bool {
        ip == self.from.ip || self.syscall && ip == self.from.next_ip()
    }

    fn child_kind(&self) -> ChildKind {
        if self.syscall { ChildKind::Syscall } else { ChildKind::Interrupt }
    }

    fn site(&self) -> Avma {
        if self.syscall { self.from.ip } else { Avma(0) }
    }
}

impl<'a> Thread<'a> {
    /// Kernel code is nobody's frame: a thread is away until it is back in user code. Only its stay in the
    /// scheduler counts, where nothing else tells of switches.
    pub(crate) fn kernel_code(&mut self, session: &Session<'a>, event: &TraceEvent) {
        let (Some(scheduler), TraceEvent::Branch(branch)) = (session.around.scheduler, event) else { return };
        match branch.transfer {
            Transfer::Start { to, .. } if to.ip == scheduler => self.off_cpu.enter_scheduler(branch.time),
            Transfer::End { .. } => self.off_cpu.leave_scheduler(branch.time),
            _ => (),
        }
    }

    pub(crate) fn leave_to_kernel(&mut self, syscall: bool, from: Site) {
        let since = self.clocks();
        self.left = Some(Left::Kernel(KernelEntry { syscall, from, space: self.space, since }));
    }

    /// Control is back in user code, perhaps at another place.
    pub(crate) fn back_from_kernel(&mut self, session: &mut Session<'a>, entry: KernelEntry, to: Target) {
        if entry.syscall
            && let Some(mark) = self.stack.last().filter(|top| top.kind.is_mark())
        {
            // A signal that came before its rt_sigreturn was done has that restarted: the mark stays.
            let is_restarted = to.ip == entry.from.ip && !mark.goes_on_at(to.ip);
            if !is_restarted {
                self.sigreturn(session, to);
            }
            return;
        }
        if entry.goes_on_at(to.ip) {
            return self.add_kernel_stay(session, entry.child_kind(), entry.site(), entry.since);
        }
        let is_sigreturn = || session.map.is_behind_restorer(entry.space, entry.from.next_ip());
        let is_restorer =
            |top: &Frame| top.kind == FrameKind::Found && (top.entry != Avma(0) || is_sigreturn());
        if entry.syscall && self.stack.last().is_some_and(is_restorer) {
            self.close_to(session, 0, Status::Unwound);
            return self.behind_unknown_handler(session, to);
        }
        if entry.syscall && entry.space != self.space {
            return self.exec(session, entry, to);
        }
        if self.goes_on_at_mark(session, to) {
            return;
        }
        if is_handler(session, self, to) {
            return self.signal(session, entry, to);
        }
        self.add_kernel_stay(session, entry.child_kind(), entry.site(), entry.since);
        self.put_elsewhere(session, to);
    }

    /// The innermost code that goes on there, if any, was interrupted by a handler that is left now.
    ///
    /// While a handler runs in sight, the first instruction of a function is rather that of a call.
    pub(crate) fn goes_on_at_mark(&mut self, session: &mut Session<'a>, to: Target) -> bool {
        let mark = match to.at_entry {
            true => self.stack.last().filter(|top| top.goes_on_at(to.ip)).map(|_| self.stack.len() - 1),
            false => self.mark_of(to.ip),
        };
        let Some(mark) = mark else { return false };
        self.close_to(session, mark + 1, Status::Unwound);
        self.close(session, Status::Complete, false);
        if to.at_entry && session.around.has_ip_filter {
            // A handler out of sight may have left it (`siglongjmp`), and this is the next call.
            self.stack.last_mut().into_iter().for_each(|frame| frame.undecided = true);
        }
        true
    }

    /// The innermost interrupted code that goes on at `ip`.
    pub(crate) fn mark_of(&self, ip: Avma) -> Option<usize> {
        if self.handlers.is_empty() {
            return None;
        }
        self.stack.iter().rposition(|frame| frame.goes_on_at(ip))
    }

    /// The system call of a restorer: the frame on top is the mark.
    fn sigreturn(&mut self, session: &mut Session<'a>, to: Target) {
        let Some(mark) = self.stack.last().copied() else { return };
        self.close(session, Status::Complete, false);
        if mark.goes_on_at(to.ip) {
            return;
        }
        if mark.site == NOT_KNOWN {
            return self.behind_unknown_handler(session, to);
        }
        if is_handler(session, self, to) {
            // The next signal was pending.
            return self.push_handler(session, mark.kind, mark.site, self.clocks(), to);
        }
        // The handler changed where to go on; or it is another one, as control has landed elsewhere than it
        // seemed.
        self.contradicts_choice(session);
        if !self.goes_on_at_mark(session, to) {
            self.put_elsewhere(session, to);
        }
    }

    /// A handler that was entered out of sight has returned: whom it interrupted is not known either, and
    /// that may go on at the first instruction of a function. Only what is known as a handler is one: the
    /// next signal was pending.
    fn behind_unknown_handler(&mut self, session: &mut Session<'a>, to: Target) {
        if to.at_entry && self.handlers.contains(&to.function) {
            self.push_handler(session, FrameKind::InterruptedSyscall, NOT_KNOWN, self.clocks(), to);
        } else {
            self.found(session, to);
        }
    }

    /// The kernel enters a handler.
    fn signal(&mut self, session: &mut Session<'a>, entry: KernelEntry, to: Target) {
        if entry.syscall {
            self.add_kernel_stay(session, ChildKind::Syscall, entry.site(), entry.since);
            let behind = entry.from.next_ip();
            self.push_handler(session, FrameKind::InterruptedSyscall, behind, self.clocks(), to);
        } else {
            self.push_handler(session, FrameKind::Interrupted, entry.from.ip, entry.since, to);
        }
    }

    fn push_handler(
        &mut self,
        session: &mut Session<'a>,
        kind: FrameKind,
        interrupted: Avma,
        since: (EventTime, u64),
        to: Target,
    ) {
        if self.handlers.len() < HANDLERS_MAX && !self.handlers.contains(&to.function) {
            self.handlers.push(to.function);
        }
        let mut mark = self.frame(to.function, kind);
        (mark.site, mark.start, mark.off_cpu_ns) = (interrupted, since.0.point, since.1);
        mark.start_doubt = StartDoubt::of(since.0);
        self.push(session, mark, false);
        let mut handler = self.frame(to.function, FrameKind::Signal);
        handler.entry = to.ip;
        self.push(session, handler, to.at_entry);
    }

    /// The process executes another program: nothing of the old one goes on.
    fn exec(&mut self, session: &mut Session<'a>, entry: KernelEntry, to: Target) {
        let now = self.now;
        self.now = entry.since.0;
        self.close_to(session, 0, Status::OpenEnd);
        self.now = now;
        self.base_known = to.at_entry;
        self.found(session, to);
    }

    /// The kernel (restartable sequences, a changed signal frame), or code out of sight, put control at `to`.
    fn put_elsewhere(&mut self, session: &mut Session<'a>, to: Target) {
        if session.around.has_ip_filter {
            return self.arrive(session, to);
        }
        let Some(top) = self.stack.last() else { return self.found(session, to) };
        if top.function == to.function && !top.kind.is_mark() {
            return;
        }
        if !self.landing(session, to) {
            self.unexplained(session, to);
        }
    }
}

/// The kernel starts user code in the middle of nowhere only to run a handler; one in stripped code has no
/// known entry.
fn is_handler(session: &Session<'_>, thread: &Thread<'_>, to: Target) -> bool {
    let same = thread.stack.last().is_some_and(|top| top.function == to.function);
    to.at_entry || !same && session.map.kind(to.function) == FunctionKind::Unnamed
}
