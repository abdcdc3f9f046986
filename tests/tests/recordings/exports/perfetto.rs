//! By Perfetto's published schema: the part of it that is used, written down here, and all of it, where
//! Python has it.

use std::collections::BTreeMap;
use std::path::Path;

use super::cases;
use super::python::Python;

/// The fields that messages have in Perfetto's published schema, as far as they are used: number, wire type,
/// message inside.
type Schema = &'static [(u64, u64, Option<&'static Fields>)];
struct Fields(Schema);

const VARINT: u64 = 0;
const BYTES: u64 = 2;
static EVENT_NAME: Fields = Fields(&[(1, VARINT, None), (2, BYTES, None)]);
static INTERNED: Fields = Fields(&[(2, BYTES, Some(&EVENT_NAME)), (3, BYTES, Some(&EVENT_NAME))]);
static ANNOTATION: Fields =
    Fields(&[(1, VARINT, None), (3, VARINT, None), (6, BYTES, None), (10, BYTES, None)]);
static TRACK_EVENT: Fields = Fields(&[
    (4, BYTES, Some(&ANNOTATION)),
    (9, VARINT, None),
    (10, VARINT, None),
    (11, VARINT, None),
    (23, BYTES, None),
]);
static THREAD: Fields = Fields(&[(1, VARINT, None), (2, VARINT, None), (5, BYTES, None)]);
static TRACK: Fields =
    Fields(&[(1, VARINT, None), (2, BYTES, None), (4, BYTES, Some(&THREAD)), (5, VARINT, None)]);
static PACKET: Fields = Fields(&[
    (8, VARINT, None),
    (10, VARINT, None),
    (11, BYTES, Some(&TRACK_EVENT)),
    (12, BYTES, Some(&INTERNED)),
    (13, VARINT, None),
    (60, BYTES, Some(&TRACK)),
]);
static TRACE: Fields = Fields(&[(1, BYTES, Some(&PACKET))]);

/// Fields of a message: number, value, content.
type Found = Vec<(u64, u64, Vec<u8>)>;

/// The fields of a message; panics at whatever the schema does not have.
fn fields(mut bytes: &[u8], schema: &Fields) -> Found {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
            shift += 7;
            assert!(shift < 64, "a number that does not end");
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, wire) = (key >> 3, key & 7);
        let known = schema.0.iter().find(|field| field.0 == number && field.1 == wire);
        assert!(known.is_some(), "field {number} of type {wire} is not in the schema");
        let value = varint(&mut bytes);
        let mut content = Vec::new();
        if wire == BYTES {
            let (inside, rest) = bytes.split_at(value as usize);
            (content, bytes) = (inside.to_vec(), rest);
            known.and_then(|field| field.2).map(|schema| fields(inside, schema));
        }
        found.push((number, value, content));
    }
    found
}

fn number(fields: &Found, n: u64) -> Option<u64> {
    fields.iter().find(|field| field.0 == n).map(|field| field.1)
}

fn contents(fields: &Found, n: u64) -> impl Iterator<Item = &[u8]> {
    fields.iter().filter(move |field| field.0 == n).map(|field| field.2.as_slice())
}

/// The arguments of a slice, by name; `None`: `unknown`.
type Arguments = BTreeMap<String, Option<u64>>;

/// A slice of a track.
pub(super) struct Slice {
    track: u64,
    pub(super) ns: u64,
    /// Slices that it is in.
    pub(super) depth: usize,
    pub(super) arguments: Arguments,
}

/// All of a trace.
pub(super) struct Slices {
    slices: Vec<Slice>,
    left_out: Option<BTreeMap<String, u64>>,
}

impl Slices {
    /// Those of calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(|slice| (slice.track >> 32) & 1 == 0)
    }

    /// What the outermost calls took, by track.
    pub(super) fn totals(&self) -> BTreeMap<u64, u64> {
        let mut totals = BTreeMap::new();
        for slice in self.calls().filter(|slice| slice.depth == 0) {
            *totals.entry(slice.track).or_default() += slice.ns;
        }
        totals
    }

    /// What the trace says that it has not.
    pub(super) fn left_out(&self) -> Option<&BTreeMap<String, u64>> {
        self.left_out.as_ref()
    }
}

/// Reads a trace, whose fields must be in the schema, and whose slices must nest.
#[allow(clippy::panic, reason = "a test that cannot go on fails")]
pub(super) fn read(path: &Path) -> Slices {
    let mut open: BTreeMap<u64, Vec<(u64, Arguments)>> = BTreeMap::new();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut read = Slices { slices: Vec::new(), left_out: None };
    for (_, _, packet) in fields(&std::fs::read(path).unwrap(), &TRACE) {
        let packet = fields(&packet, &PACKET);
        for interned in contents(&packet, 12) {
            for name in contents(&fields(interned, &INTERNED), 3) {
                let name = fields(name, &EVENT_NAME);
                let text = contents(&name, 2).next().unwrap().to_vec();
                names.insert(number(&name, 1).unwrap(), String::from_utf8(text).unwrap());
            }
        }
        let Some(event) = contents(&packet, 11).next() else { continue };
        let event = fields(event, &TRACK_EVENT);
        let (time, track) = (number(&packet, 8).unwrap(), number(&event, 11).unwrap());
        let before = last.insert(track, time);
        assert!(before.is_none_or(|before| before <= time), "time runs backwards");
        let stack = open.entry(track).or_default();
        match number(&event, 9) {
            Some(1) => {
                let argument = |argument: &[u8]| {
                    let argument = fields(argument, &ANNOTATION);
                    let value = number(&argument, 3);
                    let word = contents(&argument, 6).next();
                    assert_eq!(word, value.is_none().then_some(&b"unknown"[..]));
                    (names[&number(&argument, 1).unwrap()].clone(), value)
                };
                stack.push((time, contents(&event, 4).map(argument).collect()));
            }
            Some(2) => {
                let (begin, arguments) = stack.pop().unwrap();
                read.slices.push(Slice { track, ns: time - begin, depth: stack.len(), arguments });
            }
            Some(3) => {
                let figure = |figure: &[u8]| {
                    let figure = fields(figure, &ANNOTATION);
                    let name = contents(&figure, 10).next().unwrap().to_vec();
                    (String::from_utf8(name).unwrap(), number(&figure, 3).unwrap())
                };
                read.left_out = Some(contents(&event, 4).map(figure).collect());
            }
            kind => panic!("{kind:?} is no slice"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice does not end");
    read
}

#[test]
fn perfettos_schema_has_every_field_and_slices_nest() {
    for case in cases() {
        let trace = read(&case.export("perfetto", &["--li", "0,"]));
        let outermost = trace.calls().filter(|slice| slice.depth == 0);
        let (calls, total) = outermost.fold((0, 0), |(calls, total), slice| (calls + 1, total + slice.ns));
        // Those that were not seen whole are there, too.
        assert!(
            calls >= case.report.outermost.total.count && total >= case.report.outermost.total.sum_ns,
            "{}",
            case.name
        );
        let is_whole = calls == case.report.outermost.total.count;
        assert!(!is_whole || total == case.report.outermost.total.sum_ns, "{}", case.name);
        if case.name == "sq1" {
            assert!(is_whole);
        }
    }
}

/// Perfetto's own schema, where it is installed, has every field and reads the slices that we read.
#[test]
fn perfettos_own_schema_reads_its_trace() {
    let Some(python) = Python::with("perfetto") else { return };
    for case in cases() {
        let path = case.export("perfetto", &["--top", "1000"]);
        let trace = read(&path);
        let [unknown_bytes, slices, outermost, outermost_ns, left_out] =
            python.run("perfetto_schema.py", &path)[..]
        else {
            panic!("no five numbers")
        };
        assert_eq!(unknown_bytes, 0, "{}: not in the schema", case.name);
        let times: Vec<u64> = trace.calls().filter(|slice| slice.depth == 0).map(|slice| slice.ns).collect();
        assert_eq!(
            (slices, outermost, outermost_ns),
            (trace.calls().count() as u64, times.len() as u64, times.iter().sum())
        );
        assert_eq!(
            left_out,
            trace.left_out().map_or(0, |left_out| left_out["calls_left_out"]),
            "{}",
            case.name
        );
        if case.name == "sq1" {
            let lost = trace.left_out().unwrap();
            let all = (outermost + lost["in_no_other_call"], outermost_ns + lost["time_of_these_ns"]);
            assert_eq!(all, (case.report.outermost.total.count, case.report.outermost.total.sum_ns));
        }
    }
}
