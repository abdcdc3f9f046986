//! What is kept of the calls that probes have timed, for captures.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use analyzer::{CallRow, Reason, RowParts, RowSink};
use model::{Ns, Tid};

use super::triggers::{Hit, Triggers};

/// Calls that are kept, of whatever latency.
const RECENT_MAX: usize = 1 << 15;
/// Calls that are kept with what is inside of them: hits and the slowest.
const OPENED_MAX: usize = 1 << 12;
/// How long they are kept: the view lists the slowest calls of five minutes.
const OPENED_FOR_NS: u64 = 5 * 60 * 1_000_000_000;
/// What captures may be late by.
const SECOND_NS: u64 = 1_000_000_000;
/// Waits of one call that are kept: the first ones.
const WAITS_MAX: usize = 1 << 10;

/// A call of the watched function with this number, and what it waited for longest.
pub(super) struct RecentCall {
    pub(super) function: usize,
    pub(super) row: CallRow,
    pub(super) waited_for: Option<Reason>,
}

/// Looks for hits, and keeps what a capture has.
pub(super) struct Noticed {
    pub(super) triggers: Triggers,
    /// By their ends.
    recent: VecDeque<RecentCall>,
    /// Earlier calls are not among the recent ones any more.
    recent_from: Ns,
    /// By thread and entry.
    opened: BTreeMap<(Tid, Ns), (CallRow, RowParts)>,
    /// Time from the end of a hit until its capture may be made.
    after_ns: u64,
}

impl Noticed {
    /// `after_ns`: time from the end of a hit until its capture may be made.
    pub(super) fn new(triggers: Triggers, after_ns: u64) -> Self {
        Self { triggers, recent: VecDeque::new(), recent_from: Ns(0), opened: BTreeMap::new(), after_ns }
    }

    /// Calls were lost up to then.
    pub(super) fn lose(&mut self, until: Ns) {
        self.recent_from = self.recent_from.max(until);
    }

    /// The calls that were running at any time of a span, and from when on all of them are there.
    pub(super) fn calls_in(&self, (from, to): (Ns, Ns)) -> (Ns, impl Iterator<Item = &RecentCall>) {
        let is_in = move |call: &&RecentCall| call.row.start_ns <= to && call.row.end_ns() >= from.0;
        (from.max(self.recent_from).min(to), self.recent.iter().filter(is_in))
    }

    /// The call that was hit, and what was inside of it; `None`: it is not known any more, or it is no call.
    pub(super) fn call_of(&self, hit: &Hit) -> Option<&(CallRow, RowParts)> {
        self.opened.get(&(hit.tid?, hit.span.0)).filter(|_| hit.latency_ns.is_some())
    }

    /// Forgets calls that are too old, and of the others, if that is not enough, the less slow half; none
    /// that has a hit which may wait.
    fn forget(&mut self, now_ns: u64) {
        self.opened.retain(|_, (row, _)| row.end_ns().saturating_add(OPENED_FOR_NS) >= now_ns);
        if self.opened.len() < OPENED_MAX {
            return;
        }
        let waits =
            |row: &CallRow| row.end_ns().saturating_add(self.after_ns).saturating_add(SECOND_NS) >= now_ns;
        let key = |(key, (row, _)): (&(Tid, Ns), &(CallRow, RowParts))| {
            (!waits(row), Reverse(row.latency_ns), *key)
        };
        let mut order: Vec<(bool, Reverse<u64>, (Tid, Ns))> = self.opened.iter().map(key).collect();
        order.sort_unstable();
        order.iter().skip(OPENED_MAX / 2).for_each(|(_, _, key)| _ = self.opened.remove(key));
    }
}

impl RowSink for Noticed {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        self.triggers.row(function, row, waited_for);
        if self.recent.len() >= RECENT_MAX
            && let Some(gone) = self.recent.pop_front()
        {
            self.recent_from = self.recent_from.max(Ns(gone.row.end_ns()));
        }
        self.recent.push_back(RecentCall { function, row: *row, waited_for: waited_for.cloned() });
    }

    fn wants_parts(&self) -> bool {
        self.triggers.has_noticed_last()
    }

    fn parts(&mut self, row: &CallRow, parts: &RowParts) {
        if self.opened.len() >= OPENED_MAX {
            self.forget(row.end_ns());
        }
        let mut parts = parts.clone();
        parts.waits.truncate(WAITS_MAX);
        self.opened.insert((row.id.tid, row.start_ns), (*row, parts));
    }
}
