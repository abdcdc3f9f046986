//! The file of a part, or of several laid together.
//!
//! ```text
//!   "FLPARTS3"
//!   outputs of segments, one after the other     postcard of decoder::SegmentOutput, each
//!   index                                        postcard of Index: where they are, and of what they are
//!   place, length and CRC-32 of the index        8, 8 and 4 bytes, little endian
//!   "FLPARTS3"
//! ```
//! Its bytes do not depend on the order in which the parts were laid together.

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use decoder::{Level, SegmentOutput, StoredSegment};
use files::{MappedFile, Place};
use model::AuxOffset;
use serde::{Deserialize, Serialize};

use crate::args::PARTS_MAX;
use crate::exit::{Exit, failure};

const MAGIC: &[u8; 8] = b"FLPARTS3";

/// Place, length and checksum of the index, and the magic number.
const TRAILER_BYTES: usize = 28;

/// Bytes of an output, at most: reading it takes up to forty times as much memory. Some 2 MB are usual.
const OUTPUT_BYTES_MAX: usize = 1 << 24;

/// Bytes of an index, at most: that of 5,000 GB of trace.
const INDEX_BYTES_MAX: usize = 1 << 30;

/// What outputs are of. All of it but `parts` is the same in all parts that can be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Version of the program: another one may decode or number otherwise.
    pub(crate) version: String,
    /// Name of the recording.
    pub(crate) recording: String,
    /// Name of its code as it was found: the numbers of functions and objects are of it.
    pub(crate) code: String,
    /// Which calls were asked for, in full.
    pub(crate) asked: String,
    /// The command line that asked for them: that of the first part.
    pub(crate) words: Vec<String>,
    /// How many parts there are.
    pub(crate) of: u32,
    /// Those that are here, ascending.
    pub(crate) parts: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct Index {
    facts: Facts,
    entries: Vec<Entry>,
}

/// Where an output is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) segment: StoredSegment,
    place: u64,
    bytes: u32,
    crc: u32,
}

/// A file that is being written.
pub(crate) struct PartWriter<'o> {
    out: &'o mut dyn Write,
    place: u64,
    entries: Vec<Entry>,
}

impl<'o> PartWriter<'o> {
    pub(crate) fn new(out: &'o mut dyn Write) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(Self { out, place: MAGIC.len() as u64, entries: Vec::new() })
    }

    /// Adds the bytes of an output.
    pub(crate) fn add(&mut self, segment: StoredSegment, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > OUTPUT_BYTES_MAX {
            let message = format!(
                "between AUX offsets {} and {} is no PSB to cut the trace at, and what is in between is too much \
                 for a part: report on the recording as a whole",
                segment.at, segment.end
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        self.out.write_all(bytes)?;
        let crc = crc32fast::hash(bytes);
        // Not more than the bound above.
        self.entries.push(Entry { segment, place: self.place, bytes: bytes.len() as u32, crc });
        self.place += bytes.len() as u64;
        Ok(())
    }

    /// Writes the index.
    pub(crate) fn finish(self, facts: &Facts) -> io::Result<()> {
        let Self { out, place, mut entries } = self;
        entries.sort_by_key(|entry| entry.segment.key());
        write_index(out, place, &Index { facts: facts.clone(), entries })
    }
}

/// Writes the end of a file: its index, at this place.
fn write_index(out: &mut dyn Write, place: u64, index: &Index) -> io::Result<()> {
    let bytes = postcard::to_allocvec(index).map_err(io::Error::other)?;
    out.write_all(&bytes)?;
    out.write_all(&place.to_le_bytes())?;
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
    out.write_all(MAGIC)
}

/// A file, opened.
#[derive(Debug)]
pub(crate) struct PartFile {
    path: PathBuf,
    bytes: MappedFile,
    pub(crate) facts: Facts,
    pub(crate) entries: Vec<Entry>,
}

/// A file begins as one of parts does. Nothing is read from a pipe.
pub(crate) fn is_of_parts(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file
        && std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
        && begin == *MAGIC
}

impl PartFile {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is none of parts.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let opened = Place::here(path).open().and_then(|file| MappedFile::watched(file, path));
        let bytes = opened.map_err(|error| {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let exit = if denied { Exit::NotPossible } else { Exit::BadInput };
            failure(exit, format!("cannot read {}: {error}", path.display()))
        })?;
        let Index { facts, entries } = read_index(&bytes).map_err(|why| bad(path, why))?;
        Ok(Self { path: path.to_owned(), bytes, facts, entries })
    }

    /// The bytes of an output.
    ///
    /// # Errors
    /// They are damaged.
    pub(crate) fn bytes(&self, &Entry { place, bytes, crc, .. }: &Entry) -> Result<&[u8]> {
        let at = usize::try_from(place).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(at..at.saturating_add(bytes as usize)).unwrap_or_default();
        if bytes.len() > OUTPUT_BYTES_MAX || crc32fast::hash(bytes) != crc {
            return Err(bad(&self.path, format!("is damaged at offset {place:#x}")));
        }
        Ok(bytes)
    }

    /// An output.
    ///
    /// # Errors
    /// It is damaged.
    pub(crate) fn output(&self, entry: &Entry) -> Result<SegmentOutput> {
        let read = SegmentOutput::from_bytes(self.bytes(entry)?);
        read.map_err(|why| bad(&self.path, format!("at offset {:#x} is {why}", entry.place)))
    }

    /// That something is wrong with the file.
    pub(crate) fn bad(&self, why: impl std::fmt::Display) -> anyhow::Error {
        bad(&self.path, why)
    }
}

fn bad(path: &Path, why: impl std::fmt::Display) -> anyhow::Error {
    let remedy = "make the part again with `report --part K/N --part-out FILE`";
    failure(Exit::BadInput, format!("{}: {why}; {remedy}", path.display()))
}

fn read_index(bytes: &[u8]) -> Result<Index, &'static str> {
    const CUT: &str = "is no whole file of parts";
    let (body, trailer) =
        bytes.len().checked_sub(TRAILER_BYTES).and_then(|at| bytes.split_at_checked(at)).ok_or(CUT)?;
    let number = |at: usize| Some(u64::from_le_bytes(*trailer.get(at..)?.first_chunk::<8>()?));
    let (place, len) = number(0).zip(number(8)).ok_or(CUT)?;
    let crc = trailer.get(16..).and_then(|rest| rest.first_chunk::<4>()).map(|crc| u32::from_le_bytes(*crc));
    if !body.starts_with(MAGIC) || !trailer.ends_with(MAGIC) {
        return Err(CUT);
    }
    let index = usize::try_from(place).ok().and_then(|place| body.get(place..));
    let index =
        index.filter(|index| index.len() as u64 == len && index.len() <= INDEX_BYTES_MAX).ok_or(CUT)?;
    if Some(crc32fast::hash(index)) != crc {
        return Err("has a damaged index");
    }
    let index: Index =
        postcard::from_bytes(index).map_err(|_| "has an index of another version, or a damaged one")?;
    let Facts { of, parts, .. } = &index.facts;
    let is_ascending = parts.is_sorted_by(|one, next| one < next);
    let is_one = |part: &u32| (1..=*of).contains(part);
    if !is_ascending || parts.is_empty() || *of > PARTS_MAX || !parts.iter().all(is_one) {
        return Err("has parts that there cannot be");
    }
    let is_in_order = index.entries.is_sorted_by(|one, next| one.segment.key() < next.segment.key());
    let is_apart = overlapping(index.entries.iter().map(|entry| &entry.segment)).is_none();
    let is_whole = |entry: &Entry| entry.segment.is_there && entry.segment.at < entry.segment.end;
    // An output is of one segment only: the bytes read are bounded by the size of the file.
    let mut extents: Vec<(u64, u32)> = index.entries.iter().map(|entry| (entry.place, entry.bytes)).collect();
    extents.sort_unstable();
    let mut next = MAGIC.len() as u64;
    let follows = |(place, bytes): (u64, u32)| {
        let is_next = place == next;
        next = next.saturating_add(u64::from(bytes));
        is_next
    };
    let is_laid_out = extents.into_iter().all(follows) && next == place;
    if !is_laid_out || !is_in_order || !is_apart || !index.entries.iter().all(is_whole) {
        return Err("has segments that there cannot be");
    }
    Ok(index)
}

/// Which of the segments, in the order of their keys, begins in another one of its level.
pub(super) fn overlapping<'s>(segments: impl Iterator<Item = &'s StoredSegment>) -> Option<usize> {
    let mut ends = [(0, AuxOffset(0)); 2];
    let mut begins_in = |segment: &StoredSegment| {
        let end = &mut ends[usize::from(segment.level == Level::Joined)];
        let begins_in = (segment.buffer, segment.at) < *end;
        *end = (segment.buffer, segment.end);
        begins_in
    };
    segments.enumerate().find_map(|(number, segment)| begins_in(segment).then_some(number))
}

#[cfg(test)]
mod tests {
    use decoder::LastTime;
    use model::Ns;

    use super::*;

    fn facts(of: u32, parts: &[u32]) -> Facts {
        let text = String::new;
        let parts = parts.to_vec();
        Facts { version: text(), recording: text(), code: text(), asked: text(), words: vec![], of, parts }
    }

    fn segment(buffer: usize, at: u64, end: u64) -> StoredSegment {
        let (at, end, bytes) = (AuxOffset(at), AuxOffset(end), end - at);
        let (level, after) = (Level::Decoded, LastTime::default());
        let start = Ns(7);
        StoredSegment { buffer, at, end, start, until: None, after, bytes, is_there: true, level }
    }

    fn written(facts: &Facts, segments: &[StoredSegment]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PartWriter::new(&mut bytes).unwrap();
        for segment in segments {
            writer.add(*segment, b"out").unwrap();
        }
        writer.finish(facts).unwrap();
        bytes
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let facts = facts(3, &[1, 3]);
        let index = read_index(&written(&facts, &[segment(0, 5, 9), segment(0, 9, 12), segment(2, 0, 1)]));
        let Index { facts: read, entries } = index.unwrap();
        let found: Vec<_> = entries.iter().map(|entry| (entry.segment.buffer, entry.place)).collect();
        let bytes = u64::from(entries[0].bytes);
        assert_eq!((read, found), (facts, vec![(0, 8), (0, 8 + bytes), (2, 8 + 2 * bytes)]));
    }

    #[test]
    fn an_index_that_there_cannot_be_is_refused() {
        let refused = |facts: &Facts, segments: &[StoredSegment]| {
            read_index(&written(facts, segments)).map(drop).unwrap_err()
        };
        for (of, parts) in [(3, &[][..]), (3, &[4]), (3, &[0]), (3, &[2, 1]), (u32::MAX, &[1])] {
            assert_eq!(
                refused(&facts(of, parts), &[]),
                "has parts that there cannot be",
                "{parts:?} of {of}"
            );
        }
        let missing = StoredSegment { is_there: false, ..segment(0, 1, 2) };
        let empty = StoredSegment { end: AuxOffset(1), ..segment(0, 1, 2) };
        let joined = |at, end| StoredSegment { level: Level::Joined, ..segment(0, at, end) };
        let lists = [
            vec![missing],
            vec![empty],
            vec![segment(0, 0, 2), segment(0, 1, 3)],
            vec![joined(0, 4), segment(0, 0, 2), joined(3, 5)],
        ];
        for segments in lists {
            assert_eq!(refused(&facts(1, &[1]), &segments), "has segments that there cannot be");
        }
        // Two segments with one output, and two that are not in order.
        let entry = |segment, place| Entry { segment, place, bytes: 3, crc: 0 };
        let twice = vec![entry(segment(0, 0, 1), 8), entry(segment(0, 1, 2), 8)];
        let turned = vec![entry(segment(1, 0, 1), 8), entry(segment(0, 0, 1), 11)];
        for (entries, end) in [(twice, 11), (turned, 14)] {
            let mut bytes = [&MAGIC[..], b"outout"].concat()[..end].to_vec();
            write_index(&mut bytes, end as u64, &Index { facts: facts(1, &[1]), entries }).unwrap();
            assert_eq!(read_index(&bytes).map(drop), Err("has segments that there cannot be"));
        }
    }
}
