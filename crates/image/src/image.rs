//! The image: everything that ran, where and when.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use model::{
    Avma, CodeSource, FileOffset, FunctionAt, FunctionId, FunctionKind, FunctionLookup, FunctionStretch,
    NoCode, Ns, ObjectId, Pid, Region, SidebandRecord, SpaceId, Svma,
};
use rayon::prelude::*;

use crate::demangle::{Form, demangle};
use crate::dwarf::lines::{Lines, SourceLine};
use crate::elf::{Elf, Segment};
use crate::error::{Assumption, ObjectError, Problem, ProblemKind};
use crate::jit::jit_code::Dumps;
use crate::jit::perf_map::PerfMaps;
use crate::kernel::{KernelSymbols, KernelText, Origin};
use crate::locate::located::build_id_of;
use crate::name_entry::NameEntry;
use crate::object::functions::Function;
use crate::object::object_file::{Loaded, ObjectFile};
use crate::options::ImageOptions;
use crate::region_table::Regions;
use crate::space::Spaces;

/// The address spaces of a recording, their code and functions.
///
/// ```text
/// SpaceId, Avma --mapping--> ObjectId, FileOffset --segment--> Svma --functions--> FunctionId
/// ```
pub struct Image {
    pub(crate) spaces: Spaces,
    pub(crate) objects: Vec<ObjectFile>,
    /// The first function id of each object; one more at the end.
    pub(crate) bases: Vec<u32>,
    /// By function id: it is asked for with every call.
    kinds: Vec<FunctionKind>,
    /// Pseudo-functions; their ids follow those of all functions.
    pub(crate) regions: Regions,
    pub(crate) names: OnceLock<Vec<NameEntry>>,
    pub(crate) kernel_origin: Origin,
    /// Of the recording's own, for its stacks.
    kernel_symbols: KernelSymbols,
}

impl Image {
    /// Follows the sideband, and opens all objects with mapped code.
    ///
    /// What cannot be opened is in [`Self::problems`].
    #[must_use]
    pub fn load(sideband: &[SidebandRecord], options: &ImageOptions) -> Self {
        let dumps = Dumps::find(sideband, options);
        let maps = PerfMaps::find(sideband, options);
        let (mut spaces, mapped) =
            Spaces::new(&dumps.add_to(&maps.name(sideband)), options.host_files.as_ref());
        let load = |object| match (dumps.get(&object), maps.get(&object)) {
            (Some(dump), _) => ObjectFile::of_jitdump(object.key, dump),
            (None, Some(map)) => ObjectFile::of_perf_map(object.key, map),
            (None, None) => ObjectFile::load(object, options),
        };
        let mut objects: Vec<_> = mapped.into_par_iter().map(load).collect();
        let KernelText { objects: of_kernel, mappings, origin } = KernelText::load(sideband, options);
        let first = u32::try_from(objects.len()).unwrap_or(u32::MAX);
        objects.extend(of_kernel);
        spaces.kernel = mappings;
        for mapping in &mut spaces.kernel {
            mapping.object.0 = mapping.object.0.saturating_add(first);
        }
        let mut bases = vec![1u32]; // 0 is FunctionId::UNKNOWN
        let mut kinds = vec![FunctionKind::Unnamed];
        let mut next = 1u32;
        for object in &objects {
            // What an object without a file has is one function.
            let functions = object.state.as_ref().map(|loaded| &loaded.functions.list[..]);
            let count = functions.map_or(1, <[_]>::len);
            match functions {
                Ok(functions) => kinds.extend(functions.iter().map(|function| function.kind)),
                Err(_) => kinds.push(FunctionKind::Unnamed),
            }
            next = next.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            bases.push(next);
        }
        let kernel_symbols = KernelSymbols::default();
        let (names, regions) = (OnceLock::new(), Regions::default());
        Self { spaces, objects, bases, kinds, regions, names, kernel_origin: origin, kernel_symbols }
    }

    /// Adds symbols of the kernel: they name the functions on its stacks.
    #[must_use]
    pub fn with_kernel_symbols(self, kernel_symbols: KernelSymbols) -> Self {
        Self { kernel_symbols, ..self }
    }

    /// All objects, in the order in which they were first mapped.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (0..u32::try_from(self.objects.len()).unwrap_or(u32::MAX)).map(ObjectId)
    }

    /// All functions: those with a symbol, and code between symbols; no stubs of the procedure linkage table.
    pub fn functions(&self) -> impl Iterator<Item = FunctionId> + '_ {
        let numbered = (0..).map(FunctionId).zip(&self.kinds).skip(1);
        numbered.filter(|(_, kind)| **kind != FunctionKind::Plt).map(|(id, _)| id)
    }

    pub(crate) fn object_file(&self, id: ObjectId) -> Option<&ObjectFile> {
        self.objects.get(id.0 as usize)
    }

    pub(crate) fn loaded(&self, id: ObjectId) -> Option<&Loaded> {
        self.object_file(id)?.state.as_ref().ok()
    }

    /// The object's name as the recording has it: a path, `[vdso]`, `//anon`.
    #[must_use]
    pub fn object_name(&self, id: ObjectId) -> &str {
        self.object_file(id).map_or("[unknown]", |object| &object.key.name)
    }

    /// The object's build id in hexadecimal digits: what the recording says, or the file on this machine.
    #[must_use]
    pub fn object_build_id(&self, id: ObjectId) -> Option<String> {
        let recorded = self.object_file(id).and_then(|object| object.key.build_id.clone());
        let build_id = recorded.or_else(|| self.object_path(id).and_then(build_id_of))?;
        Some(build_id.to_string())
    }

    /// The last part of the object's name.
    #[must_use]
    pub fn object_basename(&self, id: ObjectId) -> &str {
        self.object_file(id).map_or("[unknown]", ObjectFile::basename)
    }

    /// The object's file on this machine, if it is usable.
    #[must_use]
    pub fn object_path(&self, id: ObjectId) -> Option<&Path> {
        self.loaded(id).map(|loaded| loaded.place.path())
    }

    /// Why an object is not usable; `None` if it is.
    #[must_use]
    pub fn object_error(&self, id: ObjectId) -> Option<&ObjectError> {
        self.object_file(id)?.state.as_ref().map_or_else(Some, |loaded| loaded.without_code.as_ref())
    }

    /// There is code of the kernel.
    #[must_use]
    pub fn has_kernel_text(&self) -> bool {
        !self.spaces.kernel.is_empty()
    }

    /// The object has code of the kernel: its core, or one of its modules.
    #[must_use]
    pub fn is_kernel_object(&self, id: ObjectId) -> bool {
        self.spaces.kernel.iter().any(|mapping| mapping.object == id)
    }

    /// What makes the image incomplete or uncertain; not the objects that never have a file.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut list = Vec::new();
        for (id, object) in self.objects().zip(&self.objects) {
            match &object.state {
                Err(ObjectError::NoFile { .. } | ObjectError::NoVdso { .. }) => (),
                Err(_) => list.extend(self.missing_code(id)),
                Ok(loaded) => {
                    let assumption = loaded.assumption.clone();
                    list.extend(assumption.map(|Assumption { what, kind }| Problem {
                        object: Some(id),
                        what,
                        kind,
                    }));
                }
            }
        }
        if let Some(error) = &self.kernel_origin.problem {
            list.push(Problem { object: None, what: error.to_string(), kind: ProblemKind::Unusable });
        }
        if self.spaces.unfollowed > 0 {
            let count = self.spaces.unfollowed;
            let what = format!("{count} replacements of mapped code were not followed: too many");
            list.push(Problem { object: None, what, kind: ProblemKind::Uncertain });
        }
        list
    }

    /// Why there is no code of an object, and what to do about it; `None` if there is.
    #[must_use]
    pub fn missing_code(&self, id: ObjectId) -> Option<Problem> {
        let error = self.object_error(id)?;
        let what = format!("{error}; {}", error.remedy());
        Some(Problem { object: Some(id), what, kind: ProblemKind::Unusable })
    }

    /// Objects that can change stacks unseen: they import `swapcontext` or `makecontext`, or are
    /// written in Go.
    #[must_use]
    pub fn stack_switchers(&self) -> Vec<ObjectId> {
        let switches = |id: &ObjectId| {
            let elf = self.loaded(*id).and_then(|loaded| Elf::parse(&loaded.contents).ok());
            elf.is_some_and(|elf| elf.imports(&["swapcontext", "makecontext"])) || self.is_go(*id)
        };
        self.objects().filter(switches).collect()
    }

    /// The object was written in Go: its goroutines change stacks and threads inside of calls.
    #[must_use]
    pub fn is_go(&self, id: ObjectId) -> bool {
        let elf = self.loaded(id).and_then(|loaded| Elf::parse(&loaded.contents).ok());
        elf.is_some_and(|elf| elf.has_section(".gopclntab"))
    }

    /// Only functions that other objects use have names: neither the object nor a debug file has symbols of
    /// the others.
    #[must_use]
    pub fn is_stripped(&self, id: ObjectId) -> bool {
        let Some(loaded) = self.loaded(id) else { return false };
        let elf = Elf::parse(&loaded.contents);
        // The kernel's, as it is made of its core and kallsyms, has sections without names.
        let has_symbols = |elf: &Elf<'_>| {
            elf.has_section(".symtab") || elf.has_section(".gnu_debugdata") || elf.static_symbols().is_some()
        };
        loaded.debug.is_none() && elf.is_ok_and(|elf| !has_symbols(&elf))
    }

    pub(crate) fn function_id(&self, object: ObjectId, index: u32) -> FunctionId {
        let base = self.bases.get(object.0 as usize);
        let id = base.and_then(|base| base.checked_add(index));
        // Ids beyond the last are of objects that did not fit.
        let end = self.bases.get(object.0 as usize + 1).copied().unwrap_or(0);
        id.filter(|id| *id < end).map_or(FunctionId::UNKNOWN, FunctionId)
    }

    /// The object of a function, and its index there.
    pub(crate) fn split_id(&self, id: FunctionId) -> Option<(ObjectId, u32)> {
        let after = self.bases.partition_point(|base| *base <= id.0);
        let object = after.checked_sub(1)?;
        let index = id.0.checked_sub(*self.bases.get(object)?)?;
        (object < self.objects.len()).then_some((ObjectId(object as u32), index))
    }

    pub(crate) fn function(&self, id: FunctionId) -> Option<(&Loaded, u32, &Function)> {
        let (object, index) = self.split_id(id)?;
        let loaded = self.loaded(object)?;
        Some((loaded, index, loaded.functions.get(index)?))
    }

    /// The function at a linked address, and whether it is its entry.
    #[must_use]
    pub fn function_at_place(&self, object: ObjectId, svma: Svma) -> FunctionAt {
        let Some(file) = self.object_file(object) else { return FunctionAt::UNKNOWN };
        let found = match &file.state {
            Ok(loaded) => loaded.functions.at(svma.0),
            Err(_) => Some((0, false)),
        };
        let known = found.map(|(index, at_entry)| (self.function_id(object, index), at_entry));
        match known {
            Some((id, at_entry)) if id != FunctionId::UNKNOWN => FunctionAt { id, at_entry },
            _ => FunctionAt::UNKNOWN,
        }
    }

    /// A function's name, demangled, without parameter types; a made-up one for code without a symbol.
    #[must_use]
    pub fn function_name(&self, id: FunctionId) -> String {
        self.name_in_form(id, Form::Short)
    }

    /// A function's name, demangled, with parameter types.
    #[must_use]
    pub fn function_full_name(&self, id: FunctionId) -> String {
        self.name_in_form(id, Form::Full)
    }

    fn name_in_form(&self, id: FunctionId, form: Form) -> String {
        if let Some((name, _)) = self.named_region(id) {
            return name.to_owned();
        }
        let Some((object, index)) = self.split_id(id) else { return "[unknown]".to_string() };
        let file = self.object_basename(object);
        let Some((loaded, _, function)) = self.function(id) else {
            return if file.starts_with('[') { file.to_string() } else { format!("[{file}]") };
        };
        let symbol = loaded.functions.names_of(index).first().map(|symbol| loaded.strings().text(*symbol));
        // A damaged or stripped table has symbols with empty names.
        if let Some(symbol) = symbol.filter(|symbol| !symbol.is_empty()) {
            return demangle(&symbol, form);
        }
        match loaded.functions.stub_name(index) {
            Some(name) => format!("{}@plt", demangle(name, form)),
            None => format!("[{file}+{:#x}]", function.entry),
        }
    }

    /// Which of the functions of its name in its object each function is: from 0, in the order of addresses.
    /// What is none of [`Self::functions`] is left out.
    #[must_use]
    pub fn nth_of_names(&self, ids: &[FunctionId]) -> BTreeMap<FunctionId, u32> {
        let objects: BTreeSet<ObjectId> =
            ids.iter().filter_map(|id| self.split_id(*id)).map(|(object, _)| object).collect();
        let names: BTreeSet<String> = ids.iter().map(|id| self.function_name(*id)).collect();
        let of_these =
            |id: &FunctionId| self.split_id(*id).is_some_and(|(object, _)| objects.contains(&object));
        let all: Vec<FunctionId> = self.functions().filter(of_these).collect();
        let named = all.into_par_iter().filter_map(|id| Some((id, names.get(&self.function_name(id))?)));
        let named: Vec<(FunctionId, &String)> = named.collect();
        let mut counts: BTreeMap<(ObjectId, &String), u32> = BTreeMap::new();
        let mut nth = BTreeMap::new();
        for (id, name) in named {
            let Some((object, _)) = self.split_id(id) else { continue };
            let count = counts.entry((object, name)).or_default();
            nth.insert(id, *count);
            *count += 1;
        }
        ids.iter().filter_map(|id| Some((*id, *nth.get(id)?))).collect()
    }

    /// The symbols at a function's entry as they are in the object, the best first; empty for code without.
    #[must_use]
    pub fn function_symbols(&self, id: FunctionId) -> Vec<String> {
        let Some((loaded, index, _)) = self.function(id) else { return Vec::new() };
        let names = loaded.functions.names_of(index).iter();
        names.map(|name| loaded.strings().text(*name).into_owned()).collect()
    }

    /// The linked address of a function's first byte; of a region, where it begins first.
    #[must_use]
    pub fn function_entry(&self, id: FunctionId) -> Option<Svma> {
        if let Some((_, svma)) = self.region_start(id) {
            return Some(svma);
        }
        self.function(id).map(|(_, _, function)| Svma(function.entry))
    }

    /// The function's length in bytes, without its cold part; 0 if it is not known.
    #[must_use]
    pub fn function_size(&self, id: FunctionId) -> u64 {
        self.function(id).map_or(0, |(_, _, function)| function.size)
    }

    /// The stretches of an object that belong to a function, its cold part included: start and length.
    #[must_use]
    pub fn function_parts(&self, id: FunctionId) -> Vec<(Svma, u64)> {
        let Some((loaded, index, _)) = self.function(id) else { return Vec::new() };
        loaded.functions.parts(index).into_iter().map(|(start, len)| (Svma(start), len)).collect()
    }

    /// Where the stretches of a function stand in its object's file, the one with its entry first: start and
    /// length.
    #[must_use]
    pub fn function_file_ranges(&self, id: FunctionId) -> Vec<(FileOffset, u64)> {
        self.stretches(id).into_iter().map(|(_, offset, len)| (offset, len)).collect()
    }

    /// The stretches of an object's file, in whole pages, that a program maps with execution, in the order
    /// in which it does.
    #[must_use]
    pub fn executable_pages(&self, id: ObjectId) -> Vec<Range<FileOffset>> {
        let segments = self.loaded(id).map_or(&[][..], |loaded| &loaded.segments);
        let pages = segments.iter().filter(|segment| segment.executable).map(Segment::pages);
        pages.map(|pages| FileOffset(pages.start)..FileOffset(pages.end)).collect()
    }

    /// The code of a function, as its object's file has it: each stretch with its linked address and its
    /// place in the file, the one with its entry first.
    #[must_use]
    pub fn function_code(&self, id: FunctionId) -> Vec<(Svma, FileOffset, &[u8])> {
        let Some((loaded, ..)) = self.function(id) else { return Vec::new() };
        let bytes = |FileOffset(start): FileOffset, len: u64| {
            let (start, end) = (usize::try_from(start).ok()?, usize::try_from(start.checked_add(len)?).ok()?);
            loaded.contents.get(start..end)
        };
        let stretches = self.stretches(id).into_iter();
        stretches.filter_map(|(svma, offset, len)| Some((svma, offset, bytes(offset, len)?))).collect()
    }

    /// The stretches of a function, the one with its entry first: linked address, place in the file, length.
    fn stretches(&self, id: FunctionId) -> Vec<(Svma, FileOffset, u64)> {
        let Some((loaded, _, function)) = self.function(id) else { return Vec::new() };
        let in_file = |(Svma(start), len): (Svma, u64)| {
            loaded.code_segments().find_map(|(svma, size, FileOffset(offset))| {
                let inside = start.checked_sub(svma).filter(|inside| *inside < size)?;
                Some((Svma(start), FileOffset(offset + inside), len.min(size - inside)))
            })
        };
        let mut parts = self.function_parts(id);
        let has_entry = |(Svma(start), len): &(Svma, u64)| {
            function.entry.checked_sub(*start).is_some_and(|inside| inside < *len)
        };
        parts.sort_by_key(|part| !has_entry(part));
        parts.into_iter().filter_map(in_file).collect()
    }

    /// An instruction for people and files: `object+0xaddress` with the linked address, the same in every
    /// process and run; the bare address where nothing is mapped.
    #[must_use]
    pub fn site_name(&self, space: SpaceId, ip: Avma) -> String {
        match self.place(space, ip) {
            Some((object, svma)) => self.site_name_at(object, svma),
            None if ip.is_kernel() => format!("[kernel]+{ip}"),
            None => ip.to_string(),
        }
    }

    /// [`Self::site_name`] by linked address.
    #[must_use]
    pub fn site_name_at(&self, object: ObjectId, svma: Svma) -> String {
        format!("{}+{svma}", self.object_basename(object))
    }

    /// The source line of an instruction, if the object has DWARF.
    #[must_use]
    pub fn source_line(&self, space: SpaceId, ip: Avma) -> Option<SourceLine> {
        let (object, svma) = self.place(space, ip)?;
        self.source_line_at(object, svma)
    }

    /// [`Self::source_line`] by linked address.
    #[must_use]
    pub fn source_line_at(&self, object: ObjectId, svma: Svma) -> Option<SourceLine> {
        let loaded = self.loaded(object)?;
        let supplement = || loaded.supplement.as_ref().map(|supplement| &supplement.contents);
        let open = || Lines::open(loaded.dwarf(), supplement());
        let lines = loaded.lines.get_or_init(|| Mutex::new(open()));
        lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_mut()?.at(svma)
    }
}

impl Image {
    fn is_uprobes_page(&self, object: ObjectId) -> bool {
        self.object_file(object).is_some_and(|file| file.key.is_uprobes_page())
    }
}

impl CodeSource for Image {
    fn space(&self, pid: Pid, time: Ns) -> SpaceId {
        self.spaces.at(pid, time)
    }

    fn space_until(&self, pid: Pid, time: Ns) -> Ns {
        self.spaces.until(pid, time)
    }

    fn code(&self, space: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        let nothing = if ip.is_kernel() { NoCode::Kernel } else { NoCode::Unmapped };
        let mapping = self.spaces.mapping(space, ip).ok_or(nothing)?;
        let loaded = self.loaded(mapping.object).filter(|loaded| loaded.without_code.is_none());
        let loaded = loaded.ok_or(NoCode::MissingObject(mapping.object))?;
        let start = usize::try_from(mapping.offset_of(ip).0).map_err(|_| NoCode::Unmapped)?;
        // A page after the end of the file is mapped, but has no code.
        let tail = loaded.contents.get(start..).filter(|t| !t.is_empty()).ok_or(NoCode::Unmapped)?;
        let len = usize::try_from(mapping.end.minus(ip)).unwrap_or(usize::MAX);
        Ok(tail.get(..len).unwrap_or(tail))
    }

    fn has_uprobes_pages(&self) -> bool {
        self.objects().any(|object| self.is_uprobes_page(object))
    }

    fn is_in_uprobes_page(&self, space: SpaceId, ip: Avma) -> bool {
        self.spaces.mapping(space, ip).is_some_and(|mapping| self.is_uprobes_page(mapping.object))
    }

    fn is_linked(&self, object: ObjectId) -> bool {
        self.object_file(object).is_some_and(|file| !file.key.is_anonymous() && !file.key.is_jitdump())
    }

    fn file_place(&self, space: SpaceId, ip: Avma) -> Option<(&str, FileOffset)> {
        let mapping = self.spaces.mapping(space, ip)?;
        Some((self.object_name(mapping.object), mapping.offset_of(ip)))
    }
}

impl FunctionLookup for Image {
    fn function_at(&self, space: SpaceId, ip: Avma) -> FunctionAt {
        match self.place(space, ip) {
            Some((object, svma)) => self.function_at_place(object, svma),
            None => FunctionAt::UNKNOWN,
        }
    }

    fn stretch_around(&self, space: SpaceId, ip: Avma) -> FunctionStretch {
        self.mapped_stretch(space, ip)
            .unwrap_or_else(|| FunctionStretch::alone(ip, self.function_at(space, ip)))
    }

    fn place(&self, space: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
        let mapping = self.spaces.mapping(space, ip)?;
        let file = self.object_file(mapping.object)?;
        Some((mapping.object, file.svma(mapping.offset_of(ip))))
    }

    fn kind(&self, id: FunctionId) -> FunctionKind {
        let kind = self.kinds.get(id.0 as usize).copied();
        kind.unwrap_or_else(|| match self.named_region(id) {
            Some(_) => FunctionKind::Symbol,
            None => FunctionKind::Unnamed,
        })
    }

    fn pad_of_call(&self, space: SpaceId, ret: Avma) -> Option<Avma> {
        // After a call stands the next instruction, which may be another function's.
        let inside = Avma(ret.0.checked_sub(1)?);
        let (object, svma) = self.place(space, inside)?;
        let pad = self.loaded(object)?.exceptions().pad_of_call(svma.0)?;
        Some(Avma(inside.0.wrapping_add(pad.wrapping_sub(svma.0))))
    }

    fn is_landing_pad(&self, space: SpaceId, ip: Avma) -> bool {
        let place = self.place(space, ip);
        let loaded = place.and_then(|(object, svma)| Some((self.loaded(object)?, svma)));
        loaded.is_some_and(|(loaded, svma)| loaded.exceptions().is_pad(svma.0))
    }

    fn next_mark(&self, space: SpaceId, ip: Avma) -> Option<Avma> {
        self.mark_from(space, ip)
    }

    fn region(&self, id: FunctionId) -> Option<&Region> {
        self.named_region(id).map(|(_, region)| region)
    }

    fn object(&self, id: FunctionId) -> Option<ObjectId> {
        let of_region = || self.region_start(id).map(|(object, _)| object);
        self.split_id(id).map(|(object, _)| object).or_else(of_region)
    }

    fn is_of_kernel(&self, id: FunctionId) -> bool {
        self.object(id).is_some_and(|object| self.is_kernel_object(object))
    }

    fn kernel_function(&self, address: Avma) -> Option<&str> {
        self.kernel_symbols.name(address)
    }
}
