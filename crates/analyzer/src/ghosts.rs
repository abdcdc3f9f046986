//! Calls that were reported as cut and may still be running.
//!
//! Nothing after a gap is guessed, but when a function is then found running that was running before, it is
//! taken for the same call, so that one call is not counted as `cut` and again as `open_start`.

use model::{Avma, FunctionId};

use crate::stack::{DEPTH_MAX, NOT_KNOWN};

/// The reported calls of one thread, outermost first.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(Vec<(FunctionId, Avma)>);

impl Ghosts {
    /// Calls, outermost first, that were cut above those that were cut before.
    pub(crate) fn add(&mut self, calls: impl Iterator<Item = (FunctionId, Avma)>) {
        let room = DEPTH_MAX.saturating_sub(self.0.len());
        self.0.extend(calls.take(room));
    }

    /// `function` is found running: true if it is a call that was reported.  Those above it have ended.
    pub(crate) fn found(&mut self, function: FunctionId) -> bool {
        let Some(at) = self.0.iter().rposition(|ghost| ghost.0 == function) else { return false };
        self.0.truncate(at);
        true
    }

    /// Control returned to `ret` from a frame whose entry was not seen: whoever returns there has ended.
    pub(crate) fn returned(&mut self, ret: Avma) {
        if let Some(at) = self.0.iter().rposition(|ghost| ghost.1 == ret && ret != NOT_KNOWN) {
            self.0.truncate(at);
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
        ghosts.add([(f, Avma(0x10)), (f, Avma(0x20))].into_iter());
        assert!(ghosts.found(f) && ghosts.found(f) && !ghosts.found(f));
    }

    #[test]
    fn a_return_to_its_caller_ends_a_cut_call_and_those_above() {
        let mut ghosts = Ghosts::default();
        let (f, g) = (FunctionId(1), FunctionId(2));
        ghosts.add([(f, Avma(0x10)), (g, Avma(0x20)), (f, Avma(0x30))].into_iter());
        ghosts.returned(Avma(0x20));
        assert!(!ghosts.found(g) && ghosts.found(f) && !ghosts.found(f));
    }
}
