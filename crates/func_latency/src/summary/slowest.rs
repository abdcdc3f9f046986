//! The slowest calls of each function, as rows in a summary.

use analyzer::SlowestCalls;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::render::Names;
use crate::render::rows::{JsonRows, Origin};

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

/// The rows of these calls.
pub(crate) fn rows(slowest: &SlowestCalls, names: &dyn Names, origin: &Origin) -> Vec<SlowRow> {
    let mut rows = Vec::new();
    let mut json = JsonRows::new(names, origin);
    for (_, row, waited_for) in slowest.rows() {
        rows.push(SlowRow {
            function: names.function(row.function),
            object: names.object_of(row.function),
            latency_ns: row.latency_ns,
            recording: origin.recording.clone().unwrap_or_default(),
            id: row.id.to_string(),
            row: json.row(row, waited_for),
        });
    }
    keep(&mut rows);
    rows
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
        count < SlowestCalls::MOST
    });
}

#[cfg(test)]
mod tests {
    use analyzer::{SlowestCalls, Status};

    use crate::test_rows::row;

    #[test]
    fn the_slowest_are_kept_in_any_order() {
        let calls = |order: &mut dyn Iterator<Item = u64>| {
            let mut slowest = SlowestCalls::default();
            for number in order {
                slowest.add(3, &row(7, number, number % 50, Status::Complete), None);
            }
            slowest.add(3, &row(7, 0, 999, Status::OpenEnd), None);
            let mut rows: Vec<_> =
                slowest.rows().map(|(at, row, _)| (at, row.latency_ns, row.start_ns.0 - 1000)).collect();
            rows.sort_unstable();
            rows
        };
        let rows = calls(&mut (0..200));
        assert_eq!((rows.len(), rows[0], rows[99]), (100, (3, 25, 25), (3, 49, 199)));
        assert_eq!(calls(&mut (0..200).rev()), rows);
    }
}
