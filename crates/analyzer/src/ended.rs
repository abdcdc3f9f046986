//! What has ended in a call: a child of its caller, and a node of the trees that it is in.

use model::{Avma, EventTime, FunctionId};

use crate::report::{ChildKind, Status, Total};
use crate::session::Session;
use crate::stack::{Activation, Frame, FrameKind};
use crate::thread::{Ending, Thread};
use crate::tree::{Node, Part};

impl<'a> Thread<'a> {
    /// Adds a frame that has ended to what the frame below did.
    pub(crate) fn add_as_child(&mut self, session: &mut Session<'a>, frame: &Frame, end: Ending) {
        let is_gathered = self.trees.is_open();
        if !is_gathered && running(&mut self.stack).is_none() {
            return;
        }
        let part = self.part(session, frame, end);
        if let Part::Node(node) = &part
            && frame.kind != FrameKind::Found
            && let Some(activation) = running(&mut self.stack)
        {
            activation.children.add(node.key(), node.total);
        }
        if is_gathered {
            self.trees.leave(&mut self.stack, frame.first, part);
        }
    }

    /// What a frame that has ended was to the one below.
    fn part(&self, session: &mut Session<'a>, frame: &Frame, end: Ending) -> Part {
        let kind = match frame.kind {
            FrameKind::Signal | FrameKind::Inner => return Part::OfCaller,
            FrameKind::Found if self.trees.is_whole() => ChildKind::Call,
            FrameKind::Found => return Part::Own,
            FrameKind::Interrupted | FrameKind::InterruptedSyscall => ChildKind::Signal,
            _ if frame.is_part_of_caller() => return Part::OfCaller,
            FrameKind::Tail => ChildKind::Tail,
            FrameKind::Call | FrameKind::Filter => {
                let caller = self.stack.iter().rev().find(|below| !below.is_part_of_caller());
                let is_own = caller.is_some_and(|caller| caller.function == frame.function);
                if is_own { ChildKind::Recursion } else { ChildKind::Call }
            }
        };
        Part::Node(self.node(session, frame, kind, end))
    }

    fn node(&self, session: &mut Session<'a>, frame: &Frame, kind: ChildKind, end: Ending) -> Node {
        let site = if frame.kind.is_mark() { None } else { session.map.place(frame.space, frame.site) };
        let (start, off_cpu_ns) = self.trees.start_of(frame);
        Node {
            kind,
            status: if frame.kind == FrameKind::Found { Status::OpenStart } else { end.status },
            function: frame.function,
            site,
            start,
            total: Total {
                count: 1,
                sum_ns: end.time.point.since(start),
                off_cpu_ns: end.off_cpu_ns.saturating_sub(off_cpu_ns),
            },
            size: 1,
        }
    }

    /// Adds a stay in the kernel, which began at `since` and ends now, to what the frame on top did.
    pub(crate) fn add_kernel_stay(
        &mut self,
        session: &mut Session<'a>,
        kind: ChildKind,
        site: Avma,
        since: (EventTime, u64),
    ) {
        let is_gathered = self.trees.is_open();
        if !is_gathered && running(&mut self.stack).is_none() {
            return;
        }
        let node = Node {
            kind,
            status: Status::Complete,
            function: FunctionId::UNKNOWN,
            site: session.map.place(self.space, site),
            start: since.0.point,
            total: Total {
                count: 1,
                sum_ns: self.now.point.since(since.0.point),
                off_cpu_ns: self.off_cpu.total_ns().saturating_sub(since.1),
            },
            size: 1,
        };
        if let Some(activation) = running(&mut self.stack) {
            activation.children.add(node.key(), node.total);
        }
        if is_gathered {
            let first = self.trees.len();
            self.trees.leave(&mut self.stack, first, Part::Node(node));
        }
    }

    /// The node of a call whose tree is wanted, and where its subtree begins.
    pub(crate) fn root(&self, session: &mut Session<'a>, frame: &Frame, end: Ending) -> (usize, Node) {
        let kind = match frame.kind {
            FrameKind::Tail => ChildKind::Tail,
            FrameKind::Signal => ChildKind::Signal,
            _ => ChildKind::Call,
        };
        (frame.first, self.node(session, frame, kind, end))
    }
}

/// What the call on top gathers, if it is wanted.
pub(crate) fn running(stack: &mut [Frame]) -> Option<&mut Activation> {
    let is_it = |frame: &&mut Frame| frame.activation.is_some() || !frame.is_part_of_caller();
    let top = stack.iter_mut().rev().find(is_it)?;
    top.activation.as_deref_mut().filter(|a| a.wanted.is_some())
}
