//! The slowest calls of each function.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use crate::call_row::CallRow;
use crate::off_cpu_causes::Reason;

/// Takes rows of calls in any order, and keeps those of the slowest of each wanted function.
#[derive(Debug, Default)]
pub struct SlowestCalls {
    /// By number of the wanted function; the least slow comes first.
    kept: BTreeMap<usize, BinaryHeap<Reverse<SlowCall>>>,
}

/// A call that counts, and what it waited for longest.
#[derive(Clone, Debug)]
struct SlowCall {
    row: CallRow,
    waited_for: Option<Reason>,
}

impl SlowCall {
    /// Calls are ordered by latency, and of equals the earlier is the slower.
    fn order(row: &CallRow) -> (u64, Reverse<u64>, Reverse<(i32, u64)>) {
        (row.latency_ns, Reverse(row.start_ns.0), Reverse((row.id.tid.0, row.id.number)))
    }
}

impl PartialEq for SlowCall {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SlowCall {}

impl PartialOrd for SlowCall {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SlowCall {
    fn cmp(&self, other: &Self) -> Ordering {
        Self::order(&self.row).cmp(&Self::order(&other.row))
    }
}

impl SlowestCalls {
    /// Rows that are kept of each function.
    pub const MOST: usize = 100;

    /// Takes the row of a call of the wanted function with this number.
    pub fn add(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        if !row.end.status.counted() {
            return;
        }
        let kept = self.kept.entry(function).or_default();
        let call = || Reverse(SlowCall { row: *row, waited_for: waited_for.cloned() });
        if kept.len() < Self::MOST {
            kept.push(call());
        } else if let Some(mut least) = kept.peek_mut()
            && SlowCall::order(row) >= SlowCall::order(&least.0.row)
        {
            *least = call();
        }
    }

    /// The rows, by function, with what their calls waited for longest.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &CallRow, Option<&Reason>)> {
        self.kept.iter().flat_map(|(function, calls)| {
            calls.iter().map(move |Reverse(call)| (*function, &call.row, call.waited_for.as_ref()))
        })
    }
}
