//! The bytes of records, read from the file in the place of its mapping.
//!
//! ```text
//!   records | trace, 1 MB | records | trace, 1 MB | records ...
//!   ^ read                  ^ read                  ^ read
//! ```
//! Of a mapping the kernel maps all that it has in memory of the 64 KB around each page that is touched
//! (`fault_around_bytes`), and unmaps it at the end: in a recording of 20 GB that takes 0.3 s.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::bytes;

/// Read after trace: in most places more trace follows a few records.
const BYTES_MIN: usize = 512;
/// Read where records follow records, at most; a record's size has 16 bits.
const BYTES_MAX: usize = 1 << 16;

/// The bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileBytes<'a> {
    pub(super) mapped: &'a [u8],
    /// The file that is mapped, if it is open.
    pub(super) file: Option<&'a File>,
}

impl<'a> From<&'a [u8]> for FileBytes<'a> {
    fn from(mapped: &'a [u8]) -> Self {
        Self { mapped, file: None }
    }
}

/// What was read of a file last.
#[derive(Debug)]
pub(super) struct RecordWindow<'a> {
    of: FileBytes<'a>,
    start: u64,
    read: Vec<u8>,
}

impl<'a> RecordWindow<'a> {
    pub(super) fn new(of: FileBytes<'a>) -> Self {
        Self { of, start: 0, read: Vec::new() }
    }

    /// The bytes at a place; `None` where they are not all in the file.
    pub(super) fn at(&mut self, offset: u64, len: usize) -> Option<&[u8]> {
        if let Some(file) = self.of.file
            && self.place(offset, len).is_none()
        {
            let is_next = offset.checked_sub(self.start).is_some_and(|at| at <= self.read.len() as u64);
            let wanted = if is_next { (2 * self.read.len()).min(BYTES_MAX) } else { 0 };
            let left = (self.of.mapped.len() as u64).saturating_sub(offset);
            let wanted = wanted.max(BYTES_MIN).max(len).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.start = offset;
            self.read.resize(wanted, 0);
            if file.read_exact_at(&mut self.read, offset).is_err() {
                // The mapping tells what is wrong.
                self.of.file = None;
            }
        }
        match self.of.file {
            None => bytes::at(self.of.mapped, offset, len as u64),
            Some(_) => self.read.get(self.place(offset, len)?..)?.get(..len),
        }
    }

    /// Where bytes are in what was read.
    fn place(&self, offset: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        (at.checked_add(len)? <= self.read.len()).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_read_is_what_is_mapped() {
        let mapped: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&mapped).unwrap();
        let mut window = RecordWindow::new(FileBytes { mapped: &mapped, file: Some(&file) });
        let end = mapped.len() as u64;
        // In a row, from far, back again, long, at the end, beyond it.
        let in_a_row = (0..4000).map(|number| (number * 40, 40));
        let others =
            [(200_000, 8), (100, 8), (4196, 65_535), (end - 3, 3), (end - 3, 4), (end, 1), (u64::MAX, 8)];
        for (offset, len) in in_a_row.chain(others) {
            assert_eq!(window.at(offset, len), bytes::at(&mapped, offset, len as u64), "{len} at {offset}");
            assert!(window.read.len() <= BYTES_MAX);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_taken_from_its_mapping() {
        let file = File::options().write(true).open("/dev/null").unwrap();
        let mut window = RecordWindow::new(FileBytes { mapped: b"abcdef", file: Some(&file) });
        assert_eq!(window.at(2, 3), Some(&b"cde"[..]));
        assert_eq!(window.at(4, 3), None);
    }
}
