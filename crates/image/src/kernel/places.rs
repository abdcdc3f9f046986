//! Where the kernel's text may be.
//!
//! ```text
//! DIR/[kernel.kcore]/BUILDID/TIME/{kcore,kallsyms,modules}   --symfs, perf's cache (buildid-cache --kcore)
//! /proc/{kcore,kallsyms,modules}                             if the recorded kernel runs here
//! vmlinux                                                    recorded build id, where distributions put it
//! ```

use std::path::{Path, PathBuf};

use model::BuildId;

use super::{CORE, kcore};
use crate::locate::build_id_dirs::{self, Part};
use crate::options::ImageOptions;

/// The directory of perf's cache for copies of kernels.
const CACHE: &str = "[kernel.kcore]";

/// A place to take the kernel's text from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A copy of `/proc/kcore`, or a directory with that and `kallsyms`.
    Kcore(PathBuf),
    /// `vmlinux`.
    Vmlinux(PathBuf),
}

/// The directory below a cache in which a bundle has the text of a kernel.
pub(crate) fn in_bundle(id: Option<&BuildId>) -> PathBuf {
    copies_of(Path::new(""), id).join("bundle")
}

/// All places, the best first.
pub(super) fn all(id: Option<&BuildId>, options: &ImageOptions) -> Vec<Place> {
    let mut places = options.symfs.as_ref().map_or_else(Vec::new, |root| copies(root, id));
    if kcore::is_running(id) {
        places.push(Place::Kcore("/proc/kcore".into()));
    }
    // Without a build id a copy in the cache may be of any kernel.
    if let (Some(cache), Some(id)) = (&options.build_id_cache, id) {
        places.extend(copies(cache, Some(id)));
    }
    match (id, &options.symfs) {
        (Some(id), _) => places.extend(vmlinux(id, options).into_iter().map(Place::Vmlinux)),
        // A bundle has it by its name.
        (None, Some(root)) => places.push(Place::Vmlinux(root.join(CORE))),
        (None, None) => (),
    }
    places
}

fn copies_of(root: &Path, id: Option<&BuildId>) -> PathBuf {
    let cache = root.join(CACHE);
    id.map_or_else(|| cache.clone(), |id| cache.join(id.to_string()))
}

/// A kernel may have been copied several times, once for each start: the newest first, as perf names them by
/// time.
fn copies(root: &Path, id: Option<&BuildId>) -> Vec<Place> {
    let entries = std::fs::read_dir(copies_of(root, id)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|directory| directory.join("kcore").is_file());
    found.sort_unstable();
    found.into_iter().rev().map(Place::Kcore).collect()
}

/// Where `vmlinux` may be: by build id as any object, or as its own debug file; by name, where its build id
/// decides.
fn vmlinux(id: &BuildId, options: &ImageOptions) -> Vec<PathBuf> {
    let mut places = build_id_dirs::places(id, Part::Code, options);
    places.extend(build_id_dirs::places(id, Part::Debug, options));
    let installed =
        ["/boot/vmlinux-*", "/usr/lib/debug/boot/vmlinux-*", "/usr/lib/debug/lib/modules/*/vmlinux"];
    let copied = options.symfs.is_some().then_some("vmlinux*");
    for pattern in installed.into_iter().chain(copied) {
        let pattern = options.rooted(Path::new(pattern));
        let found = pattern.and_then(|pattern| glob::glob(pattern.to_str()?).ok());
        places.extend(found.into_iter().flatten().flatten());
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copy_of_the_cache_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let copy = |name: &str| {
            let path = dir.path().join(CACHE).join(name);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("kcore"), "").unwrap();
            Place::Kcore(path)
        };
        let (old, new) = (copy("abcd/2024010112000000"), copy("abcd/2024020112000000"));
        let unnamed = copy("bundle");
        copy("ef01/2024020112000000");
        std::fs::create_dir(dir.path().join(CACHE).join("abcd/2025020112000000")).unwrap();
        let id = BuildId(vec![0xab, 0xcd]);
        let cached = ImageOptions { build_id_cache: Some(dir.path().into()), ..ImageOptions::default() };
        assert_eq!(all(Some(&id), &cached)[..2], [new, old]);
        assert_eq!(all(None, &cached), []);
        let given = ImageOptions { symfs: Some(dir.path().into()), ..ImageOptions::default() };
        assert_eq!(all(None, &given), [unnamed, Place::Vmlinux(dir.path().join(CORE))]);
    }
}
