//! One thread: its events in order, and what becomes of its frames, which the rules ([`crate::frames`]) open
//! and close.

use model::{
    Avma, BranchEvent, Counters, Cpu, EventTime, FunctionId, Gap, Ns, SpaceId, StretchCounters, Target, Tid,
    TraceEvent, Transfer,
};

use crate::branches::Branches;
use crate::certainty::Certainty;
use crate::control::{Control, Left, StackBase};
use crate::counted::Counted;
use crate::counting::Counting;
use crate::entered::Entered;
use crate::frames::{Frames, Landings, Notice};
use crate::gatherer::Gatherer;
use crate::held::Held;
use crate::kernel_level::KernelPart;
use crate::maybe_ip::MaybeIp;
use crate::off_cpu::OffCpuClock;
use crate::request::Surroundings;
use crate::session::Session;
use crate::stack::{DEPTH_MAX, Frame, FrameKind, FrameRole, Stack};
use crate::status::{Cut, CutCause, Status};
use crate::thread_clock::{ThreadClock, ThreadTime};
use crate::transfers::Transfers;
use crate::undecided::Undecided;
use crate::window::ThreadWindow;

/// What is known of a thread up to its current event.
pub(crate) struct Thread<'a> {
    pub(crate) tid: Tid,
    pub(crate) stack: Stack,
    pub(crate) clock: ThreadClock<'a>,
    pub(crate) control: Control,
    /// A landing that the following events decide.
    pub(crate) undecided: Option<Box<Undecided>>,
    pub(crate) certainty: Certainty,
    pub(crate) window: ThreadWindow<'a>,
    pub(crate) entered: Entered,
    /// What cuts the frames that end now.
    pub(crate) cut_by: Option<Cut>,
    pub(crate) trees: Gatherer,
    pub(crate) counting: Counting,
    /// Where it is in kernel code, if functions of that are asked for.
    pub(crate) kernel: KernelPart,
}

/// How a frame ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) at: ThreadTime,
    pub(crate) status: Status,
    pub(crate) by_jump: bool,
}

impl<'a> Thread<'a> {
    pub(crate) fn new(tid: Tid, session: &Session<'a>) -> Self {
        let around = session.around;
        let life = around.schedule.thread(tid);
        let base = StackBase::seen(!around.is_part && life.is_some_and(|l| l.born.is_some()));
        let executed = life.and_then(|l| l.executed).filter(|_| !around.is_part);
        Self {
            tid,
            stack: Stack::default(),
            clock: ThreadClock::new(OffCpuClock::new(life.map_or(&[], |l| &l.off_cpu))),
            control: Control::new(base, executed),
            undecided: None,
            certainty: Certainty::default(),
            window: ThreadWindow::new(life, around.window, around.has_ip_filter),
            entered: Entered::default(),
            cut_by: None,
            trees: Gatherer::new(session.trees.as_ref().map(|(_, wanted)| wanted), session.min_node_ns()),
            counting: Counting::new(session.asked.counts()),
            kernel: KernelPart::default(),
        }
    }

    /// The thread's off-CPU time at the begin of its oldest open call that the request asks for.
    pub(crate) fn off_cpu_from_ns(&self) -> u64 {
        self.stack.off_cpu_from_ns().unwrap_or_else(|| self.clock.off_cpu.total_ns())
    }

    /// Goes on with a recording that has grown.
    pub(crate) fn grown<'b>(self, around: Surroundings<'b>) -> Thread<'b> {
        let Self {
            tid,
            stack,
            clock: ThreadClock { now, at, off_cpu },
            control,
            undecided,
            certainty,
            window,
            entered,
            cut_by,
            trees,
            counting,
            kernel,
        } = self;
        let life = around.schedule.thread(tid);
        let off_cpu = off_cpu.with_intervals(life.map_or(&[], |life| &life.off_cpu));
        Thread {
            clock: ThreadClock { now, at, off_cpu },
            window: window.grown(life, around.window.1),
            tid,
            stack,
            control,
            undecided,
            certainty,
            entered,
            cut_by,
            trees,
            counting,
            kernel,
        }
    }

    /// The next events, all in one space.
    pub(crate) fn events(&mut self, session: &mut Session<'a>, space: SpaceId, mut events: &[TraceEvent]) {
        if session.code.is_some() {
            return events.iter().for_each(|event| self.event::<true>(session, space, event, None));
        }
        let has_ip_filter = session.around.has_ip_filter;
        while let [event, after @ ..] = events {
            let passed = self.calls_children(session, space, events, |_, _| None);
            if passed > 0 {
                events = events.get(passed..).unwrap_or_default();
                continue;
            }
            events = after;
            match after {
                [next, rest @ ..] if has_ip_filter && self.calls_outside(session, space, event, next) => {
                    events = rest;
                }
                _ => self.event::<false>(session, space, event, None),
            }
        }
    }

    /// The next events, with the thread's counters at each.
    pub(crate) fn counted(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
        counters: &StretchCounters<'_>,
    ) {
        if session.code.is_some() {
            let counted = events.iter().zip(counters.iter());
            return counted.for_each(|(event, now)| self.event::<true>(session, space, event, Some(&now)));
        }
        // Children that were passed leave the thread's counters as they were: the next event sets them.
        let (mut next, mut is_behind) = (0, false);
        while let Some(left @ [event, ..]) = events.get(next..) {
            let counted = |begin: usize, end: usize| {
                let (executed, cycles) = counters.between(next + begin, next + end)?;
                Some(Counted::of(executed, cycles))
            };
            let passed = self.calls_children(session, space, left, counted);
            if passed > 0 {
                next += passed;
                is_behind = true;
                continue;
            }
            let needs_last = event.is_in_kernel() || !self.window.dead.is_empty();
            if std::mem::take(&mut is_behind) && needs_last {
                self.counting.come_to(counters.at(next.saturating_sub(1)));
            }
            self.event::<false>(session, space, event, counters.at(next).as_ref());
            next += 1;
        }
        if is_behind {
            self.counting.come_to(counters.at(next.saturating_sub(1)));
        }
    }

    /// The next event. `CODE`: the function's own code is asked for.
    #[inline(always)]
    fn event<const CODE: bool>(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        event: &TraceEvent,
        counters: Option<&Counters>,
    ) {
        self.pass_deaths_before(session, event.time());
        if event.is_in_kernel() {
            return self.kernel_code(session, space, event, counters);
        }
        if self.undecided.is_some() {
            self.look_ahead(session, Held::new(space, event, counters));
        } else {
            if let Some(counters) = counters {
                self.counting.reach(event, counters);
            }
            self.step::<CODE>(session, space, event);
        }
    }

    /// The next event that is acted upon.  What most of them do is no more than a call of this would cost.
    #[inline(always)]
    pub(crate) fn step<const CODE: bool>(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        event: &TraceEvent,
    ) {
        match event {
            TraceEvent::Branch(branch) => {
                let since = self.time();
                self.reaches(space, branch);
                if CODE {
                    self.ran(session, since, &branch.transfer);
                }
                if session.asked.regions.is_empty() {
                    self.transfer(session, &branch.transfer);
                } else {
                    self.transfer_past_marks(session, &branch.transfer);
                }
                if CODE {
                    self.came_to(session, space, &branch.transfer);
                }
            }
            TraceEvent::Gap(gap) => self.gap(session, gap),
        }
    }

    /// Acts on a change of control where regions may begin or end.
    #[inline(never)]
    fn transfer_past_marks(&mut self, session: &mut Session<'a>, transfer: &Transfer) {
        let Some(marks) = self.marks_reached(session, transfer) else {
            return self.transfer(session, transfer);
        };
        self.stack.reach_marks(&marks);
        self.transfer(session, transfer);
        self.stack.reach_marks(&[]);
        match &mut self.undecided {
            // In which frame is known later.
            Some(undecided) => undecided.marks = Some((marks, *transfer)),
            None => self.pass_marks(session, &marks, transfer),
        }
    }

    /// It is the time of this event.
    #[inline(always)]
    pub(crate) fn reaches(&mut self, space: SpaceId, branch: &BranchEvent) {
        self.clock.reach(branch);
        self.control.space = space;
    }

    /// Where no function of the kernel is asked for its code has no frames: a thread is away until it is back
    /// in user code. Its stay in the scheduler counts, where nothing else tells of switches.
    #[inline(never)]
    fn kernel_code(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        event: &TraceEvent,
        counters: Option<&Counters>,
    ) {
        if let (Some(scheduler), TraceEvent::Branch(branch)) = (session.around.scheduler, event) {
            match branch.transfer {
                Transfer::Start { to, .. } if to.ip == scheduler => {
                    self.clock.off_cpu.enter_scheduler(branch.time)
                }
                Transfer::End { .. } => self.clock.off_cpu.leave_scheduler(branch.time),
                _ => (),
            }
        }
        if !session.asked.follows_kernel {
            return;
        }
        if self.undecided.is_some() {
            self.look_ahead(session, Held::new(space, event, counters));
        } else {
            self.kernel_event(session, space, event, counters);
        }
    }

    /// Nothing that was open before a gap is known after it, unless all of that is missing code which was
    /// called.
    #[inline(never)]
    pub(crate) fn gap(&mut self, session: &mut Session<'a>, gap: &Gap) {
        let lost_ns = self.window.gap(gap);
        self.clock.now = gap.from;
        self.clock.at = gap.at;
        session.lose(self.tid, self.cpu(session), gap, lost_ns);
        let passes = session.passes_gap(&self.control, gap);
        if self.kernel.is_entered() {
            self.clock.off_cpu.pass_in_kernel(gap.from);
            match passes {
                true => self.lose_kernel(session, gap.cause),
                false => {
                    self.control.away = None;
                    self.kernel.forget();
                }
            }
        }
        self.clock.off_cpu.pass(gap.from); // a thread may come to a CPU without a trace
        if passes {
            self.clock.off_cpu.pass(EventTime::exact(gap.to.lo));
            self.clock.now = gap.to;
            if std::mem::take(&mut self.control.is_new) {
                self.control.base = StackBase::Seen;
            }
            self.control.left = Some(Left::OutOfSight);
            return;
        }
        if !self.stack.is_empty() {
            self.cut_all(session, CutCause::Gap(gap.cause));
        }
        if let Some(Left::Kernel(entry)) = self.control.left.take()
            && !entry.syscall
        {
            self.control.interrupted_at = Some(entry.from.ip);
        }
        self.clock.off_cpu.leave_kernel();
        self.clock.off_cpu.pass(EventTime::exact(gap.to.lo));
        self.trees.forget_base();
        self.control.going = None;
        (self.control.base, self.control.is_new) = (StackBase::Unknown, false);
        self.clock.now = gap.to;
    }

    /// The CPU that it is on now.
    pub(crate) fn cpu(&self, session: &Session<'a>) -> Option<Cpu> {
        session.around.schedule.cpu_of(self.tid, self.clock.now.point)
    }

    /// The latest time that was seen.
    pub(crate) fn last_ns(&self) -> Ns {
        self.clock.now.point
    }

    /// Before a frame is opened: makes room if the stack is too deep, and notes the counters.
    #[cold]
    fn open_with_care(&mut self, session: &mut Session<'a>, frame: &mut Frame) {
        if self.stack.len() >= DEPTH_MAX {
            session.limits.capped_stacks += 1;
            self.cut_all(session, CutCause::StackTooDeep);
            frame.chain = 0;
        }
        if self.counting.is_on() {
            self.counting.open_frame(frame.begun.time.point != self.clock.now.point);
        }
    }

    /// Ends all frames; code that is found running later may be one of them.
    pub(crate) fn cut_all(&mut self, session: &mut Session<'a>, cause: CutCause) {
        let wanted = self.stack.active(0).filter(|(_, activation)| activation.role.wanted.is_some());
        let calls = wanted.map(|(frame, _)| (frame.function, frame.ret));
        match cause {
            CutCause::StackSwitch => self.entered.ghosts.add_elsewhere(calls),
            _ => self.entered.ghosts.add(calls),
        }
        self.certainty.look_for_recursion(&self.stack);
        self.cut_by = Some(Cut { cause, cpu: self.cpu(session) });
        self.close_to(session, 0, Status::Cut);
    }

    /// Doubts the frames after the outermost `open` ones: control is in one of these, or in a frame that is
    /// older than the recording.
    pub(crate) fn doubt_all_but(&mut self, open: usize) {
        if !self.control.base.is_known() {
            self.certainty.land(&mut self.stack, open);
        }
    }

    /// Proves that the frame on top is open: what it called has returned to it, or it returns where it must.
    #[inline]
    fn prove_top(&mut self) {
        if let Some(base) = self.top_base()
            && !self.certainty.is_of(base)
        {
            self.certainty.prove(&mut self.stack, &self.entered.open, base);
        }
    }

    /// The call of missing code that the frame on top made has returned: no call was made in the place of the
    /// innermost one that matters, for that would be open.
    fn forget_calls_made_instead(&mut self, session: &Session<'a>) {
        if !session.around.has_ip_filter
            && let Some(innermost) = self.stack.activations.last_mut()
        {
            innermost.passed.clear();
        }
    }

    /// The end of the frame on top changes nothing but the children of the call below, which needs no
    /// counters: the usual case.
    #[inline]
    fn is_plain_end(&self) -> bool {
        !self.counting.is_on() && self.is_end_of_child()
    }

    /// The end of the frame on top changes nothing but the children of the call below.
    #[inline]
    fn is_end_of_child(&self) -> bool {
        let Some(top @ 1..) = self.stack.len().checked_sub(1) else { return false };
        let is_plain = self.control.away.is_none() && !self.trees.is_open();
        self.certainty.is_of(top)
            && is_plain
            && self.stack.last().is_some_and(|top| !top.role.is_active())
            && !self.stack.has_regions_on_top()
    }

    /// Closes the frame on top; it stays in place while it ends, where others look at it.
    #[inline(never)]
    fn close_with_care(&mut self, session: &mut Session<'a>, status: Status, by_jump: bool) {
        let below = self.stack.len().saturating_sub(1);
        let Some(frame) = self.stack.last_mut() else { return };
        frame.undecided |= self.certainty.end(below);
        let is_active = frame.role.is_active();
        let end = self.ending(status, by_jump);
        if self.stack.has_regions_on_top() {
            self.end_regions_of_top(session, end);
        }
        let has_tree = is_active && self.end_activation(session, end);
        if self.counting.is_on() {
            self.add_as_child::<true>(session, end.at);
        } else {
            self.add_as_child::<false>(session, end.at);
        }
        if self.trees.is_open() {
            self.gather(session, end);
        }
        self.stack.pop();
        self.counting.close_frame();
        self.control.away = None;
        if has_tree {
            self.trees.close(0);
        }
        if self.stack.is_empty() && status != Status::Complete {
            self.trees.forget_base();
        }
    }

    /// Ends the frame on top, which matters to the call that it is a child of alone, with its counters.
    #[inline(never)]
    fn close_counted(&mut self, session: &mut Session<'a>) {
        self.add_as_child::<true>(session, self.time());
        self.stack.pop();
        self.counting.close_frame();
    }

    /// How the frame on top ends.
    #[inline]
    fn ending(&self, status: Status, by_jump: bool) -> Ending {
        match self.control.away {
            None => Ending { at: self.time(), status, by_jump },
            Some(at) => Ending { at, status, by_jump: true },
        }
    }
}

impl<'a> Frames<'a> for Thread<'a> {
    #[inline(always)]
    fn control(&self) -> &Control {
        &self.control
    }

    #[inline(always)]
    fn control_mut(&mut self) -> &mut Control {
        &mut self.control
    }

    #[inline(always)]
    fn depth(&self) -> usize {
        self.stack.len()
    }

    #[inline(always)]
    fn get(&self, i: usize) -> Option<&Frame> {
        self.stack.get(i)
    }

    fn has_code_of(&self, i: usize, function: FunctionId) -> bool {
        self.stack.has_code_of(i, function)
    }

    #[inline(always)]
    fn time(&self) -> ThreadTime {
        self.clock.time()
    }

    #[inline(always)]
    fn frame(&self, function: FunctionId, kind: FrameKind) -> Frame {
        let undecided = self.certainty.is_lost() && kind == FrameKind::Found;
        Frame { undecided, ..Frame::new(function, kind, self.control.space, self.time()) }
    }

    /// Opens a frame; `entry`: control is at the function's first instruction (or the function is found
    /// running).
    #[inline(always)]
    fn push(&mut self, session: &mut Session<'a>, mut frame: Frame, entry: bool) {
        if self.counting.is_on() || self.stack.len() >= DEPTH_MAX {
            self.open_with_care(session, &mut frame);
        }
        frame.code = session.map.kind_of_entered(frame.function);
        frame.first = self.trees.enter(&frame, self.stack.is_empty());
        if entry && let Some(role) = session.asked.roles.get(frame.function) {
            frame.role = FrameRole::of_entered(role);
            self.activate(session, frame.function, frame.kind, role);
        } else if frame.is_part_of_caller() {
            frame.role = FrameRole::part_of(self.stack.last());
        }
        self.stack.push(frame);
    }

    /// Ends the frame on top, now, or when it left the IP filter for good.
    #[inline(always)]
    fn close(&mut self, session: &mut Session<'a>, status: Status, by_jump: bool) {
        if self.is_plain_end() {
            self.add_as_child::<false>(session, self.time());
            self.stack.pop();
        } else if self.counting.is_on() && self.is_end_of_child() {
            self.close_counted(session);
        } else {
            self.close_with_care(session, status, by_jump);
        }
    }

    fn run_code_of(&mut self, function: FunctionId, may_return: bool) {
        self.stack.run_code_of(function);
        if may_return {
            self.doubt_all_but(self.stack.len());
        }
    }

    fn land_in(&mut self, session: &mut Session<'a>, landings: Landings) {
        self.decide_or_wait(session, landings);
    }

    /// In a thread that was seen from its first instruction that is another stack. Otherwise it may as well
    /// be a frame that is older than the recording, unless the program is known to switch stacks.
    fn appears(&mut self, session: &mut Session<'a>, to: Target, may_go_on: bool) {
        if may_go_on {
            self.certainty.contradict(); // it may be a call that a choice has taken for left
            self.doubt_all_but(self.stack.len());
            return self.found(session, to);
        }
        self.notice(session, Notice::ContradictsChoice);
        if self.may_switch_stacks(session) {
            session.limits.stack_switches += 1;
            self.cut_all(session, CutCause::StackSwitch);
        } else {
            self.close_to(session, 0, Status::Unwound);
        }
        self.found(session, to);
    }

    /// A frame with an unseen entry returned to `ret`, and nothing is known below.
    fn returned_to_unknown(&mut self, session: &mut Session<'a>, to: Target) {
        self.control.base.returned();
        self.entered.ghosts.returned(to.ip);
        let mut frame = self.frame(to.function, FrameKind::Found);
        frame.entry = if to.at_entry { to.ip.into() } else { MaybeIp::UNKNOWN };
        let base = self.trees.base();
        self.push(session, frame, true);
        if let Some(caller) = self.stack.last_mut() {
            self.trees.enter_caller(base, caller);
        }
    }

    fn execute(&mut self, session: &mut Session<'a>, since: EventTime, to: Target) {
        let now = std::mem::replace(&mut self.clock.now, since);
        self.close_to(session, 0, Status::OpenEnd);
        self.clock.now = now;
        self.control.base = StackBase::seen(to.at_entry);
        self.found(session, to);
    }

    #[inline(always)]
    fn returns_to(&mut self, session: &mut Session<'a>, to: Avma, in_sight: bool) {
        if self.stack.last().is_some_and(|top| top.ret.is(to)) {
            self.prove_top();
        }
        self.name_hidden_caller(session, to);
        if !in_sight {
            self.passes();
        }
    }

    #[inline(always)]
    fn is_certain(&self, i: usize) -> bool {
        self.certainty.is_of(i)
    }

    #[inline(always)]
    fn notice(&mut self, session: &mut Session<'a>, what: Notice<'_>) {
        match what {
            Notice::Doubt { from } => self.stack.doubt(from..self.stack.len()),
            Notice::IsProved => {
                self.prove_top();
                self.forget_calls_made_instead(session);
            }
            Notice::ReturnedInDoubt if self.stack.is_empty() => self.certainty.lose(),
            // If one may have ended before, so may the others.
            Notice::EndsAreGuess if self.stack.iter().any(|frame| frame.undecided) => {
                self.stack.doubt(0..self.stack.len());
            }
            Notice::ReturnedInDoubt | Notice::EndsAreGuess => (),
            Notice::ContradictsChoice => {
                if self.certainty.contradict() {
                    self.guess(session, 0);
                }
            }
            Notice::TailCall { is_capped } => {
                if is_capped {
                    session.limits.capped_tail_calls += 1;
                }
                self.certainty.tail_call(self.stack.len());
            }
            Notice::KernelStay(entry) => self.add_kernel_child(session, entry),
            Notice::ComesIn { starts } => {
                if session.asked.follows_kernel {
                    self.leave_kernel(session);
                }
                if starts {
                    self.clock.off_cpu.start(self.clock.now);
                }
                self.window.enter_filter(self.clock.now.point);
            }
            Notice::GoesOut => self.window.leave_filter(self.clock.now.point),
        }
    }
}
