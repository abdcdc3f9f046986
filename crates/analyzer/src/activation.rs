//! Calls that matter to the request begin and end: what becomes of them.

use model::{AuxOwner, FunctionId};

use crate::call_row::{CallId, CallRow, Evidence, TracedRow};
use crate::counted::Counted;
use crate::place::{CalledFrom, Caller};
use crate::request::{LatencyRange, Role};
use crate::running::{Activation, EndedCall, WaitingCall};
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::{CallEnd, Status};
use crate::thread::{Ending, Thread};
use crate::tree::Node;

impl<'a> Thread<'a> {
    /// A call that matters is entered now; its frame is not on the stack yet.
    pub(crate) fn activate(
        &mut self,
        session: &mut Session<'a>,
        function: FunctionId,
        kind: FrameKind,
        role: Role,
    ) {
        if role.ancestor {
            self.entered.ancestors.push(self.stack.activations.len());
        }
        let mut activation = Activation { role, ..session.pool.take() };
        (activation.reported, activation.has_tree) = (false, false);
        if let Some(wanted) = role.wanted {
            let is_reported = kind == FrameKind::Found && self.entered.ghosts.found(function);
            self.enter_wanted(session, wanted, is_reported, &mut activation);
        }
        self.stack.activations.push(activation);
    }

    /// A call of a wanted function, or of a region, begins now; `reported`: it was reported before.
    pub(crate) fn enter_wanted(
        &mut self,
        session: &Session<'a>,
        wanted: u32,
        reported: bool,
        activation: &mut Activation,
    ) {
        if let Some(open) = self.entered.open.meet(wanted) {
            (activation.at, activation.start, activation.reported) =
                (self.clock.at, self.clock.now, reported);
            activation.depth = open.depth;
            activation.number = open.entered;
            open.is_recursive |= open.depth > 0;
            open.depth += 1;
            open.entered += u64::from(!activation.reported);
            activation.cpu = self.cpu(session);
            activation.has_tree = session.wants_tree(activation.depth, self.clock.at, activation.reported);
            if activation.has_tree {
                self.trees.open();
            }
        }
    }

    /// The frame on top, of a call that matters, ends.  True if its tree is wanted.
    pub(crate) fn end_activation(&mut self, session: &mut Session<'a>, mut end: Ending) -> bool {
        let Some(mut activation) = self.stack.activations.pop() else { return false };
        let Some(frame) = self.stack.last().copied() else { return false };
        end.status = frame.status_at(end.status);
        if activation.role.ancestor {
            self.entered.ancestors.pop();
            self.end_ancestor(session, &mut activation, &frame, end);
        }
        if let Some(wanted) = activation.role.wanted {
            if let Some(code) = &mut session.code {
                activation.code.end_paused(&mut code.places);
            }
            if let Some(open) = self.entered.open.get_mut(wanted) {
                open.depth = open.depth.saturating_sub(1);
            }
            let row = self.row(session, (&frame, &activation), end, self.count_top());
            let root = activation.has_tree.then(|| self.root(session, &frame, end));
            let off_cpu_ns = (frame.begun.off_cpu_ns, end.at.off_cpu_ns);
            let tree = root.map(|(first, root)| (first, root, 0));
            let around = self.stack.below_top().len();
            self.hand_over(session, wanted, (row, off_cpu_ns), tree, (&activation, around));
        }
        if let Some(below) = self.stack.activations.last_mut() {
            below.passed.add_all(&activation.passed);
        }
        let has_tree = activation.has_tree;
        session.pool.give_back(activation);
        has_tree
    }

    /// A call has ended: adds it to the figures, or to the ancestor, where that one's latency decides.
    ///
    /// `root`: its tree, if that is wanted, by where it begins, its root, and the number of trees that were
    /// opened later and are open. `around`: the number of frames that the call is in.
    pub(crate) fn hand_over(
        &mut self,
        session: &mut Session<'a>,
        wanted: u32,
        (row, off_cpu_ns): (CallRow, (u64, u64)),
        root: Option<(usize, Node, usize)>,
        (activation, around): (&Activation, usize),
    ) {
        let around = if session.wants_callers() { around } else { 0 };
        let around = self.stack.get(..around).unwrap_or_default();
        let callers = around.iter().rev().filter(|frame| !frame.is_part_of_caller());
        let callers =
            callers.map(|frame| if frame.kind.is_mark() { FunctionId::UNKNOWN } else { frame.function });
        let tree = root.map(|(first, root, later)| self.trees.tree(first, root, later, callers));
        let (children, code) = (activation.children.all(), activation.code.spans.all());
        let ancestor =
            session.asked.request.ancestor.map(|ancestor| (ancestor.latency, self.entered.ancestors.last()));
        let counted = activation.children.counted();
        let ended = EndedCall { row: &row, children, counted, code, off_cpu_ns };
        match ancestor {
            None if activation.reported => session.resumed(wanted, &ended, tree),
            _ if activation.reported => (), // whether the ancestor was below the whole call is not known
            None | Some((LatencyRange::ALL, Some(_))) => session.call(wanted, &ended, tree),
            Some((_, Some(&below))) => {
                if let Some(below) = self.stack.activations.get_mut(below) {
                    let (children, counted, code) = (children.to_vec(), counted.to_vec(), code.to_vec());
                    let tree = tree.cloned();
                    below.waiting.push(WaitingCall {
                        wanted,
                        row,
                        off_cpu_ns,
                        children,
                        counted,
                        code,
                        tree,
                    });
                }
            }
            Some((_, None)) => (),
        }
    }

    /// The calls that waited for this ancestor's latency enter the figures, or wait for the next one below.
    fn end_ancestor(
        &mut self,
        session: &mut Session<'a>,
        activation: &mut Activation,
        frame: &Frame,
        end: Ending,
    ) {
        let Some(ancestor) = session.asked.request.ancestor else { return };
        let latency_ns = end.at.time.point.since(frame.begun.time.point);
        let fits = if end.status.counted() {
            ancestor.latency.contains(latency_ns)
        } else {
            ancestor.latency.contains_from(latency_ns)
        };
        if fits {
            for call in activation.waiting.drain(..) {
                session.call(call.wanted, &call.ended(), call.tree.as_ref());
            }
        } else if let Some(below) =
            self.entered.ancestors.last().and_then(|&i| self.stack.activations.get_mut(i))
        {
            below.waiting.append(&mut activation.waiting);
        }
    }

    /// The row of a call that ends; `counted`: what it executed, where counters were asked for.
    pub(crate) fn row(
        &self,
        session: &mut Session<'a>,
        (frame, activation): (&Frame, &Activation),
        end: Ending,
        counted: Option<Counted>,
    ) -> CallRow {
        let (start, time) = (activation.start, end.at.time);
        // Out of sight a handler may have called it: where it returns to tells.
        let may_be_called = session.around.has_ip_filter && (end.by_jump || end.status != Status::Complete);
        let caller = match frame.kind {
            FrameKind::Signal if !may_be_called => Caller::Signal,
            FrameKind::KernelEntry if !frame.site.ip.is_known() => Caller::Interrupt,
            FrameKind::Call | FrameKind::Tail | FrameKind::Filter | FrameKind::KernelEntry
                if frame.site.ip.is_known() =>
            {
                Caller::Function { function: frame.site.function, tail: frame.kind == FrameKind::Tail }
            }
            _ => Caller::Unknown,
        };
        let owner = activation.cpu.map(AuxOwner::Cpu);
        CallRow {
            id: CallId { tid: self.tid, number: activation.number },
            pid: session.process_of(self.tid),
            cpu: activation.cpu,
            start_ns: start.point,
            latency_ns: time.point.since(start.point),
            error_ns: time.row_error_since_ns(&start),
            off_cpu_ns: session
                .sums
                .calls
                .off_cpu()
                .ns(end.at.off_cpu_ns.saturating_sub(frame.begun.off_cpu_ns)),
            end: CallEnd {
                status: end.status,
                cut_by: self.cut_by.filter(|_| end.status == Status::Cut),
                by_jump: end.by_jump && end.status.counted(),
                undecided: frame.undecided || self.may_have_ended_before(frame, activation),
            },
            from: CalledFrom { caller, site: session.map.place(frame.site.space, frame.site.ip.get()) },
            function: frame.function,
            depth: activation.depth,
            evidence: Evidence::Traced(TracedRow {
                aux_buffer: session.buffer(AuxOwner::Thread(self.tid)).or_else(|| session.buffer(owner?)),
                aux_offset: activation.at,
                hidden: frame.hidden,
                counted: counted.filter(|_| end.status.counted()),
            }),
        }
    }

    /// Its callers have made calls that came and went above it: it may have been left out of sight before.
    fn may_have_ended_before(&self, frame: &Frame, activation: &Activation) -> bool {
        let may_be_own =
            |site| activation.role.wanted.is_some_and(|wanted| self.entered.outer_sites.has(wanted, site));
        activation.passed.has(|site| site == frame.site.ip || !frame.site.ip.is_known() && may_be_own(site))
    }
}
