//! A recording of snapshots is the same recording where it looks, and a gap where it does not.
//!
//! Snapshots are made from a whole recording: each AUXTRACE record becomes a copy of the ring, that is of the
//! last bytes of its buffer's stream, at places as perf gives them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use decoder::DecodeOptions;
use model::{
    AuxBuffer, AuxOffset, AuxPiece, AuxRecord, EventSink, EventTime, GapCause, Pid, SpaceId, Tid, TraceEvent,
    Transfer,
};
use packet::Packet;
use truth_tests::fixture;
use truth_tests::pipeline::{Opened, open};

const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
/// Offset in AUXTRACE_INFO of the word that says that snapshots were recorded.
const SNAPSHOT_WORD: usize = 16 + 8 * 8;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The records between these places, each with the trace after it.
fn records(whole: &[u8], mut at: usize, end: usize) -> Vec<(&[u8], &[u8])> {
    let mut records = vec![];
    while at < end {
        let kind = u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
        let len = usize::from(u16::from_le_bytes(whole[at + 6..at + 8].try_into().unwrap()));
        let trace = if kind == AUXTRACE { word(whole, at + 8) as usize } else { 0 };
        records.push((&whole[at..at + len], &whole[at + len..at + len + trace]));
        at += len + trace;
    }
    records
}

/// What each AUXTRACE record adds to its buffer's stream. The PADs that fill them up are left out: where
/// tracing has stopped the ring ends at any byte.
fn streams<'a>(records: &[(&[u8], &'a [u8])]) -> BTreeMap<u32, Vec<&'a [u8]>> {
    let mut chunks: BTreeMap<u32, Vec<&[u8]>> = BTreeMap::new();
    for (record, trace) in records.iter().filter(|(_, trace)| !trace.is_empty()) {
        chunks.entry(index_of(record)).or_default().push(trace);
    }
    for chunks in chunks.values_mut() {
        let bytes = chunks.concat();
        let piece = AuxPiece { offset: AuxOffset(0), bytes: &bytes, file_offset: 0 };
        let is_pad = |(at, packet): (AuxOffset, _)| matches!(packet, Ok(Packet::Pad)).then_some(at.0);
        let pads: HashSet<u64> = decoder::packets(&[piece]).filter_map(is_pad).collect();
        let mut end = 0;
        for chunk in chunks {
            end += chunk.len() as u64;
            let padding = (1..).take_while(|back| pads.contains(&(end - back))).count();
            *chunk = &chunk[..chunk.len().saturating_sub(padding)];
        }
    }
    chunks
}

fn index_of(record: &[u8]) -> u32 {
    word(record, 32) as u32
}

const AUX: u32 = 11;

/// What an AUX record says: offset, size, and flags.  `None`: it is none.
fn said_by(record: &[u8]) -> Option<(u64, u64, u64)> {
    record.starts_with(&AUX.to_le_bytes()).then(|| (word(record, 8), word(record, 16), word(record, 24)))
}

/// What the kernel said last of each buffer, and the buffer's trace.
#[allow(clippy::type_complexity, reason = "only here")]
fn last_said<'c, 'a>(
    whole: &[u8],
    chunks: &'c BTreeMap<u32, Vec<&'a [u8]>>,
) -> Vec<(Option<(u64, u64, u64)>, &'c Vec<&'a [u8]>)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("whole");
    std::fs::write(&path, whole).unwrap();
    let file = open(&path).unwrap();
    let buffers = file.recording().unwrap().buffers;
    let of_buffer = |buffer: &AuxBuffer<'_>| {
        let AuxRecord { offset, size, flags, .. } = *buffer.records.last()?;
        Some((Some((offset.0, size, flags)), chunks.get(&buffer.index)?))
    };
    buffers.iter().filter_map(of_buffer).collect()
}

/// When a buffer's ring is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// After this many AUXTRACE records each time.
    Every(usize),
    /// At perf's exit (`perf record -Se`).
    AtExit,
}

/// The recording as snapshots of rings of `ring` bytes, padded with zeros to eight bytes as perf does it
/// (`__auxtrace_mmap__read`).
fn snapshots(whole: &[u8], ring: usize, copies: Copies) -> Vec<u8> {
    let (data, size) = (word(whole, 40) as usize, word(whole, 48) as usize);
    let mut out = whole[..data].to_vec();
    let records = records(whole, data, data + size);
    let chunks = streams(&records);
    let last_said = last_said(whole, &chunks);
    let mut streams: BTreeMap<u32, (Vec<u8>, usize)> = BTreeMap::new();
    for (record, trace) in records {
        let mut record = record.to_vec();
        if let Some((_, chunks)) = last_said.iter().find(|(said, _)| *said == said_by(&record)) {
            let len: usize = chunks.iter().map(|chunk| chunk.len()).sum();
            for (at, word) in [(8, len % ring), (16, ring), (24, AuxRecord::OVERWRITE as usize)] {
                record[at..at + 8].copy_from_slice(&(word as u64).to_le_bytes());
            }
        }
        if record.starts_with(&AUXTRACE_INFO.to_le_bytes()) {
            record[SNAPSHOT_WORD] = 1;
        }
        if trace.is_empty() {
            out.extend(record);
            continue;
        }
        let index = index_of(&record);
        let (stream, count) = streams.entry(index).or_default();
        stream.extend(chunks[&index][*count]);
        *count += 1;
        let copies_now = match copies {
            Copies::Every(every) => *count % every == 0,
            Copies::AtExit => *count == chunks[&index].len(),
        };
        if copies_now {
            let copy = &stream[stream.len().saturating_sub(ring)..];
            let place = if stream.len() < ring { 0 } else { stream.len() % ring };
            let padded = copy.len().next_multiple_of(8);
            record[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
            record[16..24].copy_from_slice(&(place as u64).to_le_bytes());
            out.extend(record);
            out.extend(copy);
            out.resize(out.len() + padded - copy.len(), 0);
        }
    }
    // Without features: their sections would be elsewhere.
    let size = (out.len() - data) as u64;
    out[48..56].copy_from_slice(&size.to_le_bytes());
    out[72..104].fill(0);
    out
}

/// Each thread's events.
#[derive(Default)]
struct Threads(BTreeMap<Tid, Vec<TraceEvent>>);

impl EventSink for Threads {
    fn events(&mut self, _pid: Pid, tid: Tid, _space: SpaceId, events: &[TraceEvent]) {
        self.0.entry(tid).or_default().extend(events);
    }
}

fn decode(path: &Path) -> Threads {
    let file = open(path).unwrap();
    let opened = Opened::new(&file).unwrap();
    let mut threads = Threads::default();
    opened.decode(&DecodeOptions { all_branches: true, ..DecodeOptions::default() }, &mut threads);
    threads
}

/// What a transfer is, whether a gap was before it or not; and when.
fn transfers(events: &[TraceEvent]) -> Vec<(Transfer, EventTime)> {
    let of = |event: &TraceEvent| match event {
        TraceEvent::Branch(branch) => Some(match branch.transfer {
            Transfer::Start { to, .. } => (Transfer::Start { to, after_gap: false }, branch.time),
            other => (other, branch.time),
        }),
        TraceEvent::Gap(_) => None,
    };
    events.iter().filter_map(of).collect()
}

/// How many transfers of `seen` there are; all must be `whole`'s, in its order, at its time.
fn compare(name: &str, whole: &Threads, seen: &Threads) -> usize {
    let mut count = 0;
    for (tid, events) in &seen.0 {
        let whole = transfers(whole.0.get(tid).map_or(&[], Vec::as_slice));
        let mut rest = whole.iter();
        for (transfer, time) in transfers(events) {
            // A start after a gap is where decoding went on, which may be anywhere.
            let is_start = matches!(transfer, Transfer::Start { .. });
            let same = |(other, at): &&(Transfer, EventTime)| {
                *other == transfer && at.lo <= time.hi && time.lo <= at.hi
            };
            let mut ahead = rest.clone();
            if ahead.any(|other| same(&other)) {
                rest = ahead;
                count += 1;
            } else {
                assert!(is_start, "{name}: thread {} has no {transfer:?} at {time:?}", tid.0);
            }
        }
        for event in events {
            if let TraceEvent::Gap(gap) = event {
                assert_eq!(gap.cause, GapCause::BetweenSnapshots, "{name}: {gap:?}");
            }
        }
    }
    count
}

fn check(name: &str) {
    let Some(fixture) = fixture(name) else { return };
    let whole = std::fs::read(&fixture.data).unwrap();
    let expected = decode(&fixture.data);
    let all: usize = expected.0.values().map(|events| transfers(events).len()).sum();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let every = Copies::Every;
    for (ring, copies) in [(1 << 30, every(1)), (1 << 30, every(7)), (1 << 14, every(3)), (1 << 13, every(1))]
    {
        std::fs::write(&path, snapshots(&whole, ring, copies)).unwrap();
        let seen = compare(name, &expected, &decode(&path));
        println!("{name}, ring of {ring}, {copies:?}: {seen} of {all} transfers");
        if (ring, copies) == (1 << 30, every(1)) {
            assert_eq!(seen, all, "{name}: the ring forgot nothing");
        }
        assert!(seen > all / 1000, "{name}: a ring of {ring} bytes holds more than {seen} transfers");
    }
}

#[test]
fn one_buffer_per_thread() {
    check("calls");
}

#[test]
fn one_buffer_per_cpu() {
    check("calls-cpu2");
}

/// It was lost from the copy on, and each call that was open was cut.
#[test]
fn a_ring_that_never_wrapped_and_was_copied_at_the_end_has_all() {
    for name in ["calls", "calls-cpu2"] {
        let Some(fixture) = fixture(name) else { return };
        let whole = std::fs::read(&fixture.data).unwrap();
        let expected = decode(&fixture.data);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, snapshots(&whole, 1 << 30, Copies::AtExit)).unwrap();
        let seen = decode(&path);
        for (tid, events) in &expected.0 {
            let seen = seen.0.get(tid).map_or(&[][..], Vec::as_slice);
            let gaps: Vec<_> = seen.iter().filter(|event| matches!(event, TraceEvent::Gap(_))).collect();
            assert!(gaps.is_empty(), "{name}: thread {} has {gaps:?}", tid.0);
            let (seen, expected) = (transfers(seen), transfers(events));
            let is_alike = |(seen, expected): (&(Transfer, EventTime), &(Transfer, EventTime))| {
                // Segments are cut elsewhere in a copy, which may make a bound wider (`docs/design/time.md`).
                let (one, other) = (seen.1, expected.1);
                let has_time = one.point == other.point && one.lo <= other.hi && other.lo <= one.hi;
                seen.0 == expected.0 && has_time
            };
            let differs = seen.iter().zip(&expected).position(|pair| !is_alike(pair));
            assert_eq!((differs, seen.len()), (None, expected.len()), "{name}: thread {}", tid.0);
        }
        // The ring forgot what ran first, and nothing else: gaps are where a buffer begins, after zeros.
        std::fs::write(&path, snapshots(&whole, 1 << 14, Copies::AtExit)).unwrap();
        let file = open(&path).unwrap();
        let buffers = file.recording().unwrap().buffers;
        let after_zeros = |piece: &AuxPiece<'_>| {
            piece.offset.plus(piece.bytes.iter().take_while(|byte| **byte == 0).count() as u64)
        };
        let starts: Vec<AuxOffset> =
            buffers.iter().filter_map(|buffer| buffer.pieces.first().map(after_zeros)).collect();
        for (tid, events) in decode(&path).0 {
            let is_later =
                |event: &&TraceEvent| matches!(event, TraceEvent::Gap(gap) if !starts.contains(&gap.at));
            let later: Vec<_> = events.iter().filter(is_later).collect();
            assert!(later.is_empty(), "{name}: thread {} has {later:?}", tid.0);
        }
    }
}
