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

    /// Does `work`, which looks at few and distant places: the kernel reads these and not, as otherwise, what is around them.
    pub(crate) fn sparsely<T>(mappings: &[&Self], work: impl FnOnce() -> T) -> T {
        // A hint: where the kernel does not take it nothing is lost but time.
        let advise = |advice| mappings.iter().for_each(|Self(mapping)| drop(mapping.advise(advice)));
        advise(memmap2::Advice::Random);
        let done = work();
        advise(memmap2::Advice::Normal);
        done
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
