//! The clock where nothing comes but CYC, MTC and flow packets: what has passed since the last anchor is one
//! number.

use model::Ns;
use packet::Tnt;

use super::timeline::Mark;
use super::{Clock, Now, Slot};

/// A clock that nobody else looks at meanwhile; whether it counts cycles, is known when it is compiled.
pub(crate) struct Ticker<'a, const HAS_CYC: bool> {
    clock: &'a mut Clock,
    /// The timeline's, and how many of them are slots'.
    marks: Vec<Mark>,
    slots: u32,
    /// Flow packets whose slots the timeline has been told of.
    told: u32,
    /// Cycles (or branches) since the last run of slots began.
    most: u64,
}

/// So many cycles of a run may have passed before: as many again, which half a megabyte of CYC packets of two
/// bytes have at most, fit a mark then.
const MOST: u64 = 1 << 31;

impl<'a, const HAS_CYC: bool> Ticker<'a, HAS_CYC> {
    /// For at most so many slots.  None if the next CYC counts otherwise than all after it.
    #[inline]
    pub(super) fn new(clock: &'a mut Clock, room: usize) -> Option<Self> {
        if HAS_CYC && clock.cyc_straddles {
            return None;
        }
        let most = clock.timeline.in_run(clock.since, MOST);
        clock.timeline.make_room(room);
        let marks = std::mem::take(&mut clock.timeline.marks);
        Some(Self { marks, slots: clock.timeline.slots, told: 0, most, clock })
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

    /// An MTC packet; `forced_out`: after a TNT that it forces out, so many instructions had passed.
    #[inline(always)]
    pub(crate) fn mtc(&mut self, payload: u8, forced_out: Option<u32>) {
        self.tell();
        if let Some(work) = forced_out {
            self.slot(work);
            self.clock.timeline.slots = self.slots;
        }
        self.most = self.clock.mtc_in_run(self.most, payload);
    }

    /// Tells the timeline of all slots.
    #[inline(always)]
    fn tell(&mut self) {
        self.told += self.slots - std::mem::replace(&mut self.clock.timeline.slots, self.slots);
    }

    /// Tracing ends: as [`Clock::discontinuity`].
    #[inline(always)]
    pub(crate) fn ends(&mut self) {
        self.clock.discontinuity();
    }

    /// The same where it starts, and a slot comes: that is of another run.
    #[inline(always)]
    pub(crate) fn starts(&mut self) {
        self.clock.discontinuity();
        self.tell();
        self.clock.timeline.changes_doubt(self.clock.since.doubt);
    }

    /// As [`Clock::now`].
    #[inline(always)]
    pub(crate) fn now(&mut self) -> Option<Now> {
        self.clock.since.reaches(self.clock.timeline.since_run(self.most));
        self.clock.now()
    }

    /// As [`Clock::stays_until`], in cycles of the present run, up to the next MTC: for [`Self::is_before`].
    #[inline(always)]
    pub(crate) fn stays_until(&self, first: Now, last: Now) -> u64 {
        self.clock.stays_until(first, last).saturating_sub(self.clock.timeline.since_run(0))
    }

    #[inline(always)]
    pub(crate) fn is_before(&self, until: u64) -> bool {
        self.most < until
    }

    /// As [`Clock::now_lo`].
    #[inline]
    pub(crate) fn now_lo(&mut self) -> Ns {
        self.now().map_or(Ns(0), |now| self.clock.conversion.to_ns(now.lo))
    }

    /// Something else comes; if anything has but MTC, `cyc_is_last` says whether it was a CYC last. How many
    /// flow packets there were.
    #[inline]
    pub(crate) fn stop(self, cyc_is_last: Option<bool>) -> u32 {
        let Self { clock, marks, slots, told, most } = self;
        clock.cyc_fresh = cyc_is_last.unwrap_or(clock.cyc_fresh);
        clock.since.reaches(clock.timeline.since_run(most));
        clock.timeline.marks = marks;
        told + slots - std::mem::replace(&mut clock.timeline.slots, slots)
    }
}

impl Clock {
    /// An MTC packet when `most` cycles of the present run have passed; how many that are of the run after
    /// it.
    // On its own, so that a ticker's numbers can be in registers.
    #[inline(never)]
    fn mtc_in_run(&mut self, most: u64, payload: u8) -> u64 {
        self.since.reaches(self.timeline.since_run(most));
        self.mtc(payload);
        self.timeline.in_run(self.since, MOST)
    }
}
