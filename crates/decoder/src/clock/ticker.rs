//! The clock where nothing comes but CYC and flow packets: what has passed since the last anchor is one number.

use super::timeline::Mark;
use super::{Clock, Slot};

/// A clock that nobody else looks at meanwhile.
pub(crate) struct Ticker<'a> {
    clock: &'a mut Clock,
    /// Cycles (or branches) since the last run of slots began.
    most: u64,
    has_cyc: bool,
    /// See [`Clock`].
    cyc_fresh: bool,
}

/// So many cycles of a run may have passed before: as many again, which half a megabyte of CYC packets of two bytes have at most,
/// fit a mark then.
const MOST: u64 = 1 << 31;

impl<'a> Ticker<'a> {
    /// None if the next CYC counts otherwise than all behind it.
    #[inline]
    pub(super) fn new(clock: &'a mut Clock) -> Option<Self> {
        if clock.has_cyc && clock.cyc_straddles {
            return None;
        }
        let most = clock.timeline.in_run(clock.since.most, MOST);
        Some(Self { most, has_cyc: clock.has_cyc, cyc_fresh: clock.cyc_fresh, clock })
    }

    /// A CYC packet.
    #[inline(always)]
    pub(crate) fn cyc(&mut self, cycles: u64) {
        self.cyc_fresh = true;
        if self.has_cyc {
            self.most += cycles;
        }
    }

    /// As [`Clock::progress`].
    #[inline(always)]
    pub(crate) fn branches(&mut self, branches: u64) {
        if !self.has_cyc {
            self.most += branches;
        }
    }

    /// The slot that is made next.
    #[inline(always)]
    pub(crate) fn next(&self) -> Slot {
        self.clock.timeline.next()
    }

    /// A slot, as [`Clock::slot`] makes one.
    #[inline(always)]
    pub(crate) fn slot(&mut self, work: u32) {
        self.cyc_fresh = false;
        self.clock.timeline.marks.push(Mark { most: self.most as u32, work });
    }

    /// Something else comes.
    #[inline]
    pub(crate) fn stop(self) {
        let Self { clock, most, cyc_fresh, .. } = self;
        clock.cyc_fresh = cyc_fresh;
        clock.since.reaches(clock.timeline.since_run(most));
    }
}
