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
        (row.latency_ns, Reverse(row.start_ns.0), Reverse((row.tid.0, row.id.number)))
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
        if !row.status.counted() {
            return;
        }
        let kept = self.kept.entry(function).or_default();
        let is_slower = |least: &Reverse<SlowCall>| SlowCall::order(row) >= SlowCall::order(&least.0.row);
        if kept.len() == Self::MOST && !kept.peek().is_some_and(is_slower) {
            return;
        }
        kept.push(Reverse(SlowCall { row: *row, waited_for: waited_for.cloned() }));
        if kept.len() > Self::MOST {
            kept.pop();
        }
    }

    /// The rows, by function, with what their calls waited for longest.
    pub fn rows(&self) -> impl Iterator<Item = (usize, &CallRow, Option<&Reason>)> {
        self.kept.iter().flat_map(|(function, calls)| {
            calls.iter().map(move |Reverse(call)| (*function, &call.row, call.waited_for.as_ref()))
        })
    }
}

#[cfg(test)]
mod tests {
    use model::{FunctionId, Ns, Tid};

    use super::*;
    use crate::call_row::CallId;
    use crate::place::Caller;
    use crate::status::Status;

    fn row() -> CallRow {
        CallRow {
            id: CallId { tid: Tid(7), number: 0 },
            pid: None,
            tid: Tid(7),
            cpu: None,
            start_ns: Ns(0),
            latency_ns: 0,
            error_ns: 0,
            off_cpu_ns: None,
            status: Status::Complete,
            cut_by: None,
            caller: Caller::Unknown,
            site: None,
            function: FunctionId(1),
            depth: 0,
            ended_by_jump: false,
            hidden: false,
            undecided: false,
            aux_buffer: None,
            aux_offset: None,
            probed: None,
            counted: None,
        }
    }

    #[test]
    fn the_slowest_are_kept_in_any_order() {
        let calls = |order: &mut dyn Iterator<Item = u64>| {
            let mut slowest = SlowestCalls::default();
            for number in order {
                let latency_ns = number % 50;
                slowest.add(3, &CallRow { latency_ns, start_ns: Ns(number), ..row() }, None);
            }
            slowest.add(3, &CallRow { latency_ns: 999, status: Status::OpenEnd, ..row() }, None);
            let mut rows: Vec<_> =
                slowest.rows().map(|(at, row, _)| (at, row.latency_ns, row.start_ns.0)).collect();
            rows.sort_unstable();
            rows
        };
        let rows = calls(&mut (0..200));
        assert_eq!((rows.len(), rows[0], rows[99]), (100, (3, 25, 25), (3, 49, 199)));
        assert_eq!(calls(&mut (0..200).rev()), rows);
    }
}
