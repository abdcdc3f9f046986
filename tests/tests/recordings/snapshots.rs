//! A recording of snapshots is the same recording where it looks, and a gap where it does not.
//!
//! Snapshots are made from a whole recording: each AUXTRACE record becomes a copy of the ring, that is of the last
//! bytes of its buffer's stream, at places as perf gives them.

use std::collections::BTreeMap;
use std::path::Path;

use decoder::DecodeOptions;
use model::{EventSink, EventTime, GapCause, Pid, SpaceId, Tid, TraceEvent, Transfer};
use truth_tests::fixture;
use truth_tests::pipeline::{Opened, open};

const AUXTRACE_INFO: u32 = 70;
const AUXTRACE: u32 = 71;
/// Offset in AUXTRACE_INFO of the word that says that snapshots were recorded.
const SNAPSHOT_WORD: usize = 16 + 8 * 8;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The records between these places, each with the trace behind it.
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

/// The recording as snapshots of rings of `ring` bytes, one for every `every` AUXTRACE records of a buffer.  All but the last of a
/// buffer end at any byte, and are padded with zeros to eight, as perf does it (`__auxtrace_mmap__read`).
fn snapshots(whole: &[u8], ring: usize, every: usize) -> Vec<u8> {
    let (data, size) = (word(whole, 40) as usize, word(whole, 48) as usize);
    let mut out = whole[..data].to_vec();
    let records = records(whole, data, data + size);
    let index_of = |record: &[u8]| word(record, 32) as u32;
    let mut all: BTreeMap<u32, usize> = BTreeMap::new();
    for (record, _) in records.iter().filter(|(_, trace)| !trace.is_empty()) {
        *all.entry(index_of(record)).or_default() += 1;
    }
    let mut streams: BTreeMap<u32, (Vec<u8>, usize)> = BTreeMap::new();
    for (record, trace) in records {
        let mut record = record.to_vec();
        if record.starts_with(&AUXTRACE_INFO.to_le_bytes()) {
            record[SNAPSHOT_WORD] = 1;
        }
        if trace.is_empty() {
            out.extend(record);
            continue;
        }
        let index = index_of(&record);
        let (stream, count) = streams.entry(index).or_default();
        stream.extend(trace);
        *count += 1;
        if *count % every == 0 {
            let cut = if *count < all[&index] { *count % 8 } else { 0 };
            let end = stream.len() - cut;
            let copy = &stream[end.saturating_sub(ring)..end];
            let place = if end < ring { 0 } else { end % ring };
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
            // A start behind a gap is where decoding went on, which may be anywhere.
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
    for (ring, every) in [(1 << 30, 1), (1 << 30, 7), (1 << 14, 3), (1 << 13, 1)] {
        std::fs::write(&path, snapshots(&whole, ring, every)).unwrap();
        let seen = compare(name, &expected, &decode(&path));
        println!("{name}, ring of {ring}, every {every}: {seen} of {all} transfers");
        if (ring, every) == (1 << 30, 1) {
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
