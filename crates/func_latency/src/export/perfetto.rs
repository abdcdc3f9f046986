//! A trace for Perfetto: calls as slices by thread, and when the thread was off its CPU.
//!
//! The messages are those of Perfetto's `protos/perfetto/trace/trace_packet.proto` and the files it imports,
//! as far as they are used here. A trace is a sequence of packets, so each is written as it comes.
//!
//! ```text
//!   thread 7   |-- f --------------------|
//!                |- g -|    |- [syscall]-|
//!     off-CPU                 |-- -- -|
//! ```
//! What a call executed is known of it as a whole, so it is an argument of its slice. There is no track of
//! counters: between two events of the trace nothing says when the instructions ran.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use analyzer::{CallRow, CallTree, ChildKind, Node, TreeSink, Trees, off_cpu_spans};
use model::{FunctionId, Ns, Pid, Schedule, Tid};
use prost::Message;

use super::NodeLabels;
use super::bounds::CallsLeftOut;
use crate::render::Names;

#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, tag = "13")]
    sequence_flags: u32,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
}

/// A figure of an event.
#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<EventName>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<EventName>,
}

/// A name that is told once: of an event, or of an annotation.
#[derive(Clone, PartialEq, Message)]
struct EventName {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    tid: i32,
    #[prost(string, tag = "5")]
    thread_name: String,
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;

/// `TracePacket.SequenceFlags`.
const INCREMENTAL_STATE_CLEARED: u32 = 1;
const NEEDS_INCREMENTAL_STATE: u32 = 2;

/// The one writer of the trace.
const SEQUENCE: u32 = 1;

/// The off-CPU track, beside that of the calls. A thread's own track has its number.
const OFF_CPU: u64 = 1 << 32;

/// The track of notes on the trace as a whole.
const NOTES: u64 = 1 << 33;

/// The first track of a function's calls in a thread, where there are several functions.
const OF_FUNCTION: u64 = 1 << 34;

/// Takes the trees of outermost calls, and writes them.
pub struct Trace<'a> {
    out: &'a mut dyn Write,
    names: &'a dyn Names,
    labels: NodeLabels<'a>,
    schedule: &'a Schedule,
    known: BTreeSet<u64>,
    /// Functions with tracks of their own for their calls, and their numbers, from 1: a call of one may be
    /// inside of a call of another. `None`: there is one function, and its calls are on the threads' tracks.
    functions: Option<BTreeMap<FunctionId, u64>>,
    named: usize,
    /// Slices have what their calls executed.
    has_counters: bool,
    left_out: CallsLeftOut,
    is_first: bool,
    error: io::Result<()>,
}

impl<'a> Trace<'a> {
    /// A trace without calls, of those that take `min_ns`; of several functions, if so.
    pub fn new(
        out: &'a mut dyn Write,
        names: &'a dyn Names,
        schedule: &'a Schedule,
        min_ns: u64,
        are_several: bool,
    ) -> Self {
        Self {
            out,
            names,
            labels: NodeLabels::new(names),
            schedule,
            known: BTreeSet::new(),
            functions: are_several.then(BTreeMap::new),
            named: 0,
            has_counters: false,
            left_out: CallsLeftOut::below(min_ns),
            is_first: true,
            error: Ok(()),
        }
    }

    /// With what each call executed as arguments of its slice, if so.
    #[must_use]
    pub fn with_counters(self, has_counters: bool) -> Self {
        Self { has_counters, ..self }
    }

    /// Says in the trace what it does not have, as an event at its start; the same for people.
    ///
    /// # Errors
    /// What `out` has said.
    pub fn finish(mut self, start: Ns) -> io::Result<Vec<String>> {
        let notes = self.left_out.notes();
        if !notes.is_empty() {
            let CallsLeftOut { min_ns, calls, outermost, outermost_ns, merged } = self.left_out;
            let name = Some("func_latency".to_owned());
            let track = TrackDescriptor { uuid: NOTES, name, ..TrackDescriptor::default() };
            self.describe(track);
            let figures = [
                ("calls_left_out", calls),
                ("all_shorter_than_ns", min_ns),
                ("in_no_other_call", outermost),
                ("time_of_these_ns", outermost_ns),
                ("merged_calls", merged),
            ];
            let annotation = |(name, value): (&str, u64)| DebugAnnotation {
                name: Some(name.to_owned()),
                uint_value: Some(value),
                ..DebugAnnotation::default()
            };
            let event = TrackEvent {
                kind: INSTANT,
                track_uuid: NOTES,
                name: Some(notes.join("; ")),
                debug_annotations: figures.map(annotation).into(),
                ..TrackEvent::default()
            };
            let timestamp = Some(start.0);
            self.packet(TracePacket { timestamp, track_event: Some(event), ..TracePacket::default() });
        }
        self.error.map(|()| notes)
    }

    fn packet(&mut self, packet: TracePacket) {
        if self.error.is_err() {
            return;
        }
        let mut packet = TracePacket {
            trusted_packet_sequence_id: SEQUENCE,
            sequence_flags: NEEDS_INCREMENTAL_STATE,
            ..packet
        };
        if std::mem::take(&mut self.is_first) {
            let names = if self.schedule.has_switches() { &[PREEMPTED, OFF][..] } else { &[] };
            let event_name = |(iid, name): &(u64, &str)| EventName { iid: *iid, name: (*name).to_owned() };
            let event_names = names.iter().map(event_name).collect();
            packet.sequence_flags |= INCREMENTAL_STATE_CLEARED;
            let counters = if self.has_counters { &COUNTERS[..] } else { &[] };
            let debug_annotation_names = counters.iter().map(event_name).collect();
            packet.interned_data = Some(InternedData { event_names, debug_annotation_names });
        }
        let packets = Packets { packet: vec![packet] };
        self.error = self.out.write_all(&packets.encode_to_vec());
    }

    /// The track of a function's calls in a thread.
    fn track(&mut self, tid: Tid, function: FunctionId) -> u64 {
        let thread = u64::try_from(tid.0).unwrap_or(0);
        let number = self.functions.as_mut().map(|functions| {
            let next = functions.len() as u64 + 1;
            *functions.entry(function).or_insert(next)
        });
        let track = number.map_or(thread, |number| thread | (number * OF_FUNCTION));
        if self.known.insert(thread) {
            let life = self.schedule.thread(tid);
            let pid = life.map_or(Pid(tid.0), |life| life.pid).0;
            let thread_name = life.map_or_else(String::new, |life| life.name.clone());
            let descriptor = Some(ThreadDescriptor { pid, tid: tid.0, thread_name });
            self.describe(TrackDescriptor { uuid: thread, thread: descriptor, ..TrackDescriptor::default() });
            if track == thread {
                self.describe_off_cpu(track);
            }
        }
        if self.known.insert(track) {
            let name = Some(self.names.function(function));
            self.describe(TrackDescriptor { uuid: track, name, parent_uuid: Some(thread), thread: None });
            self.describe_off_cpu(track);
        }
        track
    }

    fn describe_off_cpu(&mut self, parent: u64) {
        if self.schedule.has_switches() {
            let (name, parent_uuid) = (Some("off-CPU".to_owned()), Some(parent));
            self.describe(TrackDescriptor { uuid: parent | OFF_CPU, name, parent_uuid, thread: None });
        }
    }

    fn describe(&mut self, track: TrackDescriptor) {
        self.packet(TracePacket { track_descriptor: Some(track), ..TracePacket::default() });
    }

    fn slice(&mut self, track_uuid: u64, at: Ns, kind: i32, name_iid: Option<u64>) {
        self.event(at, TrackEvent { kind, name_iid, track_uuid, ..TrackEvent::default() }, None);
    }

    /// An event on a track; `new_name`: its name, the first time that it is used.
    fn event(&mut self, at: Ns, event: TrackEvent, new_name: Option<&str>) {
        let iid = event.name_iid.unwrap_or(0);
        let event_names = |name: &str| vec![EventName { iid, name: name.to_owned() }];
        self.packet(TracePacket {
            timestamp: Some(at.0),
            interned_data: new_name
                .map(|name| InternedData { event_names: event_names(name), ..InternedData::default() }),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }

    fn begin(&mut self, track: u64, node: &Node) {
        let number = self.labels.of(node);
        let is_new = number >= self.named;
        self.named = self.named.max(number + 1);
        let name = is_new.then(|| self.labels.name(number).to_owned());
        let event = TrackEvent {
            kind: SLICE_BEGIN,
            name_iid: Some(number as u64 + FIRST_NAME),
            track_uuid: track,
            debug_annotations: if self.has_counters { executed(node) } else { Vec::new() },
            ..TrackEvent::default()
        };
        self.event(node.start, event, name.as_deref());
    }
}

/// What a node executed, as the arguments of its slice. Nothing is known of the system's parts, which are no
/// user code, and of calls that were not seen from entry to end.
fn executed(node: &Node) -> Vec<DebugAnnotation> {
    if matches!(node.kind, ChildKind::Syscall | ChildKind::Interrupt) {
        return Vec::new();
    }
    let work = node.work.filter(|_| node.status.counted());
    let cycles = work.and_then(|work| work.cycles);
    let values = [
        work.map(|work| work.instructions),
        cycles.map(|cycles| cycles.count),
        cycles.map(|cycles| cycles.error),
    ];
    let annotation = |((iid, _), value): (&(u64, &str), Option<u64>)| DebugAnnotation {
        name_iid: Some(*iid),
        uint_value: value,
        string_value: value.is_none().then(|| "unknown".to_owned()),
        ..DebugAnnotation::default()
    };
    COUNTERS.iter().zip(values).map(annotation).collect()
}

/// Arguments of slices, with their numbers.
const COUNTERS: [(u64, &str); 3] = [(1, "instructions"), (2, "cycles"), (3, "cycles_error")];

/// Numbers of functions' names are behind those of the others, from 1.
const FIRST_NAME: u64 = 3;
const PREEMPTED: (u64, &str) = (1, "preempted");
const OFF: (u64, &str) = (2, "off-CPU");

impl TreeSink for Trace<'_> {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn min_ns(&self) -> u64 {
        self.left_out.min_ns
    }

    fn resumed(&mut self, call: &CallRow, tree: &CallTree) {
        self.call(call, tree);
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if !self.left_out.keeps(call, tree) {
            return;
        }
        let track = self.track(call.id.tid, call.function);
        let mut open: Vec<Ns> = Vec::new();
        for step in tree.walk() {
            for end in open.drain(step.depth.min(open.len())..).rev().collect::<Vec<_>>() {
                self.slice(track, end, SLICE_END, None);
            }
            self.begin(track, step.node);
            open.push(step.node.end());
        }
        for end in open.into_iter().rev() {
            self.slice(track, end, SLICE_END, None);
        }
        let end = Ns(call.start_ns.0.saturating_add(call.latency_ns));
        let schedule = self.schedule;
        for span in off_cpu_spans(schedule, call.id.tid, call.start_ns, end)
            .filter(|_| call.off_cpu_ns.is_some_and(|ns| ns > 0))
        {
            let (iid, _) = if span.preempted { PREEMPTED } else { OFF };
            self.slice(track | OFF_CPU, span.from, SLICE_BEGIN, Some(iid));
            self.slice(track | OFF_CPU, span.to.unwrap_or(end), SLICE_END, None);
        }
    }
}
