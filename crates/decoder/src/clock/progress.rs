//! How far between two packets an event was: by instructions.
//!
//! The time of a TIP is that of its branch, the time of a TNT that of its first branch (SDM, "Cycle Packet
//! Semantics"), and direct branches have no packet at all. What has no time of its own lies somewhere between
//! two slots; the estimate shares the time between them out by the instructions that were executed, the
//! bounds stay those of the slots.
//!
//! ```text
//!   TNT's first branch ---- 12 instructions ---- call ---- 36 instructions ---- TIP
//!   t = 100                                      t = 105                        t = 120
//! ```

use model::Ns;

use super::mark::Mark;

/// How many instructions had passed, wrapping, when what each slot stands for happened.
#[derive(Clone, Copy)]
pub(super) struct Progress<'a>(pub(super) &'a [Mark]);

impl Progress<'_> {
    #[inline]
    pub(super) fn passed(self, slot: u32) -> Option<u32> {
        self.0.get(slot as usize).map(|mark| mark.work)
    }

    /// The first slot after `lo`, but not after `hi`, that stands for what happened when `work`
    /// instructions had passed, or later.
    #[inline]
    pub(super) fn first_after(self, lo: u32, hi: u32, work: u32) -> u32 {
        let mut slot = hi.max(lo + 1);
        while slot - 1 > lo && self.passed(slot - 1).is_some_and(|passed| passed_since(work, passed) == 0) {
            slot -= 1;
        }
        slot
    }

    /// The estimate for an event between `after`, at `to`, and the slot before it, at `from`, when `work`
    /// instructions had passed.
    #[inline]
    pub(super) fn share(self, after: u32, work: u32, from: Ns, to: Ns) -> Ns {
        match (self.passed(after.saturating_sub(1)), self.passed(after)) {
            (Some(start), Some(end)) => share((start, from), (end, to), work),
            _ => to,
        }
    }
}

/// The estimate for an event between two others, from their numbers of passed instructions and their times.
#[inline(always)]
pub(super) fn share((start, from): (u32, Ns), (end, to): (u32, Ns), work: u32) -> Ns {
    Ns(from.0 + part(to.since(from), (start, end), work)).min(to)
}

/// What of `span`, between two packets, had passed with `work` instructions; all of it where none is left.
#[inline(always)]
pub(super) fn part(span: u64, (start, end): (u32, u32), work: u32) -> u64 {
    let (done, all) = (passed_since(work, start), passed_since(end, start));
    if done >= all {
        return span;
    }
    match span.checked_mul(done) {
        Some(product) => product / all,
        None => span / all * done, // centuries
    }
}

/// Instructions from `start` to `end`, both wrapping; 0 if `end` is earlier.
#[inline]
pub(super) fn passed_since(end: u32, start: u32) -> u64 {
    u64::try_from(end.wrapping_sub(start) as i32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(work: impl IntoIterator<Item = u32>) -> Vec<Mark> {
        work.into_iter().map(|work| Mark { most: 0, work }).collect()
    }

    #[test]
    fn time_is_shared_out_by_instructions() {
        let marks = marks([1000, 1048]);
        let share = |work| Progress(&marks).share(1, work, Ns(100), Ns(120)).0;
        assert_eq!((share(1000), share(1012), share(1048)), (100, 105, 120));
        assert_eq!((share(990), share(1049)), (100, 120));
    }

    #[test]
    fn between_the_nearest_slots() {
        let marks = marks((100..=130).step_by(10));
        let progress = Progress(&marks);
        let after = |work| progress.first_after(0, 3, work);
        assert_eq!([100, 110, 111, 120, 121, 140].map(after), [1, 1, 2, 2, 3, 3]);
        assert_eq!(progress.first_after(2, 3, 90), 3);
    }

    #[test]
    fn the_count_may_wrap() {
        let marks = marks([u32::MAX - 1, 2]);
        assert_eq!(Progress(&marks).share(1, 0, Ns(100), Ns(108)), Ns(104));
    }
}
