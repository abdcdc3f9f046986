//! Calls that were reported as cut and may still be running.
//!
//! Nothing after a gap is guessed, but when a function is then found running that was running before, it is
//! taken for the same call, so that one call is not counted as `cut` and again as `open_start`.
//!
//! On one stack a call that is found running says that those of its function above it have ended. Of other
//! functions it says nothing: which of them are noted depends on the request, and no call may. Calls on
//! stacks that were switched away from (fibers) end without a word, and come back one by one in any order.

use model::{Avma, FunctionId};
use rustc_hash::FxHashMap;

use crate::maybe_ip::MaybeIp;
use crate::stack::DEPTH_MAX;

/// The reported calls of one thread, by function.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    /// Where those that gaps have cut return to, outermost first.
    here: FxHashMap<FunctionId, Vec<MaybeIp>>,
    /// How many are on other stacks. Many may never come back: a list would be searched in vain again and
    /// again.
    elsewhere: FxHashMap<FunctionId, u64>,
}

impl Ghosts {
    /// Calls, outermost first, that were cut above those that were cut before.
    pub(crate) fn add(&mut self, calls: impl Iterator<Item = (FunctionId, MaybeIp)>) {
        for (function, ret) in calls {
            let here = self.here.entry(function).or_default();
            if here.len() < DEPTH_MAX {
                here.push(ret);
            }
        }
    }

    /// Calls that were cut because control went to another stack.
    pub(crate) fn add_elsewhere(&mut self, calls: impl Iterator<Item = (FunctionId, MaybeIp)>) {
        for (function, _) in calls {
            *self.elsewhere.entry(function).or_default() += 1;
        }
    }

    /// `function` is found running: true if it is a call that was reported.
    pub(crate) fn found(&mut self, function: FunctionId) -> bool {
        if self.here.get_mut(&function).is_some_and(|here| here.pop().is_some()) {
            return true;
        }
        let waiting = self.elsewhere.get_mut(&function).filter(|waiting| **waiting > 0);
        waiting.map(|waiting| *waiting -= 1).is_some()
    }

    /// Those of these functions have ended.
    pub(crate) fn forget(&mut self, has_ended: impl Fn(FunctionId) -> bool) {
        self.here.retain(|function, _| !has_ended(*function));
    }

    /// A frame with an unseen entry returned to `ret`: a call that returns there has ended.
    pub(crate) fn returned(&mut self, ret: Avma) {
        self.here.retain(|_, here| {
            if let Some(at) = here.iter().rposition(|ghost| ghost.get() == Some(ret)) {
                here.truncate(at);
            }
            !here.is_empty()
        });
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
    fn a_return_to_its_caller_ends_a_cut_call_and_those_of_its_function_above() {
        let mut ghosts = Ghosts::default();
        let (f, g) = (FunctionId(1), FunctionId(2));
        let calls = [(f, 0x10), (g, 0x20), (f, 0x30), (f, 0x40)].map(|(of, ret)| (of, Avma(ret).into()));
        ghosts.add(calls.into_iter());
        ghosts.returned(Avma(0x30));
        assert!(ghosts.found(f) && !ghosts.found(f), "the one that returns to 10");
        assert!(ghosts.found(g), "whether it is noted depends on the request");
    }

    #[test]
    fn calls_on_other_stacks_come_back_in_any_order() {
        let mut ghosts = Ghosts::default();
        let (f, g) = (FunctionId(1), FunctionId(2));
        ghosts.add_elsewhere([(f, Avma(0x10).into()), (g, Avma(0x20).into())].into_iter());
        assert!(ghosts.found(f) && ghosts.found(g) && !ghosts.found(f) && !ghosts.found(g));
    }
}
