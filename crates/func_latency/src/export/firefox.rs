//! A profile for the Firefox Profiler: each call's time on the line of time, by thread.
//!
//! The processed format, version 55:
//! <https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts>. A "sample" here is no
//! sample: there is one for each stretch in which the same function ran itself, and its weight is how long
//! that was.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use analyzer::{CallRow, CallTree, TreeSink, Trees};
use model::{FunctionId, Ns, Schedule, Tid};
use serde_json::{Value, json};

use super::{Labels, of_open_calls};
use crate::render::Names;

/// The version of the format.
const VERSION: u32 = 55;

/// Takes the trees of outermost calls.
pub struct Profile<'a> {
    names: &'a dyn Names,
    schedule: &'a Schedule,
    start: Ns,
    threads: BTreeMap<Tid, Thread<'a>>,
    /// Functions with a call that was seen whole: what was seen of their open calls is not shown.
    with_whole: BTreeSet<FunctionId>,
    with_open: BTreeSet<FunctionId>,
}

/// A thread's tables.
struct Thread<'a> {
    labels: Labels<'a>,
    /// Caller and function.
    stacks: Vec<(Option<usize>, usize)>,
    numbers: HashMap<(Option<usize>, usize), usize>,
    samples: Vec<Sample>,
}

struct Sample {
    stack: usize,
    from: Ns,
    ns: u64,
    /// It is of an open call of this function.
    open: Option<FunctionId>,
}

impl<'a> Profile<'a> {
    /// A profile without calls, of a recording that starts then.
    #[must_use]
    pub fn new(names: &'a dyn Names, schedule: &'a Schedule, start: Ns) -> Self {
        let (with_whole, with_open) = (BTreeSet::new(), BTreeSet::new());
        Self { names, schedule, start, threads: BTreeMap::new(), with_whole, with_open }
    }

    /// What is to be said of functions of which it shows the observed part; `None`: there are none.
    #[must_use]
    pub fn observed_part(&self) -> Option<String> {
        let open = self.with_open.difference(&self.with_whole);
        let open: Vec<String> = open.map(|function| self.names.function(*function)).collect();
        (!open.is_empty()).then(|| of_open_calls(&open))
    }

    /// Writes it.
    ///
    /// # Errors
    /// What `out` says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let threads: Vec<Value> =
            self.threads.iter().map(|(tid, thread)| self.thread(*tid, thread)).collect();
        let profile = json!({
            "meta": {
                "preprocessedProfileVersion": VERSION,
                "version": 24, // of the format before processing: not looked at
                "product": "func_latency",
                "profileName": self.observed_part(),
                "interval": 1e-6,
                "startTime": 0,
                "processType": 0,
                "stackwalk": 1,
                "symbolicated": true,
                "categories": [{ "name": "Other", "color": "grey", "subcategories": ["Other"] }],
                "markerSchema": [],
                "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs" },
            },
            "libs": [],
            "pages": [],
            "profilerOverhead": [],
            "threads": threads,
        });
        serde_json::to_writer(out, &profile).map_err(io::Error::from)
    }

    fn ms(&self, time: Ns) -> f64 {
        ms(time.since(self.start))
    }

    fn name(&self, tid: Tid) -> Option<&str> {
        self.schedule.thread(tid).map(|life| life.name.as_str()).filter(|name| !name.is_empty())
    }

    fn thread(&self, tid: Tid, thread: &Thread<'_>) -> Value {
        let life = self.schedule.thread(tid);
        let pid = life.map_or(tid.0, |life| life.pid.0);
        let name = self.name(tid).unwrap_or("thread");
        let Thread { labels, stacks, samples, .. } = thread;
        let is_shown = |sample: &&Sample| sample.open.is_none_or(|open| !self.with_whole.contains(&open));
        let samples: Vec<&Sample> = samples.iter().filter(is_shown).collect();
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
            "samples": {
                "length": samples.len(),
                "stack": samples.iter().map(|sample| sample.stack).collect::<Vec<_>>(),
                "time": samples.iter().map(|sample| self.ms(sample.from)).collect::<Vec<_>>(),
                "weight": samples.iter().map(|sample| ms(sample.ns)).collect::<Vec<_>>(),
                "weightType": "tracing-ms",
            },
            "markers": {
                "length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": [],
            },
            "resourceTable": { "length": 0, "lib": [], "name": [], "host": [], "type": [] },
            "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [], "name": [] },
        })
    }
}

/// Milliseconds, which have room for each ns of 100 days.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Thread<'_> {
    fn stack(&mut self, caller: Option<usize>, function: usize) -> usize {
        let next = self.stacks.len();
        let number = *self.numbers.entry((caller, function)).or_insert(next);
        if number == next {
            self.stacks.push((caller, function));
        }
        number
    }

    /// What ran from `from` to `to` itself.
    fn ran(&mut self, stack: usize, from: Ns, to: Ns, open: Option<FunctionId>) {
        if from < to {
            self.samples.push(Sample { stack, from, ns: to.since(from), open });
        }
    }
}

impl TreeSink for Profile<'_> {
    fn wanted(&self) -> Trees {
        Trees::Outermost
    }

    fn resumed(&mut self, call: &CallRow, tree: &CallTree) {
        self.call(call, tree);
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        let open_call = (!call.status.counted()).then_some(call.function);
        match open_call {
            None => self.with_whole.insert(call.function),
            Some(function) => self.with_open.insert(function),
        };
        let names = self.names;
        let anew = || Thread {
            labels: Labels::new(names),
            stacks: Vec::new(),
            numbers: HashMap::new(),
            samples: Vec::new(),
        };
        let thread = self.threads.entry(call.tid).or_insert_with(anew);
        let mut open: Vec<(usize, Ns)> = Vec::new(); // stacks, and their ends
        let mut now = call.start_ns;
        for step in tree.walk() {
            while open.len() > step.depth
                && let Some((stack, end)) = open.pop()
            {
                thread.ran(stack, now, end, open_call);
                now = end;
            }
            let caller = open.last().map(|(stack, _)| *stack);
            if let Some(caller) = caller {
                thread.ran(caller, now, step.node.start, open_call);
            }
            now = step.node.start;
            let function = thread.labels.of(step.node);
            open.push((thread.stack(caller, function), step.node.end()));
        }
        while let Some((stack, end)) = open.pop() {
            thread.ran(stack, now, end, open_call);
            now = end;
        }
    }
}
