//! The times of slots, and between them, once all packets have been read.

use model::EventTime;

use super::Slot;
use super::progress::Progress;
use super::timeline::Timeline;

/// Slots whose times are kept; those of one event are neighbours, and so are those of the next.
const RECENT: usize = 8;

/// Answers when slots were.
pub(crate) struct Times<'a> {
    timeline: &'a Timeline,
    progress: Progress<'a>,
    /// By the slot's lowest bits.
    recent: [Option<(Slot, EventTime)>; RECENT],
    /// The part of the timeline that was asked for last.
    near: usize,
}

impl<'a> Times<'a> {
    pub(super) fn new(timeline: &'a Timeline) -> Self {
        Self { timeline, progress: Progress(&timeline.marks), recent: [None; RECENT], near: 0 }
    }

    /// The time of a slot; 0 if nothing says.
    pub(crate) fn at(&mut self, slot: Slot) -> EventTime {
        let place = &mut self.recent[slot.0 as usize % RECENT];
        match *place {
            Some((of, time)) if of == slot => time,
            _ => {
                let time = self.timeline.time(slot, &mut self.near).unwrap_or_default();
                *place = Some((slot, time));
                time
            }
        }
    }

    /// The time of what happened behind `lo` and not behind `slot`, when `work` instructions had passed.  The same slot
    /// twice: with it.
    pub(crate) fn between(&mut self, lo: Slot, slot: Slot, work: u32) -> EventTime {
        let (before, time) = (self.at(lo), self.at(slot));
        if lo == slot {
            return time;
        }
        let earliest = before.lo.min(time.lo);
        let behind = self.progress.behind(lo.0, slot.0, work);
        let (from, to) = (self.at(Slot(behind - 1)), self.at(Slot(behind)));
        let point = self.progress.share(behind, work, from.point, to.point);
        EventTime { lo: earliest, point: point.clamp(earliest, time.hi), hi: time.hi }
    }
}
