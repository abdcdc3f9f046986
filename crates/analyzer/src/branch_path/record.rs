//! The branches of some calls, out of the events of all threads.

use std::collections::VecDeque;

use model::{
    AuxOffset, Avma, BranchEvent, BranchKind, EndKind, EventSink, FunctionId, FunctionLookup, Ns, ObjectId,
    Pid, SpaceId, Svma, Tid, TraceEvent, Transfer,
};
use rustc_hash::FxHashMap;

use super::{BranchStep, To};
use crate::call_row::CallRow;
use crate::place::Place;

/// What is kept of a call's branches.
pub trait Kept {
    /// The call was entered there.
    fn entered(entry: Place) -> Self;

    /// It took a branch; `depth` calls and signal handlers are open in it.
    fn took(&mut self, step: BranchStep, depth: u64);
}

/// Keeps the branches of calls; all branches must be decoded.
pub struct BranchRecorder<'a, K> {
    functions: &'a dyn FunctionLookup,
    calls: Vec<Recorded<K>>,
    /// Calls that were not entered yet: of those that begin with one packet, the outermost first.
    waiting: FxHashMap<Entry, VecDeque<usize>>,
    /// Calls that were, by thread; a thread without calls that are asked for has none.
    open: FxHashMap<Tid, Vec<usize>>,
    /// Where a thread was interrupted.
    interrupted: FxHashMap<Tid, Avma>,
    /// Those that calls are of, which begin and end in the middle of functions.
    regions: Vec<FunctionId>,
}

/// What a call is known by when it is entered.
type Entry = (Tid, FunctionId, Ns, AuxOffset);

struct Recorded<K> {
    row: CallRow,
    kept: Option<K>,
    /// Calls and signal handlers inside of it that are open.
    depth: u64,
}

impl<'a, K: Kept> BranchRecorder<'a, K> {
    /// For calls, before any event was seen.
    #[must_use]
    pub fn new(rows: &[CallRow], functions: &'a dyn FunctionLookup) -> Self {
        let calls = rows.iter().map(|row| Recorded { row: *row, kept: None, depth: 0 }).collect();
        let mut waiting: FxHashMap<Entry, VecDeque<usize>> = FxHashMap::default();
        for (at, row) in rows.iter().enumerate() {
            if let Some(aux_offset) = row.aux_offset() {
                let entry = (row.id.tid, row.function, row.start_ns, aux_offset);
                waiting.entry(entry).or_default().push_back(at);
            }
        }
        let open = rows.iter().map(|row| (row.id.tid, Vec::new())).collect();
        let mut regions: Vec<FunctionId> = rows.iter().map(|row| row.function).collect();
        regions.sort_unstable();
        regions.dedup();
        regions.retain(|id| functions.region(*id).is_some());
        Self { functions, calls, waiting, open, interrupted: FxHashMap::default(), regions }
    }

    /// What was kept of each call, in the order in which they were asked for; `None`: it was not found.
    #[must_use]
    pub fn finish(self) -> Vec<Option<K>> {
        self.calls.into_iter().map(|call| call.kept).collect()
    }

    fn place(&self, space: SpaceId, ip: Avma) -> Place {
        let (object, svma) = self.functions.place(space, ip).unwrap_or((ObjectId(u32::MAX), Svma(ip.0)));
        Place { object, svma }
    }

    fn event(&mut self, tid: Tid, space: SpaceId, event: &TraceEvent) {
        let TraceEvent::Branch(branch) = event else { return };
        let step = self.step(tid, space, &branch.transfer);
        self.add(tid, event, &branch.transfer, step);
        let (Transfer::Branch { to, .. } | Transfer::Start { to, .. }) = branch.transfer else { return };
        if to.at_entry {
            self.enter(tid, space, branch, (to.function, to.ip));
        }
        for number in 0..self.regions.len() {
            let Some(&region) = self.regions.get(number) else { return };
            let (functions, place) = (self.functions, self.functions.place(space, to.ip));
            let Some((region_of, place)) = functions.region(region).zip(place) else { continue };
            if region_of.ends.contains(&place) {
                self.end_region(tid, region, branch.time.point);
            }
            if region_of.starts.contains(&place) {
                self.enter(tid, space, branch, (region, to.ip));
            }
        }
    }

    /// A function, or a region, begins.
    fn enter(&mut self, tid: Tid, space: SpaceId, branch: &BranchEvent, (of, ip): (FunctionId, Avma)) {
        let entry = (tid, of, branch.time.point, branch.at);
        let Some(next) = self.waiting.get_mut(&entry).and_then(VecDeque::pop_front) else { return };
        let place = self.place(space, ip);
        if let Some(call) = self.calls.get_mut(next) {
            call.kept = Some(K::entered(place));
        }
        self.open.entry(tid).or_default().push(next);
    }

    /// The calls of a region that end now do so: no return tells.
    fn end_region(&mut self, tid: Tid, region: FunctionId, now: Ns) {
        let calls = &self.calls;
        let ends = |at: &usize| {
            calls.get(*at).is_some_and(|Recorded { row, depth, .. }| {
                row.function == region && *depth == 0 && row.end_ns() == now.0
            })
        };
        self.open.entry(tid).or_default().retain(|at| !ends(at));
    }

    /// What an event is to the calls that are open.
    fn step(&mut self, tid: Tid, space: SpaceId, transfer: &Transfer) -> Option<BranchStep> {
        if self.open.get(&tid).is_none_or(Vec::is_empty) {
            self.interrupted.remove(&tid);
            return None;
        }
        let step = |from, to| BranchStep { from, to, is_jump: false, is_loop: false };
        match *transfer {
            Transfer::Branch { kind: BranchKind::RunsOn, .. } => None,
            Transfer::Branch { kind, from, to } => {
                let jumps =
                    matches!(kind, BranchKind::Jump | BranchKind::ConditionalJump | BranchKind::IndirectJump);
                let is_jump = jumps && from.function == to.function;
                Some(BranchStep {
                    from: self.place(space, from.ip),
                    to: To::Place(self.place(space, to.ip)),
                    is_jump,
                    is_loop: is_jump && to.ip <= from.ip,
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
    fn add(&mut self, tid: Tid, event: &TraceEvent, transfer: &Transfer, step: Option<BranchStep>) {
        let Some(open) = self.open.get_mut(&tid) else { return };
        let calls = &mut self.calls;
        open.retain(|at| {
            let Some(Recorded { row, kept: Some(kept), depth }) = calls.get_mut(*at) else { return false };
            let inside_ns = event.time().point.since(row.start_ns);
            if inside_ns > row.latency_ns {
                return false; // it was left in another way than by its return
            }
            if let Some(step) = step {
                kept.took(step, *depth);
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

impl<K: Kept> EventSink for BranchRecorder<'_, K> {
    fn events(&mut self, _: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        if !self.open.contains_key(&tid) {
            return;
        }
        for event in events.iter().filter(|event| !event.is_in_kernel()) {
            self.event(tid, space, event);
        }
    }
}
