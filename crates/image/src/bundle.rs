//! What another machine needs to analyse a recording: every file that was used, laid out as `--symfs` reads
//! it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use model::{Avma, ObjectId};
use rustc_hash::FxHashMap;

use crate::elf::Elf;
use crate::image::Image;
use crate::jit::jitdump;
use crate::jit::perf_map;
use crate::kernel::{self, kcore, places};
use crate::locate::object_key::{VDSO, basename};
use crate::object::object_file::{Loaded, ObjectFile};
use crate::options::inside_root;
use crate::space::Mapping;

/// Files for another machine.
#[derive(Debug, Default)]
pub struct Bundle<'a> {
    /// By path; none is a directory of another one.
    pub files: Vec<BundledFile<'a>>,
    /// Names of objects that are on this machine but cannot be in a bundle: their paths would be outside of
    /// its directory, or are taken by another file.
    pub left_out: Vec<String>,
}

/// A file of a bundle: an ELF file, or the parsed content of a jitdump, a perf map or lists of kernel
/// symbols.
#[derive(Debug)]
pub struct BundledFile<'a> {
    /// The object that it is of; of a file that several share, the first.
    pub object: ObjectId,
    /// Where it belongs, below the directory that `--symfs` names.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: BundledBytes<'a>,
}

/// The bytes of a bundled file: those that the image was made of, as a second look at a path could find
/// another file.
#[derive(Debug)]
pub enum BundledBytes<'a> {
    /// In memory.
    Borrowed(&'a [u8]),
    /// Made for the bundle.
    Made(Vec<u8>),
}

impl std::ops::Deref for BundledBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }
}

impl Image {
    /// The files of user code that the image was made of: objects, debug files and what those share.
    ///
    /// Objects of which the recording has a build id are laid out by it, so that two versions of one file do
    /// not collide; others by their path, without those [of one name](Self::files_of_one_name).
    #[must_use]
    pub fn bundle(&self) -> Bundle<'_> {
        let of_one_name = self.files_of_one_name();
        self.bundle_of(|id| !self.is_kernel_object(id) && !of_one_name.contains(self.object_name(id)))
    }

    /// Names that several files had (containers, upgrades) which only their inodes tell apart: another
    /// machine, where those say nothing, would take one for the other.
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

    /// The files that the kernel's text was made of, see [`Self::has_kernel_text`]: `vmlinux`, or `kcore`
    /// with the text that the recording tells of and no other memory, laid out as `perf buildid-cache
    /// --kcore` does it.
    #[must_use]
    pub fn bundle_of_kernel(&self) -> Bundle<'_> {
        match &self.kernel_origin.kcore_lists {
            Some(lists) => Bundle { files: self.files_of_kcore(lists), left_out: Vec::new() },
            None => self.bundle_of(|id| self.is_kernel_object(id)),
        }
    }

    fn bundle_of(&self, wanted: impl Fn(ObjectId) -> bool) -> Bundle<'_> {
        let mut left_out = Vec::new();
        let mut all = Vec::new();
        for (id, object) in self.objects().zip(&self.objects).filter(|(id, _)| wanted(*id)) {
            let Ok(loaded) = &object.state else { continue };
            match object_path(object).zip(object_bytes(loaded)) {
                Some((path, bytes)) => all.push(BundledFile { object: id, path, bytes }),
                None => left_out.push(object.key.name.clone()),
            }
            all.extend(debug_files(object, loaded).map(|(path, bytes)| BundledFile {
                object: id,
                path,
                bytes,
            }));
        }
        // Of two files of one path that with a build id is the one that is looked for there.
        let has_name_only = |file: &BundledFile<'_>| {
            self.object_file(file.object).is_some_and(|object| object.key.build_id.is_none())
        };
        all.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| has_name_only(a).cmp(&has_name_only(b))));
        let mut files: Vec<BundledFile<'_>> = Vec::new();
        for file in all {
            match files.last() {
                Some(last) if last.path == file.path && *last.bytes == *file.bytes => (),
                Some(last) if file.path.starts_with(&last.path) => {
                    left_out.push(self.object_name(file.object).to_owned());
                }
                _ => files.push(file),
            }
        }
        Bundle { files, left_out }
    }

    fn files_of_kcore(&self, lists: &kernel::Lists) -> Vec<BundledFile<'_>> {
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
        let lists = lists.files().into_iter().map(|(name, text)| (name, text.into_bytes()));
        let files = std::iter::once(("kcore", kcore::write(&texts))).chain(lists);
        let file =
            |(name, bytes)| BundledFile { object, path: target.join(name), bytes: BundledBytes::Made(bytes) };
        files.map(file).collect()
    }
}

/// The bytes of an object's own file; `None` if it is of no kind that belongs in a bundle.
fn object_bytes(loaded: &Loaded) -> Option<BundledBytes<'_>> {
    if loaded.without_code.is_some() {
        return Some(BundledBytes::Made(perf_map::write(&loaded.named_functions())));
    }
    let is_elf = Elf::parse(&loaded.contents).is_ok();
    let bytes = if is_elf { Some(&*loaded.contents) } else { jitdump::whole_records(&loaded.contents) };
    bytes.map(BundledBytes::Borrowed)
}

/// The debug file, and what it shares with others.
fn debug_files<'a>(
    object: &'a ObjectFile,
    loaded: &'a Loaded,
) -> impl Iterator<Item = (PathBuf, BundledBytes<'a>)> {
    let debug = loaded.debug.as_ref().and_then(|debug| {
        let path = debug_path(&debug.contents).or_else(|| linked_path(object, debug.place.path()));
        Some((path?, BundledBytes::Borrowed(&debug.contents)))
    });
    let supplement = loaded.supplement.as_ref();
    let shared = supplement
        .and_then(|file| Some((debug_path(&file.contents)?, BundledBytes::Borrowed(&file.contents))));
    debug.into_iter().chain(shared)
}

fn object_path(object: &ObjectFile) -> Option<PathBuf> {
    match &object.key.build_id {
        Some(id) => by_build_id(&id.to_string(), if object.key.is_vdso() { "/vdso" } else { "/elf" }),
        None if object.key.is_vdso() => Some(Path::new(VDSO).join("vdso")),
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
    inside_root(path).filter(|path| !path.as_os_str().is_empty())
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
