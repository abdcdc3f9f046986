//! Jitdump: code that a program wrote at run time, with its names, bytes and times
//! (tools/perf/Documentation/jitdump-specification.txt).
//!
//! The runtime writes `jit-PID.dump` and maps a page of it executable, so that the recording names the file.
//! Here the dump is an object like any other: each load or move of code is a mapping of the bytes that stand
//! in the dump, and the linked address of code is its offset in the dump.
//!
//! ```text
//! header  magic version size machine - pid time flags
//! load    0 size time  pid tid - address length index name\0 code
//! move    1 size time  pid tid - from to length index
//! ```

use files::{MappedFile, Owners, Place};
use model::{Avma, FileOffset, Mmap, Ns, Pid, Sideband, SidebandRecord, TscClock};
use rustc_hash::FxHashMap;

use crate::contents::Contents;
use crate::jit::named_code::NamedCode;

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const MACHINE_X86_64: u32 = 62;
/// Times are of the processor's TSC, not of CLOCK_MONOTONIC.
const ARCH_TIMESTAMP: u64 = 1;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// Placements of all dumps of a recording together: each takes some hundred bytes as a mapping.
pub(crate) const MAX_PLACEMENTS: usize = 1 << 19;
/// Bytes of the header of a record: id, size, time.
const RECORD_HEADER: usize = 16;

/// A dump.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) place: Place,
    pub(crate) contents: Contents,
    pub(crate) code: Code,
}

/// What a dump says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Code {
    /// Where code was put, in the order of the dump.
    pub(crate) placements: Vec<Placement>,
    /// One for each load, linked where it stands in the dump.
    pub(crate) named: NamedCode,
    /// Bytes of the dump that were read.
    pub(crate) bytes: usize,
    /// There are more placements than were read.
    pub(crate) is_cut: bool,
}

/// From this time on a stretch of the dump is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Of perf's clock; `None`: the dump's clock has no relation to it.
    pub(crate) time: Option<Ns>,
    pub(crate) start: Avma,
    pub(crate) len: u64,
    pub(crate) file_offset: FileOffset,
}

impl Dump {
    /// Reads a file; `None` if it is no dump of this machine.
    pub(crate) fn open(
        place: &Place,
        owners: &Owners,
        clock: Option<&TscClock>,
        max_placements: usize,
    ) -> Option<Self> {
        let file = place.open_owned(owners).ok()?;
        let contents = Contents::Mapped(MappedFile::of(&file, place.path()).ok()?.into());
        let code = parse(&contents, clock, max_placements)?;
        Some(Self { place: place.clone(), contents, code })
    }

    /// Its placements as the mappings of a process: the dump is `name` in the recording.
    pub(crate) fn mappings<'a>(
        &'a self,
        name: &'a str,
        pid: Pid,
    ) -> impl Iterator<Item = SidebandRecord> + use<'a> {
        self.code.placements.iter().map(move |placement| {
            let Placement { time, start, len, file_offset } = *placement;
            let path = name.to_owned();
            let (build_id, inode, executable, kernel) = (None, None, true, false);
            let mmap = Mmap { pid, start, len, file_offset, path, build_id, inode, executable, kernel };
            let body = Sideband::from(mmap);
            SidebandRecord { time, cpu: None, pid: Some(pid), tid: None, file_offset: 0, body }
        })
    }
}

/// The part of a dump that is read: what follows may be anything.
pub(crate) fn whole_records(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..parse(bytes, None, MAX_PLACEMENTS)?.bytes)
}

/// Reads a dump up to the first damage (the program may have died while it wrote), at most `max_placements`.
fn parse(bytes: &[u8], clock: Option<&TscClock>, max_placements: usize) -> Option<Code> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|w| u32::from_le_bytes(*w));
    if (word(0)?, word(4)?, word(12)?) != (MAGIC, VERSION, MACHINE_X86_64) {
        return None;
    }
    let clock = clock.filter(|_| long(bytes, 32).is_some_and(|flags| flags & ARCH_TIMESTAMP != 0));
    let mut reader = JitReader { clock, code: Code::default(), by_index: FxHashMap::default() };
    let mut at = word(8)? as usize;
    while let (Some(id), Some(size)) = (word(at), word(at.saturating_add(4))) {
        let end = at.saturating_add(size as usize);
        let Some(record) = bytes.get(at..end).filter(|record| record.len() >= RECORD_HEADER) else { break };
        if reader.code.placements.len() >= max_placements {
            reader.code.is_cut = true;
            break;
        }
        let done = match id {
            CODE_LOAD => reader.load(record, at),
            CODE_MOVE => reader.moved(record),
            _ => Some(()), // lines, unwind tables, the end
        };
        if done.is_none() {
            break;
        }
        at = end;
        reader.code.bytes = end;
    }
    Some(reader.code)
}

struct JitReader<'a> {
    clock: Option<&'a TscClock>,
    code: Code,
    /// Offset in the dump and length of each load.
    by_index: FxHashMap<u64, (u64, u64)>,
}

impl JitReader<'_> {
    fn load(&mut self, record: &[u8], at: usize) -> Option<()> {
        let (start, len, index) = (long(record, 32)?, long(record, 40)?, long(record, 48)?);
        let text = record.get(56..)?;
        let name = text.get(..memchr::memchr(0, text)?)?;
        let code = usize::try_from(len).ok().and_then(|len| record.len().checked_sub(len))?;
        if code < 56 + name.len() + 1 {
            return None;
        }
        let offset = u64::try_from(at + code).ok()?;
        self.by_index.insert(index, (offset, len));
        self.place(record, start, (offset, len))?;
        self.code.named.add((offset, offset.checked_add(len)?), offset, name)
    }

    fn moved(&mut self, record: &[u8]) -> Option<()> {
        let (to, index) = (long(record, 40)?, long(record, 56)?);
        // Code that the dump does not have is none of ours.
        let Some(known) = self.by_index.get(&index).copied() else { return Some(()) };
        self.place(record, to, known)
    }

    fn place(&mut self, record: &[u8], start: u64, (offset, len): (u64, u64)) -> Option<()> {
        let time = long(record, 8)?;
        let time = self.clock.map(|clock| clock.to_ns(model::Tsc(time)));
        let (start, file_offset) = (Avma(start), FileOffset(offset));
        if !start.is_kernel() {
            self.code.placements.push(Placement { time, start, len, file_offset });
        }
        Some(())
    }
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|w| u64::from_le_bytes(*w))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(id: u32, time: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend((RECORD_HEADER as u32 + body.len() as u32).to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// Two functions, the first of which moves, and a record of lines.
    fn dump(flags: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = [MAGIC, 1, 40, 62, 0, 7].iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.extend(words(&[5, flags]));
        let load = |address, index, name: &[u8], code: &[u8]| {
            [&words(&[7 | 8 << 32, address, address, code.len() as u64, index]), name, b"\0", code].concat()
        };
        bytes.extend(record(CODE_LOAD, 10, &load(0x7000, 1, b"one", &[0x90, 0xc3])));
        bytes.extend(record(2, 15, &words(&[0x7000, 0])));
        bytes.extend(record(CODE_LOAD, 20, &load(0x8000, 2, b"two", &[0xc3])));
        bytes.extend(record(CODE_MOVE, 30, &words(&[7 | 8 << 32, 0x9000, 0x7000, 0x9000, 2, 1])));
        bytes
    }

    const CLOCK: TscClock = TscClock { shift: 0, mult: 2, zero: 0 };

    #[test]
    fn loads_and_moves_are_placements() {
        let bytes = dump(ARCH_TIMESTAMP);
        let code = parse(&bytes, Some(&CLOCK), MAX_PLACEMENTS).unwrap();
        let offset = |name: &[u8]| bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
        let (one, two) = (offset(b"one\0") as u64, offset(b"two\0") as u64);
        let place = |ns, start, len, offset| Placement {
            time: Some(Ns(ns)),
            start: Avma(start),
            len,
            file_offset: FileOffset(offset),
        };
        let expect = [place(20, 0x7000, 2, one), place(40, 0x8000, 1, two), place(60, 0x9000, 2, one)];
        assert_eq!(code.placements, expect);
        assert_eq!(code.named.names, b"one\0two\0");
        assert_eq!(
            code.named.symbols.iter().map(|s| (s.value, s.size, s.name)).collect::<Vec<_>>(),
            [(one, 2, 0), (two, 1, 4)]
        );
    }

    #[test]
    fn a_dump_is_read_up_to_so_many_placements() {
        let code = |max| parse(&dump(0), None, max).unwrap();
        assert!(!code(3).is_cut && code(3).bytes == dump(0).len());
        assert!(code(2).is_cut && code(2).placements == code(3).placements[..2]);
        assert!(code(2).bytes < dump(0).len());
    }

    #[test]
    fn times_of_another_clock_are_unknown() {
        for (flags, clock) in [(0, Some(&CLOCK)), (ARCH_TIMESTAMP, None)] {
            let code = parse(&dump(flags), clock, MAX_PLACEMENTS).unwrap();
            assert!(code.placements.iter().all(|p| p.time.is_none()));
        }
    }

    proptest! {
        #[test]
        fn damage_is_harmless(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = dump(ARCH_TIMESTAMP);
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Some(code) = parse(&bytes, Some(&CLOCK), MAX_PLACEMENTS) {
                for section in &code.named.sections {
                    prop_assert!(section.start <= section.end && section.end <= bytes.len() as u64);
                }
            }
        }
    }
}
