//! Consecutive events of one thread in one address space.

use model::{AuxOffset, Counters, CountersSince, EventTime, GapCause, Ns, Pid, SpaceId, Tid, TraceEvent};

use serde::{Deserialize, Serialize};

use crate::owner::Running;
use crate::stored_run::StoredRun;

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
    /// It has no events here, but these in a store.
    pub(crate) stored: Option<Box<StoredRun>>,
    /// All are branches, and no time or bound of one is before that of the event before it: there is nothing
    /// to set right.
    pub(crate) in_order: bool,
    /// Something was lost in it; known once it is laid together with others for a store.
    pub(crate) has_gap: bool,
    /// The number of transfers that the sink did not ask about.
    pub(crate) left_out: u64,
    /// What was executed in it, if the decode has counters.
    pub(crate) counted: Option<Counted>,
}

/// What was executed in a stretch.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// At each event, since the stretch began.
    pub(crate) at_events: Vec<CountersSince>,
    /// From its begin to its end; cycles only if any were counted.
    pub(crate) in_all: Counters,
}

impl Stretch {
    /// Of a thread that runs since `start`, nothing yet.
    #[must_use]
    pub fn new(running: Running, space: SpaceId, start: Ns) -> Self {
        let Running { pid, tid, from: arrived, to: left } = running;
        // The trace may know less well than the switch records: on its CPU before this one the thread was
        // earlier.
        let start = start.max(arrived);
        Self {
            pid,
            tid,
            space,
            start,
            arrived,
            left,
            events: vec![],
            stored: None,
            in_order: false,
            has_gap: false,
            left_out: 0,
            counted: None,
        }
    }

    /// The stretch is of this thread in this address space, and the thread has not been away.
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
        let mut last = LastTime::default();
        self.events.iter_mut().for_each(|event| keep_forward(&mut last, event));
    }

    /// Keeps time from running backwards from the thread's stretch before it to this one: `last` is the last
    /// time that was given out. Within a stretch time goes forward: after the first event that is late enough
    /// all are. Returns how many were not.
    pub(crate) fn continue_from(&mut self, last: &mut LastTime) -> usize {
        let mut changed = 0;
        for event in &mut self.events {
            if last.is_before(event.time()) {
                break;
            }
            keep_forward(last, event);
            changed += 1;
        }
        if let Some(end) = self.events.last() {
            *last = LastTime::of(end);
        }
        changed
    }
}

/// When a thread's last event was: what comes next is not earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTime {
    lo: Ns,
    point: Ns,
    /// The estimate of when a gap ended. What comes next is not before it, unless it is certain to be.
    estimate: Ns,
}

impl LastTime {
    /// That of a branch.
    pub(crate) fn of_branch(EventTime { lo, point, .. }: EventTime) -> Self {
        Self { lo, point, estimate: point }
    }

    pub(crate) fn of(event: &TraceEvent) -> Self {
        let (time, estimate) = match event {
            TraceEvent::Branch(branch) => return Self::of_branch(branch.time),
            // Where the thread's own record of leaving says is not before the end of this one.
            TraceEvent::Gap(gap) if gap.cause == GapCause::UntracedCpu => (gap.to, gap.to.point),
            // What comes next may be earlier than the end of a gap is known.
            TraceEvent::Gap(gap) => (gap.from, gap.to.point),
        };
        Self { lo: time.lo, point: time.point, estimate }
    }

    /// The earliest point of a time.
    fn point_of(self, time: EventTime) -> Ns {
        self.point.max(self.estimate.min(time.hi))
    }

    /// What is at `time` needs no other one.
    pub(crate) fn is_before(self, time: EventTime) -> bool {
        time.lo >= self.lo && time.point >= self.point_of(time)
    }

    fn keep_before(self, time: &mut EventTime) {
        time.lo = time.lo.max(self.lo);
        time.point = time.point.max(self.point_of(*time)).max(time.lo);
        time.hi = time.hi.max(time.point);
    }
}

fn keep_forward(last: &mut LastTime, event: &mut TraceEvent) {
    match event {
        TraceEvent::Branch(branch) => last.keep_before(&mut branch.time),
        TraceEvent::Gap(gap) => {
            last.keep_before(&mut gap.from);
            let EventTime { lo, point, .. } = gap.from;
            LastTime { lo, point, estimate: point }.keep_before(&mut gap.to);
        }
    }
    *last = LastTime::of(event);
}

#[cfg(test)]
mod tests {
    use model::{Avma, BranchEvent, FunctionId, Gap, Target, Transfer};

    use super::*;

    fn time(lo: u64, point: u64, hi: u64) -> EventTime {
        EventTime { lo: Ns(lo), point: Ns(point), hi: Ns(hi) }
    }

    fn start(time: EventTime) -> TraceEvent {
        let to = Target { ip: Avma(0), function: FunctionId::UNKNOWN, at_entry: false };
        let transfer = Transfer::Start { to, after_gap: true };
        TraceEvent::Branch(BranchEvent { time, at: AuxOffset(1), transfer })
    }

    fn gap(from: EventTime, to: EventTime) -> TraceEvent {
        TraceEvent::Gap(Gap { from, to, bytes: 0, at: AuxOffset(0), cause: GapCause::Overflow })
    }

    fn kept(events: &[TraceEvent]) -> Vec<EventTime> {
        let mut last = LastTime::default();
        let mut events = events.to_vec();
        events.iter_mut().for_each(|event| keep_forward(&mut last, event));
        events.iter().map(TraceEvent::time).collect()
    }

    #[test]
    fn an_event_after_a_gap_is_not_before_the_estimate_of_its_end() {
        let gap = gap(time(10, 11, 20), time(15, 19, 20));
        assert_eq!(kept(&[gap, start(time(15, 18, 40))])[1], time(15, 19, 40));
        // Unless it is certain to be, or the gap's end only looks later.
        assert_eq!(kept(&[gap, start(time(12, 13, 16))])[1], time(12, 16, 16));
        assert_eq!(kept(&[gap, start(time(5, 6, 7))])[1], time(10, 11, 11));
    }
}
