//! Where things are.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::process::Result;

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
        None => target_elsewhere().unwrap_or_else(|| root().join("target")),
    }
}

/// Where cargo is told to build in a checkout with a space or a comma in its path.
pub(crate) fn target_elsewhere() -> Option<PathBuf> {
    if std::env::var_os("CARGO_TARGET_DIR").is_some() { None } else { elsewhere(&root()) }
}

/// Where builds go if the path of a checkout has a space or a comma: with a space `make` cannot build libbpf,
/// nor the kernel's build system a module, and with either IP filters cannot name programs.
fn elsewhere(root: &Path) -> Option<PathBuf> {
    let has_separator = root.to_string_lossy().contains(|c: char| c.is_whitespace() || c == ',');
    has_separator.then(|| {
        let mut hasher = DefaultHasher::new();
        root.hash(&mut hasher);
        PathBuf::from(format!("/var/tmp/func_latency-{:016x}", hasher.finish()))
    })
}

/// Where the recordings are: one place, wherever cargo builds, because the tests look there.
pub(crate) fn fixtures() -> PathBuf {
    root().join("target").join("fixtures")
}

/// Makes that place: a link where builds go elsewhere, so that recordings name their programs there.
pub(crate) fn make_fixtures() -> Result {
    let place = fixtures();
    let named = |e: std::io::Error| format!("{}: {e}", place.display());
    let Some(elsewhere) = elsewhere(&root()) else { return fs::create_dir_all(&place).map_err(named) };
    let real = elsewhere.join("fixtures");
    fs::create_dir_all(&real).map_err(named)?;
    if place.exists() {
        return Ok(());
    }
    println!("fixtures: in {}, because the path of this checkout has a space or comma", real.display());
    fs::create_dir_all(root().join("target")).map_err(named)?;
    symlink(&real, &place).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_whose_path_has_a_space_builds_elsewhere() {
        assert_eq!(elsewhere(Path::new("/src/x")), None);
        let [space, comma] = ["/a b", "/a,b"].map(|root| elsewhere(Path::new(root)).unwrap());
        for target in [&space, &comma] {
            assert!(target.starts_with("/var/tmp"), "{target:?}");
            assert!(!target.to_string_lossy().contains([' ', ',']), "{target:?}");
        }
        assert_ne!(space, comma, "two checkouts share nothing");
    }
}
