//! A recording that grows: decoded part by part it has the events that it has as a whole, and the intervals
//! of `watch` add up to its report.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use decoder::{Context, Continuation, DecodeOptions, Grown};
use model::{
    AuxBuffer, AuxOffset, AuxPiece, EventSink, Ns, Pid, Recording, SpaceId, Tid, TraceEvent, Transfer,
};
use serde_json::Value;
use truth_tests::{Opened, fixture, pipeline};

/// With several CPUs, a buffer for each thread, losses, an IP filter, kernel code, sleeps, no switch records.
const RECORDINGS: [(&str, &str); 14] = [
    ("demo", "round_fn"),
    ("demo-cpu2", "round_fn"),
    ("demo-cpu2-ovf", "round_fn"),
    ("demo-cpu2-trunc", "leaf"),
    ("demo-filter2", "mid"),
    ("demo-noswitch", "round_fn"),
    ("demo-offcpu", "worker"),
    ("calls", "fact_rec"),
    ("calls-cpu8", "round_cc"),
    ("sq1", "sqlite3VdbeExec"),
    ("causes-cpu1", "waits_for_lock"),
    ("case-recursion-ovf", "deep"),
    ("case-signals", "main"),
    ("case-unwind", "main"),
];

/// The events of each thread, in order.
#[derive(Default)]
struct ByThread(BTreeMap<Tid, Vec<(SpaceId, TraceEvent)>>);

impl EventSink for ByThread {
    fn events(&mut self, _: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.0.entry(tid).or_default().extend(events.iter().map(|event| (space, *event)));
    }
}

/// What there is of a buffer at a time: up to the first PSB after it, and `more` bytes.
fn until<'a>(recording: &Recording<'_>, buffer: &AuxBuffer<'a>, time: Ns, more: u64) -> AuxBuffer<'a> {
    let end = decoder::first_psb_after(recording, &buffer.pieces, time).plus(more);
    let piece = |piece: &AuxPiece<'a>| {
        let len = usize::try_from(end.0.saturating_sub(piece.offset.0)).unwrap().min(piece.bytes.len());
        (len > 0).then(|| AuxPiece { bytes: &piece.bytes[..len], ..*piece })
    };
    let records = buffer.records.iter().copied().filter(|record| record.offset < end).collect();
    AuxBuffer { pieces: buffer.pieces.iter().filter_map(piece).collect(), records, ..buffer.clone() }
}

/// Decodes a recording in so many parts of the same time, and then what is left.
fn in_parts(opened: &Opened<'_>, parts: u64, patience_ns: Option<u64>) -> ByThread {
    let Opened { recording, schedule, image, .. } = opened;
    let (first, last) = recording.time_span.unwrap();
    let mut continuation = Continuation::default();
    continuation.of_whole(recording);
    let mut events = ByThread::default();
    let mut needed: BTreeMap<u32, AuxOffset> = BTreeMap::new();
    for part in 1..=parts {
        let until_ns = Ns(first.0 + last.since(first) * part / parts);
        let is_last = part == parts;
        let buffers = recording.buffers.iter().map(|buffer| match is_last {
            true => buffer.clone(),
            // Parts end anywhere, in packets too.
            false => until(recording, buffer, until_ns, part * 977 % 5000),
        });
        let grown = Recording { buffers: buffers.collect(), ..recording.clone() };
        let context = Context::new(&grown, schedule, image, false);
        let how = (2, DecodeOptions::default().segment_bytes);
        let grown_to = Grown { until: (!is_last).then_some(until_ns), patience_ns };
        continuation.decode_on(&context, how, grown_to, None::<&decoder::NoDigester>, &mut events);
        for buffer in &recording.buffers {
            let from = continuation.needed_from(buffer.index).unwrap_or_default();
            assert!(needed.insert(buffer.index, from) <= Some(from), "decoding went back");
        }
    }
    events
}

/// What happened, without when.
fn without_times(events: &ByThread) -> BTreeMap<Tid, Vec<(SpaceId, AuxOffset, Option<Transfer>)>> {
    let what = |&(space, event): &(SpaceId, TraceEvent)| match event {
        TraceEvent::Branch(branch) => (space, branch.at, Some(branch.transfer)),
        TraceEvent::Gap(gap) => (space, gap.at, None),
    };
    events.0.iter().map(|(tid, events)| (*tid, events.iter().map(what).collect())).collect()
}

#[test]
fn in_parts_it_has_the_events_of_the_whole() {
    for (name, _) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let mut whole = ByThread::default();
        opened.decode(&DecodeOptions::default(), &mut whole);
        for parts in [1, 2, 30] {
            let events = in_parts(&opened, parts, None);
            assert!(events.0 == whole.0, "{name} in {parts} parts");
        }
    }
}

/// Without losses, whose ends are known later.
#[test]
fn what_is_not_waited_for_is_given_out_once() {
    for name in ["demo-cpu2", "demo-filter2", "calls-cpu8", "calls-cpu8-switch2", "calls-offcpu"] {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let mut whole = ByThread::default();
        opened.decode(&DecodeOptions::default(), &mut whole);
        let whole = without_times(&whole);
        for parts in [3, 40] {
            let events = without_times(&in_parts(&opened, parts, Some(0)));
            assert_eq!(events.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>(), "{name}");
            for (tid, expected) in &whole {
                let seen = &events[tid];
                let differs = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
                assert_eq!(differs, None, "{name} in {parts} parts, thread {tid:?}");
                assert_eq!(seen.len(), expected.len(), "{name} in {parts} parts, thread {tid:?}");
            }
        }
    }
}

/// What the command prints.
fn done(words: &[&str], data: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    let output = command.args(words).arg(data).output().unwrap();
    // 1: no call was seen whole.
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1)), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The documents of the intervals, and the report.
fn watched(words: &[&str], data: &Path) -> (Vec<Value>, Value) {
    let printed = done(&[words, &["--format", "json", "--replay"]].concat(), data);
    let documents = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let mut documents: Vec<Value> = documents.collect::<Result<_, _>>().unwrap();
    let report = documents.pop().unwrap();
    (documents, report)
}

#[test]
fn the_intervals_add_up_to_the_report() {
    for (name, function) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let expected: Value =
            serde_json::from_str(&done(&["report", "--format", "json", "-f", function], &fixture.data))
                .unwrap();
        for interval in ["10", "0.0004"] {
            let (intervals, report) = watched(&["watch", "-f", function, "-n", interval], &fixture.data);
            assert_eq!(report, expected, "{name} every {interval} s");
            let sum = |key: &str| intervals.iter().map(|line| line[key].as_u64().unwrap()).sum::<u64>();
            let of_calls = |key: &str| {
                let of = |line: &Value| line["functions"][0]["latency_ns"][key].as_u64().unwrap();
                intervals.iter().map(of).sum::<u64>()
            };
            let latency = &expected["functions"][0]["latency_ns"];
            assert_eq!(of_calls("count"), latency["count"].as_u64().unwrap(), "{name} every {interval} s");
            assert_eq!(of_calls("sum"), latency["sum"].as_u64().unwrap_or(0), "{name} every {interval} s");
            assert_eq!(sum("trace_bytes"), expected["trace"]["aux_bytes"].as_u64().unwrap(), "{name}");
            assert!(intervals.iter().all(|line| line["decoded"] == 1.0), "{name}");
            assert_eq!(intervals.last().unwrap()["behind_ns"], 0, "{name}");
        }
    }
}

#[test]
fn the_metrics_are_those_of_all_calls() {
    let Some(fixture) = fixture("demo-cpu2") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics");
    std::fs::write(&path, "of before").unwrap();
    let words = ["watch", "-f", "round_fn", "-n", "0.001", "--openmetrics", path.to_str().unwrap()];
    let (_, report) = watched(&words, &fixture.data);
    let metrics = std::fs::read_to_string(&path).unwrap();
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let latency = &report["functions"][0]["latency_ns"];
    assert_eq!(value("func_latency_call_seconds_count{"), latency["count"].as_f64().unwrap());
    let sum_s = latency["sum"].as_f64().unwrap() / 1e9;
    assert!((value("func_latency_call_seconds_sum{") - sum_s).abs() < 1e-12);
    assert_eq!(value("func_latency_not_decoded_bytes_total"), 0.0);
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
}

#[test]
fn what_a_recording_cannot_show_over_time_is_refused() {
    let refused = |words: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_func_latency_under_test")).args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = refused(&["watch", "-f", "f", "-n", "0", "-p", "1"]);
    assert!(code == Some(2) && said.contains("-n 0"), "{said}");
    let (code, said) = refused(&["watch", "-p", "1"]);
    assert!(code == Some(2) && said.contains("--func"), "{said}");
    let Some(fixture) = fixture("demo") else { return };
    let data = fixture.data.to_str().unwrap();
    let (code, said) = refused(&["watch", "-f", "no_such_function", "--replay", data]);
    assert!(code == Some(2) && said.contains("no_such_function"), "{said}");
}
