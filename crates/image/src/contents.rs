//! The bytes of an object: a mapped file, or made in memory.  Clones share them.

use std::ops::Deref;
use std::sync::Arc;

use files::MappedFile;

/// An object's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    /// A file's.
    Mapped(Arc<MappedFile>),
    /// No file has them as they are: the vDSO of a running kernel, an unpacked symbol table.
    Owned(Arc<[u8]>),
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file,
            Self::Owned(bytes) => bytes,
        }
    }
}
