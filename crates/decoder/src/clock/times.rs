//! The times of slots, and between them, once all packets have been read.

use model::{EventTime, Ns};

use super::Slot;
use super::progress::{self, Progress};
use super::timeline::{Near, PassedCycles, Timeline};

/// The number of kept times; the slots of one event are neighbours, and so are those of the next.
const RECENT: usize = 8;

/// No packet of a segment has this one.
const NOBODY: Slot = Slot(u32::MAX);

/// Answers when slots were.
pub(crate) struct Times<'a> {
    timeline: &'a Timeline,
    progress: Progress<'a>,
    /// By the slot's lowest bits: a slot, and its time. A time's parts lie apart, as they are written one
    /// by one: a processor waits where two of them are read as one.
    recent: [Slot; RECENT],
    lo: [Ns; RECENT],
    point: [Ns; RECENT],
    hi: [Ns; RECENT],
    /// Where in the timeline was asked last, and where before: the slots that events happened after are often
    /// there.
    near: Near,
    before: Near,
    /// Fewer cycles may have passed since the last CYC packet.
    threshold: u64,
}

impl<'a> Times<'a> {
    /// With cycles, too, if it is said how many may pass without a CYC packet.
    pub(super) fn new(timeline: &'a Timeline, threshold: Option<u64>) -> Self {
        let near = if threshold.is_some() { Near::with_cycles() } else { Near::default() };
        Self {
            timeline,
            progress: Progress(timeline.marks()),
            recent: [NOBODY; RECENT],
            lo: [Ns(0); RECENT],
            point: [Ns(0); RECENT],
            hi: [Ns(0); RECENT],
            before: near.clone(),
            near,
            threshold: threshold.unwrap_or_default(),
        }
    }

    /// The time of a slot; 0 if nothing says.
    #[inline]
    pub(crate) fn at(&mut self, slot: Slot) -> EventTime {
        let place = place(slot);
        if self.recent[place] != slot {
            self.work_out(slot);
        }
        EventTime { lo: self.lo[place], point: self.point[place], hi: self.hi[place] }
    }

    #[inline(never)]
    fn work_out(&mut self, slot: Slot) {
        match self.timeline.regular_time(slot, &self.near) {
            Some(time) => self.keep(slot, time),
            None => self.look_up(slot),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, slot: Slot) {
        if self.near.is_before(slot) {
            self.before = self.near.clone();
        }
        let near = if self.near.is_after(slot) { &mut self.before } else { &mut self.near };
        let time = self.timeline.time(slot, near).unwrap_or_default();
        self.keep(slot, time);
    }

    #[inline(always)]
    fn keep(&mut self, slot: Slot, time: EventTime) {
        let place = place(slot);
        self.recent[place] = slot;
        (self.lo[place], self.point[place], self.hi[place]) = (time.lo, time.point, time.hi);
    }

    /// The time of what happened after `lo` and not after `slot`, when `work` instructions had passed. The
    /// same slot twice: with it.
    #[inline(always)]
    pub(crate) fn between(&mut self, lo: Slot, slot: Slot, work: u32) -> EventTime {
        match self.usual_between::<false>(lo, slot, work) {
            Some((time, _)) => time,
            None => self.work_out_between(lo, slot, work),
        }
    }

    /// [`Self::between`], and the cycles up to there: `None` where the usual case does not apply.
    #[inline(always)]
    pub(crate) fn between_with_cycles(
        &mut self,
        lo: Slot,
        slot: Slot,
        work: u32,
    ) -> (EventTime, Option<PassedCycles>) {
        let Some((time, of_run)) = self.usual_between::<true>(lo, slot, work) else {
            return (self.work_out_between(lo, slot, work), None);
        };
        let passed = of_run.and_then(|of_run| self.near.of_segment(of_run));
        let till_next = |passed: PassedCycles| passed.last.saturating_add(self.threshold);
        (time, passed.map(|passed| PassedCycles { last: till_next(passed), ..passed }))
    }

    /// The time where no more than the lines of the slots that were asked of last decide it; and the cycles
    /// of their run, with `CYCLES`, if that is asked for between two slots.
    #[inline(always)]
    fn usual_between<const CYCLES: bool>(
        &self,
        lo: Slot,
        slot: Slot,
        work: u32,
    ) -> Option<(EventTime, Option<[u64; 3]>)> {
        // `lo == slot` where tracing starts or ends: that time is not asked for again soon, and not kept.
        if lo == slot {
            return self.timeline.regular_time(slot, &self.near).map(|time| (time, None));
        }
        let (time, of_run) = self.timeline.steady_between::<CYCLES>(lo, slot, work, &self.near)?;
        Some((time, CYCLES.then_some(of_run)))
    }

    #[inline(never)]
    fn work_out_between(&mut self, lo: Slot, slot: Slot, work: u32) -> EventTime {
        let time = self.at(slot);
        if lo == slot {
            return time;
        }
        let nearest = slot.0.saturating_sub(1).max(lo.0);
        let passed = |slot| self.progress.passed(slot).unwrap_or(work);
        let (start, end) = (passed(nearest), passed(slot.0));
        let point = if nearest != lo.0 && progress::passed_since(work, start) == 0 {
            self.among(lo, slot, work)
        } else {
            progress::share((start, self.at(Slot(nearest)).point), (end, time.point), work)
        };
        let earliest = self.at(lo).lo.min(time.lo);
        EventTime { lo: earliest, point: point.max(earliest).min(time.hi), hi: time.hi }
    }

    /// The estimate, where it is not the last of the slots between the two that something happened after.
    #[cold]
    #[inline(never)]
    fn among(&mut self, lo: Slot, slot: Slot, work: u32) -> Ns {
        let after = self.progress.first_after(lo.0, slot.0, work);
        let (from, to) = (self.at(Slot(after - 1)).point, self.at(Slot(after)).point);
        self.progress.share(after, work, from, to)
    }
}

/// Where the times of a slot are kept.
#[inline(always)]
fn place(slot: Slot) -> usize {
    slot.0 as usize % RECENT
}
