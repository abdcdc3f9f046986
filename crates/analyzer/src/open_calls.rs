//! Calls that were not seen from entry to end: what their observed part was spent in.
//!
//! ```text
//!   thread   ...|====== f ======|  gap  |==== f ====|  end of the trace
//!                g   g    read           g    read
//!               cut at the gap          resumed: the same call, found running
//! ```
//! Their latency is not known, so they are in no other table. Sums are over the *outermost* calls: an open
//! call inside of another call of its function counts with that one, as a child, and no instant counts twice.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::call_row::CallRow;
use crate::children::ChildRow;
use crate::children::{ChildKey, ChildSums};
use crate::place::CalledFrom;
use crate::sorted_pairs;
use crate::total::{OffCpuKnown, RunningTotal, Total};

/// What was seen of a function's calls that were open at the start or the end, or cut: sums are without those
/// inside of another call of the function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenCalls {
    /// The calls, and the time in which they were seen.
    pub observed: Total,
    /// The part of that time that came after a gap: a call that was cut and then found running. `count`: the
    /// number of times that one was found.
    pub resumed: Total,
    /// Where the observed time went: longest first. With `*self`, the rows add up to `observed` exactly. A
    /// callee that had not ended counts, too, up to where it was seen.
    pub children: Vec<ChildRow>,
    /// The callers of these calls: longest first. [`CalledFrom::UNKNOWN`]: the entry was not seen; all
    /// `resumed` time is there.
    pub callers: Vec<OpenCaller>,
    /// The longest calls, the longest first; at most [`OpenCalls::LONGEST`]. Also those inside of another
    /// call of the function.
    pub longest: Vec<CallRow>,
    /// A call with children that took longer than its seen part.  There is none: [`crate::check`].
    pub overfull: Option<CallRow>,
}

impl OpenCalls {
    /// How many calls are listed.
    pub const LONGEST: usize = 10;
}

/// The open calls from one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCaller {
    /// The caller, and the calling (or jumping) instruction.
    pub from: CalledFrom,
    /// Its calls, and the time in which they were seen.
    pub observed: Total,
}

/// The open calls so far.
#[derive(Clone, Serialize, Deserialize)]
#[serde(bound(
    serialize = "C: Copy + Ord + Hash + Serialize",
    deserialize = "C: Copy + Eq + Hash + Deserialize<'de>"
))]
pub(crate) struct OpenSums<C> {
    observed: RunningTotal,
    resumed: RunningTotal,
    pub(crate) children: ChildSums<C>,
    #[serde(with = "sorted_pairs")]
    pub(crate) callers: FxHashMap<CalledFrom, RunningTotal>,
    pub(crate) longest: Vec<CallRow>,
    pub(crate) overfull: Option<CallRow>,
}

impl<C> Default for OpenSums<C> {
    fn default() -> Self {
        Self {
            observed: RunningTotal::default(),
            resumed: RunningTotal::default(),
            children: ChildSums::default(),
            callers: FxHashMap::default(),
            longest: Vec::new(),
            overfull: None,
        }
    }
}

impl<C: Copy + Eq + Hash> OpenSums<C> {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.observed.add(other.observed);
        self.resumed.add(other.resumed);
        self.children.merge(other.children.iter());
        for (caller, total) in &other.callers {
            self.callers.entry(*caller).or_default().add(*total);
        }
        other.longest.iter().for_each(|row| self.list(row));
        self.overfull = CallRow::first_of(self.overfull, other.overfull);
    }

    /// Names the children.
    pub(crate) fn named(self, name: &mut impl FnMut(C) -> ChildKey) -> OpenSums<ChildKey> {
        let Self { observed, resumed, children, callers, longest, overfull } = self;
        OpenSums { observed, resumed, children: children.named(name), callers, longest, overfull }
    }

    /// Adds a call that was not seen from entry to end.
    pub(crate) fn add(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) {
        self.list(row);
        self.add_part(row, 1, row.from, children);
    }

    /// Keeps the longest few.
    fn list(&mut self, row: &CallRow) {
        let at = self.longest.partition_point(|r| r.open_order() < row.open_order());
        if at < OpenCalls::LONGEST {
            self.longest.insert(at, *row);
            self.longest.truncate(OpenCalls::LONGEST);
        }
    }

    /// Adds the part of a call that was seen after a gap; the call was added before.
    pub(crate) fn resume(&mut self, row: &CallRow, children: &[(C, RunningTotal)]) {
        if let Some(part) = self.add_part(row, 0, CalledFrom::UNKNOWN, children) {
            self.resumed.add(RunningTotal { count: 1, ..part });
        }
    }

    /// Returns the total that was added; `None` for a call inside of another call of its function.
    fn add_part(
        &mut self,
        row: &CallRow,
        calls: u64,
        caller: CalledFrom,
        children: &[(C, RunningTotal)],
    ) -> Option<RunningTotal> {
        if row.depth > 0 {
            return None;
        }
        let off_cpu_ns = row.off_cpu_ns.unwrap_or_default();
        let part = RunningTotal { count: calls, sum_ns: row.latency_ns, off_cpu_ns, error_ns: row.error_ns };
        self.observed.add(part);
        self.callers.entry(caller).or_default().add(part);
        let inside = self.children.merge(children.iter().copied());
        if !row.has_room_for(&inside.known(OffCpuKnown(true))) {
            self.overfull.get_or_insert(*row);
        }
        Some(part)
    }

    /// The report; `percent` turns on-CPU ns into a share of one core.
    pub(crate) fn finish(
        self,
        off_cpu: OffCpuKnown,
        name: &mut impl FnMut(C) -> ChildKey,
        percent: &impl Fn(u64) -> f64,
    ) -> OpenCalls {
        // The sum of no time is 0, also where off-CPU time is not known.
        let known = |total: RunningTotal| match total == RunningTotal::default() {
            true => Total::default(),
            false => total.known(off_cpu),
        };
        let caller = |(from, observed)| OpenCaller { from, observed: known(observed) };
        let mut callers: Vec<OpenCaller> = self.callers.into_iter().map(caller).collect();
        callers.sort_unstable_by_key(|c| (Reverse(c.observed.sum_ns), c.from));
        OpenCalls {
            observed: known(self.observed),
            resumed: known(self.resumed),
            children: self.children.named(name).rows(known(self.observed), self.observed.error_ns, percent),
            callers,
            longest: self.longest,
            overfull: self.overfull,
        }
    }
}
