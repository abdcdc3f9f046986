//! Where things are.

use std::path::PathBuf;

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    // Cargo sets it anew for each run, so a checkout that was moved is still found.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(xtask).parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Where the recordings are: one place, wherever cargo builds, because the tests look there.
pub(crate) fn fixtures() -> PathBuf {
    root().join("target").join("fixtures")
}
