//! The branches of some calls, out of the events of all threads.

use model::{
    Avma, BranchKind, EndKind, EventSink, FunctionLookup, ObjectId, Pid, SpaceId, Svma, Tid, TraceEvent,
    Transfer,
};
use rustc_hash::FxHashMap;

use super::{BranchPath, STEPS_MAX, Step, To};
use crate::call_row::CallRow;
use crate::place::Place;

/// Keeps the branches of calls; all branches must be decoded.
pub struct BranchRecorder<'a> {
    functions: &'a dyn FunctionLookup,
    calls: Vec<Recorded>,
    /// Indices of calls that were not entered yet, by thread.
    waiting: FxHashMap<Tid, Vec<usize>>,
    /// Those that were.
    open: FxHashMap<Tid, Vec<usize>>,
    /// Where a thread was interrupted.
    interrupted: FxHashMap<Tid, Avma>,
}

struct Recorded {
    row: CallRow,
    path: Option<BranchPath>,
    /// Calls and signal handlers inside of it that are open.
    depth: u64,
}

impl<'a> BranchRecorder<'a> {
    /// For calls, of which nothing was seen yet.
    #[must_use]
    pub fn new(rows: &[CallRow], functions: &'a dyn FunctionLookup) -> Self {
        let calls: Vec<Recorded> =
            rows.iter().map(|row| Recorded { row: *row, path: None, depth: 0 }).collect();
        let mut waiting: FxHashMap<Tid, Vec<usize>> = FxHashMap::default();
        for (at, row) in rows.iter().enumerate() {
            waiting.entry(row.tid).or_default().push(at);
        }
        Self { functions, calls, waiting, open: FxHashMap::default(), interrupted: FxHashMap::default() }
    }

    /// The branches of each call, in the order in which they were asked for; `None`: it was not found.
    #[must_use]
    pub fn finish(self) -> Vec<Option<BranchPath>> {
        self.calls.into_iter().map(|call| call.path).collect()
    }

    fn place(&self, space: SpaceId, ip: Avma) -> Place {
        let (object, svma) = self.functions.place(space, ip).unwrap_or((ObjectId(u32::MAX), Svma(ip.0)));
        Place { object, svma }
    }

    fn event(&mut self, tid: Tid, space: SpaceId, event: &TraceEvent) {
        let TraceEvent::Branch(branch) = event else { return };
        let step = self.step(tid, space, &branch.transfer);
        self.add(tid, event, &branch.transfer, step);
        let entered = match branch.transfer {
            Transfer::Branch { to, .. } | Transfer::Start { to, .. } if to.at_entry => to,
            _ => return,
        };
        let is_entered = |at: &usize| {
            self.calls.get(*at).is_some_and(|Recorded { row, .. }| {
                row.function == entered.function
                    && row.start_ns == branch.time.point
                    && row.aux_offset == Some(branch.at)
            })
        };
        // Of calls of a function inside of itself several may begin with one packet: this is the first.
        let Some(waiting) = self.waiting.get_mut(&tid) else { return };
        let Some(next) = waiting.iter().position(is_entered) else { return };
        let next = waiting.remove(next);
        let entry = self.place(space, entered.ip);
        if let Some(call) = self.calls.get_mut(next) {
            call.path = Some(BranchPath { entry, steps: Vec::new(), is_cut: false });
        }
        self.open.entry(tid).or_default().push(next);
    }

    /// What an event is to the calls that are open.
    fn step(&mut self, tid: Tid, space: SpaceId, transfer: &Transfer) -> Option<Step> {
        if self.open.get(&tid).is_none_or(Vec::is_empty) {
            self.interrupted.remove(&tid);
            return None;
        }
        let step = |from, to| Step { from, to, is_loop: false };
        match *transfer {
            Transfer::Branch { kind, from, to } => {
                let is_jump =
                    matches!(kind, BranchKind::Jump | BranchKind::ConditionalJump | BranchKind::IndirectJump);
                Some(Step {
                    from: self.place(space, from.ip),
                    to: To::Place(self.place(space, to.ip)),
                    is_loop: is_jump && from.function == to.function && to.ip <= from.ip,
                })
            }
            Transfer::End { kind: EndKind::Async(_), from, .. } => {
                self.interrupted.insert(tid, from.ip);
                None
            }
            Transfer::End { kind: EndKind::Syscall, from, .. } => {
                Some(step(self.place(space, from.ip), To::Kernel))
            }
            Transfer::End { from, .. } => Some(step(self.place(space, from.ip), To::Outside)),
            Transfer::Start { to, .. } => {
                let at = self.interrupted.remove(&tid).filter(|at| *at != to.ip)?;
                Some(step(self.place(space, at), To::Handler(self.place(space, to.ip))))
            }
        }
    }

    /// Adds a step to the calls of a thread that are open, and ends those that it leaves.
    fn add(&mut self, tid: Tid, event: &TraceEvent, transfer: &Transfer, step: Option<Step>) {
        let Some(open) = self.open.get_mut(&tid) else { return };
        let calls = &mut self.calls;
        open.retain(|at| {
            let Some(Recorded { row, path: Some(path), depth }) = calls.get_mut(*at) else { return false };
            let inside_ns = event.time().point.since(row.start_ns);
            if inside_ns > row.latency_ns {
                return false; // it was left in another way than by its return
            }
            if let Some(step) = step {
                path.is_cut |= path.steps.len() >= STEPS_MAX;
                if !path.is_cut {
                    path.steps.push(step);
                }
                *depth += u64::from(matches!(step.to, To::Handler(_)));
            }
            match transfer {
                Transfer::Branch { kind: BranchKind::Call | BranchKind::IndirectCall, .. } => *depth += 1,
                Transfer::Branch { kind: BranchKind::Return, .. } => match depth.checked_sub(1) {
                    Some(less) => *depth = less,
                    // The call's own return is at its end. An earlier one is that of a handler that the
                    // kernel entered instead of returning from a system call.
                    None => return inside_ns < row.latency_ns,
                },
                _ => (),
            }
            true
        });
    }
}

impl EventSink for BranchRecorder<'_> {
    fn events(&mut self, _: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        if !self.waiting.contains_key(&tid) {
            return;
        }
        for event in events.iter().filter(|event| !event.is_in_kernel()) {
            self.event(tid, space, event);
        }
    }
}
