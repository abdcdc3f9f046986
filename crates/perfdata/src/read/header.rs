//! The file header: `struct perf_file_header`, `struct perf_pipe_file_header` (tools/perf/util/header.h).

use std::path::Path;

use super::bytes::Cursor;
use super::error::OpenError;

const MAGIC: &[u8; 8] = b"PERFILE2";
const MAGIC_BIG_ENDIAN: &[u8; 8] = b"2ELIFREP";
const MAGIC_OLD: &[u8; 8] = b"PERFFILE";
/// `sizeof(struct perf_pipe_file_header)`: magic and size.  A header of this size is the pipe layout.
const PIPE_HEADER_SIZE: u64 = 16;

/// Says whether the bytes are `perf.data` at all.
pub(super) fn check_magic(bytes: &[u8], path: &Path) -> Result<(), OpenError> {
    let path = path.to_path_buf();
    match bytes.get(..8) {
        Some(magic) if magic == MAGIC => Ok(()),
        Some(magic) if magic == MAGIC_BIG_ENDIAN => Err(OpenError::BigEndian { path }),
        Some(magic) if magic == MAGIC_OLD => Err(OpenError::OldFormat { path }),
        _ => Err(match first_psb(bytes) {
            Some(psb) => OpenError::RawTrace { path, psb },
            None => OpenError::NotPerfData { path },
        }),
    }
}

/// A PSB packet (SDM "PSB packet"): nothing else in a trace looks like it.
const PSB: [u8; 16] =
    [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];

/// Where a raw trace would have a PSB: the longest period that is usual is half of this (`psb_period`).
const PSB_SEARCHED: usize = 1 << 17;

/// Where the first PSB is.  A program's own bytes may have one in them: it decodes traces.
fn first_psb(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"\x7fELF") {
        return None;
    }
    memchr::memmem::find(bytes.get(..PSB_SEARCHED).unwrap_or(bytes), &PSB)
}

/// `struct perf_file_section`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Section {
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Some(Self { offset: cursor.u64()?, size: cursor.u64()? })
    }

    pub(super) fn encode(self) -> [u8; 16] {
        (u128::from(self.offset) | u128::from(self.size) << 64).to_le_bytes()
    }

    pub(super) fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }

    pub(super) fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        super::bytes::at(bytes, self.offset, self.size)
    }
}

/// Where things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Records follow the header; events and features are records, too.
    Pipe { records: u64 },
    /// Sections.
    File(FileHeader),
}

/// `struct perf_file_header`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Size of one entry of `attrs`: a `perf_event_attr` and the section of its ids.
    pub(super) attr_size: u64,
    pub(super) attrs: Section,
    /// Size 0 if perf was killed: it is filled in at the end.
    pub(super) data: Section,
    /// Bitmap of the features after the records.
    pub(super) features: [u64; 4],
}

impl FileHeader {
    /// The numbers of the features, in the order of their sections.
    pub(super) fn feature_bits(&self) -> impl Iterator<Item = u32> + '_ {
        (0..256).filter(|bit| self.has_feature(*bit))
    }

    pub(super) fn has_feature(&self, bit: u32) -> bool {
        self.features.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }
}

impl Layout {
    /// Reads the header after the magic; `None` if the file ends inside it.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes.get(8..)?);
        let size = cursor.u64()?;
        if size == PIPE_HEADER_SIZE {
            return Some(Self::Pipe { records: PIPE_HEADER_SIZE });
        }
        let attr_size = cursor.u64()?;
        let attrs = Section::read(&mut cursor)?;
        let data = Section::read(&mut cursor)?;
        let _event_types = Section::read(&mut cursor)?;
        let mut features = [0; 4];
        // The bitmap is a later addition to the header.
        if size >= 104 {
            for word in &mut features {
                *word = cursor.u64()?;
            }
        }
        Some(Self::File(FileHeader { attr_size, attrs, data, features }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_files_are_named() {
        let path = Path::new("x");
        assert!(check_magic(b"PERFILE2....", path).is_ok());
        assert!(matches!(check_magic(b"2ELIFREP....", path), Err(OpenError::BigEndian { .. })));
        assert!(matches!(check_magic(b"PERFFILE....", path), Err(OpenError::OldFormat { .. })));
        assert!(matches!(check_magic(b"\x7fELF", path), Err(OpenError::NotPerfData { .. })));
    }

    #[test]
    fn pipe_and_file_headers() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(16u64.to_le_bytes());
        assert_eq!(Layout::read(&bytes), Some(Layout::Pipe { records: 16 }));
        bytes.truncate(8);
        for word in [104u64, 144, 200, 288, 488, 0, 0, 0, 1 << 11 | 1 << 2, 0, 0, 1] {
            bytes.extend(word.to_le_bytes());
        }
        assert_eq!(Layout::read(&bytes[..100]), None);
        let Some(Layout::File(h)) = Layout::read(&bytes) else { panic!() };
        assert_eq!(h.attr_size, 144);
        assert_eq!(h.attrs, Section { offset: 200, size: 288 });
        assert_eq!(h.data, Section { offset: 488, size: 0 });
        assert_eq!(h.feature_bits().collect::<Vec<_>>(), [2, 11, 192]);
    }
}
