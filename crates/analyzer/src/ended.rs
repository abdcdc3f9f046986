//! What has ended in a call: a child of its caller, and a node of the trees that it is in.

use model::FunctionId;

use crate::children::Child;
use crate::control::KernelEntry;
use crate::counted::Counted;
use crate::gatherer::{Gatherer, Part};
use crate::maybe_ip::MaybeIp;
use crate::place::ChildKind;
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::Status;
use crate::thread::{Ending, Thread};
use crate::thread_clock::ThreadTime;
use crate::total::RunningTotal;
use crate::tree::Node;
use crate::work::Work;

impl<'a> Thread<'a> {
    /// Adds the frame on top, which ends, to what the call did that it is a child of. `COUNTS`: with what it
    /// executed.
    #[inline(always)]
    pub(crate) fn add_as_child<const COUNTS: bool>(&mut self, session: &mut Session<'a>, end: ThreadTime) {
        if self.stack.gathers_top() || !self.stack.regions.is_empty() {
            self.add_child::<COUNTS>(session, end);
        }
    }

    #[inline(never)]
    fn add_child<const COUNTS: bool>(&mut self, session: &mut Session<'a>, end: ThreadTime) {
        if !self.kernel.closes_base
            && let Some((frame, below)) = self.stack.split_last()
            && let Some((mut child, total)) = child(&self.trees, frame, below, end)
        {
            if frame.kind.is_mark() && session.places_interrupts() {
                child.site = frame.site.ip;
            }
            let depth = below.len();
            let counted = if COUNTS { self.count_top() } else { None };
            self.stack.add_child(&mut session.pool.places, depth, (child, total), counted.as_ref());
        }
    }

    /// What ran in the frame on top, where counters were asked for, up to its end.
    pub(crate) fn count_top(&self) -> Option<Counted> {
        self.counting.of_top(self.control.away.is_some())
    }

    /// Adds a frame to the children of the one on top, as if it had been above that until now; `counted`:
    /// the counts of the frame, where counters were asked for.
    #[inline(always)]
    pub(crate) fn add_child_above(
        &mut self,
        session: &mut Session<'a>,
        frame: &Frame,
        counted: Option<&Counted>,
    ) {
        let end = self.clock.time();
        if self.stack.gathers_any()
            && let Some((child, total)) = child(&self.trees, frame, &self.stack, end)
        {
            self.stack.add_child(&mut session.pool.places, self.stack.len(), (child, total), counted);
        }
    }

    /// Adds it to the trees that are open.
    pub(crate) fn gather(&mut self, session: &mut Session<'a>, end: Ending) {
        let Some(frame) = self.stack.last().copied() else { return };
        let part = match part(&self.trees, &frame, self.stack.below_top()) {
            _ if self.kernel.closes_base => Part::Own,
            Part::Node(kind) => Part::Node(self.node(session, &frame, kind, end)),
            Part::OfCaller => Part::OfCaller,
            Part::Own => Part::Own,
        };
        if self.trees.leave(frame.first, part) {
            self.trees.merge(self.stack.firsts(self.stack.below_top().len()));
        }
    }

    fn node(&self, session: &mut Session<'a>, frame: &Frame, kind: ChildKind, end: Ending) -> Node {
        let site = if frame.kind.is_mark() {
            None
        } else {
            session.map.place(frame.site.space, frame.site.ip.get())
        };
        let is_bottom = self.stack.len() == 1;
        let frame = if is_bottom { self.trees.since_base(*frame) } else { *frame };
        let total = end.at.since(&frame.begun);
        Node {
            kind,
            status: frame.status_at(end.status),
            function: frame.function,
            site,
            start: frame.begun.time.point,
            total: total.known(session.sums.calls.off_cpu()),
            error_ns: total.error_ns,
            work: self.count_top().and_then(Work::of),
            size: 1,
        }
    }

    /// Adds a stay in the kernel, which ends now, to what the frame on top did.
    pub(crate) fn add_kernel_child(&mut self, session: &mut Session<'a>, entry: &KernelEntry) {
        let is_gathered = self.trees.is_open();
        if !is_gathered && !self.stack.gathers_any() {
            return;
        }
        let (function, space) = (FunctionId::UNKNOWN, self.control.space);
        let (kind, site) = if entry.syscall {
            (ChildKind::Syscall, entry.from.ip.into())
        } else {
            let site = session.places_interrupts().then_some(entry.from.ip);
            (ChildKind::Interrupt, site.map_or(MaybeIp::UNKNOWN, MaybeIp::from))
        };
        let total = self.clock.time().since(&entry.since);
        if self.stack.gathers_any() {
            let child = Child { kind, function, space, site };
            let counted = self.counting.is_on().then(|| self.counting.since_left());
            self.stack.add_child(
                &mut session.pool.places,
                self.stack.len(),
                (child, total),
                counted.as_ref(),
            );
        }
        if is_gathered {
            let site = session.map.place(space, site.get());
            let status = Status::Complete;
            let (start, error_ns) = (entry.since.time.point, total.error_ns);
            let total = total.known(session.sums.calls.off_cpu());
            let work = if self.counting.is_on() { Work::of(self.counting.since_left()) } else { None };
            let node = Node { kind, status, function, site, start, total, error_ns, work, size: 1 };
            let first = self.trees.len();
            if self.trees.leave(first, Part::Node(node)) {
                self.trees.merge(self.stack.firsts(self.stack.len()));
            }
        }
    }

    /// The node of a call with a wanted tree, and where its subtree begins.
    pub(crate) fn root(&self, session: &mut Session<'a>, frame: &Frame, end: Ending) -> (usize, Node) {
        let kind = match frame.kind {
            FrameKind::Tail => ChildKind::Tail,
            FrameKind::Signal => ChildKind::Signal,
            _ => ChildKind::Call,
        };
        (frame.first, self.node(session, frame, kind, end))
    }
}

/// What a frame that ends was to the call that it ran in, and what it took, if it was a child of that.
#[inline(always)]
fn child(trees: &Gatherer, frame: &Frame, below: &[Frame], end: ThreadTime) -> Option<(Child, RunningTotal)> {
    let Part::Node(kind) = part(trees, frame, below) else { return None };
    let total = end.since(&frame.begun);
    let site = if frame.kind.is_mark() { MaybeIp::UNKNOWN } else { frame.site.ip };
    let child = Child { kind, function: frame.function, space: frame.site.space, site };
    (frame.kind != FrameKind::Found).then_some((child, total))
}

/// What a frame that ends was to the one below.
#[inline(always)]
fn part(trees: &Gatherer, frame: &Frame, below: &[Frame]) -> Part<ChildKind> {
    Part::Node(match frame.kind {
        FrameKind::Signal | FrameKind::Inner => return Part::OfCaller,
        FrameKind::Found if trees.is_whole() => ChildKind::Call,
        FrameKind::Found | FrameKind::KernelEntry => return Part::Own,
        FrameKind::Interrupted | FrameKind::InterruptedSyscall => ChildKind::Signal,
        _ if frame.is_part_of_caller() => return Part::OfCaller,
        FrameKind::Tail => ChildKind::Tail,
        FrameKind::Call | FrameKind::Filter => {
            let caller = below.iter().rev().find(|below| !below.is_part_of_caller());
            ChildKind::of_call(frame.function, caller.map(|caller| caller.function))
        }
    })
}
