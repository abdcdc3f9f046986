//! The kernel's text: what the recording says of where it was, and the best bytes for it that can be had.
//!
//! ```text
//! MMAP [kernel.kallsyms]_text   start, length; in the place of a file offset: where `_text` was (KASLR)
//! MMAP /lib/modules/.../x.ko    start, length
//!   bytes   kcore     as the code ran: everything, symbols from kallsyms
//!           vmlinux   as it was linked: without modules, and without what the kernel patches when it starts
//!                     and later (alternatives, static keys, ftrace), so that a trace may contradict it
//! ```
//! The kernel is mapped in every address space. Sources of its bytes, in order: the files that were asked
//! for, `kcore_dir` beside the recording, files found by build id ([`places`]).

mod kallsyms;
pub(crate) mod kcore;
mod lists;
mod object;
pub(crate) mod places;

use std::path::Path;

use model::{Avma, BuildId, FileOffset, Mmap, ObjectId, Sideband, SidebandRecord};

use crate::contents::Contents;
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::locate::located::{self, Located};
use crate::locate::object_key::ObjectKey;
use crate::object::object_file::{self, Loaded, ObjectFile};
use crate::options::{ImageOptions, KernelOptions};
use crate::space::Mapping;
use kallsyms::KernelSymbol;
pub use kallsyms::KernelSymbols;
pub(crate) use lists::Lists;
use places::Place;

/// Where the kernel is linked on x86-64 (`__START_KERNEL`): addresses of kernel code are given as if it had
/// stayed there.
const LINKED_AT: u64 = 0xffff_ffff_8100_0000;
/// The most bytes of text of all ranges: more than the kernel of any distribution has with all modules that
/// are in use.
const MAX_TEXT: u64 = 96 << 20;
/// The name of the kernel without its modules.
pub(crate) const CORE: &str = "[kernel.kallsyms]";

/// A stretch of kernel text of the recording.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    name: String,
    build_id: Option<BuildId>,
    start: Avma,
    len: u64,
    /// Where the symbol `_text` was; for modules, where they start.
    reference: Avma,
}

impl Range {
    fn is_core(&self) -> bool {
        self.name == CORE
    }

    /// What to take from addresses to get linked ones.
    fn slide(&self) -> u64 {
        if self.is_core() { self.reference.0.wrapping_sub(LINKED_AT) } else { self.start.0 }
    }
}

/// The kernel's objects and where they are.
#[derive(Default)]
pub(crate) struct KernelText {
    pub(crate) objects: Vec<ObjectFile>,
    /// By address; objects by index in `objects`.
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) origin: Origin,
}

/// Where the kernel's text is from.
#[derive(Default)]
pub(crate) struct Origin {
    /// What the `kcore` that it was copied of said of its text, if it was.
    pub(crate) kcore_lists: Option<Lists>,
    /// Why a file that was asked for could not be used.
    pub(crate) problem: Option<ObjectError>,
}

impl KernelText {
    /// Finds the text of the kernel that the sideband tells of.
    pub(crate) fn load(sideband: &[SidebandRecord], options: &ImageOptions) -> Self {
        let ranges = ranges(sideband);
        let Some(core) = ranges.iter().find(|range| range.is_core()) else { return Self::default() };
        let mut text = Self::default();
        let asked = match options.kernel.clone() {
            KernelOptions { kcore: Some(path), .. } => Some(Place::Kcore(path)),
            KernelOptions { vmlinux: Some(path), .. } => Some(Place::Vmlinux(path)),
            KernelOptions { kcore: None, vmlinux: None } => None,
        };
        match asked {
            Some(place) => text.origin.problem = text.add_text(&place, &ranges, core, options).err(),
            None => {
                let places = places::all(core.build_id.as_ref(), options);
                let _found = places.iter().any(|place| text.add_text(place, &ranges, core, options).is_ok());
            }
        }
        text.mappings.sort_by_key(|mapping| mapping.start);
        text
    }

    fn add_text(
        &mut self,
        place: &Place,
        ranges: &[Range],
        core: &Range,
        options: &ImageOptions,
    ) -> Result<(), ObjectError> {
        match place {
            Place::Kcore(path) => self.add_kcore(path, ranges, options),
            Place::Vmlinux(path) => self.add_vmlinux(path, core, options),
        }
    }

    fn add_kcore(
        &mut self,
        path: &Path,
        ranges: &[Range],
        options: &ImageOptions,
    ) -> Result<(), ObjectError> {
        let dir = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let file = if path.is_dir() { path.join("kcore") } else { path.to_owned() };
        let unreadable =
            |why: std::io::Error| ObjectError::Unreadable { path: file.clone(), why: why.to_string() };
        let kcore = kcore::Kcore::open(&file).map_err(unreadable)?;
        // A link to the running kernel's memory may have other lists beside it.
        let lists = Lists::read(if kcore.is_live { Path::new("/proc") } else { dir });
        if ranges.iter().any(|range| lists.is_elsewhere(range)) {
            let what = "the kernel is at other addresses there than it was: it has been started again since"
                .to_owned();
            return Err(ObjectError::Damaged { path: file, what });
        }
        let mut bytes_left = MAX_TEXT;
        let mut read = |range| {
            let (start, bytes) = kcore.read(lists.text_in(range, kcore.is_live)?, bytes_left)?;
            bytes_left -= bytes.len() as u64;
            Some((range, start, bytes))
        };
        let texts: Vec<_> = ranges.iter().filter_map(&mut read).collect();
        if !texts.iter().any(|(range, ..)| range.is_core()) {
            let what = "it does not have the text of the kernel that was recorded".to_owned();
            return Err(ObjectError::Damaged { path: file, what });
        }
        for (range, start, bytes) in texts {
            let end = start.plus(bytes.len() as u64);
            let symbols: Vec<KernelSymbol> =
                lists.symbols.iter().filter(|s| (start..end).contains(&s.address)).cloned().collect();
            let mapping = (start, bytes.len() as u64, FileOffset(object::TEXT_OFFSET));
            let made = object::write(start.0.wrapping_sub(range.slide()), range.slide(), &bytes, &symbols);
            let key = ObjectKey {
                name: range.name.clone(),
                build_id: range.build_id.clone(),
                inode: None,
                deleted: false,
            };
            let contents = Contents::Owned(made.into());
            let located = Located { place: files::Place::here(&file), contents, assumption: None };
            let loaded = object_file::read(located, &key, options)?;
            self.add(key, loaded, &[mapping]);
        }
        self.origin.kcore_lists = Some(lists);
        Ok(())
    }

    fn add_vmlinux(&mut self, path: &Path, core: &Range, options: &ImageOptions) -> Result<(), ObjectError> {
        let key = ObjectKey {
            name: core.name.clone(),
            build_id: core.build_id.clone(),
            inode: None,
            deleted: false,
        };
        let place = files::Place::here(path);
        let missing = || ObjectError::Missing { name: key.name.clone(), tried: vec![path.into()] };
        let contents = located::open(&place, key.build_id.as_ref())?.ok_or_else(missing)?;
        let linked_text = Elf::parse(&contents).ok().and_then(|elf| elf.address_of("_text"));
        let located = Located { place, contents, assumption: None };
        let loaded = object_file::read(located, &key, options)?;
        let slide = core.reference.0.wrapping_sub(linked_text.unwrap_or(LINKED_AT));
        let mappings: Vec<_> = (loaded.code_segments())
            .map(|(svma, size, offset)| (Avma(svma.wrapping_add(slide)), size, offset))
            .filter(|(start, ..)| start.is_kernel())
            .collect();
        self.add(key, loaded, &mappings);
        Ok(())
    }

    fn add(&mut self, key: ObjectKey, loaded: Loaded, mappings: &[(Avma, u64, FileOffset)]) {
        let object = ObjectId(u32::try_from(self.objects.len()).unwrap_or(u32::MAX));
        self.objects.push(ObjectFile { key, state: Ok(loaded) });
        self.mappings.extend(mappings.iter().map(|&(start, size, file_offset)| Mapping {
            start,
            end: start.plus(size),
            file_offset,
            object,
        }));
    }
}

/// What the recording says; the same stretch once.
fn ranges(sideband: &[SidebandRecord]) -> Vec<Range> {
    let mut ranges: Vec<Range> = vec![];
    for record in sideband {
        let Sideband::Mmap(mmap) = &record.body else { continue };
        let Mmap { start, len, file_offset, path, build_id, kernel: true, .. } = &**mmap else { continue };
        // `[kernel.kallsyms]_text`: the symbol that tells how far the kernel was moved.
        let core = path.strip_prefix(CORE).is_some_and(|symbol| symbol.is_empty() || symbol.starts_with('_'));
        let name = if core { CORE } else { path };
        let inside = ranges.iter().any(|range| range.start == *start || core && range.is_core());
        if start.is_kernel() && !inside && !path.starts_with("[guest") {
            let reference = if core { Avma(file_offset.0) } else { *start };
            let (name, build_id) = (name.to_owned(), build_id.clone());
            ranges.push(Range { name, build_id, start: *start, len: *len, reference });
        }
    }
    ranges
}
