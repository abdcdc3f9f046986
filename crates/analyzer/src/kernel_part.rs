//! A thread in kernel code, where functions of that are asked for: they have frames above those of user code.
//!
//! ```text
//!   End Syscall, to E     Start at E      a level begins: E is entered by a system call
//!   End Async,   to I     Start at I      ... by an interrupt or fault, of user code or of the level below
//!   End Syscall, to X     Start at X      the level ends where X was interrupted (iret), or in user code
//!   End Async at W        Start at Z      tracing was off: the thread was switched out and in
//! ```
//! The rules of calls are those of user code, above the level's floor ([`crate::kernel_frames`]). For the
//! code below a level it is one stay in the kernel, as where no kernel function is asked for: so no figure
//! of a function of user code depends on that.
//!
//! Where a whole CPU is traced, and not tasks, tracing goes on through a context switch into another
//! thread's stack. So from a thread's switch-out to its return to user code nothing is followed.

use model::{Counters, GapCause, Ns, SpaceId, Target, TraceEvent, Transfer};

use crate::control::{Control, KernelEntry, Left};
use crate::filter::Filter;
use crate::frames::{Frames, Notice};
use crate::kernel_frames::KernelFrames;
use crate::kernel_level::{KernelLevel, Unseen};
use crate::session::Session;
use crate::status::Status;
use crate::thread::Thread;

/// Levels that interrupts may make; those that nothing returned from are left by then.
const LEVELS_MAX: usize = 64;

impl<'a> Thread<'a> {
    /// The next event of kernel code.
    pub(crate) fn kernel_event(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        event: &TraceEvent,
        counters: Option<&Counters>,
    ) {
        let TraceEvent::Branch(branch) = event else { return };
        let is_first = !self.kernel.is_entered();
        if session.around.traces_whole_cpus
            && (self.kernel.is_lost || self.clock.off_cpu.is_off(branch.time.point))
        {
            self.kernel.is_lost = !is_first;
            let (since, depth) = (self.kernel.last, self.stack.len());
            for level in &mut self.kernel.levels {
                level.unseen.get_or_insert(Unseen { since, depth });
            }
            self.control.going = None;
            return;
        }
        if is_first {
            self.kernel.user = (self.clock.now, self.clock.at);
        }
        if let Some(counters) = counters {
            self.counting.reach(event, counters);
        }
        let since = self.time();
        self.clock.reach_in_kernel(branch);
        self.kernel.last = self.time();
        if session.code.is_some() {
            self.ran(session, since, &branch.transfer);
        }
        match &branch.transfer {
            Transfer::Start { to, .. } => self.start_in_kernel(session, space, *to),
            transfer @ (Transfer::Branch { from, .. } | Transfer::End { from, .. }) => {
                if is_first {
                    let to = Target { ip: from.ip, function: from.function, at_entry: false };
                    self.open_level(space, false, |frames| frames.found(session, to));
                }
                self.in_level(space, |frames| frames.go_on(session, transfer));
            }
        }
        if session.code.is_some() {
            self.came_to(session, space, &branch.transfer);
        }
    }

    /// Tracing starts in kernel code, or goes on there.
    fn start_in_kernel(&mut self, session: &mut Session<'a>, space: SpaceId, to: Target) {
        let Some(level) = self.kernel.levels.last_mut() else {
            return match self.control.left {
                Some(Left::Kernel(entry)) if entry.leads_to(to, session.around.has_ip_filter) => {
                    self.open_level(space, true, |frames| frames.enter(session, &entry, to));
                }
                _ => self.open_level(space, false, |frames| frames.start(session, to)),
            };
        };
        let left = level.control.left.take();
        match left {
            Some(Left::Kernel(entry)) if entry.syscall => self.return_in_kernel(session, space, to),
            Some(Left::Kernel(entry)) if entry.goes_on_at(to.ip) => {
                self.add_kernel_child(session, &entry);
            }
            Some(Left::Kernel(entry)) if entry.to == Some(to.ip) => {
                level.control.left = left;
                self.open_level(space, true, |frames| frames.enter(session, &entry, to));
            }
            Some(Left::Kernel(entry)) => {
                self.in_level(space, |frames| frames.resume(session, entry.since, to));
            }
            Some(Left::OutOfSight) => self.in_level(space, |frames| frames.arrive(session, to)),
            None if session.around.has_ip_filter => {
                self.in_level(space, |frames| frames.arrive(session, to));
            }
            None => self.in_level(space, |frames| frames.put_at(session, to)),
        }
    }

    /// A far transfer in the kernel: an interrupt of kernel code is over, or its handler goes on elsewhere.
    fn return_in_kernel(&mut self, session: &mut Session<'a>, space: SpaceId, to: Target) {
        let [.., below, innermost] = self.kernel.levels.as_mut_slice() else {
            return self.in_level(space, |frames| frames.put_at(session, to));
        };
        let Some(Left::Kernel(entry)) = below.control.left else { return };
        let goes_on = entry.goes_on_at(to.ip);
        let floor = innermost.floor;
        let is_own =
            self.stack.get(floor..).and_then(<[_]>::last).is_some_and(|top| top.function == to.function);
        if !goes_on && is_own {
            return; // `sync_core`: to the next instruction of the same function
        }
        innermost.control.left = Some(Left::Kernel(KernelEntry { syscall: true, ..entry }));
        below.control.left = None;
        self.leave_level(session);
        self.in_level(space, |frames| {
            frames.notice(session, Notice::KernelStay(&entry));
            if !goes_on {
                frames.put_at(session, to);
            }
        });
    }

    /// Opens a level above what runs now; `is_entered`: in sight.
    fn open_level(
        &mut self,
        space: SpaceId,
        is_entered: bool,
        enter: impl FnOnce(&mut KernelFrames<'_, 'a>),
    ) {
        let control = Control::in_kernel(space, is_entered);
        let (floor, left) = (self.stack.len(), self.counting.left());
        if self.kernel.levels.len() < LEVELS_MAX {
            self.kernel.levels.push(KernelLevel { floor, control, unseen: None, left });
        }
        self.in_level(space, enter);
    }

    /// Acts on the frames of the innermost level.
    fn in_level(&mut self, space: SpaceId, act: impl FnOnce(&mut KernelFrames<'_, 'a>)) {
        let Some(mut level) = self.kernel.levels.pop() else { return };
        level.control.space = space;
        let mut frames = KernelFrames::new(self, level);
        act(&mut frames);
        let level = frames.into_level();
        self.kernel.levels.push(level);
    }

    /// Control is back below the innermost level.
    fn leave_level(&mut self, session: &mut Session<'a>) {
        let Some(level) = self.kernel.levels.pop() else { return };
        let last = self.kernel.last;
        let mut frames = KernelFrames::new(self, level);
        frames.leave(session, last);
        let KernelLevel { left, .. } = frames.into_level();
        self.counting.set_left(left);
    }

    /// Control is in user code: all levels are left.
    pub(crate) fn leave_kernel(&mut self, session: &mut Session<'a>) {
        if self.kernel.is_entered() {
            self.clock.off_cpu.pass_in_kernel(self.clock.now);
            while self.kernel.is_entered() {
                self.leave_level(session);
            }
            self.clock.off_cpu.leave_kernel();
            self.kernel.is_lost = false;
        }
        let functions = session.around.functions;
        self.entered.ghosts.forget(|function| functions.is_of_kernel(function));
    }

    /// A gap begins in the kernel, or where control has left it for user code. It ends the calls there: after
    /// the gap nothing is known of them.
    pub(crate) fn lose_kernel(&mut self, session: &mut Session<'a>, cause: GapCause) {
        if self.kernel.is_left() {
            return self.leave_kernel(session);
        }
        while let Some(level) = self.kernel.levels.pop() {
            let mut frames = KernelFrames::new(self, level);
            frames.cut(session, cause);
            let KernelLevel { left, .. } = frames.into_level();
            self.counting.set_left(left);
        }
        self.kernel.forget();
        self.clock.off_cpu.leave_kernel();
    }

    /// The thread's stream has ended, perhaps in the kernel. Its calls took at least up to there. As those of
    /// user code, they took up to `end`, of the thread or the recording, if the thread is off its CPU then.
    pub(crate) fn finish_in_kernel(&mut self, session: &mut Session<'a>, end: Ns) {
        if !self.kernel.is_entered() {
            return;
        }
        let is_off = self.clock.off_cpu.ends_off(self.kernel.user.0, end);
        while let Some(level) = self.kernel.levels.pop().filter(|_| !is_off) {
            let mut frames = KernelFrames::new(self, level);
            frames.close_to(session, 0, Status::OpenEnd);
            frames.into_level();
        }
        self.kernel.forget();
        self.clock.off_cpu.leave_kernel();
        (self.clock.now, self.clock.at) = self.kernel.user;
    }
}
