//! Calls, returns and jumps between traced instructions.

use model::{Avma, BranchKind, EndKind, FunctionKind, Site, Target, Transfer};

use crate::kernel::Left;
use crate::report::Status;
use crate::session::Session;
use crate::stack::{FrameKind, NOT_KNOWN};
use crate::thread::Thread;

impl<'a> Thread<'a> {
    /// One change of control of user code.
    #[inline]
    pub(crate) fn transfer(&mut self, session: &mut Session<'a>, transfer: &Transfer) {
        match *transfer {
            Transfer::Branch { kind, from, to } => {
                self.is_inside();
                match kind {
                    BranchKind::Call | BranchKind::IndirectCall => self.call(session, from, to),
                    BranchKind::Return => self.ret(session, from, to),
                    BranchKind::Jump | BranchKind::ConditionalJump => self.jump(session, from, to, false),
                    BranchKind::IndirectJump | BranchKind::Abort => self.jump(session, from, to, true),
                }
            }
            Transfer::Start { to, after_gap } => self.start(session, to, after_gap),
            Transfer::End { kind, from, to } => self.end(session, kind, from, to),
        }
    }

    fn call(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        let ret = from.next_ip();
        if ret == to.ip {
            return; // `call +0` reads the program counter: nobody returns from it
        }
        let mut frame = self.frame(to.function, FrameKind::Call);
        (frame.site, frame.caller, frame.ret) = (from.ip, from.function, ret);
        self.push(session, frame, to.at_entry);
    }

    fn ret(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        match self.stack.last() {
            None => self.returned_to_unknown(session, to),
            Some(top) if top.ret == to.ip || top.ret == NOT_KNOWN => {
                self.find_caller(session, to.ip);
                self.pop_group(session, false);
                match self.stack.last() {
                    None => self.returned_to_unknown(session, to),
                    // It was entered by a jump out of sight: its hidden jumper has ended, too.
                    Some(below) if below.hidden && below.ret == to.ip => self.pop_group(session, false),
                    Some(_) => (),
                }
            }
            Some(_) if to.at_entry => {
                // A return that is a jump (`push target; ret`, retpolines): what was called for it never returns.
                self.pop_group(session, false);
                self.tail_call(session, from, to);
            }
            Some(_) => self.return_elsewhere(session, from, to),
        }
    }

    /// A return to another place than where the frame on top returns to.
    fn return_elsewhere(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        let returns_there = |frame: &&crate::stack::Frame| frame.chain == 0 && frame.ret == to.ip;
        let mut innermost = None;
        let mut group_top = self.stack.len();
        for base in (0..self.stack.len()).rev() {
            let Some(frame) = self.stack.get(base).filter(|frame| frame.chain == 0) else { continue };
            if returns_there(&frame) {
                innermost.get_or_insert(base);
                let group = self.stack.get(base..group_top).unwrap_or(&[]);
                if group.iter().any(|frame| frame.function == from.function) {
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

    fn jump(&mut self, session: &mut Session<'a>, from: Site, to: Target, indirect: bool) {
        let Some(top) = self.stack.last() else { return self.found(session, to) };
        let (function, kind) = (top.function, top.kind);
        let top_is = session.map.kind(function);
        if to.function == function && top_is != FunctionKind::Plt {
            return;
        }
        let enters = to.at_entry || session.map.kind(to.function) == FunctionKind::Plt;
        let binder = top_is == FunctionKind::Loader
            && matches!(kind, FrameKind::Call | FrameKind::Tail)
            && indirect
            && enters;
        if top_is == FunctionKind::Plt || binder {
            self.replace_top(session, to);
        } else if enters {
            self.tail_call(session, from, to);
        } else if indirect && !self.landing(session, to) {
            // Into the middle of a function that is not known to run: code that functions of an object share,
            // or a landing in a frame that is older than the recording.
            let far = session.map.kind(to.function) == FunctionKind::Symbol
                && session.map.in_other_object(from.function, to.function);
            let wanted = session.roles.get(to.function).is_some_and(|role| role.wanted.is_some());
            if far || wanted {
                self.unexplained(session, to);
            }
        }
    }

    /// Control is at a place that no open frame explains.
    ///
    /// In a thread that was seen from its first instruction that is another stack.  Otherwise it may as well be a
    /// frame that is older than the recording, unless the program is known to switch stacks.
    pub(crate) fn unexplained(&mut self, session: &mut Session<'a>, to: Target) {
        if self.base_known || session.stack_switches {
            session.limits.stack_switches += 1;
            self.cut_all(session);
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
        }
    }

    /// Tracing stops.
    fn end(&mut self, session: &mut Session<'a>, kind: EndKind, from: Site, to: Option<Avma>) {
        self.is_inside();
        match kind {
            EndKind::Syscall | EndKind::Async(_) => self.leave_to_kernel(kind == EndKind::Syscall, from),
            EndKind::Branch(BranchKind::Call | BranchKind::IndirectCall) => self.call_out(session, from, to),
            EndKind::Branch(BranchKind::Return) => self.ret_out(session, to),
            EndKind::Branch(_) => self.jump_out(session, from, to),
            EndKind::FallThrough => self.jump_out(session, from, Some(to.unwrap_or(from.next_ip()))),
            EndKind::Skipped => (), // only of kernel code
        }
        if !matches!(kind, EndKind::Syscall | EndKind::Async(_)) {
            self.left = Some(Left::OutOfFilter);
        }
    }

    /// Tracing starts.
    fn start(&mut self, session: &mut Session<'a>, to: Target, after_gap: bool) {
        self.off_cpu.start(self.now);
        let resumed = self.interrupted_at.take() == Some(to.ip);
        let first = std::mem::take(&mut self.is_new);
        self.base_known |= first && !after_gap && !session.around.has_ip_filter && to.at_entry;
        match self.left.take() {
            Some(Left::Kernel(entry)) if !self.stack.is_empty() => self.back_from_kernel(session, entry, to),
            Some(Left::OutOfFilter) => self.arrive(session, to),
            _ if !self.stack.is_empty() => self.arrive(session, to),
            _ if session.around.has_ip_filter && to.at_entry && !resumed => self.arrive(session, to),
            _ => self.found(session, to),
        }
    }
}
