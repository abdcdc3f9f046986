//! A profile for the Firefox Profiler: each call's time on the line of time, by thread.
//!
//! The processed format, version 55:
//! <https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts>. A "sample" here is no
//! sample: there is one for each stretch in which the same function ran itself, and its weight is how long
//! that was. What a processed profile has as columns comes row by row, so samples are in a scratch file until
//! all calls are known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;

use analyzer::{CallRow, CallTree, TreeSink, Trees};
use model::{FunctionId, Ns, Schedule, Tid};
use serde::Serialize;
use serde_json::{Value, json};

use super::bounds::CallsLeftOut;
use super::markers::{self, Marker};
use super::spool::{Record, Records, Sample, SampleSpool};
use super::{NodeLabels, of_open_calls};
use crate::render::Names;

/// The version of the format.
const VERSION: u32 = 55;

/// A marker's phase: it has a begin and an end.
const INTERVAL: u32 = 1;

/// Takes the trees of outermost calls.
pub struct Profile<'a> {
    names: &'a dyn Names,
    schedule: &'a Schedule,
    start: Ns,
    left_out: CallsLeftOut,
    spool: SampleSpool,
    /// Calls have markers with what they executed.
    has_counters: bool,
    /// By function, too: a call of one may be inside of a call of another, and time runs forward in each.
    threads: BTreeMap<(Tid, FunctionId), ThreadTables<'a>>,
    /// Functions with a call that was seen whole: what was seen of their open calls is not shown.
    with_whole: BTreeSet<FunctionId>,
    with_open: BTreeSet<FunctionId>,
    error: io::Result<()>,
}

/// A thread's tables.
struct ThreadTables<'a> {
    labels: NodeLabels<'a>,
    /// Caller and function.
    stacks: Vec<(Option<u32>, usize)>,
    numbers: HashMap<(Option<u32>, usize), u32>,
    samples: Records<Sample>,
    /// Calls with what they executed, if that was asked for.
    markers: Records<Marker>,
    /// How many there are, of open calls by function.
    lengths: BTreeMap<Option<FunctionId>, u64>,
}

impl<'a> Profile<'a> {
    /// A profile without calls, of a recording that starts then; of calls that take `min_ns`. `scratch`: a
    /// directory that has room for another file of this size.
    #[must_use]
    pub fn new(
        names: &'a dyn Names,
        schedule: &'a Schedule,
        start: Ns,
        min_ns: u64,
        scratch: PathBuf,
    ) -> Self {
        Self {
            names,
            schedule,
            start,
            left_out: CallsLeftOut::below(min_ns),
            spool: SampleSpool::new(scratch),
            has_counters: false,
            threads: BTreeMap::new(),
            with_whole: BTreeSet::new(),
            with_open: BTreeSet::new(),
            error: Ok(()),
        }
    }

    /// With a marker for each outermost call that has what it executed, if so.
    #[must_use]
    pub fn with_counters(self, has_counters: bool) -> Self {
        Self { has_counters, ..self }
    }

    /// What is to be said of what it shows, for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let open = self.with_open.difference(&self.with_whole);
        let open: Vec<String> = open.map(|function| self.names.function(*function)).collect();
        let observed_part = (!open.is_empty()).then(|| of_open_calls(&open));
        observed_part.into_iter().chain(self.left_out.notes()).collect()
    }

    /// Writes it.
    ///
    /// # Errors
    /// What `out` or the scratch file says.
    pub fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        std::mem::replace(&mut self.error, Ok(()))?;
        out.write_all(b"{\"threads\":[")?;
        for (number, (key, thread)) in self.threads.iter().enumerate() {
            out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
            self.write_thread(out, *key, thread)?;
        }
        out.write_all(b"],\n\"libs\":[],\"pages\":[],\"profilerOverhead\":[],\"meta\":")?;
        serde_json::to_writer(&mut *out, &self.meta())?;
        out.write_all(b"}\n")
    }

    fn meta(&self) -> Value {
        let CallsLeftOut { min_ns, calls, outermost, outermost_ns, .. } = self.left_out;
        let left_out = json!([{
            "label": "Calls left out",
            "entries": [
                { "label": "calls", "format": "integer", "value": calls },
                { "label": "all shorter than", "format": "nanoseconds", "value": min_ns },
                { "label": "in no other call", "format": "integer", "value": outermost },
                { "label": "time of these", "format": "nanoseconds", "value": outermost_ns },
            ],
        }]);
        let notes = self.notes();
        json!({
            "preprocessedProfileVersion": VERSION,
            "version": 24, // of the format before processing: not looked at
            "product": "func_latency",
            "profileName": (!notes.is_empty()).then(|| notes.join("; ")),
            "interval": 1e-6,
            "startTime": 0,
            "processType": 0,
            "stackwalk": 1,
            "symbolicated": true,
            "categories": [{ "name": "Other", "color": "grey", "subcategories": ["Other"] }],
            "markerSchema": if self.has_counters { json!([markers::schema()]) } else { json!([]) },
            "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs" },
            "extra": if calls > 0 { left_out } else { json!([]) },
        })
    }

    /// Writes a thread: its samples column by column, and all else as a whole.
    fn write_thread(
        &self,
        out: &mut dyn Write,
        key: (Tid, FunctionId),
        thread: &ThreadTables<'_>,
    ) -> io::Result<()> {
        let mut tables = self.tables(key, thread);
        if !self.has_counters {
            tables["markers"] = json!({
                "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
            });
        }
        let mut tables = serde_json::to_vec(&tables)?;
        tables.pop(); // its brace
        out.write_all(&tables)?;
        let is_shown = |open: &Option<FunctionId>| open.is_none_or(|open| !self.with_whole.contains(&open));
        let lengths = thread.lengths.iter().filter(|(open, _)| is_shown(open));
        let length = lengths.map(|(_, length)| length).sum::<u64>();
        write!(out, ",\n\"samples\":{{\"length\":{length},\"weightType\":\"tracing-ms\"")?;
        let each = |take: &mut dyn FnMut(Sample) -> io::Result<()>| {
            let of_shown = |sample: Sample| if is_shown(&sample.open) { take(sample) } else { Ok(()) };
            self.spool.each(&thread.samples, of_shown)
        };
        write_column(out, "stack", each, |sample| sample.stack)?;
        write_column(out, "time", each, |sample| ms(sample.from.since(self.start)))?;
        write_column(out, "weight", each, |sample| ms(sample.ns))?;
        out.write_all(b"}")?;
        if self.has_counters {
            self.write_markers(out, thread)?;
        }
        out.write_all(b"}")
    }

    /// Writes the markers of a thread, column by column.
    fn write_markers(&self, out: &mut dyn Write, thread: &ThreadTables<'_>) -> io::Result<()> {
        let each = |take: &mut dyn FnMut(Marker) -> io::Result<()>| {
            let is_shown =
                |open: Option<FunctionId>| open.is_none_or(|open| !self.with_whole.contains(&open));
            let of_shown = |marker: Marker| if is_shown(marker.open) { take(marker) } else { Ok(()) };
            self.spool.each(&thread.markers, of_shown)
        };
        let mut length = 0u64;
        each(&mut |_| {
            length += 1;
            Ok(())
        })?;
        write!(out, ",\n\"markers\":{{\"length\":{length}")?;
        let since = |at: Ns| ms(at.since(self.start));
        write_column(out, "category", each, |_| 0)?;
        write_column(out, "data", each, |marker| marker.data())?;
        write_column(out, "endTime", each, |marker| since(Ns(marker.from.0.saturating_add(marker.ns))))?;
        write_column(out, "name", each, |marker| marker.name)?;
        write_column(out, "phase", each, |_| INTERVAL)?;
        write_column(out, "startTime", each, |marker| since(marker.from))?;
        out.write_all(b"}")
    }

    fn name(&self, tid: Tid) -> Option<&str> {
        self.schedule.thread(tid).map(|life| life.name.as_str()).filter(|name| !name.is_empty())
    }

    /// A thread's name, with the function's where there are several.
    fn title(&self, tid: Tid, function: FunctionId) -> String {
        let name = self.name(tid).unwrap_or("thread");
        let is_only = self.threads.keys().all(|(_, other)| *other == function);
        if is_only { name.to_owned() } else { format!("{name}: {}", self.names.function(function)) }
    }

    /// A thread without its samples.
    fn tables(&self, (tid, function): (Tid, FunctionId), thread: &ThreadTables<'_>) -> Value {
        let pid = self.schedule.thread(tid).map_or(tid.0, |life| life.pid.0);
        let name = self.title(tid, function);
        let ThreadTables { labels, stacks, .. } = thread;
        let functions = labels.all().len();
        let numbers: Vec<usize> = (0..functions).collect();
        let none = vec![Value::Null; functions];
        json!({
            "name": name,
            "processName": self.name(Tid(pid)).unwrap_or("process"),
            "isMainThread": pid == tid.0,
            "pid": pid.to_string(),
            "tid": tid.0,
            "processType": "default",
            "processStartupTime": 0,
            "processShutdownTime": null,
            "registerTime": 0,
            "unregisterTime": null,
            "pausedRanges": [],
            "stringArray": labels.all().iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "funcTable": {
                "length": functions, "name": numbers, "isJS": vec![false; functions],
                "relevantForJS": vec![false; functions], "resource": vec![-1; functions],
                "fileName": none, "lineNumber": none, "columnNumber": none,
            },
            "frameTable": {
                "length": functions, "func": numbers, "address": vec![-1; functions],
                "inlineDepth": vec![0; functions], "category": vec![0; functions],
                "subcategory": vec![0; functions], "nativeSymbol": none, "innerWindowID": vec![0; functions],
                "line": none, "column": none,
            },
            "stackTable": {
                "length": stacks.len(),
                "prefix": stacks.iter().map(|(caller, _)| caller).collect::<Vec<_>>(),
                "frame": stacks.iter().map(|(_, function)| function).collect::<Vec<_>>(),
            },
            "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
            "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [] },
        })
    }
}

/// Writes a column of a table, which is not its first.
fn write_column<R: Record, T: Serialize>(
    out: &mut dyn Write,
    name: &str,
    each: impl Fn(&mut dyn FnMut(R) -> io::Result<()>) -> io::Result<()>,
    value: impl Fn(R) -> T,
) -> io::Result<()> {
    write!(out, ",\n\"{name}\":")?;
    let mut before = "[";
    each(&mut |sample| {
        out.write_all(before.as_bytes())?;
        before = ",";
        Ok(serde_json::to_writer(&mut *out, &value(sample))?)
    })?;
    out.write_all(if before == "[" { b"[]" } else { b"]" })
}

/// Milliseconds, which have room for each ns of 100 days.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl<'a> ThreadTables<'a> {
    fn new(names: &'a dyn Names) -> Self {
        Self {
            labels: NodeLabels::new(names),
            stacks: Vec::new(),
            numbers: HashMap::new(),
            samples: Records::default(),
            markers: Records::default(),
            lengths: BTreeMap::new(),
        }
    }

    fn stack(&mut self, caller: Option<u32>, function: usize) -> u32 {
        let next = self.stacks.len() as u32;
        let number = *self.numbers.entry((caller, function)).or_insert(next);
        if number == next {
            self.stacks.push((caller, function));
        }
        number
    }

    /// Adds what each function of a tree ran itself.
    fn add(
        &mut self,
        spool: &mut SampleSpool,
        tree: &CallTree,
        from: Ns,
        of_open: Option<FunctionId>,
    ) -> io::Result<()> {
        let mut open: Vec<(u32, Ns)> = Vec::new(); // stacks, and their ends
        let mut now = from;
        for step in tree.walk() {
            while open.len() > step.depth
                && let Some((stack, end)) = open.pop()
            {
                self.ran(spool, stack, now..end, of_open)?;
                now = end;
            }
            let caller = open.last().map(|(stack, _)| *stack);
            if let Some(caller) = caller {
                self.ran(spool, caller, now..step.node.start, of_open)?;
            }
            now = step.node.start;
            let function = self.labels.of(step.node);
            open.push((self.stack(caller, function), step.node.end()));
        }
        while let Some((stack, end)) = open.pop() {
            self.ran(spool, stack, now..end, of_open)?;
            now = end;
        }
        Ok(())
    }

    fn ran(
        &mut self,
        spool: &mut SampleSpool,
        stack: u32,
        Range { start: from, end }: Range<Ns>,
        open: Option<FunctionId>,
    ) -> io::Result<()> {
        if from >= end {
            return Ok(());
        }
        *self.lengths.entry(open).or_default() += 1;
        spool.push(&mut self.samples, Sample { stack, open, from, ns: end.since(from) })
    }
}

impl TreeSink for Profile<'_> {
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
        let open_call = (!call.end.status.counted()).then_some(call.function);
        match open_call {
            None => self.with_whole.insert(call.function),
            Some(function) => self.with_open.insert(function),
        };
        if self.left_out.keeps(call, tree) && self.error.is_ok() {
            let key = (call.id.tid, call.function);
            let thread = self.threads.entry(key).or_insert_with(|| ThreadTables::new(self.names));
            self.error = thread.add(&mut self.spool, tree, call.start_ns, open_call);
            if let (true, Some(root)) = (self.has_counters, tree.nodes().first()) {
                let marker = Marker::of(call, thread.labels.of(root), open_call);
                let pushed = self.spool.push(&mut thread.markers, marker);
                self.error = std::mem::replace(&mut self.error, Ok(())).and(pushed);
            }
        }
    }
}
