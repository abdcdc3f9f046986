//! The one place that maps a file.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;

/// A file's bytes, mapped read-only.
#[derive(Debug)]
pub(crate) struct Mapping(memmap2::Mmap);

impl Mapping {
    /// Maps a whole file, which may be closed afterwards.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the mapping is read-only and private to this process.  Another process that writes to the
        // file can change bytes under us: every value is read once, checked and copied out, so this can
        // give a wrong answer, but no invalid access.  One that shortens the file makes us die of SIGBUS,
        // as it does with every program that maps files; a finished recording is not written again.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
