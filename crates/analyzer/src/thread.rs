//! One thread: its stack, and how frames open and close.  The rules stand in files of their own:
//! [`crate::branches`] (calls, returns, jumps), [`crate::landing`], [`crate::kernel`] (system calls,
//! interrupts, signals) and [`crate::filter`].

use model::{
    AuxOffset, Avma, BranchEvent, Cpu, EventTime, FunctionId, FunctionKind, Gap, Ns, Site, SpaceId, Target,
    Tid, TraceEvent,
};
use rustc_hash::FxHashSet;

use crate::ghosts::Ghosts;
use crate::kernel::Left;
use crate::landing::Undecided;
use crate::off_cpu::OffCpuClock;
use crate::passed::OuterSites;
use crate::report::{Cut, CutCause, Status};
use crate::session::Session;
use crate::sparse::Sparse;
use crate::stack::{CHAIN_MAX, DEPTH_MAX, Frame, FrameKind, NOT_KNOWN, Stack, StartDoubt};
use crate::tree::{Gatherer, Trees};
use crate::window::ThreadWindow;

/// What is known of a thread up to its current event.
pub(crate) struct Thread<'a> {
    pub(crate) tid: Tid,
    pub(crate) stack: Stack,
    /// Time, AUX packet and address space of the current event; the time behind it, if it is a gap.
    pub(crate) now: EventTime,
    pub(crate) at: AuxOffset,
    pub(crate) space: SpaceId,
    pub(crate) off_cpu: OffCpuClock<'a>,
    /// How control left the traced code, while it is outside.
    pub(crate) left: Option<Left>,
    /// The frame on top has left the IP filter for a part of its own function: since when, off-CPU time then.
    pub(crate) away: Option<(EventTime, u64)>,
    /// A landing that the following events decide.
    pub(crate) undecided: Option<Box<Undecided>>,
    /// So many of the outermost frames may have been left: control has landed in a function of theirs, or in
    /// an older call of it that was not seen.
    pub(crate) unproved: usize,
    /// Some function was open more than once at a loss or a landing: so may any have been before what was
    /// seen.
    is_in_recursion: bool,
    /// Control has landed in one of several frames, and what followed told in which.
    pub(crate) has_chosen: bool,
    /// That was wrong, or may have been, or it has switched stacks: what is found running may have been
    /// entered in sight.
    pub(crate) is_lost: bool,
    /// The thread was seen from its first instruction: no frame is older than the recording.
    pub(crate) base_known: bool,
    /// It executed a new program: if nothing was seen before, it is as if it was born then.
    pub(crate) executed: Option<Ns>,
    /// The thread was interrupted at this address when a gap began.
    pub(crate) interrupted_at: Option<Avma>,
    /// Nothing was seen yet.
    pub(crate) is_new: bool,
    pub(crate) window: ThreadWindow,
    /// Deaths and rebirths that are still to come.
    pub(crate) dead: &'a [(Ns, Ns)],
    pub(crate) ghosts: Ghosts,
    /// Functions that the kernel has entered as handlers of signals.
    pub(crate) handlers: Vec<FunctionId>,
    pub(crate) outer_sites: OuterSites,
    /// By wanted function.
    pub(crate) open: Sparse<Open>,
    /// Indices of the ancestor's activations in those of `stack`.
    pub(crate) ancestors: Vec<usize>,
    /// What cuts the frames that end now.
    pub(crate) cut_by: Option<Cut>,
    pub(crate) trees: Gatherer,
}

/// What of a wanted function has been entered.
#[derive(Clone, Copy, Default)]
pub(crate) struct Open {
    /// Open activations.
    pub(crate) depth: u32,
    /// Number of entries so far.
    pub(crate) entered: u64,
    /// It was open more than once.
    pub(crate) is_recursive: bool,
}

/// How a frame ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) time: EventTime,
    pub(crate) off_cpu_ns: u64,
    pub(crate) status: Status,
    pub(crate) by_jump: bool,
}

impl<'a> Thread<'a> {
    pub(crate) fn new(tid: Tid, session: &Session<'a>) -> Self {
        let around = session.around;
        let life = around.schedule.thread(tid);
        Self {
            tid,
            stack: Stack::default(),
            now: EventTime::default(),
            at: AuxOffset(0),
            space: SpaceId(0),
            off_cpu: OffCpuClock::new(life.map_or(&[], |l| &l.off_cpu)),
            left: None,
            away: None,
            undecided: None,
            unproved: 0,
            is_in_recursion: false,
            has_chosen: false,
            is_lost: false,
            base_known: !around.is_part && life.is_some_and(|l| l.born.is_some()),
            executed: life.and_then(|l| l.executed).filter(|_| !around.is_part),
            interrupted_at: None,
            is_new: true,
            window: ThreadWindow::new(life, around.window, around.has_ip_filter),
            dead: life.map_or(&[], |l| &l.dead),
            ghosts: Ghosts::default(),
            handlers: Vec::new(),
            outer_sites: OuterSites::default(),
            open: Sparse::default(),
            ancestors: Vec::new(),
            cut_by: None,
            trees: Gatherer::new(session.trees.as_ref().map(|(_, wanted)| wanted)),
        }
    }

    /// The next events, all in one space.
    pub(crate) fn events(&mut self, session: &mut Session<'a>, space: SpaceId, mut events: &[TraceEvent]) {
        let has_ip_filter = session.around.has_ip_filter;
        while let [event, behind @ ..] = events {
            events = behind;
            match behind {
                [next, rest @ ..] if has_ip_filter && self.calls_outside(session, space, event, next) => {
                    events = rest;
                }
                _ => self.event(session, space, event),
            }
        }
    }

    #[inline]
    fn event(&mut self, session: &mut Session<'a>, space: SpaceId, event: &TraceEvent) {
        // Behind its death there is nothing of a thread, even where the estimate is before the next one's
        // birth.
        while let Some((&(died, reborn), later)) = self.dead.split_first()
            && (event.time().point >= reborn || event.time().lo > died)
        {
            self.dead = later;
            self.is_reborn(session, died, reborn);
        }
        if event.is_in_kernel() {
            return self.kernel_code(session, event);
        }
        if self.undecided.is_some() {
            self.look_ahead(session, space, event);
        } else {
            self.step(session, space, event);
        }
    }

    /// The next event that is acted upon.  What most of them do is no more than a call of this would cost.
    #[inline(always)]
    pub(crate) fn step(&mut self, session: &mut Session<'a>, space: SpaceId, event: &TraceEvent) {
        match event {
            TraceEvent::Branch(branch) => {
                self.reaches(space, branch);
                self.transfer(session, &branch.transfer);
            }
            TraceEvent::Gap(gap) => self.gap(session, gap),
        }
    }

    /// It is the time of this event.
    #[inline(always)]
    pub(crate) fn reaches(&mut self, space: SpaceId, branch: &BranchEvent) {
        (self.now, self.at, self.space) = (branch.time, branch.at, space);
        self.off_cpu.pass(branch.time);
    }

    /// Nothing that was open before a gap is known after it.
    #[inline(never)]
    fn gap(&mut self, session: &mut Session<'a>, gap: &Gap) {
        let lost_ns = self.window.gap(gap);
        self.now = gap.from;
        self.at = gap.at;
        session.loss.add(self.tid, self.cpu(session), gap, lost_ns);
        self.off_cpu.pass(gap.from); // a thread may come to a CPU whose trace is lost
        if !self.stack.is_empty() {
            self.cut_all(session, CutCause::Gap(gap.cause));
        }
        self.interrupted_at = match self.left.take() {
            Some(Left::Kernel(entry)) if !entry.syscall => Some(entry.from.ip),
            _ => self.interrupted_at,
        };
        self.off_cpu.pass(EventTime::exact(gap.to.lo));
        self.trees.forget_base();
        self.base_known = false;
        self.is_new = false;
        self.now = gap.to;
    }

    /// The stream has ended.  `end`: of the recording.
    pub(crate) fn finish(&mut self, session: &mut Session<'a>, end: Ns) {
        self.decide_rest(session);
        for &(died, reborn) in std::mem::take(&mut self.dead) {
            self.window.dead(died, reborn);
        }
        self.window.seen(self.now.point);
        let died = session.around.schedule.thread(self.tid).and_then(|life| life.died);
        let end = died.unwrap_or(end);
        if self.off_cpu.finish(self.now, end) {
            self.now = EventTime::exact(end.max(self.now.point));
        }
        self.close_to(session, 0, Status::OpenEnd);
        if let Some((sink, Trees::Threads)) = &mut session.trees {
            sink.thread(self.tid, self.trees.finish());
        }
    }

    /// The thread has died, and what comes now is another one with the same number.
    fn is_reborn(&mut self, session: &mut Session<'a>, died: Ns, reborn: Ns) {
        self.decide_rest(session);
        self.close_to(session, 0, Status::OpenEnd);
        self.window.dead(died, reborn);
        (self.left, self.away, self.interrupted_at) = (None, None, None);
        self.ghosts = Ghosts::default();
        (self.is_in_recursion, self.is_lost) = (false, false);
        self.base_known = true;
    }

    /// The CPU that it is on now.
    pub(crate) fn cpu(&self, session: &Session<'a>) -> Option<Cpu> {
        session.around.schedule.cpu_of(self.tid, self.now.point)
    }

    /// The time, and the thread's off-CPU time by now.
    pub(crate) fn clocks(&self) -> (EventTime, u64) {
        (self.now, self.off_cpu.total_ns())
    }

    /// The latest time that was seen.
    pub(crate) fn last_ns(&self) -> Ns {
        self.now.point
    }

    /// A frame that starts now.
    pub(crate) fn frame(&self, function: FunctionId, kind: FrameKind) -> Frame {
        Frame {
            function,
            caller: FunctionId::UNKNOWN,
            site: Avma(0),
            entry: Avma(0),
            ret: NOT_KNOWN,
            space: self.space,
            chain: 0,
            kind,
            hidden: false,
            code: FunctionKind::Symbol,
            is_active: false,
            gathers: false,
            undecided: self.is_lost && kind == FrameKind::Found,
            start: self.now.point,
            start_doubt: StartDoubt::of(self.now),
            off_cpu_ns: self.off_cpu.total_ns(),
            first: 0,
        }
    }

    /// Opens a frame; `entry`: control is at the function's first instruction (or the function is found
    /// running).
    #[inline(always)]
    pub(crate) fn push(&mut self, session: &mut Session<'a>, mut frame: Frame, entry: bool) {
        if self.stack.len() >= DEPTH_MAX {
            self.is_too_deep(session);
            frame.chain = 0;
        }
        frame.code = session.map.kind_of_entered(frame.function);
        frame.first = self.trees.enter(&frame, self.stack.is_empty());
        if entry && let Some(role) = session.roles.get(frame.function) {
            (frame.is_active, frame.gathers) = (true, role.wanted.is_some());
            self.activate(session, frame.function, frame.kind, role);
        } else if frame.is_part_of_caller() {
            frame.gathers = self.stack.last().is_some_and(|caller| caller.gathers);
        }
        self.stack.push(frame);
    }

    #[cold]
    fn is_too_deep(&mut self, session: &mut Session<'a>) {
        session.limits.capped_stacks += 1;
        self.cut_all(session, CutCause::StackTooDeep);
    }

    /// A function that is running now and whose entry was not seen.
    pub(crate) fn found(&mut self, session: &mut Session<'a>, to: Target) {
        let frame = self.frame(to.function, FrameKind::Found);
        self.push(session, frame, true);
    }

    /// The frame on top jumped to the entry of another function.
    pub(crate) fn tail_call(&mut self, session: &mut Session<'a>, from: Site, to: Target) {
        if self.stack.last().is_some_and(|top| top.chain >= CHAIN_MAX) {
            session.limits.capped_tail_calls += 1;
            self.close(session, Status::Complete, true);
        }
        let mut frame = self.frame(to.function, FrameKind::Tail);
        (frame.site, frame.caller) = (from.ip, from.function);
        if let Some(top) = self.stack.last() {
            (frame.ret, frame.chain) = (top.ret, top.chain + 1);
            frame.undecided = top.undecided; // it returns for a frame that may be gone
        }
        self.unproved += usize::from(self.unproved == self.stack.len() && self.unproved > 0);
        self.push(session, frame, true);
    }

    /// The frame on top was only in the way: its caller enters `to`.
    pub(crate) fn replace_top(&mut self, session: &mut Session<'a>, to: Target) {
        let Some(stub) = self.stack.last().copied() else { return };
        self.close(session, Status::Complete, false);
        let kind = if stub.kind == FrameKind::Inner { FrameKind::Call } else { stub.kind };
        let mut frame = self.frame(to.function, kind);
        (frame.site, frame.caller, frame.space) = (stub.site, stub.caller, stub.space);
        (frame.ret, frame.chain) = (stub.ret, stub.chain);
        self.push(session, frame, to.at_entry);
    }

    /// Index of the first frame of the group that frame `i` belongs to.
    #[inline]
    pub(crate) fn group_base(&self, i: usize) -> usize {
        let chain = self.stack.get(i).map_or(0, |frame| frame.chain as usize);
        i.saturating_sub(chain)
    }

    /// Control returned from the frame on top, and so from all that tail-called it.
    pub(crate) fn pop_group(&mut self, session: &mut Session<'a>, by_jump: bool) {
        while let Some(&Frame { chain, undecided, .. }) = self.stack.last() {
            let undecided = undecided || self.stack.len() <= self.unproved;
            self.close(session, Status::Complete, by_jump);
            if chain == 0 {
                // Below may be frames that were taken for left.
                self.is_lost |= undecided && self.stack.is_empty();
                break;
            }
        }
    }

    /// Control has landed in one of the outermost `open` frames, or as well in one that is older than what
    /// was seen.
    pub(crate) fn may_have_left_all(&mut self, open: usize) {
        if !self.base_known {
            self.look_for_recursion();
            for left in self.stack.iter_mut().take(self.unproved).skip(open) {
                left.undecided = true;
            }
            self.unproved = open;
        }
    }

    fn look_for_recursion(&mut self) {
        let mut functions = FxHashSet::default();
        self.is_in_recursion =
            self.is_in_recursion || !self.stack.iter().all(|frame| functions.insert(frame.function));
    }

    /// The frame on top returns where it must, or what it called does: it was not left, unless an older call
    /// of it was made from the same place, or made that call.
    #[inline]
    pub(crate) fn goes_on_as_it_must(&mut self) {
        let base = self.group_base(self.stack.len().saturating_sub(1));
        if base < self.unproved {
            self.is_proved(base);
        }
    }

    /// The group of the frame on `base` was not left.
    #[cold]
    fn is_proved(&mut self, base: usize) {
        self.unproved = base;
        for (frame, activation) in self.stack.active(base) {
            let open = activation.wanted.and_then(|wanted| self.open.get(wanted));
            let Some(open) = open else { continue };
            let is_recursive = open.is_recursive || self.is_in_recursion;
            frame.undecided |= is_recursive;
            if !is_recursive {
                self.unproved = 0;
            }
        }
    }

    /// Where frames are left for no return of theirs, and one may have ended before, so may the others.
    pub(crate) fn end_is_guess(&mut self) {
        if self.stack.iter().any(|frame| frame.undecided) {
            self.stack.iter_mut().for_each(|frame| frame.undecided = true);
        }
    }

    /// Ends all frames but the outermost `len`.
    #[inline]
    pub(crate) fn close_to(&mut self, session: &mut Session<'a>, len: usize, status: Status) {
        while self.stack.len() > len {
            self.close(session, status, false);
        }
    }

    /// Ends all frames; what is found running later may be one of them.
    pub(crate) fn cut_all(&mut self, session: &mut Session<'a>, cause: CutCause) {
        let wanted = self.stack.active(0).filter(|(_, activation)| activation.wanted.is_some());
        let calls = wanted.map(|(frame, _)| (frame.function, frame.ret));
        match cause {
            CutCause::StackSwitch => self.ghosts.add_elsewhere(calls),
            _ => self.ghosts.add(calls),
        }
        self.look_for_recursion();
        self.cut_by = Some(Cut { cause, cpu: self.cpu(session) });
        self.close_to(session, 0, Status::Cut);
    }

    /// A frame whose entry was not seen returned to `ret`, and nothing is known below.
    pub(crate) fn returned_to_unknown(&mut self, session: &mut Session<'a>, to: Target) {
        self.ghosts.returned(to.ip);
        let mut frame = self.frame(to.function, FrameKind::Found);
        frame.entry = if to.at_entry { to.ip } else { Avma(0) };
        let base = self.trees.base();
        self.push(session, frame, true);
        if let Some(caller) = self.stack.last_mut() {
            self.trees.enter_caller(base, caller);
        }
    }

    /// Ends the frame on top, now, or when it left the IP filter for good.
    #[inline(always)]
    pub(crate) fn close(&mut self, session: &mut Session<'a>, status: Status, by_jump: bool) {
        if self.is_plain_end() {
            self.add_as_child(session, self.now, self.off_cpu.total_ns());
            self.stack.pop();
        } else {
            self.close_with_care(session, status, by_jump);
        }
    }

    /// All that the end of the frame on top can matter to is the call that it is a child of: nearly always.
    #[inline]
    pub(crate) fn is_plain_end(&self) -> bool {
        let has_caller = self.stack.len() > self.unproved.max(1);
        let is_plain = self.away.is_none() && !self.trees.is_open();
        has_caller && is_plain && self.stack.last().is_some_and(|top| !top.is_active)
    }

    /// A frame stays where it is while it ends, and is looked at by who needs it.
    #[inline(never)]
    fn close_with_care(&mut self, session: &mut Session<'a>, status: Status, by_jump: bool) {
        let below = self.stack.len().saturating_sub(1);
        let Some(frame) = self.stack.last_mut() else { return };
        if below < self.unproved {
            self.unproved = below;
            frame.undecided = true;
        }
        let is_active = frame.is_active;
        let end = self.ending(status, by_jump);
        let has_tree = is_active && self.end_activation(session, end);
        self.add_as_child(session, end.time, end.off_cpu_ns);
        if self.trees.is_open() {
            self.gather(session, end);
        }
        self.stack.pop();
        self.away = None;
        if has_tree {
            self.trees.close();
        }
        if self.stack.is_empty() && status != Status::Complete {
            self.trees.forget_base();
        }
    }

    /// How the frame on top ends.
    #[inline]
    fn ending(&self, status: Status, by_jump: bool) -> Ending {
        match self.away {
            None => Ending { time: self.now, off_cpu_ns: self.off_cpu.total_ns(), status, by_jump },
            Some((time, off_cpu_ns)) => Ending { time, off_cpu_ns, status, by_jump: true },
        }
    }
}
