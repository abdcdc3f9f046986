//! Builds small `perf.data` files for the tests, byte by byte and in both layouts.

use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

use super::records;
use super::sample_id::{CPU, IDENTIFIER, IP, TID, TIME};
use crate::{feature_bits, record_types};

pub(super) const PMU_TYPE: u32 = 8;
pub(super) const PT_ID: u64 = 100;
pub(super) const DUMMY_ID: u64 = 200;
/// Kernel code, MTC every 2^3, TSC, branches.
pub(super) const PT_CONFIG: u64 = 0x300_e601;
pub(super) const SAMPLE_TYPE: u64 = IP | TID | TIME | CPU | IDENTIFIER;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;

pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(super) fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// A text that is padded with NUL, at least one, to a multiple of 8.
pub(super) fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(text.len() / 8 * 8 + 8, 0);
    bytes
}

pub(super) fn counted(text: &str) -> Vec<u8> {
    let text = padded(text);
    [halves(&[text.len() as u32]), text].concat()
}

pub(super) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend((8 + body.len() as u16).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Trailer of an event with [`SAMPLE_TYPE`].
pub(super) fn trailer(pid: u32, tid: u32, time_ns: u64, cpu: u32, id: u64) -> Vec<u8> {
    [halves(&[pid, tid]), words(&[time_ns]), halves(&[cpu, 0]), words(&[id])].concat()
}

pub(super) fn attr(pmu_type: u32, config: u64, size: u32, sample_type: u64) -> Vec<u8> {
    let mut bytes =
        [halves(&[pmu_type, size]), words(&[config, 1, sample_type, 4, FLAG_SAMPLE_ID_ALL])].concat();
    bytes.resize(size as usize, 0);
    bytes
}

/// A file to be.
#[derive(Clone, Debug)]
pub(super) struct Fixture {
    pub(super) attr_size: u32,
    pub(super) events: Vec<(Vec<u8>, Vec<u64>)>,
    pub(super) features: Vec<(u32, Vec<u8>)>,
    pub(super) records: Vec<u8>,
}

impl Fixture {
    /// Intel PT and a dummy event, command line and CPU, no records.
    pub(super) fn new(attr_size: u32) -> Self {
        let events = vec![
            (attr(PMU_TYPE, PT_CONFIG, attr_size, SAMPLE_TYPE), vec![PT_ID, PT_ID + 1]),
            (attr(1, 9, attr_size, SAMPLE_TYPE), vec![DUMMY_ID, DUMMY_ID + 1]),
        ];
        let line = ["perf", "record", "-p", "41"];
        let line = line.map(counted).concat();
        let features = vec![(9, counted("GenuineIntel,6,85,7")), (11, [halves(&[4]), line].concat())];
        Self { attr_size, events, features, records: Vec::new() }
    }

    /// What a small recording of two CPUs has.
    pub(super) fn per_cpu(attr_size: u32) -> Self {
        let mut f = Self::new(attr_size);
        f.time_conv();
        f.info("");
        f.id_index(&[(PT_ID, 0, Some(0), None), (PT_ID + 1, 1, Some(1), None)]);
        f.mmap(41, 0x40_0000, "/bin/x", 0);
        f.kernel(record_types::COMM, 0, &[halves(&[41, 41]), padded("x")].concat(), &trailer(0, 0, 0, 0, 0));
        let on_1 = |ns| trailer(41, 42, ns, 1, DUMMY_ID + 1);
        f.kernel(record_types::SWITCH, 0, &[], &on_1(1500));
        f.kernel(record_types::SWITCH, 1 << 13, &[], &on_1(1900));
        let on_0 = |ns, id| trailer(41, 41, ns, 0, id);
        f.kernel(record_types::ITRACE_START, 0, &halves(&[41, 41]), &on_0(1000, PT_ID));
        f.kernel(record_types::AUX, 0, &words(&[0, 16, 0]), &on_0(1200, PT_ID));
        f.kernel(record_types::AUX, 0, &words(&[0, 8, 1]), &trailer(41, 42, 1900, 1, PT_ID + 1));
        f.round();
        f.auxtrace(0, 0, 41, Some(0), &[0xa0; 16]);
        f.auxtrace(1, 0, 42, Some(1), &[0xa1; 8]);
        f.kernel(
            record_types::FORK,
            0,
            &[halves(&[41, 41, 42, 41]), words(&[1100])].concat(),
            &on_0(1100, DUMMY_ID),
        );
        f.kernel(
            record_types::EXIT,
            0,
            &[halves(&[41, 41, 42, 41]), words(&[2000])].concat(),
            &trailer(41, 42, 2000, 1, DUMMY_ID + 1),
        );
        f.kernel(record_types::AUX, 0, &words(&[16, 8, 0]), &on_0(2100, PT_ID));
        f.auxtrace(0, 16, 41, Some(0), &[0xa2; 8]);
        f.round();
        f
    }

    pub(super) fn kernel(&mut self, kind: u32, misc: u16, body: &[u8], trailer: &[u8]) {
        self.records.extend(record(kind, misc, &[body, trailer].concat()));
    }

    pub(super) fn user(&mut self, kind: u32, body: &[u8]) {
        self.records.extend(record(kind, 0, body));
    }

    pub(super) fn mmap(&mut self, pid: u32, start: u64, path: &str, time_ns: u64) {
        let id = if time_ns == 0 { 0 } else { DUMMY_ID };
        let place = words(&[start, 0x1000, 0]);
        let body = [halves(&[pid, pid]), place, words(&[0, 0, 0]), halves(&[5, 2]), padded(path)];
        self.kernel(
            record_types::MMAP2,
            2,
            &body.concat(),
            &trailer(pid * u32::from(id != 0), 0, time_ns, 0, id),
        );
    }

    pub(super) fn time_conv(&mut self) {
        self.user(record_types::TIME_CONV, &words(&[31, 1_000_000, 77]));
    }

    pub(super) fn info(&mut self, filter: &str) {
        let pt = [31, 1_000_000, 77, 1, 0x400, 0x800, 2, 0, 1, 0x200, 0x3c000, 250, 2, 2, 30];
        let mut body = [words(&[1, u64::from(PMU_TYPE)]), words(&pt), words(&[filter.len() as u64])].concat();
        if !filter.is_empty() {
            body.extend(padded(filter));
        }
        self.user(record_types::AUXTRACE_INFO, &body);
    }

    pub(super) fn id_index(&mut self, entries: &[(u64, u64, Option<u64>, Option<u64>)]) {
        let mut body = words(&[entries.len() as u64]);
        for (id, index, cpu, tid) in entries {
            body.extend(words(&[*id, *index, cpu.unwrap_or(u64::MAX), tid.unwrap_or(u64::MAX)]));
        }
        self.user(record_types::ID_INDEX, &body);
    }

    pub(super) fn auxtrace(&mut self, index: u32, offset: u64, tid: u32, cpu: Option<u32>, bytes: &[u8]) {
        let ids = halves(&[index, tid, cpu.unwrap_or(u32::MAX), 0]);
        self.user(record_types::AUXTRACE, &[words(&[bytes.len() as u64, offset, 0]), ids].concat());
        self.records.extend(bytes);
    }

    /// Where the first record of a type starts in `records`.
    pub(super) fn offset_of(&self, kind: u32) -> usize {
        let bytes = self.records.as_slice();
        let mut walk = records::Records::new(bytes.into(), 0, bytes.len() as u64, false);
        loop {
            let record = walk.next_record().unwrap();
            if record.kind == kind {
                return record.offset as usize;
            }
        }
    }

    pub(super) fn round(&mut self) {
        self.user(record_types::FINISHED_ROUND, &[]);
    }

    /// The pipe layout.
    pub(super) fn pipe(&self) -> Vec<u8> {
        let mut bytes = [b"PERFILE2".to_vec(), words(&[16])].concat();
        for (number, contents) in &self.features {
            let body = [words(&[u64::from(*number)]), contents.clone()].concat();
            bytes.extend(record(record_types::HEADER_FEATURE, 0, &body));
        }
        for (attr, ids) in &self.events {
            bytes.extend(record(record_types::HEADER_ATTR, 0, &[attr.clone(), words(ids)].concat()));
        }
        bytes.extend(&self.records);
        bytes
    }

    /// The file layout.
    pub(super) fn file(&self) -> Vec<u8> {
        let ids: Vec<u8> = self.events.iter().flat_map(|(_, ids)| words(ids)).collect();
        let entry = u64::from(self.attr_size) + 16;
        let attrs_at = 104 + ids.len() as u64;
        let attrs_size = entry * self.events.len() as u64;
        let data_at = attrs_at + attrs_size;
        let data_size = self.records.len() as u64;
        let mut bits = [0; 4];
        for (number, _) in &self.features {
            bits[*number as usize / 64] |= 1 << (number % 64);
        }
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(words(&[104, entry, attrs_at, attrs_size, data_at, data_size, 0, 0]));
        bytes.extend(words(&bits));
        bytes.extend(ids);
        let mut ids_at = 104;
        for (attr, ids) in &self.events {
            bytes.extend(attr);
            bytes.extend(words(&[ids_at, ids.len() as u64 * 8]));
            ids_at += ids.len() as u64 * 8;
        }
        bytes.extend(&self.records);
        let mut at = data_at + data_size + 16 * self.features.len() as u64;
        for (_, contents) in &self.features {
            bytes.extend(words(&[at, contents.len() as u64]));
            at += contents.len() as u64;
        }
        bytes.extend(self.features.iter().flat_map(|(_, contents)| contents.clone()));
        bytes
    }

    /// Both layouts.
    pub(super) fn layouts(&self) -> [Vec<u8>; 2] {
        [self.file(), self.pipe()]
    }

    /// The contents of the feature that names the events.
    pub(super) fn name_events(&mut self, names: &[&str]) {
        let mut contents = halves(&[names.len() as u32, self.attr_size]);
        for ((attr, ids), name) in self.events.iter().zip(names) {
            contents.extend(attr);
            contents.extend(halves(&[ids.len() as u32]));
            contents.extend(counted(name));
            contents.extend(words(ids));
        }
        self.features.push((12, contents));
    }

    /// Says that there are COMPRESSED records.
    pub(super) fn compressed(mut self) -> Self {
        self.features.push((feature_bits::COMPRESSED, halves(&[1, 1, 1, 2, 1 << 20])));
        self
    }
}

/// A stream of zstd as perf makes it, flushed and never ended.
pub(super) fn zstd_stream(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(1).unwrap();
    let mut out = vec![0; bytes.len() + 1000];
    let mut output = OutBuffer::around(out.as_mut_slice());
    let mut input = InBuffer::around(bytes);
    while input.pos() < bytes.len() {
        encoder.run(&mut input, &mut output).unwrap();
    }
    while encoder.flush(&mut output).unwrap() != 0 {}
    output.as_slice().to_vec()
}

/// COMPRESSED or COMPRESSED2 records that hold `bytes`, which they cut anywhere.
pub(super) fn compress(bytes: &[u8], kind: u32, pieces: usize) -> Vec<u8> {
    let stream = zstd_stream(bytes);
    let of = |piece: &[u8]| match kind {
        record_types::COMPRESSED => record(kind, 0, piece),
        _ => {
            let padding = vec![0; piece.len().next_multiple_of(8) - piece.len()];
            record(kind, 0, &[words(&[piece.len() as u64]), piece.to_vec(), padding].concat())
        }
    };
    stream.chunks(stream.len().div_ceil(pieces)).map(of).collect::<Vec<_>>().concat()
}
