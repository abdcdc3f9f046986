//! What each event of the truth does to a thread's stack.

use model::{Avma, Ns};

use super::code::{FunctionIndex, What};
use super::rows::{Entered, Ran, Status};
use super::stack::{Frame, InKernel, Instant, Stack};
use crate::truth::{Event, Events, Kind};

impl Stack<'_> {
    /// The next event; `ahead` are those after it.
    pub(super) fn event(&mut self, now: Ns, event: &Event, ahead: &Events<'_>) {
        self.now = now;
        self.ran = Ran { executed: event.executed, cycles: event.cycles };
        self.code.at(now);
        match event.kind {
            Kind::SwitchOut => self.off_since = Some(now),
            Kind::SwitchIn => {
                if let Some(since) = self.off_since.take() {
                    self.off_cpu_ns += now.since(since);
                }
                self.on_loss(event);
            }
            Kind::Overflow | Kind::Damaged => self.loss(),
            Kind::Truncated => {
                // Tracing stopped in the kernel: what comes next is no return from it, unless from a handler.
                self.is_away |= matches!(self.kernel.take(), Some(InKernel::Syscall { sigreturn: true, .. }));
                self.loss();
            }
            _ => {
                self.on_loss(event);
                self.control(event, ahead);
            }
        }
    }

    pub(super) fn control(&mut self, event: &Event, ahead: &Events<'_>) {
        let (resumes, entries) = (!self.lost && self.may_resume(event), self.entries);
        let left_to_kernel = match event.kind {
            Kind::Enter | Kind::Syscall | Kind::Async | Kind::Resume => None,
            _ => self.kernel.take(),
        };
        if std::mem::take(&mut self.is_new) && event.kind == Kind::Enter && !self.lost {
            let function = self.code.function(event.to);
            self.base_assumed = !self.base_known && self.code.is_entry(function, event.to);
            self.base_known |= self.base_assumed;
        }
        match event.kind {
            Kind::Call | Kind::IndirectCall => self.call(event),
            Kind::Return => self.ret(event, ahead),
            Kind::Jump | Kind::IndirectJump | Kind::ConditionalJump => self.jump(event, ahead),
            Kind::Syscall => {
                let (since, sigreturn, lost) = (self.instant(), event.is_signal(), self.lost);
                self.kernel = Some(InKernel::Syscall { site: event.from, since, sigreturn, lost });
            }
            Kind::Async => {
                let since = self.instant();
                self.kernel = Some(InKernel::Async { ip: event.from, since, lost: self.lost });
            }
            Kind::Enter => self.enter(event, ahead),
            Kind::FilterIn => {
                if let Some(kernel) = left_to_kernel {
                    self.hidden_handler(kernel, event.to);
                }
                self.arrive(event.from, event.to, ahead);
            }
            _ => (),
        }
        self.is_away = event.left_filter();
        let entered = self.frames.last_mut().filter(|_| resumes && self.entries > entries);
        if let Some(activation) = entered.and_then(|top| top.activation.as_mut()) {
            activation.entry_lost = true;
        }
    }

    /// Before a loss the thread was interrupted where it goes on after it: whether that is
    /// another call is not seen.
    fn may_resume(&mut self, event: &Event) -> bool {
        let interrupted = (event.kind == Kind::Async).then_some((event.from, self.losses));
        let before = std::mem::replace(&mut self.interrupted, interrupted);
        before.is_some_and(|(ip, losses)| ip == event.to && losses != self.losses)
    }

    /// Whether an event is lost: the loss may have begun while another thread ran on this CPU.
    pub(super) fn on_loss(&mut self, event: &Event) {
        if event.is_lost() && !self.lost {
            self.loss();
        }
        self.lost = event.is_lost();
    }

    /// Packets are lost from here on.
    pub(super) fn loss(&mut self) {
        self.base_known = false;
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
        let at_entry = self.code.is_entry(function, event.to);
        let inner = self.code.is_inner_call(event.from, function, event.to);
        let frame = self.push(function, Some(after), Entered::Call, event.from, at_entry);
        (frame.hidden, frame.inner) = (left, inner);
    }

    fn ret(&mut self, event: &Event, ahead: &Events<'_>) {
        let Some(top) = self.frames.last() else {
            if !event.left_filter() {
                self.returned_to_unknown(event.to);
            }
            return;
        };
        let function = self.code.function(event.to);
        let at_entry = self.code.is_entry(function, event.to);
        // A frame entered out of sight returns to there; but no call returns to a first address, only a
        // handler.
        let base = self.group_base(self.frames.len().saturating_sub(1));
        let is_hidden = self.frames.get(base).is_some_and(|f| f.entered == Entered::Filter);
        let is_inner = top.inner;
        let returns = match top.returns_to {
            None if is_hidden && at_entry => self.code.is_restorer(event.to),
            None => true,
            Some(to) => to == event.to,
        };
        if returns || event.left_filter() && !at_entry || self.leave_for_handler(event) {
            self.ret_to_caller(event, ahead);
            return;
        }
        if at_entry {
            // A return used as a jump; a retpoline has first called a place inside itself, for the room on
            // the stack.
            let (is_seen, entries) = (self.sees_top(), self.entries);
            if is_inner {
                self.close(Status::Complete, false);
            }
            self.jump(event, ahead);
            // Otherwise it may as well be a handler that returns to the restorer.
            let entered = self.frames.last_mut().filter(|_| self.entries > entries && !is_seen);
            if let Some(activation) = entered.and_then(|top| top.activation.as_mut()) {
                activation.entry_lost = true;
            }
            return;
        }
        self.ret_elsewhere(event, ahead);
    }

    /// Only handlers return to the restorer: control has landed in the innermost one before, and not in the
    /// frame on top. False if this is no such return.
    fn leave_for_handler(&mut self, event: &Event) -> bool {
        if event.left_filter() || !self.code.is_restorer(event.to) {
            return false;
        }
        let is_handler = |frame: &Frame| frame.entered == Entered::Signal && !frame.signal_mark;
        let Some(handler) = self.frames.iter().rposition(is_handler) else { return false };
        self.doubt_choice();
        let end = self.group_end(handler);
        self.close_to(end, Status::Unwound);
        true
    }

    /// A return from the frame on top to its caller, as far as that is known.
    fn ret_to_caller(&mut self, event: &Event, ahead: &Events<'_>) {
        let is_from_older = !event.left_filter()
            && self.top_cannot_return_to(event.to)
            && !self.leave_for_older_call(event, ahead);
        self.contradicts_choice(event);
        let base = self.group_base(self.frames.len().saturating_sub(1));
        let (below, called) = self.frames.split_at_mut(base);
        if let Some(called) = called.first_mut().filter(|f| f.entered == Entered::Filter) {
            let is_stub = |f: &&mut Frame| f.hidden && self.code.get(f.function).what == What::Plt;
            if let Some(stub) = below.last_mut().filter(is_stub).filter(|f| f.returns_to(event.to)) {
                // It was called through the PLT, and its caller is in sight.
                (called.entered, called.site) = (stub.entered, stub.site);
                stub.inner = true;
            } else {
                called.site = self.code.call_before(event.to, called.site);
                // The kernel has entered it, or a handler has jumped there: nothing tells these apart.
                let is_handler = called.site == Avma(0) && below.last().is_some_and(|f| f.signal_mark);
                called.entered = if is_handler { Entered::Signal } else { called.entered };
            }
        }
        self.pop_group(false);
        if event.left_filter() {
            return;
        }
        match self.frames.last() {
            None => {
                // No frame is older than the thread: control has landed in another one before.
                self.is_astray |= self.base_known && self.has_chosen;
                self.returned_to_unknown(event.to);
            }
            // Back in the range by a return from the code outside it, too.
            Some(top) if top.hidden && top.returns_to(event.to) => self.pop_group(false),
            // From a function that a handler had the kernel call: no return goes to the kernel.
            Some(top) if top.goes_on_at == Some(event.to) => {
                self.close(Status::Complete, false);
            }
            Some(_) if is_from_older && !self.code.is_restorer(event.to) => self.found(event.to),
            Some(_) => (),
        }
    }

    /// The outermost frame has returned to `to`.
    fn returned_to_unknown(&mut self, to: Avma) {
        if std::mem::take(&mut self.base_assumed) {
            self.base_known = false;
        }
        self.found(to);
    }

    /// The group on top leaves the filter by a return to where it does not return: control has landed in
    /// another frame before than it seemed, or what code outside has called was left unseen. Then it is the
    /// innermost call from outside that returns.
    fn contradicts_choice(&mut self, event: &Event) {
        let base = self.group_base(self.frames.len().saturating_sub(1));
        let returns_to = self.frames.get(base).and_then(|frame| frame.returns_to);
        if returns_to.is_none_or(|to| to == event.to) {
            return;
        }
        self.doubt_choice();
        self.doubt_from(0);
        if let Some(base) = self.frames.iter().rposition(|frame| frame.entered == Entered::Filter) {
            let end = self.group_end(base);
            self.close_to(end, Status::Unwound);
        }
    }

    /// A return to where the frame on top does not return to.
    fn ret_elsewhere(&mut self, event: &Event, ahead: &Events<'_>) {
        self.end_is_guess();
        if self.code.is_after_call(event.to) && !self.code.is_pad(event.to) {
            self.doubt_choice(); // what returns was called from there
        }
        let from = self.code.function(event.from);
        let count = self.frames.len();
        let returns: Vec<usize> = (0..count)
            .rev()
            .filter(|&i| !self.frames[i].tail && self.frames[i].returns_to(event.to))
            .collect();
        let is_own = |&&i: &&usize| self.frames[i..self.group_end(i)].iter().any(|f| f.function == from);
        // One call returns for another one of the same function: they are on different stacks.
        let is_called_anew = self.frames.last().is_some_and(|top| top.function == from && !top.inner);
        if is_called_anew && self.base_known && returns.iter().any(|i| is_own(&i)) {
            self.land_outside(event.to);
        } else if let Some(&own) = returns.iter().find(is_own) {
            // The function returns as it should; calls that it made never did.
            self.close_to(self.group_end(own), Status::Unwound);
            self.pop_group(false);
        } else if self.landing(event.to, ahead) {
        } else if let Some(&innermost) = returns.first() {
            self.close_to(innermost, Status::Unwound);
        } else {
            self.land_outside(event.to);
        }
    }

    /// Control is where no frame leads: on another stack, or in a call that is older than the recording.
    fn land_outside(&mut self, to: Avma) {
        self.doubt_choice();
        if self.base_known {
            self.leave_stack();
        } else {
            self.odd_flow += 1;
            self.close_to(0, Status::Unwound);
        }
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
        let (top_inner, top_site, top_unsure) = (top.inner, top.site, top.unsure);
        let top_what = self.code.get(top_function).what;
        let at_entry = self.code.is_entry(function, event.to);
        let inner = top_inner && at_entry;
        let is_function = matches!(top_what, What::Symbol | What::Range);
        if event.left_filter() && function == top_function && is_function && !inner {
            let since = self.instant();
            if let Some(top) = self.frames.last_mut() {
                top.away = Some(since);
            }
            return;
        }
        if !event.left_filter() && self.is_inside(event, top_function, top_inner) && is_function {
            return;
        }
        if event.left_filter() {
            // As below: what a call inside a function, or a stub, jumps to was called there.
            let is_stub = top_what == What::Plt && matches!(top_entered, Entered::Call | Entered::Tail);
            let (entered, site) = match top_inner {
                true => (Entered::Call, top_site),
                false if is_stub => (top_entered, top_site),
                false => (Entered::Tail, event.from),
            };
            // Its return address is known by how the jumper, or that one's tail caller, was entered.
            let base = self.group_base(self.frames.len().saturating_sub(1));
            let is_seen =
                !self.lost && self.frames.get(base).is_some_and(|f| f.seen_after == Some(self.losses));
            self.pop_group(true);
            if top_returns_to.is_some() {
                let hidden = self.push(function, top_returns_to, Entered::Call, site, at_entry && is_seen);
                (hidden.entered, hidden.hidden) = (entered, true);
                hidden.unsure |= top_unsure; // it returns for a frame that may be another
            }
            return;
        }
        let what = self.code.get(function).what;
        let tail_call = what == What::Plt || at_entry;
        let direct = matches!(event.kind, Kind::Jump | Kind::ConditionalJump);
        let is_binder =
            top_what == What::Loader && matches!(top_entered, Entered::Call | Entered::Tail) && !direct;
        if top_what == What::Plt || tail_call && (is_binder || inner) {
            self.replace_stub(function, at_entry);
        } else if tail_call {
            self.push(function, None, Entered::Tail, event.from, true);
        } else if direct {
            self.back_in_group(function, what);
        } else if function != top_function && !self.landing(event.to, ahead) {
            // Into the middle of a function that is not known to run: shared code of one object, or a
            // landing in a call older than the recording, most likely where a call returns to.
            let from = self.code.function(event.from);
            let far = !self.code.same_object(from, function) || self.code.is_after_call(event.to);
            if far && matches!(what, What::Symbol | What::Range) {
                self.land_outside(event.to);
            } else {
                self.has_chosen |= !self.base_known;
                self.runs(function, what);
            }
        }
    }

    /// A jump that changes no frame: a loop of the code that jumps, or control is back from code that `top`
    /// has jumped to.
    fn is_inside(&mut self, event: &Event, top: FunctionIndex, top_inner: bool) -> bool {
        let (from, to) = (self.code.function(event.from), self.code.function(event.to));
        let loops = from == to && !(top_inner && event.kind == Kind::Return);
        loops || to == top && !self.code.is_entry(to, event.to)
    }

    /// A direct jump into the middle of a function: if the code that runs was tail-called by it, that is
    /// over.
    fn back_in_group(&mut self, function: FunctionIndex, what: What) {
        let top = self.frames.len().saturating_sub(1);
        let caller = (self.group_base(top)..top).rev().find(|&i| self.frames[i].function == function);
        if let Some(caller) = caller.filter(|_| matches!(what, What::Symbol | What::Range)) {
            self.close_to(caller + 1, Status::Complete);
        } else {
            self.runs(function, what);
        }
    }

    /// The frame on top goes on in the middle of `function`: what lands there may have been thrown to it.
    fn runs(&mut self, function: FunctionIndex, what: What) {
        if let Some(top) = self.frames.last_mut().filter(|_| matches!(what, What::Symbol | What::Range)) {
            top.runs.insert(function);
        }
    }

    /// The frame on top is a PLT stub, the lazy binder or a call inside a function: its caller calls
    /// `function`.
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
        if self.frames.last().is_some_and(|f| f.away.is_some()) {
            let base = self.group_base(self.frames.len() - 1);
            let returned = self.frames[base].returns_to(to);
            let waits_there = self.frames.iter().any(|f| f.hidden && f.returns_to(to));
            let top = self.frames.last_mut().filter(|f| returned || f.function == function && !waits_there);
            if let Some(top) = top.filter(|_| !at_entry) {
                top.away = None; // back from its own cold part, or in its caller
                if returned {
                    self.pop_group(false);
                }
                return;
            }
            self.pop_group(true);
        }
        if at_entry {
            self.push(function, None, Entered::Filter, from, true);
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
        if kernel.is_some_and(|kernel| self.is_restarted_sigreturn(kernel, event.to)) {
            return;
        }
        match kernel {
            Some(InKernel::Async { ip, since, .. }) => {
                self.kernel_child(Avma(0), Entered::Interrupt, since);
                if ip != event.to && self.frames.last().is_none_or(|f| f.hidden) {
                    self.arrive(Avma(0), event.to, ahead);
                }
            }
            Some(InKernel::Syscall { sigreturn: true, .. }) => {
                self.check_sigreturn(event.to);
                let interrupted = self.sigreturn();
                let function = self.code.function(event.to);
                // The handler changed where to go on: to a function, as if the interrupted code called it. If
                // it is not known where that was, it looks so where it is at the first instruction of a
                // handler.
                let is_called = interrupted.map_or(self.handlers.contains(&function), |ip| ip != event.to);
                if is_called && self.code.is_entry(function, event.to) {
                    // Or it is a handler further out that has returned.
                    let unsure = !self.handlers.contains(&function);
                    self.push_handler(self.instant(), interrupted, event.to, self.lost).unsure |= unsure;
                }
            }
            Some(InKernel::Syscall { site, since, .. }) => self.kernel_child(site, Entered::Syscall, since),
            None if self.is_away => self.hidden_sigreturn(event.to),
            // Tracing starts again after a loss, in code that has gone on.
            None => (),
        }
        if self.frames.is_empty() {
            self.found(event.to);
        }
    }

    /// The kernel called a handler.
    fn signal(&mut self, kernel: Option<InKernel>, handler: Avma) {
        let mut start = self.instant();
        let mut entry_lost = kernel.is_none_or(|k| k.is_lost());
        let mut interrupted = kernel.map(|k| k.goes_on_at());
        // The trace shows where it came.
        let mut is_place_seen = !entry_lost;
        match kernel {
            Some(InKernel::Async { since, .. }) => start = since,
            Some(InKernel::Syscall { sigreturn: true, .. }) => {
                let mark = self.frames.iter().rfind(|frame| frame.signal_mark);
                let is_seen = mark.is_some_and(|mark| mark.seen_after == Some(self.losses));
                interrupted = self.sigreturn();
                // It may as well be what the handler had interrupted.
                let is_known = is_seen || self.handlers.contains(&self.code.function(handler));
                if interrupted.is_none() && !is_known {
                    return self.found(handler);
                }
                entry_lost |= !is_known;
                is_place_seen &= is_seen;
            }
            Some(InKernel::Syscall { site, since, .. }) => self.kernel_child(site, Entered::Syscall, since),
            // Without the interruption before it, the trace shows code that runs and not that it was entered.
            None if self.frames.is_empty() => return self.found(handler),
            None => (),
        }
        let handler = self.push_handler(start, interrupted, handler, entry_lost);
        if let Some(activation) = &mut handler.activation {
            activation.entry_lost |= entry_lost;
        }
        let mark = self.frames.iter_mut().rfind(|frame| frame.signal_mark);
        if let Some(mark) = mark.filter(|_| !is_place_seen) {
            mark.seen_after = None;
        }
    }

    /// Pushes a mark that begins at the interruption, and the handler on it.
    fn push_handler(
        &mut self,
        start: Instant,
        interrupted: Option<Avma>,
        handler: Avma,
        is_lost: bool,
    ) -> &mut Frame {
        let function = self.code.function(handler);
        if !is_lost {
            self.handlers.insert(function);
        }
        let at_entry = self.code.is_entry(function, handler);
        self.push_mark(function, start, interrupted, is_lost);
        self.push(function, None, Entered::Signal, Avma(0), at_entry)
    }

    fn push_mark(
        &mut self,
        handler: FunctionIndex,
        start: Instant,
        interrupted: Option<Avma>,
        is_lost: bool,
    ) {
        let mark = self.push(handler, None, Entered::Signal, Avma(0), false);
        mark.signal_mark = true;
        mark.goes_on_at = interrupted;
        mark.seen_after = mark.seen_after.filter(|_| !is_lost);
        mark.start = start.at;
        mark.start_off_cpu_ns = start.off_cpu_ns;
        mark.start_ran = start.ran;
    }

    /// The kernel was entered in sight, and left by a handler out of sight, which has called `to`, or
    /// switched stacks.
    fn hidden_handler(&mut self, kernel: InKernel, to: Avma) {
        let function = self.code.function(to);
        let is_called = self.code.is_entry(function, to);
        let start = match kernel {
            InKernel::Syscall { sigreturn: true, .. } => return,
            InKernel::Syscall { site, since, .. } => {
                self.kernel_child(site, Entered::Syscall, since);
                self.instant()
            }
            InKernel::Async { since, .. } => since,
        };
        if is_called {
            let interrupted = Some(kernel.goes_on_at());
            self.push_mark(FunctionIndex::UNKNOWN, start, interrupted, kernel.is_lost());
        } else if matches!(kernel, InKernel::Async { .. }) {
            self.kernel_child(Avma(0), Entered::Interrupt, start);
        }
    }

    /// The kernel was left in sight, but entered out of sight: a handler there has returned.
    fn hidden_sigreturn(&mut self, to: Avma) {
        if let Some(mark) = self.frames.iter().rposition(|frame| frame.goes_on_at == Some(to)) {
            self.leave_handler(mark);
        }
    }

    /// The handler above a mark has returned.  The mark.
    fn leave_handler(&mut self, mark: usize) -> Option<Frame> {
        self.close_to(mark + 1, Status::Unwound);
        self.close(Status::Complete, false)
    }

    /// A signal came before the rt_sigreturn was done, and it is made again. (It leads to itself, too, if
    /// that is where the handler came that has returned.)
    fn is_restarted_sigreturn(&self, kernel: InKernel, to: Avma) -> bool {
        let InKernel::Syscall { site, sigreturn: true, .. } = kernel else { return false };
        let mark = self.frames.iter().rfind(|f| f.signal_mark);
        site == to && mark.is_some_and(|mark| mark.goes_on_at != Some(to))
    }

    /// The rt_sigreturn leads to where its handler did not come: control has landed elsewhere before than it
    /// seemed, and it is a handler further out; or handlers that never returned hid from the generator behind
    /// which instruction this one came.
    fn check_sigreturn(&mut self, to: Avma) {
        let mark = self.frames.iter().rfind(|frame| frame.signal_mark);
        let contradicts = mark.and_then(|mark| mark.goes_on_at).is_some_and(|ip| ip != to);
        let function = self.code.function(to);
        if contradicts && !self.code.is_entry(function, to) {
            self.doubt_from(0);
            self.is_astray = true;
            if let Some(mark) = self.frames.iter().rposition(|frame| frame.goes_on_at == Some(to)) {
                self.close_to(mark + 1, Status::Unwound);
            }
        }
    }

    /// The innermost handler has returned. Where the code that it interrupted goes on, as far as that is
    /// known.
    fn sigreturn(&mut self) -> Option<Avma> {
        let Some(mark) = self.frames.iter().rposition(|f| f.signal_mark) else {
            self.close_to(0, Status::Unwound); // the handler is older than the recording, and so is what it interrupted
            return None;
        };
        self.leave_handler(mark)?.goes_on_at
    }
}
