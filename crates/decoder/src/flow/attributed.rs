//! Which thread runs, and in which space: asked wherever tracing starts, and mostly answered as before.

use model::{Ns, SpaceId, Tsc};

use super::Flow;
use crate::clock::{Lasts, Now};
use crate::owner::Running;
use crate::work::Work;

/// The thread that runs, and its address space, whenever both times of now lie from those of `first` to
/// those of `last`.
#[derive(Clone, Copy)]
pub(super) struct Attributed {
    pub(super) running: Running,
    pub(super) space: SpaceId,
    first: Now,
    last: Now,
    /// Certainly as long as this lasts.
    lasts: Lasts,
}

impl Attributed {
    /// At no time.
    pub(super) const NOBODY: Self = Self {
        running: Running::UNKNOWN,
        space: SpaceId(0),
        first: Now { lo: Tsc(1), point: Tsc(1) },
        last: Now { lo: Tsc(0), point: Tsc(0) },
        lasts: Lasts::NEVER,
    };

    fn holds(&self, now: Now) -> bool {
        let Self { first, last, .. } = self;
        first.lo <= now.lo && now.lo <= last.lo && first.point <= now.point && now.point <= last.point
    }
}

impl<W: Work> Flow<'_, W> {
    /// Finds out which thread runs now, and in which address space.
    #[inline(always)]
    pub(super) fn attribute(&mut self) {
        if !self.clock.is_in(self.attributed.lasts) {
            self.attribute_anew();
        }
        (self.running, self.walk.space) = (self.attributed.running, self.attributed.space);
    }

    #[cold]
    fn attribute_anew(&mut self) {
        let now = self.clock.now();
        if !now.is_some_and(|now| self.attributed.holds(now)) {
            self.attributed = self.attributed_from(now);
        }
        let Attributed { first, last, .. } = self.attributed;
        self.attributed.lasts = self.clock.lasts(first, last);
    }

    fn attributed_from(&self, now: Option<Now>) -> Attributed {
        let running = match now {
            Some(_) => self.owner.at(self.clock.now_lo()),
            None => self.owner.at_start(false),
        };
        let space = self.space_of(running);
        let Some(first) = now else { return Attributed { running, space, ..Attributed::NOBODY } };
        let before = |until: Ns| match until {
            Ns::MAX => Tsc(u64::MAX),
            until => self.context.conversion().to_tsc(Ns(until.0.saturating_sub(1))),
        };
        // The thread that runs is the first that has not left yet (`Owner::at`), so it is until it leaves;
        // but one that is not known may be another one any time.
        let lo = if running.is_known() { before(running.to) } else { first.lo };
        let point = before(self.context.code.space_until(running.pid, self.space_time(running)));
        Attributed { running, space, first, last: Now { lo, point }, lasts: Lasts::NEVER }
    }

    /// The address space of a thread that runs now.
    pub(super) fn space_of(&self, running: Running) -> SpaceId {
        self.context.code.space(running.pid, self.space_time(running))
    }

    /// When the address space of a thread that runs now is asked for. Without times it is the last one: a
    /// command that was recorded from its start has executed its program by then.
    fn space_time(&self, running: Running) -> Ns {
        if !self.context.has_times() {
            return Ns::MAX;
        }
        self.clock.now_estimate().max(running.from)
    }
}
