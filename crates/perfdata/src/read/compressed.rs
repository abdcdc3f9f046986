//! COMPRESSED records (`perf record -z`): one zstd stream per file that holds the kernel's records.
//!
//! ```text
//! COMPRESSED           COMPRESSED                  the stream of zstd ends nowhere: perf flushes it at each
//! [ zstd bytes     ]   [ zstd bytes      ]         record, but a block may go on in the next one,
//!   |MMAP2|COMM|SWI      TCH|SWITCH|...            and so may a record of the kernel
//! ```
//!
//! Few bytes of a stream may unpack to any number, so only the start of an unfinished record is kept, and a
//! single COMPRESSED record may not give more than [`OUTPUT_MAX`]. zstd itself refuses windows of more than
//! 128 MB.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::bytes::Cursor;
use super::records::{self, RawRecord};
use crate::record_types::COMPRESSED2;

/// The most that one COMPRESSED record may hold.  Its 64 KB hold less than 1 MB of what the kernel writes.
const OUTPUT_MAX: usize = 1 << 26;
const CHUNK: usize = 1 << 16;

/// The stream of one file.
#[derive(Default)]
pub(super) struct Stream {
    decoder: Option<Decoder<'static>>,
    /// The start of a record that goes on in the next COMPRESSED record.
    partial: Vec<u8>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("partial", &self.partial.len()).finish_non_exhaustive()
    }
}

impl Stream {
    /// Gives the records inside a COMPRESSED record to `each`, until that says that it is enough.
    ///
    /// # Errors
    /// What is wrong with the stream, or what `each` says.
    pub(super) fn unpack(
        &mut self,
        record: &RawRecord<'_>,
        each: &mut dyn FnMut(&RawRecord<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let corrupt = |error: std::io::Error| format!("the compressed records are damaged: {error}");
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new().map_err(corrupt)?),
        };
        let mut input = InBuffer::around(contents(record).ok_or("a COMPRESSED record is too short")?);
        let mut output = vec![0; CHUNK];
        let mut total = 0;
        loop {
            let mut chunk = OutBuffer::around(output.as_mut_slice());
            decoder.run(&mut input, &mut chunk).map_err(corrupt)?;
            let bytes = chunk.as_slice();
            total += bytes.len();
            if total > OUTPUT_MAX {
                return Err(format!("a COMPRESSED record holds more than {OUTPUT_MAX} bytes"));
            }
            self.partial.extend_from_slice(bytes);
            // All input taken and room left: nothing is held back.
            let is_last = input.pos() == input.src.len() && bytes.len() < CHUNK;
            let used = split(&self.partial, record.offset, each)?;
            self.partial.drain(..used);
            if is_last {
                return Ok(());
            }
        }
    }

    /// Bytes of a record that is not whole.
    pub(super) fn left(&self) -> usize {
        self.partial.len()
    }
}

/// The compressed bytes of a record. A COMPRESSED2 says how many they are; the rest is padding.
fn contents<'r>(record: &RawRecord<'r>) -> Option<&'r [u8]> {
    if record.kind != COMPRESSED2 {
        return Some(record.body);
    }
    let mut c = Cursor::new(record.body);
    let len = usize::try_from(c.u64()?).ok()?;
    c.take(len)
}

/// Gives the whole records of `bytes` to `each`; how many bytes they are.
fn split(
    bytes: &[u8],
    offset: u64,
    each: &mut dyn FnMut(&RawRecord<'_>) -> Result<(), String>,
) -> Result<usize, String> {
    let mut rest = bytes;
    while let Some(header) = records::Header::read(rest)? {
        let Some((whole, after)) = rest.split_at_checked(header.size) else { break };
        if header.has_payload() {
            return Err(format!("a record of type {} cannot be compressed", header.kind));
        }
        each(&header.record(offset, whole))?;
        rest = after;
    }
    Ok(bytes.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn compressed(records: &[u8], max: usize) -> Vec<Vec<u8>> {
        fixture::zstd_stream(records).chunks(max).map(<[u8]>::to_vec).collect()
    }

    fn unpack(list: &[Vec<u8>]) -> Result<Vec<(u32, usize)>, String> {
        let mut stream = Stream::default();
        let mut seen = vec![];
        for body in list {
            let kind = crate::record_types::COMPRESSED;
            let record = RawRecord { offset: 7, kind, misc: 0, body, payload: &[], payload_offset: 0 };
            stream.unpack(&record, &mut |inner| {
                assert_eq!(inner.offset, 7);
                seen.push((inner.kind, inner.body.len()));
                Ok(())
            })?;
        }
        assert_eq!(stream.left(), 0);
        Ok(seen)
    }

    #[test]
    fn records_and_blocks_go_on_in_the_next_record() {
        let mut records = vec![];
        let mut expect = vec![];
        for i in 0..20_000 {
            let body = vec![(i * 37 % 251) as u8; i % 5 * 8];
            records.extend(fixture::record(14, 0, &body));
            expect.push((14, body.len()));
        }
        for max in [1, 1000, usize::MAX] {
            assert_eq!(unpack(&compressed(&records, max)), Ok(expect.clone()), "pieces of {max}");
        }
    }

    #[test]
    fn what_is_no_stream_and_what_holds_too_much_is_an_error() {
        assert!(unpack(&[b"no zstd at all".to_vec()]).unwrap_err().contains("damaged"));
        let bomb = fixture::record(14, 0, &[]).repeat(OUTPUT_MAX / 8 + 1);
        let bomb = compressed(&bomb, usize::MAX);
        assert!(bomb[0].len() < 1 << 14);
        assert_eq!(unpack(&bomb), Err("a COMPRESSED record holds more than 67108864 bytes".to_owned()));
        let trace = fixture::record(crate::record_types::AUXTRACE, 0, &[0; 40]);
        assert_eq!(
            unpack(&compressed(&trace, 99)),
            Err("a record of type 71 cannot be compressed".to_owned())
        );
    }

    #[test]
    fn padding_is_no_part_of_the_stream() {
        let body = [9u64.to_le_bytes().to_vec(), b"123456789".to_vec(), vec![0; 7]].concat();
        let of =
            |body| RawRecord { offset: 0, kind: COMPRESSED2, misc: 0, body, payload: &[], payload_offset: 0 };
        assert_eq!(contents(&of(&body)), Some(&b"123456789"[..]));
        assert_eq!(contents(&of(&body[..16])), None);
    }
}
