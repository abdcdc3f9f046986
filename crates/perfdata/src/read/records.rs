//! The walk from record to record.  Bodies are not looked at here, payloads not even touched.

use model::Damage;

use super::bytes::{self, Cursor};
use super::record_window::{FileBytes, RecordWindow};
use crate::record_types::{AUXTRACE, HEADER_SIZE, HEADER_TRACING_DATA, USER_TYPE_START};

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
#[derive(Debug)]
pub(super) struct Records<'a> {
    bytes: FileBytes<'a>,
    window: RecordWindow<'a>,
    position: u64,
    end: u64,
    /// `end` is not where the writer meant to end, so the last record may be cut.
    may_be_cut: bool,
    damage: Option<Damage>,
}

impl<'a> Records<'a> {
    /// The records from `start` to `end`, which must not be after the end of `bytes`.
    pub(super) fn new(bytes: FileBytes<'a>, start: u64, end: u64, may_be_cut: bool) -> Self {
        Self { bytes, window: RecordWindow::new(bytes), position: start, end, may_be_cut, damage: None }
    }

    /// The bytes of the file, with the payloads.
    pub(super) fn mapped(&self) -> &'a [u8] {
        self.bytes.mapped
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

    /// The next record.
    pub(super) fn next_record(&mut self) -> Option<RawRecord<'_>> {
        let offset = self.position;
        let left = self.end.checked_sub(offset).filter(|left| *left > 0)?;
        let head = usize::try_from(left).map_or(HEADER_SIZE, |left| left.min(HEADER_SIZE));
        let header = match Header::read(self.window.at(offset, head)?) {
            Ok(Some(header)) => header,
            Ok(None) => {
                return self.stop(offset, format!("cut inside a record's header: {left} bytes are left"));
            }
            Err(what) => return self.stop(offset, what),
        };
        let Header { kind, size, .. } = header;
        if left < size as u64 {
            let what = format!("a record of type {kind} is cut: {left} of {size} bytes are there");
            return self.stop(offset, what);
        }
        self.position += size as u64;
        let payload_offset = self.position;
        let payload = self.payload(&header, offset)?;
        let record = header.record(offset, self.window.at(offset, size)?);
        Some(RawRecord { payload, payload_offset, ..record })
    }

    /// Steps over what stands after a record without being counted in its size.
    fn payload(&mut self, header: &Header, offset: u64) -> Option<&'a [u8]> {
        if !header.has_payload() {
            return Some(&[]);
        }
        let mut body = Cursor::new(self.window.at(offset, header.size)?.get(HEADER_SIZE..)?);
        let len = if header.kind == AUXTRACE { body.u64() } else { body.u32().map(u64::from) };
        let Some(len) = len else {
            return self.stop(offset, format!("the record of type {} is too short", header.kind));
        };
        let there = self.end - self.position;
        if len > there && !self.may_be_cut {
            let what = format!("a payload of {len} bytes, and {there} bytes to the end of the records");
            return self.stop(offset, what);
        }
        let payload = bytes::at(self.bytes.mapped, self.position, len.min(there)).unwrap_or_default();
        self.position += len.min(there);
        if len > there {
            let what = format!("the file is cut inside a payload: {there} of {len} bytes are there");
            self.damage = Some(Damage { file_offset: self.end, what });
        }
        Some(payload)
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
        let mut records = Records::new(bytes.into(), 0, bytes.len() as u64, may_be_cut);
        let mut seen = vec![];
        while let Some(r) = records.next_record() {
            seen.push((r.kind, r.body.len(), r.payload.len()));
        }
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
