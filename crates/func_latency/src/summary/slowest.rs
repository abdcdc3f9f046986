//! The slowest calls of each function, as rows in a summary.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use analyzer::{CallRow, Reason, RowSink};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::render::Names;
use crate::render::rows::{JsonRows, Origin};

/// Rows that are kept of each function.
const KEPT: usize = 100;

/// A row as JSON lines have it, and what it is ordered by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlowRow {
    function: String,
    object: Option<String>,
    latency_ns: u64,
    recording: String,
    id: String,
    pub(crate) row: Value,
}

/// Takes rows, and keeps the slowest.
#[derive(Default)]
pub(crate) struct Slowest {
    /// By wanted function; the least slow comes first.
    kept: BTreeMap<usize, BinaryHeap<Reverse<SlowCall>>>,
}

/// A call that counts: calls are ordered by latency, and of equals the earlier is the slower.
struct SlowCall {
    order: (u64, Reverse<u64>, Reverse<(i32, u64)>),
    row: CallRow,
    waited_for: Option<Reason>,
}

impl PartialEq for SlowCall {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for SlowCall {}

impl PartialOrd for SlowCall {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SlowCall {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl Slowest {
    /// The rows.
    pub(crate) fn finish(self, names: &dyn Names, origin: &Origin) -> Vec<SlowRow> {
        let mut rows = Vec::new();
        let mut json = JsonRows::new(names, origin);
        for Reverse(SlowCall { row, waited_for, .. }) in self.kept.into_values().flatten() {
            rows.push(SlowRow {
                function: names.function(row.function),
                object: names.object_of(row.function),
                latency_ns: row.latency_ns,
                recording: origin.recording.clone().unwrap_or_default(),
                id: row.id.to_string(),
                row: json.row(&row, waited_for.as_ref()),
            });
        }
        keep(&mut rows);
        rows
    }
}

impl RowSink for Slowest {
    fn row(&mut self, function: usize, row: &CallRow, waited_for: Option<&Reason>) {
        if !row.status.counted() {
            return;
        }
        let order = (row.latency_ns, Reverse(row.start_ns.0), Reverse((row.tid.0, row.id.number)));
        let kept = self.kept.entry(function).or_default();
        if kept.len() == KEPT && kept.peek().is_some_and(|Reverse(least)| order < least.order) {
            return;
        }
        kept.push(Reverse(SlowCall { order, row: *row, waited_for: waited_for.cloned() }));
        if kept.len() > KEPT {
            kept.pop();
        }
    }
}

/// Orders rows by function, the slowest first, and keeps the first few of each.
pub(crate) fn keep(rows: &mut Vec<SlowRow>) {
    let start = |row: &SlowRow| row.row.get("start_ns").and_then(Value::as_u64);
    rows.sort_by(|a, b| {
        let by_function = (&a.function, &a.object).cmp(&(&b.function, &b.object));
        let by_latency = b.latency_ns.cmp(&a.latency_ns).then_with(|| start(a).cmp(&start(b)));
        by_function.then(by_latency).then_with(|| (&a.recording, &a.id).cmp(&(&b.recording, &b.id)))
    });
    let mut before: Option<(String, Option<String>)> = None;
    let mut count = 0;
    rows.retain(|row| {
        let function = (row.function.clone(), row.object.clone());
        count = if before.as_ref() == Some(&function) { count + 1 } else { 0 };
        before = Some(function);
        count < KEPT
    });
}
