//! How many core cycles were counted up to a slot, and between two.

use super::timeline::{CyclesNear, Timeline};
use super::{Clock, Slot, progress};

impl Clock {
    /// Cycles since the segment began, by the CYC packets up to here.
    pub(crate) fn counted_cycles(&self) -> u64 {
        self.timeline.counted_cycles()
    }

    /// The cycles of all slots; none if the recording has no CYC packets.
    pub(crate) fn cycles(&self) -> Option<SlotCycles<'_>> {
        self.has_cyc.then_some(SlotCycles {
            timeline: &self.timeline,
            threshold: self.cyc_threshold,
            near: CyclesNear::default(),
        })
    }
}

/// Answers how many cycles had been counted at slots: the sum of all CYC packets of the segment up to there.
pub(crate) struct SlotCycles<'a> {
    timeline: &'a Timeline,
    /// Fewer cycles may have passed since the last CYC packet.
    threshold: u64,
    near: CyclesNear,
}

impl SlotCycles<'_> {
    /// Cycles at a slot.
    #[inline(always)]
    pub(crate) fn at(&mut self, slot: Slot) -> u64 {
        self.timeline.cycles_at(slot, &mut self.near)
    }

    /// Cycles with the first CYC packet after a slot.
    pub(crate) fn after(&mut self, mut slot: Slot) -> u64 {
        let before = self.at(slot);
        let end = self.timeline.next();
        while slot < end && self.at(slot) == before {
            slot = slot.next();
        }
        self.at(slot)
    }

    /// Cycles at what happened after `lo` and not after `slot`, when `work` instructions had passed: lower
    /// bound, estimate, upper bound; and what the estimate is of the bus clock.
    #[inline(always)]
    pub(crate) fn between(&mut self, lo: Slot, slot: Slot, work: u32) -> ([u64; 3], u64) {
        match self.timeline.cycles_around(lo, slot, &self.near) {
            Some(([first, nearest, last], passed)) => {
                let point = nearest + progress::part(last.saturating_sub(nearest), passed, work);
                ([first, point, last.saturating_add(self.threshold)], self.near.rate.bus_at(point))
            }
            None => {
                let cycles = self.look_up_between(lo, slot, work);
                (cycles, self.bus_at(cycles[1]))
            }
        }
    }

    #[inline(never)]
    fn look_up_between(&mut self, lo: Slot, slot: Slot, work: u32) -> [u64; 3] {
        let last = self.at(slot);
        let most = last.saturating_add(self.threshold);
        if lo == slot {
            return [last, last, most];
        }
        let first = self.at(lo);
        let nearest = Slot(slot.0.saturating_sub(1).max(lo.0));
        let from = if nearest == lo { first } else { self.at(nearest) };
        let span = last.saturating_sub(from);
        let passed = |slot: Slot| self.timeline.marks().get(slot.0 as usize).map_or(work, |mark| mark.work);
        [first, from + progress::part(span, (passed(nearest), passed(slot)), work), most]
    }

    /// Converts a number of cycles to the bus clock.
    pub(crate) fn bus_at(&self, cycles: u64) -> u64 {
        self.timeline.bus_at(cycles)
    }

    /// CBR packets say what all cycles of the segment are of the bus clock.
    pub(crate) fn is_rated(&self) -> bool {
        self.timeline.is_rated()
    }
}
