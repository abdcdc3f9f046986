//! Calls of kernel functions: a shadow stack for each stay of a thread in the kernel.
//!
//! * A system call, interrupt or fault enters the first function; all have ended when user code goes on.
//! * Where tracing is switched off and on (a context switch), what ran in between is not seen. What runs then
//!   was found running, and so was each function that it returns to, up to one that was open before: above
//!   that, all had ended when tracing was switched off, or later, which nothing tells.
//! * A thread is off its CPU from the record of its switch-out to that of its switch-in, and some kernel code
//!   runs meanwhile.

use model::{Avma, Ns};

use super::code::{Code, FunctionIndex};
use super::rows::{Entered, Ran, Status};
use super::stack::{Instant, Stack};
use crate::truth::{Event, Events, Kind};

/// A thread in the kernel.
pub(super) struct KernelStack<'a> {
    pub(super) stack: Stack<'a>,
    /// Off-CPU time up to the last switch-in.
    off_cpu_ns: u64,
    off_since: Option<Ns>,
    /// Tracing was switched off then, and control has not been seen since in a function that was open.
    unseen: Option<Instant>,
}

impl<'a> KernelStack<'a> {
    pub(super) fn new(code: &'a mut Code, wanted: &[FunctionIndex], tid: model::Tid) -> Self {
        Self { stack: Stack::new(code, wanted, tid), off_cpu_ns: 0, off_since: None, unseen: None }
    }

    /// The next event; `ahead` are those after it.
    pub(super) fn event(&mut self, now: Ns, event: &Event, ahead: &Events<'_>) {
        let stack = &mut self.stack;
        stack.now = now;
        stack.ran = Ran { executed: event.executed, cycles: event.cycles };
        stack.off_cpu_ns = self.off_cpu_ns + self.off_since.map_or(0, |since| now.since(since));
        match event.kind {
            Kind::SwitchOut => self.off_since = Some(now),
            Kind::SwitchIn => {
                self.off_since = None;
                self.off_cpu_ns = stack.off_cpu_ns;
            }
            Kind::Overflow | Kind::Damaged | Kind::Truncated => {
                stack.loss();
                self.unseen = None;
            }
            _ => {
                stack.on_loss(event);
                self.control(event, ahead);
            }
        }
    }

    fn control(&mut self, event: &Event, ahead: &Events<'_>) {
        let is_found_unseen = self.is_found_unseen();
        let stack = &mut self.stack;
        match event.kind {
            Kind::Syscall | Kind::Async if !event.from.is_kernel() && event.to.is_kernel() => {
                let by_call = event.kind == Kind::Syscall;
                let (entered, site) =
                    if by_call { (Entered::Syscall, event.from) } else { (Entered::Interrupt, Avma(0)) };
                let function = stack.code.function(event.to);
                let at_entry = stack.code.is_entry(function, event.to);
                stack.push(function, None, entered, site, at_entry);
            }
            Kind::Async if event.from.is_kernel() => self.unseen = self.unseen.or(Some(stack.instant())),
            Kind::Enter | Kind::Resume if event.to.is_kernel() => {
                // A loss cuts all that is open; the function that runs is found.
                if !stack.sees_top() {
                    stack.close_to(0, Status::Cut);
                }
                stack.found(event.to);
            }
            Kind::Enter if !event.to.is_kernel() => self.leave(),
            Kind::Return if is_found_unseen => self.return_unseen(event.to),
            Kind::Call
            | Kind::IndirectCall
            | Kind::Return
            | Kind::Jump
            | Kind::IndirectJump
            | Kind::ConditionalJump
                if event.from.is_kernel() =>
            {
                self.stack.control(event, ahead);
            }
            _ => (),
        }
    }

    fn is_found_unseen(&self) -> bool {
        let frames = &self.stack.frames;
        let base = self.stack.group_base(frames.len().saturating_sub(1));
        self.unseen.is_some() && frames.get(base).is_some_and(|base| base.entered == Entered::Found)
    }

    fn return_unseen(&mut self, to: Avma) {
        self.stack.pop_group(false);
        let function = self.stack.code.function(to);
        match self.stack.frames.iter().rposition(|frame| frame.function == function) {
            Some(open) => {
                let since = self.unseen.take();
                self.cut_to(open + 1, since);
            }
            None => self.stack.found(to),
        }
    }

    /// All but the outermost `len` frames ended out of sight, `since` then.
    fn cut_to(&mut self, len: usize, since: Option<Instant>) {
        while self.stack.frames.len() > len {
            if let Some(top) = self.stack.frames.last_mut() {
                top.away = since.filter(|since| since.at >= top.start);
            }
            self.stack.close(Status::Cut, false);
        }
    }

    /// User code goes on.
    fn leave(&mut self) {
        let frames = &self.stack.frames;
        let base_len = (1..frames.len()).find(|&i| !frames[i].tail).unwrap_or(frames.len());
        match self.unseen.take() {
            Some(since) => self.cut_to(base_len, Some(since)),
            None => self.stack.close_to(base_len, Status::Unwound),
        }
        self.stack.close_to(0, Status::Complete);
    }

    /// The trace has ended; `end`: of the recording.
    pub(super) fn finish(&mut self, end: Ns) {
        if let Some(since) = self.off_since {
            self.stack.now = end;
            self.stack.off_cpu_ns = self.off_cpu_ns + end.since(since);
        }
        self.stack.close_to(0, Status::OpenEnd);
    }
}
