//! What each event of the truth does to a thread's stack.

use model::{Avma, Ns};

use super::code::{FunctionIndex, What};
use super::rows::{Entered, Status};
use super::stack::{Kernel, Stack};
use crate::truth::{Event, Events, Kind};

impl Stack<'_> {
    /// The next event; `ahead` are those after it.
    pub(super) fn event(&mut self, now: Ns, event: &Event, ahead: &Events<'_>) {
        self.now = now;
        match event.kind {
            Kind::SwitchOut => self.off_since = Some(now),
            Kind::SwitchIn => {
                if let Some(since) = self.off_since.take() {
                    self.off_cpu_ns += now.since(since);
                }
            }
            Kind::Overflow => self.loss(),
            Kind::Truncated => {
                self.kernel = None; // tracing stopped in the kernel: what comes next is no return from it
                self.loss();
            }
            _ => {
                if event.is_lost() && !self.lost {
                    self.loss(); // it began while another thread ran on this CPU
                }
                self.lost = event.is_lost();
                self.control(event, ahead);
            }
        }
    }

    fn control(&mut self, event: &Event, ahead: &Events<'_>) {
        match event.kind {
            Kind::Enter | Kind::Syscall | Kind::Async | Kind::Resume => (),
            _ => self.kernel = None,
        }
        match event.kind {
            Kind::Call | Kind::IndirectCall => self.call(event),
            Kind::Return => self.ret(event, ahead),
            Kind::Jump | Kind::IndirectJump | Kind::ConditionalJump => self.jump(event, ahead),
            Kind::Syscall => {
                let (since, sigreturn, lost) = (self.instant(), event.is_signal(), self.lost);
                self.kernel = Some(Kernel::Syscall { site: event.from, since, sigreturn, lost });
            }
            Kind::Async => {
                let since = self.instant();
                self.kernel = Some(Kernel::Async { ip: event.from, since, lost: self.lost });
            }
            Kind::Enter => self.enter(event, ahead),
            Kind::FilterIn => self.arrive(event.from, event.to, ahead),
            _ => (),
        }
    }

    /// Packets are lost from here on.
    fn loss(&mut self) {
        self.losses += 1;
        self.lost = true;
    }

    fn call(&mut self, event: &Event) {
        let function = self.code.function(event.to);
        let after = self.code.after_call(event.from);
        if after == event.to {
            return; // a call to the next instruction, to read the program counter
        }
        let left = event.left_filter();
        let at_entry = !left && self.code.is_entry(function, event.to);
        self.push(function, Some(after), Entered::Call, event.from, at_entry).hidden = left;
    }

    fn ret(&mut self, event: &Event, ahead: &Events<'_>) {
        let Some(top) = self.frames.last() else {
            if !event.left_filter() {
                self.found(event.to);
            }
            return;
        };
        if event.left_filter() || top.returns_to.is_none_or(|to| to == event.to) {
            self.ret_to_caller(event);
            return;
        }
        let function = self.code.function(event.to);
        if self.code.is_entry(function, event.to) {
            // A return used as a jump: the call that it leaves never returns.
            self.pop_group(false);
            self.push(function, None, Entered::Tail, event.from, true);
            return;
        }
        self.ret_elsewhere(event, ahead);
    }

    /// A return from the frame on top to its caller, as far as that is known.
    fn ret_to_caller(&mut self, event: &Event) {
        let base = self.group_base(self.frames.len().saturating_sub(1));
        if let Some(called) = self.frames.get_mut(base).filter(|f| f.entered == Entered::Filter) {
            called.site = self.code.call_before(event.to, called.site);
        }
        self.pop_group(false);
        if event.left_filter() {
            return;
        }
        match self.frames.last() {
            None => self.found(event.to),
            // Back in the range by a return from the code outside it, too.
            Some(top) if top.hidden && top.returns_to(event.to) => self.pop_group(false),
            Some(_) => (),
        }
    }

    /// A return to where the frame on top does not return to.
    fn ret_elsewhere(&mut self, event: &Event, ahead: &Events<'_>) {
        let from = self.code.function(event.from);
        let count = self.frames.len();
        let group_end =
            |i: usize| (i + 1..count).find(|&j| self.frames.get(j).is_some_and(|f| !f.tail)).unwrap_or(count);
        let returns: Vec<usize> = (0..count)
            .rev()
            .filter(|&i| !self.frames[i].tail && self.frames[i].returns_to(event.to))
            .collect();
        let is_own = |&&i: &&usize| self.frames[i..group_end(i)].iter().any(|f| f.function == from);
        if let Some(&own) = returns.iter().find(is_own) {
            // The function returns as it should; calls that it made never did.
            self.close_to(group_end(own), Status::Unwound);
            self.pop_group(false);
        } else if self.landing(event.to, ahead) {
        } else if let Some(&innermost) = returns.first() {
            self.close_to(innermost, Status::Unwound);
        } else {
            self.land_outside(event.to);
        }
    }

    /// Control landed in a call that is older than the recording.
    fn land_outside(&mut self, to: Avma) {
        self.tally.odd_flow += 1;
        self.close_to(0, Status::Unwound);
        self.found(to);
    }

    fn jump(&mut self, event: &Event, ahead: &Events<'_>) {
        let function = self.code.function(event.to);
        let Some(top) = self.frames.last() else {
            if !event.left_filter() {
                self.found(event.to);
            }
            return;
        };
        let (top_function, top_returns_to, top_entered) = (top.function, top.returns_to, top.entered);
        let top_what = self.code.get(top_function).what;
        if function == top_function && matches!(top_what, What::Symbol | What::Range) {
            if event.left_filter() {
                let since = self.instant();
                if let Some(top) = self.frames.last_mut() {
                    top.away = Some(since);
                }
            }
            return;
        }
        if event.left_filter() {
            self.pop_group(true);
            if top_returns_to.is_some() {
                let hidden = self.push(function, top_returns_to, Entered::Call, event.from, false);
                hidden.entered = Entered::Tail;
                hidden.hidden = true;
            }
            return;
        }
        let what = self.code.get(function).what;
        let at_entry = self.code.is_entry(function, event.to);
        let tail_call = what == What::Plt || at_entry;
        let is_binder = top_what == What::Loader
            && matches!(top_entered, Entered::Call | Entered::Tail)
            && event.kind == Kind::IndirectJump;
        if top_what == What::Plt || is_binder && tail_call {
            self.replace_stub(function, at_entry);
        } else if tail_call {
            self.push(function, None, Entered::Tail, event.from, true);
        } else if event.kind == Kind::IndirectJump
            && function != top_function
            && !self.landing(event.to, ahead)
        {
            // Into the middle of a function that is not known to run: shared code of one object, or a
            // landing in a call older than the recording.
            let from = self.code.function(event.from);
            let far = what == What::Symbol && !self.code.same_object(from, function);
            if far || function == self.wanted {
                self.land_outside(event.to);
            }
        }
    }

    /// The frame on top is a PLT stub or the lazy binder: its caller calls `function`.
    fn replace_stub(&mut self, function: FunctionIndex, at_entry: bool) {
        if let Some(stub) = self.close(Status::Complete, false) {
            self.push(function, stub.returns_to, stub.entered, stub.site, at_entry).returns_to =
                stub.returns_to;
        }
    }

    /// Tracing starts here because control came from outside the IP filter.
    fn arrive(&mut self, from: Avma, to: Avma, ahead: &Events<'_>) {
        let function = self.code.function(to);
        let at_entry = self.code.is_entry(function, to);
        if let Some(top) = self.frames.last_mut().filter(|f| f.away.is_some()) {
            if top.function == function && !at_entry {
                top.away = None; // back from its own cold part
                return;
            }
            self.pop_group(true);
        }
        if at_entry {
            match self.frames.last() {
                Some(top) if top.hidden && self.code.get(top.function).what == What::Plt => {
                    self.replace_stub(function, true);
                }
                _ => {
                    self.push(function, None, Entered::Filter, from, true);
                }
            }
        } else if let Some(caller) = self.frames.iter().rposition(|f| f.hidden && f.returns_to(to)) {
            self.close_to(caller + 1, Status::Unwound);
            self.pop_group(false);
        } else {
            let resumed = self.frames.last().is_some_and(|f| f.function == function && !f.hidden);
            if !resumed && !self.landing(to, ahead) {
                self.found(to);
            }
        }
    }

    /// User code goes on, or a signal handler begins.
    fn enter(&mut self, event: &Event, ahead: &Events<'_>) {
        let kernel = self.kernel.take();
        if event.is_signal() {
            self.signal(kernel, event.to);
            return;
        }
        match kernel {
            Some(Kernel::Async { ip, since, .. }) => {
                self.kernel_child(Avma(0), Entered::Interrupt, since);
                if ip != event.to && self.frames.last().is_none_or(|f| f.hidden) {
                    self.arrive(Avma(0), event.to, ahead);
                }
            }
            Some(Kernel::Syscall { sigreturn: true, .. }) => self.sigreturn(),
            Some(Kernel::Syscall { site, since, .. }) => self.kernel_child(site, Entered::Syscall, since),
            None => (),
        }
        if self.frames.is_empty() {
            self.found(event.to);
        }
    }

    /// The kernel called a handler: a mark, whose time runs from the interruption, and the handler on it.
    fn signal(&mut self, kernel: Option<Kernel>, handler: Avma) {
        let mut start = self.instant();
        // Without the interruption before it, the trace shows code that runs and not that it was entered.
        let is_first = kernel.is_none() && self.frames.is_empty();
        let entry_lost = kernel.is_none_or(|k| k.is_lost());
        match kernel {
            Some(Kernel::Async { since, .. }) => start = since,
            Some(Kernel::Syscall { sigreturn: true, .. }) => self.sigreturn(),
            Some(Kernel::Syscall { site, since, .. }) => self.kernel_child(site, Entered::Syscall, since),
            None => (),
        }
        let function = self.code.function(handler);
        let at_entry = self.code.is_entry(function, handler);
        let mark = self.push(function, None, Entered::Signal, Avma(0), false);
        mark.signal_mark = true;
        mark.start = start.at;
        mark.start_off_cpu_ns = start.off_cpu_ns;
        let entered = if is_first { Entered::Found } else { Entered::Signal };
        let frame = self.push(function, None, entered, Avma(0), at_entry);
        if let Some(activation) = &mut frame.activation {
            activation.entry_lost |= entry_lost;
        }
    }

    /// The innermost handler has returned.
    fn sigreturn(&mut self) {
        if let Some(mark) = self.frames.iter().rposition(|f| f.signal_mark) {
            self.close_to(mark + 1, Status::Unwound);
            self.close(Status::Complete, false);
        }
    }
}
