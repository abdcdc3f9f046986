//! Kernel code in the trace: followed where there is text, skipped where there is none or where it does not
//! fit.
//!
//! ```text
//!   user --syscall, interrupt--> kernel ... kernel --sysret, iret--> user, perhaps of another thread
//!                                  | no text, or text that is not what ran: skipped
//!                                  `-------------------------------> the next TIP with a user address
//! ```
//! `vmlinux` is not what runs (alternatives, static keys, ftrace patch it), so a contradiction in kernel code
//! says nothing about user code: it is counted, and the rest of this stay in the kernel is skipped without a
//! loss. It must not mislead user code later, by the stack for compressed returns.
//!
//! The trace unit has one such stack for all threads and rings: all calls push and all returns pop (SDM
//! volume 3, "Indirect Transfer Compression for Returns"). Ours is the same as long as all code is followed.
//! Once kernel code is skipped, the trace unit's is not known until it is cleared. But a return is compressed
//! only if it goes to the right place, and a thread's returns go where its own calls say. So until then ours
//! has the *own calls* of the thread that runs: each thread's are kept while others run, and given up if it
//! ran on another CPU meanwhile, where it may have called and returned. Calls that were unwound (`longjmp`,
//! exceptions) are dropped once a return that is not compressed shows it: it leaves them out.
//! A compressed return that needs more than that is a contradiction, and a gap.

use std::collections::BTreeMap;

use model::{Avma, EndKind, GapCause, Ns, Site, Tid, Transfer};
use packet::Tnt;

use super::loss::{Lost, is_missing_code};
use super::{Flow, State};
use crate::return_stack::ReturnStack;
use crate::step::Step;
use crate::work::Work;

/// What is kept while kernel code runs.
#[derive(Default)]
pub(super) struct Away {
    /// What each thread's user code had called when it was left. At most one for each thread of the
    /// recording.
    left: BTreeMap<Tid, Left>,
    /// The thread that ran user code last since the trace unit forgot all calls.
    last: Option<Tid>,
    /// It is not the only one: the stack has calls of several.
    mixed: bool,
    /// Where an IP filter was entered in kernel code without text, or is at the last PSB.
    filtered: Option<Avma>,
}

/// A thread's own calls when its user code was left.
struct Left {
    calls: ReturnStack,
    /// When it had come to the CPU.
    came: Ns,
}

impl Away {
    /// An IP filter was entered in kernel code without text, and not left.
    pub(super) fn in_filter(&self) -> bool {
        self.filtered.is_some()
    }
}

impl<W: Work> Flow<'_, W> {
    /// Kernel code is being followed.
    pub(super) fn in_kernel(&self) -> bool {
        matches!(self.state, State::On) && self.walk.is_kernel(self.walk.here.block)
    }

    /// A far transfer or an interrupt went to `ip`.
    pub(super) fn far(&mut self, step: Step, ip: Avma) {
        if !self.in_kernel() {
            self.leave_user();
        }
        let returns = self.in_kernel() && !ip.is_kernel();
        self.arrive(step, ip, returns);
    }

    /// User code is left, from which the stack for compressed returns has what it had called.
    pub(super) fn leave_user(&mut self) {
        if self.away.mixed {
            self.away.left.remove(&self.running.tid);
        } else {
            let mut calls = self.walk.stack.clone();
            calls.drop_ended();
            let left = Left { calls, came: self.running.from };
            self.away.left.insert(self.running.tid, left);
        }
    }

    /// User code has been reached: the stack for compressed returns becomes what its returns need.
    #[inline(always)]
    pub(super) fn reach_user(&mut self) {
        let Away { left, last, mixed, .. } = &mut self.away;
        let tid = self.running.tid;
        let left = if left.is_empty() { None } else { left.remove(&tid) };
        if !self.walk.own_calls {
            *mixed |= last.replace(tid).is_some_and(|last| last != tid);
            return;
        }
        let stayed = |left: &Left| self.owner.stayed(tid, left.came, self.running.from);
        self.walk.stack = left.filter(stayed).map_or_else(ReturnStack::new, |left| left.calls);
    }

    /// The trace unit has forgotten all calls.
    pub(super) fn forget_calls(&mut self) {
        self.walk.stack.clear();
        self.walk.unknown_callers = None;
        self.away.left.clear();
        self.away.last = matches!(self.state, State::On).then_some(self.running.tid);
        self.away.mixed = false;
        self.walk.own_calls = matches!(self.state, State::Kernel);
    }

    /// Calls before `lost` are not known any more; if only code was missing, the trace unit knows them.
    pub(super) fn forget_calls_before(&mut self, lost: Lost) {
        self.forget_calls();
        self.walk.unknown_callers = is_missing_code(lost.cause).then_some(lost.cause);
    }

    /// Kernel code cannot be followed here: the rest of the stay is skipped.
    pub(super) fn skip_kernel(&mut self, cause: GapCause) {
        if matches!(cause, GapCause::Desync { .. }) {
            self.kernel_desyncs += 1;
        }
        self.walk.here.work = self.walk.here.work.plus(W::unknown(true));
        self.walk.tnt = Tnt::default();
        self.fup = None;
        self.state = State::Kernel;
        self.walk.own_calls = true;
        self.away.mixed = false;
    }

    /// An IP filter was entered in kernel code without text: that is all that is known of it.
    pub(super) fn skipped_start(&mut self, step: Step, ip: Avma) {
        self.away.filtered = Some(ip);
        self.thread();
        let start = Transfer::Start { to: self.walk.target(ip), after_gap: false };
        self.walk.emit(Step { lo: step.slot, ..step }, start);
    }

    /// A PSB says that skipped kernel code in the IP filter's ranges is still being executed.
    pub(super) fn skipped_psb(&mut self, ip: Avma) {
        if self.context.recording.pt.has_ip_filter {
            self.away.filtered = Some(ip);
        }
    }

    /// Skipped kernel code in the IP filter's ranges was left for `to`.
    pub(super) fn skipped_end(&mut self, step: Step, to: Option<Avma>) {
        let Some(ip) = self.away.filtered.take() else { return };
        self.thread();
        let from = Site { ip, function: self.walk.target(ip).function, len: 0 };
        let end = Transfer::End { kind: EndKind::Skipped, from, to };
        self.walk.emit(Step { lo: step.slot, ..step }, end);
    }
}
