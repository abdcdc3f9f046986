//! Calls as columns of numbers, packed for a page: LEB128, then zlib, then base64, which a browser undoes
//! with what it has built in (`DecompressionStream`, `atob`). `page/calls.js` reads what is written here,
//! column by column in the same order.

use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Columns that are written one after the other.
pub(super) struct ByteColumns {
    packed: ZlibEncoder<Vec<u8>>,
}

impl ByteColumns {
    pub(super) fn new() -> Self {
        Self { packed: ZlibEncoder::new(Vec::new(), Compression::default()) }
    }

    /// The next column.
    pub(super) fn put(&mut self, values: impl Iterator<Item = u64>) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(BUFFER);
        for value in values {
            leb128(value, &mut buffer);
            if buffer.len() >= BUFFER - LEB128_MAX {
                self.packed.write_all(&buffer)?;
                buffer.clear();
            }
        }
        self.packed.write_all(&buffer)
    }

    /// The next column, of values that are known of all or of none, and then there is no column.
    pub(super) fn put_known(&mut self, values: impl Iterator<Item = Option<u64>>) -> io::Result<()> {
        self.put(values.flatten())
    }

    /// All of them as text.
    pub(super) fn finish(self) -> io::Result<String> {
        Ok(BASE64_STANDARD.encode(self.packed.finish()?))
    }
}

/// What is packed at once.
const BUFFER: usize = 1 << 16;

/// Bytes of the greatest number.
const LEB128_MAX: usize = 10;

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn leb128(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A difference of either sign as a small number.
pub(super) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::ZlibDecoder;
    use std::io::Read as _;

    #[test]
    fn columns_follow_each_other() {
        let mut columns = ByteColumns::new();
        columns.put([0, 127, 128, u64::MAX].into_iter()).unwrap();
        columns.put([300].into_iter()).unwrap();
        let packed = BASE64_STANDARD.decode(columns.finish().unwrap()).unwrap();
        let mut bytes = Vec::new();
        ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(bytes, [&[0, 0x7f, 0x80, 0x01][..], &most, &[0xac, 0x02]].concat());
    }

    #[test]
    fn long_columns_are_whole() {
        let mut columns = ByteColumns::new();
        columns.put((0..100_000).map(|_| u64::MAX)).unwrap();
        let packed = BASE64_STANDARD.decode(columns.finish().unwrap()).unwrap();
        let mut bytes = Vec::new();
        ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 100_000 * LEB128_MAX);
    }

    #[test]
    fn differences() {
        assert_eq!([0, -1, 1, -2, i64::MAX, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX - 1, u64::MAX]);
    }
}
