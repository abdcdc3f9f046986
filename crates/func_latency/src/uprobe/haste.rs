//! Placing and removing probes take turns with the target for CPUs. On a busy machine each step would wait
//! for its turn, with probes in place meanwhile: this thread goes first, until calls are timed, and after.

use rustix::process::{getpriority_process, setpriority_process};

/// Above all that has no real-time priority.
const FIRST: i32 = -20;

/// This thread goes first, and those that it starts.
pub(super) struct Haste {
    /// The thread's own priority; `None`: it may not have another one.
    own: Option<i32>,
}

/// For now the thread has its own priority.
pub(super) struct Rest;

impl Haste {
    pub(super) fn begin() -> Self {
        let own = getpriority_process(None).ok();
        Self { own: own.filter(|_| setpriority_process(None, FIRST).is_ok()) }
    }

    /// Ends when the result is dropped.
    pub(super) fn rest(&self) -> Option<Rest> {
        setpriority_process(None, self.own?).ok().map(|()| Rest)
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        let _ = self.own.map(|own| setpriority_process(None, own)); // to go later is always allowed
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        // It was so before; if it may no longer be, all takes longer, and nothing is wrong.
        let _ = setpriority_process(None, FIRST);
    }
}
