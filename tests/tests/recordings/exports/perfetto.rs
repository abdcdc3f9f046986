//! By Perfetto's published schema: the part of it that is used, written down here, and all of it, where
//! Python has it.

use super::cases;
use super::python::Python;

/// The fields that messages have in Perfetto's published schema, as far as they are used: number, wire type,
/// message inside.
type Schema = &'static [(u64, u64, Option<&'static Fields>)];
struct Fields(Schema);

const VARINT: u64 = 0;
const BYTES: u64 = 2;
static EVENT_NAME: Fields = Fields(&[(1, VARINT, None), (2, BYTES, None)]);
static INTERNED: Fields = Fields(&[(2, BYTES, Some(&EVENT_NAME))]);
static TRACK_EVENT: Fields = Fields(&[(9, VARINT, None), (10, VARINT, None), (11, VARINT, None)]);
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

/// The fields of a message; panics at whatever the schema does not have.
fn fields(mut bytes: &[u8], schema: &Fields) -> Vec<(u64, u64, Vec<u8>)> {
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

#[test]
fn perfettos_schema_has_every_field_and_slices_nest() {
    static TRACE: Fields = Fields(&[(1, BYTES, Some(&PACKET))]);
    for case in cases() {
        let trace = std::fs::read(case.export("perfetto", &["--li", "0,"])).unwrap();
        let mut open: std::collections::BTreeMap<u64, Vec<u64>> = std::collections::BTreeMap::new();
        let (mut last, mut total) = (open.clone(), 0);
        let mut calls = 0;
        for (_, _, packet) in fields(&trace, &TRACE) {
            let packet = fields(&packet, &PACKET);
            let number = |fields: &[(u64, u64, Vec<u8>)], n| {
                fields.iter().find(|field| field.0 == n).map(|field| field.1)
            };
            let Some((_, _, event)) = packet.iter().find(|field| field.0 == 11) else { continue };
            let event = fields(event, &TRACK_EVENT);
            let (time, track) = (number(&packet, 8).unwrap(), number(&event, 11).unwrap());
            let before = last.entry(track).or_default();
            assert!(before.last().is_none_or(|before| *before <= time), "{}: time runs backwards", case.name);
            *before = vec![time];
            let stack = open.entry(track).or_default();
            match number(&event, 9) {
                Some(1) => stack.push(time),
                Some(2) => {
                    let start = stack.pop().unwrap();
                    if stack.is_empty() && track >> 32 == 0 {
                        total += time - start;
                        calls += 1;
                    }
                }
                kind => panic!("{kind:?} is no slice"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "{}: a slice does not end", case.name);
        // Those that were not seen whole are there, too.
        assert!(
            calls >= case.report.outermost.count && total >= case.report.outermost.sum_ns,
            "{}",
            case.name
        );
        let is_whole = calls == case.report.outermost.count;
        assert!(!is_whole || total == case.report.outermost.sum_ns, "{}", case.name);
        if case.name == "sq1" {
            assert!(is_whole);
        }
    }
}

/// The same by the schema itself, where it is installed.
#[test]
fn perfettos_own_schema_reads_its_trace() {
    let Some(python) = Python::with("perfetto") else { return };
    for case in cases() {
        let trace = case.export("perfetto", &[]);
        let [packets, unknown_bytes] = python.run("perfetto_schema.py", &trace)[..] else {
            panic!("no two numbers")
        };
        assert!(packets > 2 * case.report.outermost.count, "{}", case.name);
        assert_eq!(unknown_bytes, 0, "{}: not in the schema", case.name);
    }
}
