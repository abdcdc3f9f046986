//! What another machine needs to analyse a recording: every file that was used, laid out as `--symfs` reads it.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use model::{Avma, ObjectId};
use rustc_hash::FxHashMap;

use crate::elf::Elf;
use crate::image::Image;
use crate::kernel::{self, kcore, places};
use crate::mapped::MappedFile;
use crate::object_file::{Loaded, ObjectFile, basename};
use crate::space::Mapping;
use crate::vdso;

/// A file of a bundle.
#[derive(Debug)]
pub struct BundledFile<'a> {
    /// The object that it is of; what several share is of the first.
    pub object: ObjectId,
    /// Where it belongs, below the directory that `--symfs` names.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: BundledBytes<'a>,
}

/// The bytes of a bundled file.
#[derive(Debug)]
pub enum BundledBytes<'a> {
    /// Already in memory.
    Borrowed(&'a [u8]),
    /// Made for the bundle.
    Made(Vec<u8>),
    /// To be copied from this file.
    File(PathBuf),
}

impl Image {
    /// The files of user code that the image was made of: objects, debug files and what those share.
    ///
    /// Objects of which the recording has a build id are laid out by it, so that two versions of one file do not
    /// collide; others by their path, without those [of one name](Self::files_of_one_name).
    #[must_use]
    pub fn bundle(&self) -> Vec<BundledFile<'_>> {
        let of_one_name = self.files_of_one_name();
        self.bundle_of(|id| !self.is_of_kernel(id) && !of_one_name.contains(self.object_name(id)))
    }

    /// Names that several files had (containers, upgrades) which only their inodes tell apart: another machine, where those
    /// say nothing, would take one for the other.
    #[must_use]
    pub fn files_of_one_name(&self) -> BTreeSet<&str> {
        let mut inodes = FxHashMap::default();
        let mut several = BTreeSet::new();
        for key in self.objects.iter().map(|object| &object.key) {
            if let Some(inode) = key.inode
                && *inodes.entry(&*key.name).or_insert(inode) != inode
            {
                several.insert(&*key.name);
            }
        }
        several
    }

    /// The files that the kernel's text was made of, see [`Self::has_kernel_text`]: `vmlinux`, or `kcore` with the text
    /// that the recording tells of and no other memory, laid out as `perf buildid-cache --kcore` does it.
    #[must_use]
    pub fn bundle_of_kernel(&self) -> Vec<BundledFile<'_>> {
        match &self.kernel_origin.kcore_dir {
            Some(directory) => self.bundle_of_kcore(directory),
            None => self.bundle_of(|id| self.is_of_kernel(id)),
        }
    }

    fn is_of_kernel(&self, id: ObjectId) -> bool {
        self.spaces.kernel.iter().any(|mapping| mapping.object == id)
    }

    fn bundle_of(&self, wanted: impl Fn(ObjectId) -> bool) -> Vec<BundledFile<'_>> {
        let mut files = Vec::new();
        for (id, object) in self.objects().zip(&self.objects).filter(|(id, _)| wanted(*id)) {
            let Ok(loaded) = &object.state else { continue };
            files.extend(files_of(object, loaded).into_iter().map(|(path, bytes)| BundledFile {
                object: id,
                path,
                bytes,
            }));
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        files
    }

    /// Symbols and modules are copied whole: they say whether it is the kernel that ran.
    fn bundle_of_kcore(&self, directory: &Path) -> Vec<BundledFile<'_>> {
        let mappings = &self.spaces.kernel;
        let text = |mapping: &Mapping| {
            let start = usize::try_from(mapping.file_offset.0).ok()?;
            let len = usize::try_from(mapping.end.minus(mapping.start)).ok()?;
            Some((mapping.start, self.loaded(mapping.object)?.contents.get(start..)?.get(..len)?))
        };
        let texts: Vec<(Avma, &[u8])> = mappings.iter().filter_map(text).collect();
        let Some(object) = mappings.first().map(|mapping| mapping.object) else { return Vec::new() };
        let mut objects = mappings.iter().filter_map(|mapping| self.object_file(mapping.object));
        let core = objects.find(|object| object.key.name == kernel::CORE);
        let target = places::in_bundle(core.and_then(|core| core.key.build_id.as_ref()));
        let mut files = vec![BundledFile {
            object,
            path: target.join("kcore"),
            bytes: BundledBytes::Made(kcore::write(&texts)),
        }];
        for name in ["kallsyms", "modules"] {
            let source = directory.join(name);
            if source.is_file() {
                files.push(BundledFile {
                    object,
                    path: target.join(name),
                    bytes: BundledBytes::File(source),
                });
            }
        }
        files
    }
}

fn files_of<'a>(object: &'a ObjectFile, loaded: &'a Loaded) -> Vec<(PathBuf, BundledBytes<'a>)> {
    let mut files = Vec::new();
    let mut add = |path: Option<PathBuf>, bytes| files.extend(path.map(|path| (path, bytes)));
    let bytes = match &loaded.without_code {
        None => BundledBytes::Borrowed(&loaded.contents),
        Some(_) => BundledBytes::File(loaded.path.clone()),
    };
    add(object_path(object), bytes);
    if let Some(debug) = &loaded.debug {
        let path = debug_path(&debug.contents).or_else(|| linked_path(object, &debug.path));
        add(path, BundledBytes::Borrowed(&debug.contents));
    }
    if let Some(path) = &loaded.supplement {
        let shared = MappedFile::open(path).ok();
        add(shared.and_then(|file| debug_path(file.bytes())), BundledBytes::File(path.clone()));
    }
    files
}

fn object_path(object: &ObjectFile) -> Option<PathBuf> {
    match &object.key.build_id {
        Some(id) => by_build_id(&id.to_string(), if object.key.is_vdso() { "/vdso" } else { "/elf" }),
        None if object.key.is_vdso() => Some(Path::new(vdso::NAME).join("vdso")),
        None => below_root(Path::new(&object.key.name)),
    }
}

/// Where a debug file is found by its own build id.
fn debug_path(debug: &[u8]) -> Option<PathBuf> {
    by_build_id(&Elf::parse(debug).ok()?.build_id()?.to_string(), ".debug")
}

/// Where a debug file is found by `.gnu_debuglink`: beside the object.
fn linked_path(object: &ObjectFile, debug: &Path) -> Option<PathBuf> {
    let beside = Path::new(&object.key.name).parent()?.join(".debug");
    below_root(&beside.join(basename(debug.to_str()?)))
}

fn by_build_id(hex: &str, end: &str) -> Option<PathBuf> {
    let (first, rest) = hex.split_at_checked(2)?;
    Some(Path::new(".build-id").join(first).join(format!("{rest}{end}")))
}

/// The path without its root; `None` if it would lead out of the directory: a recording may name anything.
fn below_root(path: &Path) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => (),
            Component::Normal(name) => below.push(name),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (!below.as_os_str().is_empty()).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside() {
        assert_eq!(below_root(Path::new("/usr/lib/libx.so")), Some("usr/lib/libx.so".into()));
        assert_eq!(below_root(Path::new("/usr/../../etc/passwd")), None);
        assert_eq!(below_root(Path::new("/")), None);
        assert_eq!(by_build_id("abcdef", "/elf"), Some(".build-id/ab/cdef/elf".into()));
    }
}
