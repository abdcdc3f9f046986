//! How many core cycles were counted up to a slot, and between two.

use super::timeline::{CyclesNear, PassedCycles, Timeline};
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
        let Some(mark) = self.timeline.marks().get(slot.0 as usize) else {
            return self.timeline.counted_cycles();
        };
        if !self.near.has(slot) {
            self.timeline.find_cycles(slot, &mut self.near);
        }
        self.near.before.saturating_add(mark.most.into())
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

    /// Cycles up to what happened after `lo` and not after `slot`, when `work` instructions had passed.
    pub(crate) fn between(&mut self, lo: Slot, slot: Slot, work: u32) -> PassedCycles {
        let (first, last) = (self.at(lo), self.at(slot));
        let nearest = Slot(slot.0.saturating_sub(1).max(lo.0));
        let from = if nearest == lo { first } else { self.at(nearest) };
        let passed = |slot: Slot| self.timeline.marks().get(slot.0 as usize).map_or(work, |mark| mark.work);
        let part = || progress::part(last.saturating_sub(from), (passed(nearest), passed(slot)), work);
        let point = if lo == slot { last } else { from + part() };
        PassedCycles { first, point, last: last.saturating_add(self.threshold), bus: self.bus_at(point) }
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
