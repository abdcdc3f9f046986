//! What a worker keeps from one segment to the next.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use rustc_hash::FxHashMap;

use crate::clock::TimelineRoom;
use crate::effects::Effects;
use crate::graph::BlockGraph;
use crate::output::Output;

/// What is known of the code, and of what packets do in it; and room that each segment uses anew.
pub(crate) struct WorkerCache<W> {
    pub(crate) graph: BlockGraph,
    pub(crate) effects: Effects<W>,
    pub(crate) output: Output<W>,
    pub(crate) timeline: TimelineRoom,
}

/// The caches of all workers. Each finds out for itself what it knows of the code: so no worker waits, and it
/// stays in the caches of a CPU.
pub(crate) struct WorkerCaches<C>(Mutex<KnownCaches<C>>);

struct KnownCaches<C> {
    of_workers: FxHashMap<ThreadId, C>,
    /// Those of workers that have ended.
    left: Vec<C>,
}

impl<C> Default for WorkerCaches<C> {
    fn default() -> Self {
        Self(Mutex::new(KnownCaches { of_workers: FxHashMap::default(), left: Vec::new() }))
    }
}

impl<C> WorkerCaches<C> {
    fn known(&self) -> MutexGuard<'_, KnownCaches<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes this worker's, or else one that another worker has left.
    pub(crate) fn take(&self) -> Option<C> {
        let mut known = self.known();
        known.of_workers.remove(&thread::current().id()).or_else(|| known.left.pop())
    }

    /// Keeps it for this worker.
    pub(crate) fn keep(&self, cache: C) {
        self.known().of_workers.insert(thread::current().id(), cache);
    }

    /// All workers have ended: the next ones, which are other threads, take over what they knew.
    pub(crate) fn pass_on(&mut self) {
        let KnownCaches { of_workers, left } = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        left.extend(of_workers.drain().map(|(_, cache)| cache));
    }

    /// The sum over those that no worker uses.
    pub(crate) fn sum(&self, of: impl Fn(&C) -> u64) -> u64 {
        let known = self.known();
        known.of_workers.values().chain(&known.left).map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch has other workers in each interval, and had caches of all of them after hours.
    #[test]
    fn workers_take_over_what_those_before_them_knew() {
        let mut caches = WorkerCaches::<u64>::default();
        for round in 1..=3 {
            thread::scope(|scope| {
                for _ in 0..2 {
                    // Two segments each.
                    scope.spawn(|| (0..2).for_each(|_| caches.keep(caches.take().unwrap_or(0) + 1)));
                }
            });
            caches.pass_on();
            assert_eq!((caches.sum(|_| 1), caches.sum(|segments| *segments)), (2, 4 * round));
        }
    }
}
