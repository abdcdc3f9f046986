//! Kernel code in the trace: followed where there is text, skipped where there is none or where it does not fit.
//!
//! ```text
//!   user --syscall, interrupt--> kernel ... kernel --sysret, iret--> user, perhaps of another thread
//!                                  | no text, or text that is not what ran: skipped
//!                                  `-------------------------------> the next TIP with a user address
//! ```
//! `vmlinux` is not what runs (alternatives, static keys, ftrace patch it), so a contradiction in kernel code says
//! nothing about user code: it ends what is known of this stay in the kernel and is counted, and is no loss.  What must
//! not happen is that it misleads user code later, by the stack for compressed returns: see [`Flow::return_to_user`].

use std::collections::BTreeMap;

use model::{Avma, EndKind, GapCause, Site, Tid, Transfer};
use packet::Tnt;

use super::{Flow, State};
use crate::return_stack::ReturnStack;
use crate::walk::Step;

/// What is kept while kernel code runs.
#[derive(Default)]
pub(super) struct Away {
    /// What each thread's user code had called when it was left.  At most one for each thread of the recording.
    returns: BTreeMap<Tid, ReturnStack>,
    /// Kernel code was not followed since user code was.
    skipped: bool,
    /// Where an IP filter was entered in kernel code without text.
    filtered: Option<Avma>,
}

impl Away {
    /// The trace unit has forgotten all calls.
    pub(super) fn forget_returns(&mut self) {
        self.returns.clear();
    }

    /// An IP filter was entered in kernel code without text, and not left.
    pub(super) fn in_filter(&self) -> bool {
        self.filtered.is_some()
    }
}

impl Flow<'_> {
    /// Kernel code is being followed.
    pub(super) fn in_kernel(&self) -> bool {
        matches!(self.state, State::On) && self.walk.position().ip.is_kernel()
    }

    /// A far transfer or an interrupt went to `ip`.
    pub(super) fn far(&mut self, step: Step, ip: Avma) {
        match (self.in_kernel(), ip.is_kernel()) {
            (false, true) => {
                self.away.returns.insert(self.running.tid, self.walk.stack.clone());
                self.arrive(step, ip, false);
            }
            (true, false) => self.return_to_user(step, ip),
            _ => self.arrive(step, ip, false),
        }
    }

    /// Kernel code returns to user code, in which another thread may run now.
    ///
    /// The trace unit's stack for compressed returns knows nothing of threads and rings: where all of the kernel code was
    /// followed, ours has what it has.  Where not, what the kernel called and returned from is not known.  But a thread
    /// goes on with the calls that it had made when it was left, so a return that is compressed goes where these say.
    pub(super) fn return_to_user(&mut self, step: Step, ip: Avma) {
        self.arrive(step, ip, true);
        let own = self.away.returns.remove(&self.running.tid);
        if std::mem::take(&mut self.away.skipped) {
            match own {
                Some(returns) => self.walk.stack = returns,
                None => self.walk.stack.clear(),
            }
        }
    }

    /// Kernel code cannot be followed here: the rest of the stay is skipped.
    pub(super) fn skip_kernel(&mut self, cause: GapCause) {
        if matches!(cause, GapCause::Desync { .. }) {
            self.kernel_desyncs += 1;
        }
        self.walk.tnt = Tnt::default();
        self.fup = None;
        self.state = State::Kernel;
        self.away.skipped = true;
    }

    /// An IP filter was entered in kernel code without text: that is all that is known of it.
    pub(super) fn skipped_start(&mut self, step: Step, ip: Avma) {
        self.away.filtered = Some(ip);
        self.walk.output.thread(self.running, self.walk.space, self.clock.now_lo());
        let start = Transfer::Start { to: self.walk.target(ip), after_gap: false };
        self.walk.output.transfer(step.slot, step.slot, self.walk.work, step.at, start);
    }

    /// ... and was left.
    pub(super) fn skipped_end(&mut self, step: Step, to: Option<Avma>) {
        let Some(ip) = self.away.filtered.take() else { return };
        let from = Site { ip, function: self.walk.target(ip).function, len: 0 };
        let end = Transfer::End { kind: EndKind::Skipped, from, to };
        self.walk.output.transfer(step.slot, step.slot, self.walk.work, step.at, end);
    }
}
