//! How many core cycles were counted up to a slot, and between two.

use super::mark::Mark;
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
            marks: &[],
        })
    }
}

/// Answers how many cycles had been counted at slots: the sum of all CYC packets of the segment up to there.
pub(crate) struct SlotCycles<'a> {
    timeline: &'a Timeline,
    /// Fewer cycles may have passed since the last CYC packet.
    threshold: u64,
    near: CyclesNear,
    /// Those of the slots that are near; none where sums of their cycles may not fit.
    marks: &'a [Mark],
}

/// Sums of cycles below this fit with those of any run of slots.
const CYCLES_MAX: u64 = 1 << 62;

impl SlotCycles<'_> {
    /// Cycles at a slot.
    #[inline(always)]
    pub(crate) fn at(&mut self, slot: Slot) -> u64 {
        let Some(mark) = self.timeline.marks().get(slot.0 as usize) else {
            return self.timeline.counted_cycles();
        };
        if !self.near.has(slot) {
            self.find(slot);
        }
        self.near.before.saturating_add(mark.most.into())
    }

    /// Finds the slots around one that count from the same cycle.
    #[inline(never)]
    fn find(&mut self, slot: Slot) {
        self.timeline.find_cycles(slot, &mut self.near);
        let marks = self.timeline.marks();
        let (first, end) = (self.near.first.0 as usize, (self.near.end.0 as usize).min(marks.len()));
        let fits = self.near.before.max(self.threshold) < CYCLES_MAX;
        self.marks = marks.get(first..end).filter(|_| fits).unwrap_or_default();
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
    pub(crate) fn between(&mut self, lo: Slot, slot: Slot, work: u32) -> ([u64; 3], u64) {
        self.near_between(lo, slot, work).unwrap_or_else(|| {
            let cycles = self.look_up_between(lo, slot, work);
            (cycles, self.bus_at(cycles[1]))
        })
    }

    /// [`Self::between`] two slots that are near.
    #[inline(always)]
    pub(crate) fn near_between(&self, lo: Slot, slot: Slot, work: u32) -> Option<([u64; 3], u64)> {
        let number = |slot: Slot| slot.0.wrapping_sub(self.near.first.0) as usize;
        let (first, last) = (number(lo), number(slot));
        let (least, most) = (self.marks.get(first)?, self.marks.get(last)?);
        if first > last {
            return None;
        }
        let point = if first < last {
            let nearest = self.marks.get(last - 1)?;
            let span = u64::from(most.most.wrapping_sub(nearest.most));
            u64::from(nearest.most) + progress::part(span, (nearest.work, most.work), work)
        } else {
            most.most.into()
        };
        let before = self.near.before;
        let [first, last] = [least, most].map(|mark| before + u64::from(mark.most));
        let point = before + point;
        Some(([first, point, last + self.threshold], self.near.rate.bus_at(point)))
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
