//! Build ids of files that many processes have mapped: each file is read once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use model::BuildId;

use crate::snapshot::BuildIdOf;

/// What is known so far.
pub(crate) struct BuildIds<'a> {
    read: BuildIdOf<'a>,
    /// By device and inode as `stat` has them: unlike those of mappings they are a file's own on every file
    /// system.
    known: Mutex<BTreeMap<(u64, u64), Option<BuildId>>>,
}

impl<'a> BuildIds<'a> {
    pub(crate) fn new(read: BuildIdOf<'a>) -> Self {
        Self { read, known: Mutex::default() }
    }

    /// Of a file; `None` if it has none, or cannot be read.
    pub(crate) fn of(&self, path: &Path) -> Option<BuildId> {
        let file = fs::metadata(path).ok()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry((file.dev(), file.ino())).or_insert_with(|| (self.read)(path)).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_file_is_read_once_by_whatever_name() {
        let directory = tempfile::tempdir().unwrap();
        let (one, link, other) =
            (directory.path().join("a"), directory.path().join("b"), directory.path().join("c"));
        fs::write(&one, "x").unwrap();
        fs::hard_link(&one, &link).unwrap();
        fs::write(&other, "x").unwrap();
        let reads = AtomicU32::new(0);
        let read = |path: &Path| {
            reads.fetch_add(1, Ordering::Relaxed);
            (path != other).then(|| BuildId(vec![7]))
        };
        let ids = BuildIds::new(&read);
        let found: Vec<bool> = [&one, &link, &other, &other].map(|path| ids.of(path).is_some()).into();
        assert_eq!(found, [true, true, false, false]);
        assert_eq!(reads.load(Ordering::Relaxed), 2);
        assert_eq!(ids.of(&directory.path().join("none")), None);
    }
}
