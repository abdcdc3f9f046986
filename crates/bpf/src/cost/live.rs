//! What a probe costs now: measured while the target's calls are timed.
//!
//! A virtual machine's traps take a fifth longer for some 100 ms, and half as long again beside a busy
//! neighbour: a cost measured before the window need not hold for a call two seconds later.  How much dearer
//! a probe is with cold caches was measured then; here calls under light loads measure the machine's speed,
//! and the cost at a time lies between both.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::EndCosts;
use super::own_calls::{OwnCalls, Shape};
use crate::error::BpfError;
use crate::probe_points::Ends;
use crate::removal::Removal;

/// Between two batches, which take 2 to 3 ms.
const INTERVAL: Duration = Duration::from_millis(100);
/// Calls of each function in a batch, by load: most where the first ones are slow after the wait.
const BATCH: Shape = [16, 8, 0];
/// Batches that say what a probe costs now.
const KEPT: usize = 5;

/// A thread that measures.
pub struct LiveCosts {
    shared: Arc<Shared>,
    /// `None`: it has been ended.
    measuring: Option<JoinHandle<Result<Removal, BpfError>>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    latest: Mutex<Option<EndCosts>>,
}

impl LiveCosts {
    /// Measures from now on, for these kinds of ends or both; `before` was measured under all loads.
    #[must_use]
    pub fn begin(ends: Option<Ends>, before: EndCosts) -> Self {
        let shared = Arc::<Shared>::default();
        let ours = Arc::clone(&shared);
        Self { shared, measuring: Some(thread::spawn(move || measure(ends, before, &ours))) }
    }

    /// Costs, with those of the last half second, if they are newer than what this said before.
    #[must_use]
    pub fn newer(&self) -> Option<EndCosts> {
        self.shared.latest.lock().ok()?.take()
    }

    /// Ends it; its probes are being removed.
    ///
    /// # Errors
    /// It could not measure: the costs are those of before the window, and there is nothing to remove.
    pub fn end(mut self) -> Result<Removal, BpfError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<Removal, BpfError> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let ended = self.measuring.take().map(JoinHandle::join);
        // A thread that has panicked has told why on stderr.
        ended.and_then(Result::ok).unwrap_or_else(|| Ok(Removal::default()))
    }
}

impl Drop for LiveCosts {
    /// A run may be refused before its window.  If the process ended while the probes are there, the kernel
    /// would close their links one after the other, which takes seconds.
    fn drop(&mut self) {
        if let Ok(removal) = self.stop() {
            removal.wait();
        }
    }
}

fn measure(ends: Option<Ends>, before: EndCosts, shared: &Shared) -> Result<Removal, BpfError> {
    let mut calls = OwnCalls::new(&EndCosts::functions(ends));
    let mut told = 0;
    calls.record(Duration::MAX, INTERVAL, None, |calls| {
        calls.keep(KEPT);
        // A batch of which not every call was seen says nothing new.
        if let Ok(mut latest) = shared.latest.lock()
            && calls.seen_whole() > told
        {
            told = calls.seen_whole();
            *latest = Some(before.widened_by(&EndCosts::of_samples(ends, &calls.samples())));
        }
        calls.make(BATCH);
        shared.is_over.load(Ordering::Relaxed)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::ALONE;
    use super::*;

    #[test]
    fn dropped_it_leaves_no_thread_that_measures() {
        let _alone = ALONE.lock();
        let costs = LiveCosts::begin(Some(Ends::AtInstructions), EndCosts::default());
        let shared = Arc::clone(&costs.shared);
        drop(costs);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
