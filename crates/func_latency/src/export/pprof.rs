//! A profile for `go tool pprof`: calls, latency and CPU time of each path.
//!
//! The messages are those of pprof's `proto/profile.proto`, as far as they are used here.

use std::collections::HashMap;

use analyzer::CallTree;
use model::{ClockOffsets, Ns};
use prost::Message;

use super::{Labels, STACK_MAX};
use crate::render::Names;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// Numbers are indices of `string_table`.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    /// In the order of `sample_type`.
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Each string once; the first is empty.
struct Strings {
    numbers: HashMap<String, i64>,
    all: Vec<String>,
}

impl Strings {
    fn new() -> Self {
        Self { numbers: HashMap::from([(String::new(), 0)]), all: vec![String::new()] }
    }

    fn number(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as i64;
        self.numbers.insert(text.to_owned(), number);
        self.all.push(text.to_owned());
        number
    }
}

/// The profile of the paths in a recording's `window`, encoded.
#[must_use]
pub fn profile(tree: &CallTree, names: &dyn Names, window: (Ns, Ns), clocks: ClockOffsets) -> Vec<u8> {
    let mut labels = Labels::new(names);
    let mut strings = Strings::new();
    let types = [("calls", "count"), ("latency", "nanoseconds"), ("cpu", "nanoseconds")];
    let sample_type =
        types.map(|(kind, unit)| ValueType { kind: strings.number(kind), unit: strings.number(unit) });
    let mut path: Vec<u64> = Vec::new();
    let mut sample = Vec::new();
    for step in tree.walk() {
        let is_shown = step.depth < STACK_MAX;
        if is_shown {
            path.truncate(step.depth);
            path.push(labels.of(step.node) as u64 + 1);
        }
        let calls = if is_shown { step.node.total.count } else { 0 };
        let values = [calls, step.own.sum_ns, step.own.on_cpu_ns()];
        let value = values.map(|value| i64::try_from(value).unwrap_or(i64::MAX)).to_vec();
        sample.push(Sample { location_id: path.iter().rev().copied().collect(), value });
    }
    let mut function = Vec::new();
    for ((name, id), number) in labels.all().iter().zip(1..) {
        let object = names.object_of(*id).unwrap_or_default();
        function.push(Function { id: number, name: strings.number(name), filename: strings.number(&object) });
    }
    let line = |id| vec![Line { function_id: id }];
    let location = function.iter().map(|f| Location { id: f.id, line: line(f.id) }).collect();
    let realtime = clocks.realtime_ns.map(|offset| offset.saturating_add_unsigned(window.0.0));
    let default_sample_type = strings.number("latency");
    let profile = Profile {
        sample_type: sample_type.to_vec(),
        sample,
        location,
        function,
        time_nanos: realtime.unwrap_or(0),
        duration_nanos: i64::try_from(window.1.since(window.0)).unwrap_or(i64::MAX),
        default_sample_type,
        string_table: strings.all,
    };
    profile.encode_to_vec()
}
