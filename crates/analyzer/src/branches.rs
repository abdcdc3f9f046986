//! Calls, returns and jumps between traced instructions.

use model::{Avma, BranchKind, EndKind, FunctionKind, Site, Target, Transfer};

use crate::kernel::Left;
use crate::report::{CutCause, Status};
use crate::session::Session;
use crate::stack::{Frame, FrameKind, NOT_KNOWN};
use crate::thread::Thread;

impl<'a> Thread<'a> {
    /// One change of control of user code.
    #[inline(always)]
    pub(crate) fn transfer(&mut self, session: &mut Session<'a>, transfer: &Transfer) {
        match transfer {
            Transfer::Branch { kind, from, to } => {
                self.is_inside();
                match kind {
                    BranchKind::Call | BranchKind::IndirectCall => self.call(session, from, to),
                    BranchKind::Return => self.ret(session, from, to),
                    // Inside of a function, whoever has jumped into it: a loop. The decoder leaves these out
                    // unless it is asked for all.
                    _ if from.function == to.function => (),
                    BranchKind::Jump | BranchKind::ConditionalJump => self.jump(session, *from, *to, false),
                    BranchKind::IndirectJump | BranchKind::Abort => self.jump(session, *from, *to, true),
                }
            }
            Transfer::Start { to, after_gap } => self.start(session, *to, *after_gap),
            Transfer::End { kind, from, to } => self.end(session, *kind, *from, *to),
        }
    }

    #[inline(always)]
    fn call(&mut self, session: &mut Session<'a>, from: &Site, to: &Target) {
        let ret = from.next_ip();
        if ret == to.ip {
            return; // `call +0` reads the program counter: nobody returns from it
        }
        let is_inner = session.map.is_inner_call(from.function, to.function, to.at_entry);
        let mut frame = self.frame(to.function, if is_inner { FrameKind::Inner } else { FrameKind::Call });
        (frame.site, frame.caller, frame.ret) = (from.ip, from.function, ret);
        self.push(session, frame, to.at_entry);
    }

    #[inline(always)]
    fn ret(&mut self, session: &mut Session<'a>, from: &Site, to: &Target) {
        match self.caller_in_sight(to.ip) {
            Some(base) => self.close_to(session, base, Status::Complete),
            None => self.ret_with_care(session, *from, *to),
        }
    }

    /// Where the group of the frame on top begins, if it returns to a call at `ip`, and all that is known of
    /// the two is that: nearly always.
    #[inline(always)]
    fn caller_in_sight(&self, ip: Avma) -> Option<usize> {
        let top = self.stack.last()?;
        let base = self.group_base(self.stack.len() - 1);
        let [.., caller, called] = self.stack.get(..=base)? else { return None };
        let is_certain = top.ret == ip && base >= self.unproved;
        let is_call = !matches!(called.kind, FrameKind::Filter | FrameKind::Signal);
        (is_certain && is_call && !caller.hidden && !caller.kind.is_mark()).then_some(base)
    }

    #[inline(never)]
    fn ret_with_care(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        match self.stack.last() {
            None => self.returned_to_unknown(session, to),
            Some(top) if top.ret == to.ip || top.ret == NOT_KNOWN => {
                if top.ret != NOT_KNOWN {
                    self.goes_on_as_it_must();
                }
                self.find_caller(session, to.ip);
                self.pop_group(session, false);
                match self.stack.last() {
                    None => self.returned_to_unknown(session, to),
                    // It was entered by a jump out of sight: its hidden jumper has ended, too.
                    Some(below) if below.hidden && below.ret == to.ip => self.pop_group(session, false),
                    // A handler had the kernel go on in a function as if the interrupted code had called it.
                    // (A handler that interrupted the restorer itself only returns to it.)
                    Some(mark) if mark.goes_on_at(to.ip) && !session.map.is_restorer(self.space, to.ip) => {
                        self.close(session, Status::Complete, false);
                    }
                    Some(_) => (),
                }
            }
            Some(top) if to.at_entry => {
                // A return that is a jump: `push target; ret`, or a retpoline, which overwrites the return
                // address of a call that it makes for that.
                if top.kind == FrameKind::Inner {
                    self.close(session, Status::Complete, false);
                }
                self.jump(session, from, to, true);
            }
            Some(_) => self.return_elsewhere(session, from, to),
        }
    }

    /// A return to another place than where the frame on top returns to.
    fn return_elsewhere(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        let returns_there = |frame: &&Frame| frame.chain == 0 && frame.ret == to.ip;
        // The function was called anew since it was called from there: one call returns for another only on
        // another stack.
        let is_called_anew = self
            .stack
            .last()
            .is_some_and(|top| top.function == from.function && top.kind != FrameKind::Inner);
        let may_switch = self.may_switch_stacks(session);
        self.end_is_guess();
        let mut innermost = None;
        let mut group_top = self.stack.len();
        for base in (0..self.stack.len()).rev() {
            let Some(frame) = self.stack.get(base).filter(|frame| frame.chain == 0) else { continue };
            if returns_there(&frame) {
                innermost.get_or_insert(base);
                let group = self.stack.get(base..group_top).unwrap_or(&[]);
                if group.iter().any(|frame| frame.function == from.function) {
                    if is_called_anew && may_switch {
                        return self.unexplained(session, to);
                    }
                    self.close_to(session, group_top, Status::Unwound); // calls that never return
                    self.pop_group(session, false);
                    return;
                }
            }
            group_top = base;
        }
        if self.landing(session, to) {
            return;
        }
        match innermost {
            Some(base) => self.close_to(session, base, Status::Unwound),
            None => self.unexplained(session, to),
        }
    }

    #[inline(never)]
    fn jump(&mut self, session: &mut Session<'a>, from: Site, to: Target, indirect: bool) {
        let Some(top) = self.stack.last() else { return self.found(session, to) };
        let (function, kind, top_is) = (top.function, top.kind, top.code);
        let enters = to.at_entry || session.map.kind(to.function) == FunctionKind::Plt;
        let is_inner = kind == FrameKind::Inner;
        // Back from code that it has jumped into the middle of, or `push; ret` to its own entry.
        let is_inside = to.function == function && !enters || to.function == from.function && !is_inner;
        if is_inside && top_is != FunctionKind::Plt {
            return;
        }
        let binder = top_is == FunctionKind::Loader
            && matches!(kind, FrameKind::Call | FrameKind::Tail)
            && indirect
            && enters;
        if top_is == FunctionKind::Plt || binder || is_inner && enters {
            self.replace_top(session, to);
        } else if enters {
            self.tail_call(session, from, to);
        } else if !indirect {
            self.back_in_group(session, to);
        } else if !self.landing(session, to) {
            // Into the middle of a function that is not known to run: code that functions of an object share,
            // or a landing in a frame that is older than the recording, or on another stack.
            let is_far = |session: &mut Session<'a>| {
                session.map.in_other_object(from.function, to.function)
                    || session.map.is_behind_call(self.space, to.ip)
            };
            if session.map.kind(to.function) != FunctionKind::Symbol {
                return;
            }
            if is_far(session) {
                self.unexplained(session, to);
            } else {
                self.stack.runs(to.function);
                self.may_have_left_all(self.stack.len());
            }
        }
    }

    /// A direct jump into the middle of a function. If it is one that tail-called what runs now, that has
    /// ended: so does code that the compiler split off under a name of its own (GCC 8: `f.cold.3`) come back.
    fn back_in_group(&mut self, session: &mut Session<'a>, to: Target) {
        let Some(top) = self.stack.len().checked_sub(1) else { return };
        let is_there = |frame: &Frame| frame.function == to.function;
        let group = self.group_base(top)..top;
        let caller = group.rev().find(|&i| self.stack.get(i).is_some_and(is_there));
        if session.map.kind(to.function) != FunctionKind::Symbol {
            return; // code without a name may be many functions
        }
        if let Some(caller) = caller {
            // What was found in that code may be a frame of another function, which has jumped there, too.
            let is_guess = self.stack.get(caller).is_some_and(|frame| frame.kind == FrameKind::Found);
            for ended in self.stack.iter_mut().skip(caller + 1) {
                ended.undecided |= is_guess;
            }
            self.close_to(session, caller + 1, Status::Complete);
        } else {
            self.stack.runs(to.function);
        }
    }

    /// What no frame explains is another stack, and no frame that is older than the recording.
    fn may_switch_stacks(&self, session: &Session<'a>) -> bool {
        self.base_known || session.stack_switches
    }

    /// Control is at a place that no open frame explains.
    ///
    /// In a thread that was seen from its first instruction that is another stack. Otherwise it may as well
    /// be a frame that is older than the recording, unless the program is known to switch stacks.
    pub(crate) fn unexplained(&mut self, session: &mut Session<'a>, to: Target) {
        self.contradicts_choice(session);
        if self.may_switch_stacks(session) {
            session.limits.stack_switches += 1;
            self.cut_all(session, CutCause::StackSwitch);
        } else {
            self.close_to(session, 0, Status::Unwound);
        }
        self.found(session, to);
    }

    /// Control is in traced code, though nothing said that it came back.
    #[inline]
    fn is_inside(&mut self) {
        if self.left.is_some() {
            (self.left, self.away) = (None, None);
            self.window.is_in_filter(self.now.point);
        }
    }

    /// Tracing stops.
    #[inline(never)]
    fn end(&mut self, session: &mut Session<'a>, kind: EndKind, from: Site, to: Option<Avma>) {
        self.is_inside();
        match kind {
            EndKind::Syscall | EndKind::Async(_) => self.leave_to_kernel(kind == EndKind::Syscall, from),
            EndKind::Branch(BranchKind::Call | BranchKind::IndirectCall) => self.call_out(session, from, to),
            EndKind::Branch(BranchKind::Return) => self.ret_out(session, from, to),
            EndKind::Branch(_) => self.jump_out(session, from, to, true),
            EndKind::FallThrough => {
                self.jump_out(session, from, Some(to.unwrap_or(from.next_ip())), false);
            }
            EndKind::Skipped => (), // only of kernel code
        }
        if !matches!(kind, EndKind::Syscall | EndKind::Async(_)) {
            self.left = Some(Left::OutOfFilter);
            self.window.leaves_filter(self.now.point);
        }
    }

    /// Nothing is known of what ran before.
    fn is_without_past(&self) -> bool {
        self.stack.is_empty() && self.left.is_none() && !self.base_known
    }

    /// Tracing starts.
    #[inline(never)]
    fn start(&mut self, session: &mut Session<'a>, to: Target, after_gap: bool) {
        self.off_cpu.start(self.now);
        self.window.is_in_filter(self.now.point);
        let resumed = self.interrupted_at.take() == Some(to.ip);
        let first = std::mem::take(&mut self.is_new);
        // What was lost may have been that it was interrupted there.
        let is_behind_gap = after_gap || !first && self.is_without_past();
        let may_resume = is_behind_gap && session.around.has_ip_filter && to.at_entry;
        let may_be_first = first && !after_gap && !session.around.is_part;
        self.base_known |= may_be_first && !session.around.has_ip_filter && to.at_entry;
        self.base_known |= first && self.executed.is_some_and(|executed| executed <= self.now.hi);
        let is_entered = session.around.has_ip_filter && to.at_entry && !resumed;
        match self.left.take() {
            Some(Left::Kernel(entry)) if !self.stack.is_empty() => self.back_from_kernel(session, entry, to),
            Some(Left::OutOfFilter) => self.arrive(session, to),
            _ if !self.stack.is_empty() || is_entered => self.arrive(session, to),
            _ => self.found(session, to),
        }
        if let Some(entered) = self.stack.last_mut().filter(|_| may_resume) {
            entered.undecided = true;
        }
    }
}
