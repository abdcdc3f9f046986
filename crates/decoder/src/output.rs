//! What one segment's decoding gives: stretches of events, each of one thread in one address space.

use model::AuxOffset;
use model::{BranchEvent, EventTime, Gap, GapCause, Ns, Pid, SpaceId, Tid, TraceEvent, Transfer};

use crate::clock::{Clock, Slot};
use crate::owner::Running;

/// One end of a gap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    At(Slot),
    /// Soon after the packet, in any case before the one behind it.
    Behind(Slot),
    Exactly(Ns),
    /// The earlier of the two.
    NotAfter(Slot, Ns),
}

/// When an event of the present segment happened: its time is filled in at the end.
#[derive(Clone, Copy, Debug)]
enum Stamp {
    /// Behind the first packet and not behind the second, when so many instructions had passed.
    Between(Slot, Slot, u32),
    Gap(Moment, Moment),
}

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
}

impl Stretch {
    /// Of a thread that runs since `start`, nothing yet.
    #[must_use]
    pub fn new(running: Running, space: SpaceId, start: Ns) -> Self {
        let Running { pid, tid, from: arrived, to: left } = running;
        // The trace may know less well than the switch records: on its CPU before this one the thread was earlier.
        let start = start.max(arrived);
        Self { pid, tid, space, start, arrived, left, events: vec![] }
    }

    /// The same thread in the same address space, and it has not been away.
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

    /// Nothing happened later than what came after it, and no user code ran after the thread had left.
    fn bound_from_behind(&mut self) {
        let mut latest = Ns::MAX;
        let mut bound = |time: &mut EventTime, left: Ns| {
            latest = latest.min(left).min(time.hi).max(time.lo);
            time.hi = latest;
            time.point = time.point.min(latest);
        };
        for event in self.events.iter_mut().rev() {
            // The kernel goes on for a while after its record of the switch.
            let left = if event.is_in_kernel() { Ns::MAX } else { self.left };
            match event {
                TraceEvent::Branch(branch) => bound(&mut branch.time, left),
                TraceEvent::Gap(gap) => {
                    bound(&mut gap.to, left);
                    bound(&mut gap.from, left);
                }
            }
        }
    }
}

/// Collects events until the segment's clock is known.
#[derive(Default)]
pub(crate) struct Output {
    stretches: Vec<Stretch>,
    stamps: Vec<Stamp>,
    pub(crate) overflows: u64,
}

impl Output {
    /// The events that follow are `running`'s.
    pub(crate) fn thread(&mut self, running: Running, space: SpaceId, start: Ns) {
        if !self.stretches.last().is_some_and(|last| last.is_of(running, space)) {
            self.stretches.push(Stretch::new(running, space, start));
        }
    }

    fn push(&mut self, event: TraceEvent, stamp: Stamp) {
        if self.stretches.is_empty() {
            self.thread(Running::UNKNOWN, SpaceId::default(), Ns(0));
        }
        if let Some(last) = self.stretches.last_mut() {
            last.events.push(event);
            self.stamps.push(stamp);
        }
    }

    /// A transfer between the flow packets of two slots; the same slot twice if it is that packet's own.
    #[inline]
    pub(crate) fn transfer(&mut self, lo: Slot, slot: Slot, work: u32, at: AuxOffset, transfer: Transfer) {
        let event = BranchEvent { time: EventTime::default(), at, transfer };
        self.push(TraceEvent::Branch(event), Stamp::Between(lo, slot, work));
    }

    /// Takes back the transfers that came from the packet at `at`.
    #[cold]
    pub(crate) fn take_back(&mut self, at: AuxOffset) {
        let taken = self.stretches.last_mut().map_or(0, |last| last.take_back(at));
        self.stamps.truncate(self.stamps.len().saturating_sub(taken));
    }

    pub(crate) fn gap(&mut self, from: Moment, to: Moment, bytes: u64, at: AuxOffset, cause: GapCause) {
        let gap = Gap { from: EventTime::default(), to: EventTime::default(), bytes, at, cause };
        self.push(TraceEvent::Gap(gap), Stamp::Gap(from, to));
    }

    /// The stretches, with the times that `clock` has settled.
    pub(crate) fn finish(self, clock: &Clock) -> Vec<Stretch> {
        let mut stamps = self.stamps.into_iter();
        let mut stretches = self.stretches;
        for stretch in &mut stretches {
            for (event, stamp) in stretch.events.iter_mut().zip(&mut stamps) {
                match (event, stamp) {
                    (TraceEvent::Branch(branch), Stamp::Between(lo, slot, work)) => {
                        branch.time = clock.time_between(lo, slot, work);
                    }
                    (TraceEvent::Gap(gap), Stamp::Gap(from, to)) => {
                        gap.to = moment(clock, to);
                        gap.from = moment(clock, from);
                        if gap.from.point == Ns(0) || gap.from.point > gap.to.point {
                            gap.from = gap.to;
                        }
                    }
                    _ => (),
                }
            }
            stretch.bound_from_behind();
        }
        stretches.retain(|s| !s.events.is_empty());
        stretches
    }
}

fn moment(clock: &Clock, moment: Moment) -> EventTime {
    match moment {
        Moment::At(slot) => clock.time(slot),
        Moment::Behind(slot) => {
            let time = clock.time(slot);
            EventTime { hi: clock.time(slot.next()).hi.max(time.hi), ..time }
        }
        Moment::Exactly(ns) => EventTime::exact(ns),
        Moment::NotAfter(slot, bound) => {
            let time = clock.time(slot);
            if time.point <= bound { time } else { EventTime::exact(bound) }
        }
    }
}
