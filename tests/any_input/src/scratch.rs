//! A directory for each thread that checks, with the files that an input stands for.

use std::cell::OnceCell;
use std::path::PathBuf;

use tempfile::TempDir;

thread_local! {
    static DIRECTORY: OnceCell<TempDir> = const { OnceCell::new() };
}

/// The thread's directory.
pub(crate) fn directory() -> PathBuf {
    DIRECTORY.with(|directory| directory.get_or_init(|| tempfile::tempdir().unwrap()).path().to_path_buf())
}

/// A new file there with these bytes: pages of the one before may still be mapped.
pub(crate) fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory().join(name);
    let _ = std::fs::remove_file(&path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}
