//! The frames of kernel code, as the rules of calls see them: the part of a thread's stack above a floor.
//!
//! ```text
//!   stack   main write | entry_SYSCALL_64 do_syscall_64 vfs_read | asm_exc_page_fault exc_page_fault
//!                      floor of the system call                  floor of the fault
//! ```
//! No rule ends a frame below the floor: what kernel code returns to, and where it lands, is above. Code that
//! ran while tracing was off (a context switch) has left frames that nothing told the end of, and opened
//! others. So a return to a place that no frame explains opens a frame that was found running; once one leads
//! into a function that is open, the frames above that have ended *unseen*.

use model::{Avma, BranchKind, EventTime, FunctionId, GapCause, Target, Transfer};

use crate::control::{Control, KernelEntry, Left};
use crate::filter::Filter;
use crate::frames::{Frames, Landings, Notice, Otherwise};
use crate::kernel_level::{KernelLevel, Unseen};
use crate::landing::Landing;
use crate::session::Session;
use crate::stack::{DEPTH_MAX, Frame, FrameKind, FrameRole};
use crate::status::{Cut, CutCause, Status};
use crate::thread::Thread;
use crate::thread_clock::ThreadTime;
use crate::transfers::Transfers;

/// The frames of the innermost level, which is taken out of the thread meanwhile; so is the thread's control
/// exchanged for the level's.
pub(crate) struct KernelFrames<'t, 'a> {
    thread: &'t mut Thread<'a>,
    level: KernelLevel,
}

impl<'t, 'a> KernelFrames<'t, 'a> {
    pub(crate) fn new(thread: &'t mut Thread<'a>, mut level: KernelLevel) -> Self {
        std::mem::swap(&mut thread.control, &mut level.control);
        Self { thread, level }
    }

    /// Gives the thread its own control back. Returns the level.
    pub(crate) fn into_level(mut self) -> KernelLevel {
        let depth = self.depth();
        self.level.unseen.take_if(|unseen| depth <= unseen.depth); // control is in a frame that was open
        std::mem::swap(&mut self.thread.control, &mut self.level.control);
        self.level
    }

    /// Control comes in by a system call, an interrupt or a fault.
    pub(crate) fn enter(&mut self, session: &mut Session<'a>, entry: &KernelEntry, to: Target) {
        let mut frame = self.frame(to.function, FrameKind::KernelEntry);
        if entry.syscall {
            frame.site.space = entry.space;
            frame.site.set(entry.from);
        }
        self.push(session, frame, to.at_entry);
    }

    /// Tracing starts at a place in the kernel that control was not seen to come to.
    pub(crate) fn start(&mut self, session: &mut Session<'a>, to: Target) {
        if session.around.has_ip_filter { self.arrive(session, to) } else { self.found(session, to) }
    }

    /// Tracing goes on after it was off since `since`: what returned or was called meanwhile was not seen.
    pub(crate) fn resume(&mut self, session: &mut Session<'a>, since: ThreadTime, to: Target) {
        let depth = self.depth();
        self.level.unseen.get_or_insert(Unseen { since, depth });
        self.found(session, to);
    }

    /// Control is at `to` by another way than a call or a return: an `iret` to another place than where the
    /// code was interrupted (`exception table`, `sync_core`).
    pub(crate) fn put_at(&mut self, session: &mut Session<'a>, to: Target) {
        let is_there = self.top().is_some_and(|top| top.function == to.function);
        if !is_there && !self.landing(session, to) {
            self.run_code_of(to.function, false);
        }
    }

    /// A branch in the kernel, or the end of tracing there.
    pub(crate) fn go_on(&mut self, session: &mut Session<'a>, transfer: &Transfer) {
        match transfer {
            Transfer::Branch { kind: BranchKind::Return, to, .. } if self.is_top_found_unseen() => {
                self.return_unseen(session, *to);
            }
            _ => self.transfer(session, transfer),
        }
    }

    /// What runs was found running after a time out of sight.
    fn is_top_found_unseen(&self) -> bool {
        let base = self.top_base().and_then(|base| self.get(base));
        self.level.unseen.is_some() && base.is_some_and(|base| base.kind == FrameKind::Found)
    }

    /// What was found running returns: to a frame that was open before, or to one that was entered unseen.
    fn return_unseen(&mut self, session: &mut Session<'a>, to: Target) {
        self.pop_group(session, false);
        let has_called = |i: usize| self.get(i + 1).is_none_or(|above| above.chain == 0);
        let is_there = |i: &usize| self.has_code_of(*i, to.function) && has_called(*i);
        match (0..self.depth()).rev().find(is_there) {
            Some(open) => {
                let unseen = self.level.unseen.take();
                self.cut_to(session, open + 1, unseen);
            }
            None => self.found(session, to),
        }
    }

    /// All that ran in this level has ended: control is back below it. `last`: the last event that was seen
    /// in it.
    pub(crate) fn leave(&mut self, session: &mut Session<'a>, last: ThreadTime) {
        let is_entered = self.get(0).is_some_and(|base| base.kind == FrameKind::KernelEntry);
        let exits_in_sight = matches!(self.control().left, Some(Left::Kernel(entry)) if entry.syscall);
        let is_tail = |i: usize| self.get(i).is_some_and(|frame| frame.chain > 0);
        let base_len = (1..self.depth()).find(|&i| !is_tail(i)).unwrap_or(self.depth());
        let unseen = self.level.unseen.take();
        if session.around.has_ip_filter || exits_in_sight && unseen.is_none() {
            self.close_to(session, base_len, Status::Unwound);
        }
        let keeps_base = is_entered || exits_in_sight || session.around.has_ip_filter;
        let unseen = unseen.or(Some(Unseen { since: last, depth: self.depth() }));
        self.cut_to(session, if keeps_base { base_len } else { 0 }, unseen);
        let status = if is_entered || exits_in_sight { Status::Complete } else { Status::Unwound };
        self.close_to(session, 0, status);
    }

    /// A gap begins in the kernel: all that is open in this level has ended in it, or goes on unknown.
    pub(crate) fn cut(&mut self, session: &mut Session<'a>, cause: GapCause) {
        let open = self.thread.stack.active(self.level.floor);
        let wanted = open.filter(|(_, activation)| activation.role.wanted.is_some());
        self.thread.entered.ghosts.add(wanted.map(|(frame, _)| (frame.function, frame.ret)));
        self.thread.cut_by = Some(Cut { cause: CutCause::Gap(cause), cpu: self.thread.cpu(session) });
        self.close_to(session, 0, Status::Cut);
    }

    /// Ends all frames but the outermost `len`: those that were open when control was last seen, then.
    fn cut_to(&mut self, session: &mut Session<'a>, len: usize, unseen: Option<Unseen>) {
        self.thread.cut_by = Some(Cut { cause: CutCause::Unseen, cpu: self.thread.cpu(session) });
        while self.depth() > len {
            let was_open = unseen.filter(|unseen| self.depth() <= unseen.depth);
            self.thread.control.away = was_open.map(|unseen| unseen.since);
            self.close(session, Status::Cut, false);
        }
        self.thread.control.away = None;
    }
}

impl<'a> Frames<'a> for KernelFrames<'_, 'a> {
    fn control(&self) -> &Control {
        &self.thread.control
    }

    fn control_mut(&mut self) -> &mut Control {
        &mut self.thread.control
    }

    fn depth(&self) -> usize {
        self.thread.stack.len().saturating_sub(self.level.floor)
    }

    fn get(&self, i: usize) -> Option<&Frame> {
        self.thread.stack.get(self.level.floor.checked_add(i)?)
    }

    fn has_code_of(&self, i: usize, function: FunctionId) -> bool {
        self.thread.stack.has_code_of(self.level.floor + i, function)
    }

    fn time(&self) -> ThreadTime {
        self.thread.clock.time()
    }

    fn frame(&self, function: FunctionId, kind: FrameKind) -> Frame {
        Frame::new(function, kind, self.thread.control.space, self.time())
    }

    fn push(&mut self, session: &mut Session<'a>, mut frame: Frame, entry: bool) {
        if self.thread.stack.len() >= DEPTH_MAX {
            session.limits.capped_stacks += 1;
            self.thread.cut_all(session, CutCause::StackTooDeep);
            self.thread.kernel.forget_frames_below();
            (self.level.floor, frame.chain) = (0, 0);
        }
        let is_base = self.depth() == 0;
        self.thread.push(session, frame, entry);
        if is_base
            && let Some(base) = self.thread.stack.last_mut()
            && !base.role.is_active()
        {
            base.role = FrameRole::None; // no part of the code below the level
        }
    }

    fn close(&mut self, session: &mut Session<'a>, status: Status, by_jump: bool) {
        let depth = self.depth();
        if depth > 0 {
            self.thread.kernel.closes_base = depth == 1;
            self.thread.close(session, status, by_jump);
            self.thread.kernel.closes_base = false;
        }
    }

    fn run_code_of(&mut self, function: FunctionId, _: bool) {
        if self.depth() > 0 {
            self.thread.stack.run_code_of(function);
        }
    }

    /// The innermost: the kernel unwinds nothing by itself, and what does so for it (`exception table`) goes
    /// on in the function that was interrupted.
    fn land_in(&mut self, session: &mut Session<'a>, landings: Landings) {
        let Some(innermost) = landings.frames.first() else { return };
        if landings.otherwise == Otherwise::InAny || landings.frames.len() > 1 {
            session.limits.undecided_landings += 1;
            self.notice(session, Notice::Doubt { from: 0 });
        }
        self.close_to(session, innermost + 1, Status::Unwound);
    }

    /// What is open may have ended unseen: a later return tells.
    fn appears(&mut self, session: &mut Session<'a>, to: Target, _: bool) {
        self.resume(session, self.time(), to);
    }

    fn returned_to_unknown(&mut self, session: &mut Session<'a>, to: Target) {
        self.thread.entered.ghosts.returned(to.ip);
        self.found(session, to);
    }

    /// No kernel code executes a program in the place of itself.
    fn execute(&mut self, session: &mut Session<'a>, _: EventTime, to: Target) {
        self.found(session, to);
    }

    fn returns_to(&mut self, session: &mut Session<'a>, to: Avma, _: bool) {
        self.thread.name_hidden_caller(session, to);
    }

    /// Of what the thread's own frames take, doubts, capped chains and stays alone are about these, too.
    fn notice(&mut self, session: &mut Session<'a>, what: Notice<'_>) {
        match what {
            Notice::Doubt { from } => {
                let floor = self.level.floor;
                self.thread.stack.doubt(floor + from..self.thread.stack.len());
            }
            Notice::TailCall { is_capped: true } => session.limits.capped_tail_calls += 1,
            Notice::KernelStay(entry) => self.thread.add_kernel_child(session, entry),
            _ => (),
        }
    }
}
