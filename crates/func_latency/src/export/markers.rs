//! Markers of a Firefox profile: what each outermost call executed.
//!
//! A marker is as long as its call, and has the numbers in its data. What is not known is the word `unknown`.
//! Calls that were not seen from entry to end have one, too, with nothing known.

use analyzer::{CallRow, Counted, CycleCount};
use model::{Executed, FunctionId, Ns};
use serde_json::{Value, json};

use super::spool::Record;

/// Name of the markers' kind in the format.
pub(super) const KIND: &str = "call";

/// A call with what it executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// The number of the function's name.
    pub(super) name: u32,
    /// The function of an open call; `None`: the call was seen whole.
    pub(super) open: Option<FunctionId>,
    pub(super) from: Ns,
    pub(super) ns: u64,
    pub(super) counted: Option<Counted>,
}

impl Marker {
    /// Of a call; `name`: the number of its function's name.
    pub(super) fn of(call: &CallRow, name: usize, open: Option<FunctionId>) -> Self {
        let counted = call.counted().copied().filter(Counted::is_known);
        Self { name: name as u32, open, from: call.start_ns, ns: call.latency_ns, counted }
    }

    /// The data that a viewer shows.
    pub(super) fn data(&self) -> Value {
        let known = |value: Option<u64>| value.map_or_else(|| json!("unknown"), Value::from);
        let counted = self.counted.as_ref();
        let executed = counted.map(|counted| counted.executed);
        let cycles = counted.and_then(|counted| counted.cycles);
        let branches = |of: Executed| of.conditional_branches.saturating_add(of.indirect_branches);
        let ipc = counted.and_then(Counted::ipc).map(|(ipc, _)| (ipc * 1000.0).round() / 1000.0);
        json!({
            "type": KIND,
            "instructions": known(executed.map(|of| of.instructions)),
            "cycles": known(cycles.map(|cycles| cycles.count)),
            "cycles_error": known(cycles.map(|cycles| cycles.error)),
            "ipc": ipc.map_or_else(|| json!("unknown"), Value::from),
            "branches": known(executed.map(branches)),
            "calls": known(executed.map(|of| of.calls)),
        })
    }
}

/// What viewers are told of the markers: fields are strings, as an unknown one is a word.
pub(super) fn schema() -> Value {
    let fields = [
        ("instructions", "Instructions"),
        ("cycles", "Cycles"),
        ("cycles_error", "Cycles: at most so far off"),
        ("ipc", "Instructions per cycle"),
        ("branches", "Branches"),
        ("calls", "Calls"),
    ];
    let field = |(key, label): (&str, &str)| json!({ "key": key, "label": label, "format": "string" });
    json!({
        "name": KIND,
        "description": "What a call executed in user code.",
        "tooltipLabel": "{marker.name}",
        "tableLabel": "{marker.data.instructions} instructions, IPC {marker.data.ipc}",
        "chartLabel": "{marker.name}",
        "display": ["marker-chart", "marker-table"],
        "fields": fields.map(field),
    })
}

impl Record for Marker {
    const WORDS: usize = 10;

    fn put(self, words: &mut Vec<u64>) {
        let open = self.open.unwrap_or(FunctionId::UNKNOWN).0;
        let Counted { executed, cycles, .. } = self.counted.unwrap_or_default();
        // Bits: the counters are known, and so are the cycles.
        let known = u64::from(self.counted.is_some()) | u64::from(cycles.is_some()) << 1;
        let CycleCount { count, error } = cycles.unwrap_or_default();
        words.extend([
            u64::from(self.name) << 32 | u64::from(open),
            self.from.0,
            self.ns,
            known,
            executed.instructions,
            executed.conditional_branches,
            executed.indirect_branches,
            executed.calls,
            count,
            error,
        ]);
    }

    fn read(words: &[u64]) -> Option<Self> {
        let [
            numbers,
            from,
            ns,
            known,
            instructions,
            conditional_branches,
            indirect_branches,
            calls,
            count,
            error,
        ] = *words
        else {
            return None;
        };
        let open = FunctionId(numbers as u32);
        let executed =
            Executed { instructions, conditional_branches, indirect_branches, calls, ..Executed::default() };
        let cycles = (known & 2 != 0).then_some(CycleCount { count, error });
        Some(Self {
            name: (numbers >> 32) as u32,
            open: (open != FunctionId::UNKNOWN).then_some(open),
            from: Ns(from),
            ns,
            counted: (known & 1 != 0).then_some(Counted { executed, cycles, bus: None }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_come_back_and_say_what_is_not_known() {
        let executed =
            Executed { instructions: 600, conditional_branches: 7, calls: 2, ..Executed::default() };
        let whole = Marker {
            name: 3,
            open: None,
            from: Ns(5),
            ns: 9,
            counted: Some(Counted {
                executed,
                cycles: Some(CycleCount { count: 400, error: 12 }),
                bus: None,
            }),
        };
        let no_cycles = Marker { counted: Some(Counted { executed, cycles: None, bus: None }), ..whole };
        let open = Marker { open: Some(FunctionId(8)), counted: None, ..whole };
        for marker in [whole, no_cycles, open] {
            let mut words = Vec::new();
            marker.put(&mut words);
            assert_eq!((words.len(), Marker::read(&words)), (Marker::WORDS, Some(marker)));
        }
        let data = whole.data();
        assert_eq!(
            (&data["instructions"], &data["cycles"], &data["ipc"]),
            (&json!(600), &json!(400), &json!(1.5))
        );
        let data = no_cycles.data();
        assert_eq!(
            (&data["branches"], &data["cycles"], &data["ipc"]),
            (&json!(7), &json!("unknown"), &json!("unknown"))
        );
        assert_eq!(open.data()["instructions"], "unknown");
    }
}
