//! The walk from record to record.  Bodies are not looked at here, payloads not even touched.

use model::Damage;

use super::bytes::{self, Cursor};
use crate::record_types::{AUXTRACE, HEADER_SIZE, HEADER_TRACING_DATA, USER_TYPE_START};

/// A record's size has 16 bits.
const RECORD_MAX: u64 = 1 << 16;
/// perf uses fewer than 100 numbers.  A larger one is not a new kind of record but a walk gone astray.
const TYPE_LIMIT: u32 = 256;

/// `struct perf_event_header` and what follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRecord<'a> {
    /// Where in the file.
    pub(super) offset: u64,
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// Without the header.
    pub(super) body: &'a [u8],
    /// What stands after the record without being counted in its size; shorter than the record says if
    /// the file was cut there.
    pub(super) payload: &'a [u8],
    pub(super) payload_offset: u64,
}

impl RawRecord<'_> {
    /// Bytes, with the header and without what follows.
    pub(super) fn size(&self) -> usize {
        HEADER_SIZE + self.body.len()
    }
}

/// `struct perf_event_header`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: u32,
    misc: u16,
    /// Of the record, with the header.
    pub(super) size: usize,
}

impl Header {
    /// The header at the start of `bytes`; `None` if they end inside it.
    ///
    /// # Errors
    /// Why this is no record.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, String> {
        let mut c = Cursor::new(bytes);
        let (Some(kind), Some(misc), Some(size)) = (c.u32(), c.u16(), c.u16()) else { return Ok(None) };
        if kind == 0 || kind >= TYPE_LIMIT {
            return Err(format!("no record has the type {kind}"));
        }
        let size = usize::from(size);
        if size < HEADER_SIZE || (kind < USER_TYPE_START && size % 8 != 0) {
            return Err(format!("a record of type {kind} cannot have {size} bytes"));
        }
        Ok(Some(Self { kind, misc, size }))
    }

    /// Something stands after the record.
    pub(super) fn has_payload(&self) -> bool {
        matches!(self.kind, AUXTRACE | HEADER_TRACING_DATA)
    }

    /// The record, of which `whole` is all.
    pub(super) fn record<'r>(&self, offset: u64, whole: &'r [u8]) -> RawRecord<'r> {
        let body = whole.get(HEADER_SIZE..).unwrap_or_default();
        RawRecord { offset, kind: self.kind, misc: self.misc, body, payload: &[], payload_offset: 0 }
    }
}

/// The records of a file; ends at the first damaged one.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    position: u64,
    end: u64,
    /// `end` is not where the writer meant to end, so the last record may be cut.
    may_be_cut: bool,
    damage: Option<Damage>,
}

impl<'a> Records<'a> {
    /// The records from `start` to `end`, which must not be after the end of `bytes`.
    pub(super) fn new(bytes: &'a [u8], start: u64, end: u64, may_be_cut: bool) -> Self {
        Self { bytes, position: start, end, may_be_cut, damage: None }
    }

    /// Where the next record starts.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Why the walk ended before the end.
    pub(super) fn damage(self) -> Option<Damage> {
        self.damage
    }

    fn stop<T>(&mut self, file_offset: u64, what: String) -> Option<T> {
        self.damage = Some(Damage { file_offset, what });
        self.position = self.end;
        None
    }

    fn payload(&mut self, record: &mut RawRecord<'a>) -> Option<()> {
        let len = match record.kind {
            AUXTRACE => Cursor::new(record.body).u64(),
            HEADER_TRACING_DATA => Cursor::new(record.body).u32().map(u64::from),
            _ => return Some(()),
        };
        let Some(len) = len else {
            return self.stop(record.offset, format!("the record of type {} is too short", record.kind));
        };
        let there = self.end - self.position;
        if len > there && !self.may_be_cut {
            let what = format!("a payload of {len} bytes, and {there} bytes to the end of the records");
            return self.stop(record.offset, what);
        }
        record.payload = bytes::at(self.bytes, self.position, len.min(there)).unwrap_or_default();
        self.position += len.min(there);
        if len > there {
            let what = format!("the file is cut inside a payload: {there} of {len} bytes are there");
            self.damage = Some(Damage { file_offset: self.end, what });
        }
        Some(())
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = RawRecord<'a>;

    fn next(&mut self) -> Option<RawRecord<'a>> {
        let offset = self.position;
        let left = self.end.checked_sub(offset).filter(|left| *left > 0)?;
        let rest = bytes::at(self.bytes, offset, left.min(RECORD_MAX))?;
        let header = match Header::read(rest) {
            Ok(Some(header)) => header,
            Ok(None) => {
                return self.stop(offset, format!("cut inside a record's header: {left} bytes are left"));
            }
            Err(what) => return self.stop(offset, what),
        };
        let Header { kind, size, .. } = header;
        let Some(whole) = rest.get(..size) else {
            let what = format!("a record of type {kind} is cut: {left} of {size} bytes are there");
            return self.stop(offset, what);
        };
        let mut record = header.record(offset, whole);
        self.position = offset + size as u64;
        record.payload_offset = self.position;
        self.payload(&mut record)?;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_types::{FINISHED_ROUND, SWITCH};

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut r = kind.to_le_bytes().to_vec();
        r.extend([0, 0]);
        r.extend((8 + body.len() as u16).to_le_bytes());
        r.extend(body);
        r
    }

    fn walk(bytes: &[u8], may_be_cut: bool) -> (Vec<(u32, usize, usize)>, Option<u64>) {
        let mut records = Records::new(bytes, 0, bytes.len() as u64, may_be_cut);
        let seen = records.by_ref().map(|r| (r.kind, r.body.len(), r.payload.len())).collect();
        (seen, records.damage().map(|d| d.file_offset))
    }

    #[test]
    fn payloads_are_stepped_over() {
        let mut bytes = record(AUXTRACE, &[5, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([0xff; 5]);
        bytes.extend(record(FINISHED_ROUND, &[]));
        assert_eq!(walk(&bytes, false), (vec![(AUXTRACE, 8, 5), (FINISHED_ROUND, 0, 0)], None));
        // Cut inside the payload.
        assert_eq!(walk(&bytes[..19], true), (vec![(AUXTRACE, 8, 3)], Some(19)));
        // Not cut, so the payload's size is wrong.
        assert_eq!(walk(&bytes[..19], false), (vec![], Some(0)));
    }

    #[test]
    fn the_walk_ends_at_what_is_no_record() {
        let good = record(SWITCH, &[]);
        for bad in [record(0, &[]), record(300, &[]), record(SWITCH, &[0]), vec![1, 0, 0, 0, 0, 0, 4, 0]] {
            assert_eq!(walk(&[&good[..], &bad].concat(), true), (vec![(SWITCH, 0, 0)], Some(8)));
        }
        assert_eq!(walk(&[&good[..], &[1; 7]].concat(), true).1, Some(8));
        assert_eq!(walk(&[0; 4096], true), (vec![], Some(0)));
    }
}
