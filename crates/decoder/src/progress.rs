//! How far between two packets an event was: by instructions.
//!
//! The time of a TIP is that of its branch, the time of a TNT that of its first branch only (SDM, "Cycle Packet
//! Semantics"), and direct branches have no packet at all.  What has no time of its own lies somewhere between the
//! slot before and the one behind; the estimate shares that time out by the instructions that were executed, the
//! bounds stay those of the slots.
//!
//! ```text
//!   TNT's first branch ---- 12 instructions ---- call ---- 36 instructions ---- TIP
//!   t = 100                                      t = 105                        t = 120      bounds [100, 120]
//! ```

use model::{EventTime, Ns};

/// How many instructions had passed, wrapping, when what each slot stands for happened.
#[derive(Default)]
pub(crate) struct Progress {
    passed: Vec<u32>,
}

impl Progress {
    /// The next slot, met when `work` instructions had passed.
    #[inline]
    pub(crate) fn slot(&mut self, work: u32) {
        self.passed.push(work);
    }

    /// What `slot` stands for happened when `work` instructions had passed: its packet was followed to there.
    #[inline]
    pub(crate) fn reached(&mut self, slot: usize, work: u32) {
        if let Some(passed) = self.passed.get_mut(slot) {
            *passed = work;
        }
    }

    /// The estimate for an event between two slots, when `work` instructions had passed; `from` and `to` are the slots'
    /// own times.
    pub(crate) fn share(&self, before: usize, behind: usize, work: u32, from: Ns, to: EventTime) -> Ns {
        let (Some(&start), Some(&end)) = (self.passed.get(before), self.passed.get(behind)) else {
            return to.point;
        };
        let all = passed_since(end, start);
        let done = passed_since(work, start).min(all);
        let span = to.point.since(from);
        let share = match span.checked_mul(done) {
            Some(product) => product.checked_div(all).unwrap_or(span),
            None => span / all.max(1) * done, // centuries
        };
        Ns(from.0 + share).min(to.point)
    }
}

/// Instructions from `start` to `end`, both wrapping; 0 if `end` is earlier.
fn passed_since(end: u32, start: u32) -> u64 {
    u64::try_from(end.wrapping_sub(start) as i32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_out_by_instructions() {
        let mut progress = Progress::default();
        progress.slot(1000);
        progress.slot(1000);
        progress.reached(1, 1048);
        let share = |work| progress.share(0, 1, work, Ns(100), EventTime::exact(Ns(120))).0;
        assert_eq!((share(1000), share(1012), share(1048)), (100, 105, 120));
        assert_eq!((share(990), share(1049)), (100, 120));
    }

    #[test]
    fn the_count_may_wrap() {
        let mut progress = Progress::default();
        progress.slot(u32::MAX - 1);
        progress.slot(2);
        assert_eq!(progress.share(0, 1, 0, Ns(100), EventTime::exact(Ns(108))), Ns(104));
    }
}
