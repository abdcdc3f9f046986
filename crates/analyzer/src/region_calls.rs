//! Calls of regions: code between two places, in the frame in which the first one was reached.
//!
//! ```text
//!   f enters   START        g      END      f returns
//!   |----------|--------- [g] -----|--------|            complete; g is its child
//!   |----------|--------- [g] --------------|            unwound: the frame was left first
//!   |----------|----START-----------END-----|            cut, then complete
//! ```
//! A region is no frame: it changes nothing of the function that it is in, and those of a frame may overlap.

use std::sync::Arc;

use model::{Avma, BranchKind, Target, Transfer};

use crate::control::Left;
use crate::frames::Frames;
use crate::open_region::OpenRegion;
use crate::regions::AtMark;
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::{Cut, CutCause, Status};
use crate::thread::{Ending, Thread};
use crate::thread_clock::ThreadTime;
use crate::tree::Node;
use crate::work::Work;

/// The frame that a region would have if it was a function, in the frame that it is in.
fn as_frame(open: &OpenRegion, frame: &Frame) -> Frame {
    let mut own = Frame {
        function: open.mark.region,
        begun: ThreadTime { time: open.activation.start, off_cpu_ns: open.off_cpu_ns },
        first: open.first,
        ..*frame
    };
    if let Some(begin) = open.begin {
        own.kind = FrameKind::Call;
        (own.site.function, own.site.ip) = (frame.function, begin.into());
    }
    own
}

impl<'a> Thread<'a> {
    /// The regions that begin or end at the instruction that this event leads to.
    #[inline(never)]
    pub(crate) fn marks_reached(&self, session: &Session<'a>, transfer: &Transfer) -> Option<Arc<[AtMark]>> {
        let (functions, space) = (session.around.functions, self.control.space);
        let to = match *transfer {
            Transfer::Branch { to, .. } => (to.ip, to.function),
            Transfer::Start { to, after_gap } if self.is_reached(session, to, after_gap) => {
                (to.ip, to.function)
            }
            // Out of the IP filter: what ends there ends with its frame.
            Transfer::End { to: Some(ip), .. } => (ip, functions.function_at(space, ip).id),
            Transfer::Start { .. } | Transfer::End { .. } => return None,
        };
        session.asked.regions.at(functions, space, to)
    }

    /// Tracing starts at an instruction that control comes to, and did not stop at before it was executed.
    fn is_reached(&self, session: &Session<'a>, to: Target, after_gap: bool) -> bool {
        let has_ip_filter = session.around.has_ip_filter;
        let is_known = match self.control.left {
            Some(Left::Kernel(entry)) if !entry.syscall && entry.from.ip == to.ip => return false,
            Some(_) => true,
            None => has_ip_filter && (!after_gap || to.at_entry),
        };
        let handler_returns = |mark: &Frame| mark.kind == FrameKind::Interrupted && mark.site.ip.is(to.ip);
        let interrupted = self.stack.iter().rev().find(|frame| frame.kind.is_mark());
        is_known && self.control.interrupted_at != Some(to.ip) && !interrupted.is_some_and(handler_returns)
    }

    /// Control has reached an instruction at which regions begin or end; the frames are up to date.
    #[inline(never)]
    pub(crate) fn pass_marks(&mut self, session: &mut Session<'a>, marks: &[AtMark], transfer: &Transfer) {
        let (Transfer::Branch { to, .. } | Transfer::Start { to, .. }) = *transfer else { return };
        if self.stack.is_empty() {
            self.found(session, to);
        }
        let Some(frame) = self.stack.owner(self.stack.len()) else { return };
        let begin = (!self.is_entered(frame, to, transfer)).then_some(to.ip);
        // A tail-called function stands in the place of its caller.
        let group = self.group_base(frame)..=frame;
        for mark in marks {
            let is_it = |open: &OpenRegion| group.contains(&open.frame) && open.mark.wanted == mark.wanted;
            let mut open = self.stack.regions.iter().rposition(is_it);
            if mark.ends
                && let Some(at) = open.take()
            {
                self.end_region(session, at, self.ends_now(Status::Complete));
            }
            if mark.starts {
                if let Some(at) = open {
                    self.cut_by = Some(Cut { cause: CutCause::BegunAnew, cpu: self.cpu(session) });
                    self.end_region(session, at, self.ends_now(Status::Cut));
                }
                self.begin_region(session, frame, *mark, begin);
            }
        }
    }

    /// The frame was entered by this event.
    fn is_entered(&self, frame: usize, to: Target, transfer: &Transfer) -> bool {
        let enters = match *transfer {
            Transfer::Branch { kind: BranchKind::Call | BranchKind::IndirectCall, .. } => true,
            Transfer::Branch { kind: BranchKind::RunsOn, .. } => false,
            Transfer::Branch { from, .. } => from.function != to.function,
            Transfer::Start { .. } => true,
            Transfer::End { .. } => false,
        };
        let is_new =
            |frame: &Frame| frame.function == to.function && frame.begun.time.point == self.clock.now.point;
        enters && to.at_entry && self.stack.get(frame).is_some_and(is_new)
    }

    fn ends_now(&self, status: Status) -> Ending {
        Ending { at: self.time(), status, by_jump: false }
    }

    fn begin_region(&mut self, session: &mut Session<'a>, frame: usize, mark: AtMark, begin: Option<Avma>) {
        let mut activation = session.pool.take();
        activation.role.wanted = Some(mark.wanted);
        let first = self.trees.len();
        self.enter_wanted(session, mark.wanted, false, &mut activation);
        let off_cpu_ns = self.clock.off_cpu.total_ns();
        let counters = self.counting.now();
        let is_at_end = false;
        let open = OpenRegion { frame, first, activation, mark, begin, is_at_end, off_cpu_ns, counters };
        self.stack.regions.push(open);
    }

    /// The frame on top ends, and so do its regions: one that ends where control goes then is complete.
    #[inline(never)]
    pub(crate) fn end_regions_of_top(&mut self, session: &mut Session<'a>, end: Ending) {
        while let Some(open) = self.stack.regions.last().filter(|open| open.frame + 1 == self.stack.len()) {
            let status = match end.status {
                Status::Complete | Status::Unwound if open.is_at_end => Status::Complete,
                Status::Complete => Status::Unwound,
                other => other,
            };
            self.end_region(session, self.stack.regions.len() - 1, Ending { status, ..end });
        }
    }

    /// Region `at` of those that are open ends.
    fn end_region(&mut self, session: &mut Session<'a>, at: usize, mut end: Ending) {
        let open = self.stack.regions.remove(at);
        let wanted = open.mark.wanted;
        if let Some(open) = self.entered.open.get_mut(wanted) {
            open.depth = open.depth.saturating_sub(1);
        }
        let Some(frame) = self.stack.get(open.frame).map(|frame| as_frame(&open, frame)) else { return };
        end.status = frame.status_at(end.status);
        let mut activation = open.activation;
        if let Some(code) = &mut session.code {
            activation.code.end_paused(&mut code.places);
        }
        let counted = self.counting.since(&open.counters, self.control.away.is_some());
        let row = self.row(session, (&frame, &activation), end, counted);
        let later = self.stack.regions.iter().skip(at).filter(|later| later.activation.has_tree).count();
        let root = activation.has_tree.then(|| self.root(session, &frame, end));
        let off_cpu_ns = (frame.begun.off_cpu_ns, end.at.off_cpu_ns);
        let around = open.frame + usize::from(open.begin.is_some());
        let tree =
            root.map(|(first, root)| (first, Node { work: counted.and_then(Work::of), ..root }, later));
        self.hand_over(session, wanted, (row, off_cpu_ns), tree, (&activation, around));
        if activation.has_tree {
            self.trees.close(later);
        }
        session.pool.give_back(activation);
    }
}
