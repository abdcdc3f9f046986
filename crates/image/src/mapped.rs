//! Files mapped into memory: the one module of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// A file's bytes, mapped, never copied.
#[derive(Debug)]
pub(crate) struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// What the system says; also if it is no regular file (a pipe would block, a device has no end).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // Asked before opening: opening a pipe blocks.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // SAFETY: the map is private and read-only.  That nobody truncates or rewrites the file meanwhile
        // cannot be guaranteed for any mapped file; programs and libraries are replaced by renaming, which
        // leaves the mapped one as it was.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        assert!(MappedFile::open(Path::new("/dev/null")).is_err());
        assert!(MappedFile::open(Path::new("/")).is_err());
        let this = std::env::current_exe().unwrap();
        assert_eq!(&MappedFile::open(&this).unwrap().bytes()[..4], b"\x7fELF");
    }
}
