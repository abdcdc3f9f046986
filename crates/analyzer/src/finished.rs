//! What is left of threads that have ended, as long as their recording grows: the sums that a report has of
//! each, by number, whichever threads had that one after the other.

use std::collections::BTreeMap;

use model::{Ns, Tid};

use crate::report::ThreadLoss;
use crate::thread::Thread;

/// Threads that have ended.
#[derive(Default)]
pub(crate) struct FinishedThreads {
    windows: BTreeMap<Tid, FinishedWindows>,
    /// By thread and wanted function, the number of the next call.
    numbers: BTreeMap<(Tid, u32), u64>,
    /// The latest time that was seen of any.
    last: Ns,
}

/// The windows of all threads with one number, added up.
struct FinishedWindows {
    window_ns: u64,
    observed_ns: u64,
    lost_ns: u64,
    /// With an IP filter.
    outside_ns: Option<u64>,
}

impl FinishedThreads {
    /// Adds a thread that is [finished](Thread::finish).
    pub(crate) fn add(&mut self, thread: &Thread<'_>) {
        let numbers = thread.entered.numbers();
        self.numbers.extend(numbers.map(|(wanted, number)| ((thread.tid, wanted), number)));
        self.last = self.last.max(thread.last_ns());
        self.add_window(&thread.window.finish(thread.tid));
    }

    fn add_window(&mut self, thread: &ThreadLoss) {
        let &ThreadLoss { tid, window_ns, observed_ns, lost_ns, outside_ns, .. } = thread;
        let window = FinishedWindows { window_ns, observed_ns, lost_ns, outside_ns };
        self.windows.entry(tid).and_modify(|of_others| of_others.add(&window)).or_insert(window);
    }

    /// A thread with this number has ended.
    pub(crate) fn has(&self, tid: Tid) -> bool {
        self.windows.contains_key(&tid)
    }

    /// By wanted function, the number of the next call of a thread with this number.
    pub(crate) fn numbers(&self, tid: Tid) -> impl Iterator<Item = (u32, u64)> {
        let of_thread = self.numbers.range((tid, 0)..=(tid, u32::MAX));
        of_thread.map(|((_, wanted), number)| (*wanted, *number))
    }

    /// The latest time that was seen of any.
    pub(crate) fn last_ns(&self) -> Ns {
        self.last
    }

    /// The windows of all threads, by number; those of `living` ones among them.
    pub(crate) fn with(mut self, living: &[ThreadLoss]) -> Vec<ThreadLoss> {
        living.iter().for_each(|thread| self.add_window(thread));
        self.windows.into_iter().map(|(tid, windows)| windows.of(tid)).collect()
    }
}

impl FinishedWindows {
    fn add(&mut self, other: &Self) {
        self.window_ns = self.window_ns.saturating_add(other.window_ns);
        self.observed_ns = self.observed_ns.saturating_add(other.observed_ns);
        self.lost_ns = self.lost_ns.saturating_add(other.lost_ns);
        self.outside_ns = self.outside_ns.zip(other.outside_ns).map(|(one, other)| one.saturating_add(other));
    }

    fn of(self, tid: Tid) -> ThreadLoss {
        let Self { window_ns, observed_ns, lost_ns, outside_ns } = self;
        ThreadLoss { tid, window_ns, observed_ns, lost_ns, outside_ns, by_cause: Vec::new() }
    }
}
