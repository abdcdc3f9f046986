//! The clock where nothing comes but CYC and flow packets: what has passed since the last anchor is one number.

use packet::Tnt;

use super::timeline::Mark;
use super::{Clock, Slot};

/// A clock that nobody else looks at meanwhile; whether it counts cycles, is known when it is compiled.
pub(crate) struct Ticker<'a, const HAS_CYC: bool> {
    clock: &'a mut Clock,
    /// The timeline's, and how many of them are slots'.
    marks: Vec<Mark>,
    slots: u32,
    /// Cycles (or branches) since the last run of slots began.
    most: u64,
}

/// So many cycles of a run may have passed before: as many again, which half a megabyte of CYC packets of two bytes have at most,
/// fit a mark then.
const MOST: u64 = 1 << 31;

impl<'a, const HAS_CYC: bool> Ticker<'a, HAS_CYC> {
    /// For at most so many slots.  None if the next CYC counts otherwise than all behind it.
    #[inline]
    pub(super) fn new(clock: &'a mut Clock, room: usize) -> Option<Self> {
        if HAS_CYC && clock.cyc_straddles {
            return None;
        }
        let most = clock.timeline.in_run(clock.since, MOST);
        clock.timeline.make_room(room);
        let marks = std::mem::take(&mut clock.timeline.marks);
        Some(Self { marks, slots: clock.timeline.slots, most, clock })
    }

    /// A CYC packet.
    #[inline(always)]
    pub(crate) fn cyc(&mut self, cycles: u64) {
        if HAS_CYC {
            self.most += cycles;
        }
    }

    /// As [`Clock::progress`] for one branch.
    #[inline(always)]
    pub(crate) fn branch(&mut self) {
        self.most += u64::from(!HAS_CYC);
    }

    /// The same for all branches of a TNT but the first.
    #[inline(always)]
    pub(crate) fn other_branches(&mut self, tnt: Tnt) {
        if !HAS_CYC {
            self.most += u64::from(tnt.len()) - 1;
        }
    }

    /// The slot that is made next.
    #[inline(always)]
    pub(crate) fn next(&self) -> Slot {
        Slot(self.slots)
    }

    /// A slot, as [`Clock::slot`] makes one.
    #[inline(always)]
    pub(crate) fn slot(&mut self, work: u32) {
        self.marks[self.slots as usize] = Mark { most: self.most as u32, work };
        self.slots += 1;
    }

    /// Something else comes; if anything has, `cyc_is_last` says whether it was a CYC last.  How many slots there were.
    #[inline]
    pub(crate) fn stop(self, cyc_is_last: Option<bool>) -> u32 {
        let Self { clock, marks, slots, most } = self;
        clock.cyc_fresh = cyc_is_last.unwrap_or(clock.cyc_fresh);
        clock.since.reaches(clock.timeline.since_run(most));
        clock.timeline.marks = marks;
        slots - std::mem::replace(&mut clock.timeline.slots, slots)
    }
}
