//! Consecutive events of one thread in one address space.

use model::{AuxOffset, EventTime, GapCause, Ns, Pid, SpaceId, Tid, TraceEvent};

use crate::owner::Running;

/// Consecutive events of one thread.
#[derive(Debug)]
pub struct Stretch {
    pub(crate) pid: Pid,
    pub(crate) tid: Tid,
    pub(crate) space: SpaceId,
    /// Not before this time.
    pub(crate) start: Ns,
    /// When the thread came to the CPU: it may have run on another one since its last stretch.
    arrived: Ns,
    /// When it left again.
    left: Ns,
    pub(crate) events: Vec<TraceEvent>,
    /// No event, nor any bound of its time, is before the event's before it: there is nothing to set right.
    pub(crate) in_order: bool,
    /// Transfers that nobody asked about.
    pub(crate) left_out: u64,
}

impl Stretch {
    /// Of a thread that runs since `start`, nothing yet.
    #[must_use]
    pub fn new(running: Running, space: SpaceId, start: Ns) -> Self {
        let Running { pid, tid, from: arrived, to: left } = running;
        // The trace may know less well than the switch records: on its CPU before this one the thread was
        // earlier.
        let start = start.max(arrived);
        Self { pid, tid, space, start, arrived, left, events: vec![], in_order: false, left_out: 0 }
    }

    /// The same thread in the same address space, and it has not been away.
    #[inline]
    #[must_use]
    pub fn is_of(&self, running: Running, space: SpaceId) -> bool {
        (self.tid, self.space, self.arrived) == (running.tid, space, running.from)
    }

    /// Takes back the last transfers that came from the packet at `at`; how many.
    pub fn take_back(&mut self, at: AuxOffset) -> usize {
        let before = self.events.len();
        while matches!(self.events.last(), Some(TraceEvent::Branch(branch)) if branch.at == at) {
            self.events.pop();
        }
        before - self.events.len()
    }

    /// Adds what happened next.
    pub fn push(&mut self, event: TraceEvent) {
        self.events.push(event);
    }

    /// Lowers the estimate and the upper bound of each event to those of the events after it, up to the next
    /// PSB+, and those of user code to the time at which the thread left.
    ///
    /// `psb_ends`: offsets of the PSBEND packets, ascending. A segment may end at any of them, and then has
    /// no event after it: so no event before one is lowered to an event after it.
    pub(crate) fn bound_from_after(&mut self, psb_ends: &[AuxOffset]) {
        if self.in_order && self.events.last().is_some_and(|last| last.time().hi <= self.left) {
            return;
        }
        let mut psb_ends = psb_ends.iter().rev().peekable();
        let (mut latest, mut next) = (Ns::MAX, Ns::MAX);
        for event in self.events.iter_mut().rev() {
            while psb_ends.next_if(|end| event.at() <= **end).is_some() {
                (latest, next) = (Ns::MAX, Ns::MAX);
            }
            // The kernel goes on for a while after its record of the switch.
            let left = if event.is_in_kernel() { Ns::MAX } else { self.left };
            let mut bound = |time: &mut EventTime| {
                latest = latest.min(left).min(time.hi).max(time.lo);
                time.hi = latest;
                next = time.point.min(latest).min(next).max(time.lo);
                time.point = next;
            };
            match event {
                TraceEvent::Branch(branch) => bound(&mut branch.time),
                TraceEvent::Gap(gap) => {
                    bound(&mut gap.to);
                    bound(&mut gap.from);
                }
            }
        }
    }

    /// Time never runs backwards in it: what happened later cannot have been earlier.
    pub(crate) fn keep_forward(&mut self) {
        if self.in_order {
            return;
        }
        let mut last = EventTime::default();
        self.events.iter_mut().for_each(|event| keep_forward(&mut last, event));
    }

    /// Nor from the thread's stretch before it to this one: `last` is the last time that was given out. In
    /// itself it goes forward: after the first event that is late enough all are. Returns how many were not.
    pub(crate) fn continue_from(&mut self, last: &mut EventTime) -> usize {
        let mut changed = 0;
        for event in &mut self.events {
            let time = event.time();
            if time.lo >= last.lo && time.point >= last.point {
                break;
            }
            keep_forward(last, event);
            changed += 1;
        }
        if let Some(end) = self.events.last() {
            *last = end_of(end);
        }
        changed
    }
}

fn keep_forward(last: &mut EventTime, event: &mut TraceEvent) {
    match event {
        TraceEvent::Branch(branch) => not_before(*last, &mut branch.time),
        TraceEvent::Gap(gap) => {
            not_before(*last, &mut gap.from);
            not_before(gap.from, &mut gap.to);
        }
    }
    *last = end_of(event);
}

fn not_before(last: EventTime, time: &mut EventTime) {
    time.lo = time.lo.max(last.lo);
    time.point = time.point.max(last.point).max(time.lo);
    time.hi = time.hi.max(time.point);
}

/// What comes next is not earlier.
fn end_of(event: &TraceEvent) -> EventTime {
    match event {
        TraceEvent::Branch(branch) => branch.time,
        // Where the thread's own record of leaving says is not before the end of this one.
        TraceEvent::Gap(gap) if gap.cause == GapCause::UntracedCpu => gap.to,
        // What comes next may be earlier than the end of a gap is known.
        TraceEvent::Gap(gap) => gap.from,
    }
}
