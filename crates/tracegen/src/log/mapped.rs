//! The one module with `unsafe`: logs of gigabytes are mapped, not read.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// A file's bytes.
#[derive(Debug)]
pub(super) struct MappedFile(Option<Mmap>);

impl MappedFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self(None)); // cannot be mapped
        }
        // SAFETY: the log is ours and finished; no process changes it while it is simulated.
        let mapping = unsafe { Mmap::map(&file)? };
        Ok(Self(Some(mapping)))
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
