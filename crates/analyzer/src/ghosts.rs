//! Calls that were reported as cut and may still be running.
//!
//! Nothing after a gap is guessed, but when a function is then found running that was running before, it is
//! taken for the same call, so that one call is not counted as `cut` and again as `open_start`.
//!
//! On one stack a call that is found running says that those above it have ended. Calls on stacks that were
//! switched away from (fibers) end without a word, and come back one by one in any order.

use model::{Avma, FunctionId};
use rustc_hash::FxHashMap;

use crate::maybe_ip::MaybeIp;
use crate::stack::DEPTH_MAX;

/// The reported calls of one thread.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// Cut by gaps, outermost first.
    here: Vec<(FunctionId, MaybeIp)>,
    /// How many are on other stacks. Many may never come back: a list would be searched in vain again and
    /// again.
    elsewhere: FxHashMap<FunctionId, u64>,
}

impl Ghosts {
    /// Calls, outermost first, that were cut above those that were cut before.
    pub(crate) fn add(&mut self, calls: impl Iterator<Item = (FunctionId, MaybeIp)>) {
        let room = DEPTH_MAX.saturating_sub(self.here.len());
        self.here.extend(calls.take(room));
    }

    /// Calls that were cut because control went to another stack.
    pub(crate) fn add_elsewhere(&mut self, calls: impl Iterator<Item = (FunctionId, MaybeIp)>) {
        for (function, _) in calls {
            *self.elsewhere.entry(function).or_default() += 1;
        }
    }

    /// `function` is found running: true if it is a call that was reported.
    pub(crate) fn found(&mut self, function: FunctionId) -> bool {
        if let Some(at) = self.here.iter().rposition(|ghost| ghost.0 == function) {
            self.here.truncate(at);
            return true;
        }
        let waiting = self.elsewhere.get_mut(&function).filter(|waiting| **waiting > 0);
        waiting.map(|waiting| *waiting -= 1).is_some()
    }

    /// Control returned to `ret` from a frame whose entry was not seen: whoever returns there has ended.
    pub(crate) fn returned(&mut self, ret: Avma) {
        if let Some(at) = self.here.iter().rposition(|ghost| ghost.1.get() == Some(ret)) {
            self.here.truncate(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cut_call_is_found_once() {
        let mut ghosts = Ghosts::default();
        let f = FunctionId(1);
        ghosts.add([(f, Avma(0x10).into()), (f, Avma(0x20).into())].into_iter());
        assert!(ghosts.found(f) && ghosts.found(f) && !ghosts.found(f));
    }

    #[test]
    fn a_return_to_its_caller_ends_a_cut_call_and_those_above() {
        let mut ghosts = Ghosts::default();
        let (f, g) = (FunctionId(1), FunctionId(2));
        ghosts.add([(f, Avma(0x10).into()), (g, Avma(0x20).into()), (f, Avma(0x30).into())].into_iter());
        ghosts.returned(Avma(0x20));
        assert!(!ghosts.found(g) && ghosts.found(f) && !ghosts.found(f));
    }

    #[test]
    fn calls_on_other_stacks_come_back_in_any_order() {
        let mut ghosts = Ghosts::default();
        let (f, g) = (FunctionId(1), FunctionId(2));
        ghosts.add_elsewhere([(f, Avma(0x10).into()), (g, Avma(0x20).into())].into_iter());
        assert!(ghosts.found(f) && ghosts.found(g) && !ghosts.found(f) && !ghosts.found(g));
    }
}
