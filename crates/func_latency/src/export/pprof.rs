//! A profile for `go tool pprof`: calls, latency and, where it is known, CPU time of each path; instructions
//! and cycles, if they are asked for.
//!
//! A frame of a stack stands at the instruction that calls the next one, and the last at its function's
//! first: what a function took itself is shown at the line where it begins, and what a callee took at the
//! line that calls it.
//!
//! The messages are those of pprof's `proto/profile.proto`, as far as they are used here.

use std::collections::HashMap;

use analyzer::{FoundPaths, Node, Place, Work};
use image::Image;
use model::{ClockOffsets, FunctionId, FunctionLookup, Ns, ObjectId};
use prost::Message;

use super::{NodeLabels, STACK_MAX, observed_part};
use crate::render::Names;

#[derive(Clone, PartialEq, Message)]
struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<PprofFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
    /// For people: `go tool pprof -comments`.
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
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
struct PprofSample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    /// In the order of `sample_type`.
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

/// An object, at the addresses that it was linked for: they are the same in every process.
#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    /// What there is to know of functions, files and lines is here: nothing is to be looked for.
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<PprofLine>,
}

#[derive(Clone, PartialEq, Message)]
struct PprofLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
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

/// Functions, and the places in them that stacks go through; each once, with numbers from 1 in the order of
/// their first use.
struct PprofPlaces<'a> {
    labels: NodeLabels<'a>,
    numbers: HashMap<(usize, Option<Place>), u64>,
    all: Vec<(usize, Option<Place>)>,
}

impl PprofPlaces<'_> {
    fn location(&mut self, function: usize, at: Option<Place>) -> u64 {
        let Self { numbers, all, .. } = self;
        *numbers.entry((function, at)).or_insert_with(|| {
            all.push((function, at));
            all.len() as u64
        })
    }
}

/// A frame of the stack at hand.
struct OpenFrame {
    /// The number of its function.
    function: usize,
    /// The function's first instruction.
    entry: Option<Place>,
    /// The instruction that called it.
    site: Option<Place>,
}

/// The stack, the innermost first: each frame is where it called the next one.
fn stack(frames: &[OpenFrame], places: &mut PprofPlaces<'_>) -> Vec<u64> {
    let mut at = None;
    let location = |(number, frame): (usize, &OpenFrame)| {
        let here = if number == 0 { frame.entry } else { at };
        at = frame.site;
        places.location(frame.function, here)
    };
    frames.iter().rev().enumerate().map(location).collect()
}

/// The profile of the paths in a recording's `window`, encoded; addresses and lines are those of `image`.
#[must_use]
pub fn profile(
    found: &FoundPaths,
    names: &dyn Names,
    image: &Image,
    window: (Ns, Ns),
    clocks: ClockOffsets,
) -> Vec<u8> {
    let mut places = PprofPlaces { labels: NodeLabels::new(names), numbers: HashMap::new(), all: Vec::new() };
    let mut strings = Strings::new();
    // CPU time is a type of its own only where it is known.
    let knows_cpu = found.tree.roots().all(|root| root.total.on_cpu_ns().is_some());
    let counts = CounterTypes::of(found);
    let mut types = vec![("calls", "count"), ("latency", "nanoseconds")];
    types.extend(knows_cpu.then_some(("cpu", "nanoseconds")));
    types.extend(counts.types());
    let sample_type: Vec<ValueType> = types
        .into_iter()
        .map(|(kind, unit)| ValueType { kind: strings.number(kind), unit: strings.number(unit) })
        .collect();
    let mut frames: Vec<OpenFrame> = Vec::new();
    let mut sample = Vec::new();
    for step in found.tree.walk() {
        let is_shown = step.depth < STACK_MAX;
        if is_shown {
            frames.truncate(step.depth);
            let Node { function, site, .. } = *step.node;
            frames.push(OpenFrame {
                function: places.labels.of(step.node),
                entry: entry(image, function),
                site,
            });
        }
        let calls = if is_shown { step.node.total.count } else { 0 };
        let values = [calls, step.own.sum_ns].into_iter().chain(step.own.on_cpu_ns());
        let values = values.chain(counts.values(step.own_work));
        let value = values.map(|value| i64::try_from(value).unwrap_or(i64::MAX)).collect();
        sample.push(PprofSample { location_id: stack(&frames, &mut places), value });
    }
    let function = functions(&places, image, &mut strings);
    let (location, mapping) = locations(&places, image, names, &mut strings);
    let realtime = clocks.realtime_ns.map(|offset| offset.saturating_add_unsigned(window.0.0));
    let default_sample_type = strings.number("latency");
    let notes = observed_part(found, names).into_iter().chain(counts.note().map(str::to_owned));
    let comment = notes.map(|note| strings.number(&note)).collect();
    let profile = PprofProfile {
        sample_type,
        sample,
        mapping,
        location,
        function,
        time_nanos: realtime.unwrap_or(0),
        duration_nanos: i64::try_from(window.1.since(window.0)).unwrap_or(i64::MAX),
        default_sample_type,
        comment,
        string_table: strings.all,
    };
    profile.encode_to_vec()
}

/// Which counters are types of their own: those that are known of all paths.
#[derive(Clone, Copy)]
enum CounterTypes {
    /// They were not asked for.
    None,
    /// Code is missing in some call.
    Unknown,
    /// The recording has no CYC packets.
    Instructions,
    Both,
}

impl CounterTypes {
    fn of(found: &FoundPaths) -> Self {
        let mut roots = found.tree.roots();
        match roots.try_fold(true, |has_cycles, root| Some(has_cycles && root.work?.cycles.is_some())) {
            None if found.tree.nodes().iter().any(|node| node.work.is_some()) => Self::Unknown,
            None => Self::None,
            Some(false) => Self::Instructions,
            Some(true) => Self::Both,
        }
    }

    fn types(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let types = [("instructions", "count"), ("cycles", "count")];
        types.into_iter().take(match self {
            Self::None | Self::Unknown => 0,
            Self::Instructions => 1,
            Self::Both => 2,
        })
    }

    /// What a path executed itself, in the order of the types.
    fn values(self, own: Option<Work>) -> impl Iterator<Item = u64> {
        let own = own.unwrap_or(Work::NONE);
        let cycles = own.cycles.map_or(0, |cycles| cycles.count);
        [own.instructions, cycles].into_iter().take(self.types().count())
    }

    fn note(self) -> Option<&'static str> {
        match self {
            Self::Instructions => Some("cycles are unknown: the recording has no CYC packets"),
            Self::Unknown => Some("instructions and cycles are unknown: code is missing in some call"),
            Self::None | Self::Both => None,
        }
    }
}

fn functions(places: &PprofPlaces<'_>, image: &Image, strings: &mut Strings) -> Vec<PprofFunction> {
    let function = |((name, id), number): (&(String, FunctionId), u64)| {
        let (filename, start_line) = entry(image, *id).and_then(|at| line(image, at)).unwrap_or_default();
        PprofFunction {
            id: number,
            name: strings.number(name),
            filename: strings.number(&filename),
            start_line,
        }
    };
    places.labels.all().iter().zip(1..).map(function).collect()
}

fn locations(
    places: &PprofPlaces<'_>,
    image: &Image,
    names: &dyn Names,
    strings: &mut Strings,
) -> (Vec<Location>, Vec<Mapping>) {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut numbers: HashMap<ObjectId, u64> = HashMap::new();
    let mut mapping_of = |object: ObjectId| {
        *numbers.entry(object).or_insert_with(|| {
            let id = mappings.len() as u64 + 1;
            mappings.push(Mapping {
                id,
                memory_limit: u64::MAX,
                filename: strings.number(&names.object(object)),
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
            });
            id
        })
    };
    let location = |(&(function, at), id): (&(usize, Option<Place>), u64)| Location {
        id,
        mapping_id: at.map_or(0, |at| mapping_of(at.object)),
        address: at.map_or(0, |at| at.svma.0),
        line: vec![PprofLine {
            function_id: function as u64 + 1,
            line: at.and_then(|at| line(image, at)).unwrap_or_default().1,
        }],
    };
    (places.all.iter().zip(1..).map(location).collect(), mappings)
}

/// A function's first instruction.
fn entry(image: &Image, function: FunctionId) -> Option<Place> {
    Some(Place { object: image.object(function)?, svma: image.function_entry(function)? })
}

/// File and line of an instruction, in the function that it is part of: of inlined code that is where it was
/// inlined.
fn line(image: &Image, at: Place) -> Option<(String, i64)> {
    let line = image.source_line_at(at.object, at.svma)?;
    let own = line.inlined_at.last().unwrap_or(&line);
    Some((own.file.clone(), i64::from(own.line)))
}
