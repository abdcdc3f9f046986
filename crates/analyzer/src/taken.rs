//! Figures by caller of the calls in runs that were taken ([`crate::digest`]), added up by the workers.
//!
//! ```text
//!   in order     takes a run -> its figures wait here
//!   worker       before its next run: adds up what waits
//!   at the end   what still waits; then all of them to those of the other calls
//! ```
//! They are most of what a run has to add, and in no order: the thread in order need not do it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::aggregate::FunctionSums;
use crate::children::Child;
use crate::figures::FigureSums;
use crate::sparse::Sparse;

/// The sums of a run's calls, by wanted function.
pub(crate) type RunSums = Sparse<FunctionSums<Child>>;

/// Runs that wait at most: with more the thread in order adds them up.
const WAITING_MAX: usize = 1 << 10;

/// The figures by caller of runs, for all that add them up.
#[derive(Clone, Default)]
pub(crate) struct TakenCalls(Arc<Taken>);

#[derive(Default)]
struct Taken {
    waiting: Mutex<Vec<Arc<RunSums>>>,
    sums: Mutex<Sparse<FigureSums<Child>>>,
}

impl TakenCalls {
    /// A run was taken.
    pub(crate) fn add(&self, run: &Arc<RunSums>) {
        let mut waiting = lock(&self.0.waiting);
        waiting.push(Arc::clone(run));
        let is_full = waiting.len() >= WAITING_MAX;
        drop(waiting);
        if is_full {
            self.add_to(&mut lock(&self.0.sums));
        }
    }

    /// Adds up what waits, unless another worker does.
    pub(crate) fn add_up(&self) {
        if let Ok(mut sums) = self.0.sums.try_lock() {
            self.add_to(&mut sums);
        }
    }

    /// The figures of all runs that were taken, which are then forgotten.
    pub(crate) fn take(&self) -> Sparse<FigureSums<Child>> {
        let mut sums = lock(&self.0.sums);
        self.add_to(&mut sums);
        std::mem::take(&mut *sums)
    }

    fn add_to(&self, sums: &mut Sparse<FigureSums<Child>>) {
        let waiting = std::mem::take(&mut *lock(&self.0.waiting));
        for run in waiting {
            for (wanted, of_run) in run.iter() {
                sums.meet(wanted).into_iter().for_each(|sums| sums.merge_callers(&of_run.alone));
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::CalledFrom;

    fn run(latency_ns: u64) -> Arc<RunSums> {
        let mut sums = RunSums::default();
        let callers = &mut sums.meet(3).unwrap().alone.callers;
        callers.entry(CalledFrom::UNKNOWN).or_default().latency_ns.add(latency_ns);
        Arc::new(sums)
    }

    fn latencies(sums: &Sparse<FigureSums<Child>>) -> Vec<(u64, u64)> {
        let callers = sums.iter().flat_map(|(_, sums)| sums.callers.values());
        callers.flat_map(|caller| caller.latency_ns.sorted().iter().collect::<Vec<_>>()).collect()
    }

    #[test]
    fn each_run_is_added_once_by_whatever_thread() {
        let taken = TakenCalls::default();
        [7, 8, 7].into_iter().for_each(|ns| taken.add(&run(ns)));
        assert_eq!(latencies(&lock(&taken.0.sums)), [], "not by the thread in order");
        let worker = taken.clone();
        worker.add_up();
        assert_eq!(latencies(&lock(&taken.0.sums)), [(7, 2), (8, 1)]);
        taken.add(&run(9));
        assert_eq!(latencies(&taken.take()), [(7, 2), (8, 1), (9, 1)]);
        assert_eq!(latencies(&taken.take()), []);
    }

    #[test]
    fn what_no_worker_adds_up_is_added_once_there_is_much() {
        let taken = TakenCalls::default();
        (0..=WAITING_MAX as u64).for_each(|_| taken.add(&run(7)));
        assert_eq!(lock(&taken.0.waiting).len(), 1);
        assert_eq!(latencies(&taken.take()), [(7, WAITING_MAX as u64 + 1)]);
    }
}
