//! One object: its file, its debug file, its functions.

use std::sync::{Mutex, OnceLock};

use files::Place;
use model::{FileOffset, Svma};

use crate::contents::Contents;
use crate::dwarf::lines::Lines;
use crate::elf::eh_frame::{self, CodeRange};
use crate::elf::exception_table::ExceptionTable;
use crate::elf::strings::Strings;
use crate::elf::symbols::{self, Names};
use crate::elf::{Elf, Segment, Slots};
use crate::error::{Assumption, ObjectError};
use crate::jit::jitdump::{Code, Dump};
use crate::jit::named_code::NamedCode;
use crate::jit::perf_map::PerfMap;
use crate::locate::debug_file::{self, DebugFile};
use crate::locate::locate;
use crate::locate::located::Located;
use crate::locate::object_key::{MappedObject, ObjectKey, basename};
use crate::object::build::{self, Source};
use crate::object::cold;
use crate::object::functions::{Function, Functions};
use crate::options::ImageOptions;

/// What was mapped, and what we have of it.
pub(crate) struct ObjectFile {
    pub(crate) key: ObjectKey,
    pub(crate) state: Result<Loaded, ObjectError>,
}

/// An object with a file on this machine.
pub(crate) struct Loaded {
    /// Where the file is on this machine.
    pub(crate) place: Place,
    pub(crate) contents: Contents,
    /// What had to be taken for granted to use this file.
    pub(crate) assumption: Option<Assumption>,
    /// Why its code is not there, if only its names are.
    pub(crate) without_code: Option<ObjectError>,
    /// A file that has only symbols and DWARF of it, if there is one.
    pub(crate) debug: Option<DebugFile>,
    /// A file that has a part of its DWARF, shared with other objects.
    pub(crate) supplement: Option<DebugFile>,
    pub(crate) segments: Vec<Segment>,
    names: Names,
    pub(crate) functions: Functions,
    /// DWARF lines, once they were asked for.
    pub(crate) lines: OnceLock<Mutex<Option<Lines>>>,
    exceptions: OnceLock<ExceptionTable>,
}

impl ObjectFile {
    pub(crate) fn load(object: MappedObject, options: &ImageOptions) -> Self {
        let MappedObject { key, pid } = object;
        let state = locate(&key, pid, options).and_then(|located| read(located, &key, options));
        Self { key, state }
    }

    /// Code that a program wrote at run time.
    pub(crate) fn of_jitdump(key: ObjectKey, dump: &Dump) -> Self {
        let Code { placements, named, is_cut, .. } = &dump.code;
        let untimed = placements.iter().any(|placement| placement.time.is_none());
        let path = dump.place.path().display();
        let untimed = untimed.then(|| {
            format!(
                "{path} has times of another clock than the recording: code that was replaced is taken to be the last \
                 that stood there; let the runtime write TSC times (JITDUMP_USE_ARCH_TIMESTAMP=1)"
            )
        });
        let cut =
            is_cut.then(|| format!("{path} is read up to {} loads and moves of code", placements.len()));
        let problems: Vec<String> = untimed.into_iter().chain(cut).collect();
        let assumption = (!problems.is_empty()).then(|| Assumption::uncertain(problems.join("; ")));
        let state = Ok(Loaded { assumption, ..Loaded::of_run_time_code(&dump.place, &dump.contents, named) });
        Self { key, state }
    }

    /// Code that a program wrote at run time; only the names are known.
    pub(crate) fn of_perf_map(key: ObjectKey, map: &PerfMap) -> Self {
        let without_code = Some(ObjectError::OnlyNames { path: map.place.path().into() });
        let no_code = Contents::Owned([].into());
        let named = Loaded::of_run_time_code(&map.place, &no_code, &map.named);
        let assumption = map.left_out().map(Assumption::uncertain);
        Self { key, state: Ok(Loaded { without_code, assumption, ..named }) }
    }

    /// The last part of the name; all of a name like `[vdso]` or `//anon`.
    pub(crate) fn basename(&self) -> &str {
        basename(&self.key.name)
    }

    /// The linked address of a place in the file; its offset if the file is not there.
    pub(crate) fn svma(&self, offset: FileOffset) -> Svma {
        self.state.as_ref().ok().and_then(|loaded| loaded.svma(offset)).unwrap_or(Svma(offset.0))
    }
}

impl Loaded {
    /// `contents` have the code, and the file at `place` its names.
    fn of_run_time_code(place: &Place, contents: &Contents, named: &NamedCode) -> Self {
        let strings = Strings::of_run_time_code(&named.names);
        let functions = build::functions(&Source {
            sections: &named.sections,
            symbols: &named.symbols,
            strings,
            slots: &Slots::default(),
            file: contents,
            ranges: &[],
            cold: &cold::with_suffix(&named.symbols, strings),
            split_off: &[],
            loader: false,
        });
        Self {
            place: place.clone(),
            contents: contents.clone(),
            assumption: None,
            without_code: None,
            debug: None,
            supplement: None,
            segments: Vec::new(), // an address is a place in the dump, or where the code stood
            names: Names::OfRunTimeCode(named.names.clone()),
            functions,
            lines: OnceLock::new(),
            exceptions: OnceLock::new(),
        }
    }

    /// Start, size and name of each function that has a name.
    pub(crate) fn named_functions(&self) -> Vec<(u64, u64, &[u8])> {
        let named = |(index, function): (u32, &Function)| {
            let name = self.functions.names_of(index).first()?;
            Some((function.entry, function.size, self.strings().get(*name)))
        };
        (0..).zip(&self.functions.list).filter_map(named).collect()
    }

    pub(crate) fn strings(&self) -> Strings<'_> {
        self.names.strings(&self.contents, self.debug.as_ref().map(|debug| &*debug.contents))
    }

    /// Where exceptions go on in its code. All of `.eh_frame` is read when this is asked first.
    pub(crate) fn exceptions(&self) -> &ExceptionTable {
        let read = || Elf::parse(&self.contents).map(|elf| ExceptionTable::of(&elf)).unwrap_or_default();
        self.exceptions.get_or_init(read)
    }

    /// The file that has its DWARF.
    pub(crate) fn dwarf(&self) -> &Contents {
        self.debug.as_ref().map_or(&self.contents, |debug| &debug.contents)
    }

    /// Linked address, size and place in the file of each stretch of code.
    pub(crate) fn code_segments(&self) -> impl Iterator<Item = (u64, u64, FileOffset)> {
        let code = self.segments.iter().filter(|segment| segment.executable);
        code.map(|segment| (segment.svma, segment.file_size, FileOffset(segment.file_offset)))
    }

    fn svma(&self, offset: FileOffset) -> Option<Svma> {
        let offset = offset.0;
        // A page at the border of two segments is mapped with both: code is asked for, so the executable one
        // is meant.
        let in_code = |s: &&Segment| s.executable && s.pages().contains(&offset);
        let in_any = |s: &&Segment| s.bytes().contains(&offset);
        let segment = self.segments.iter().find(in_code).or_else(|| self.segments.iter().find(in_any))?;
        Some(Svma(segment.svma.wrapping_add(offset.wrapping_sub(segment.file_offset))))
    }
}

/// Parses the file: code, names, functions.
pub(crate) fn read(located: Located, key: &ObjectKey, options: &ImageOptions) -> Result<Loaded, ObjectError> {
    let Located { place, contents, assumption } = located;
    let damaged = |what: String| ObjectError::Damaged { path: place.path().into(), what };
    let elf = Elf::parse(&contents).map_err(|e| damaged(e.to_string()))?;
    let debug = debug_file::find(&elf, &key.name, &place, options);
    let debug_bytes = debug.as_ref().map(|debug| &*debug.contents);
    let supplement = match &debug {
        Some(debug) => Elf::parse(&debug.contents)
            .ok()
            .and_then(|elf| debug_file::supplement(&elf, &debug.place, options)),
        None => debug_file::supplement(&elf, &place, options),
    };
    let symbols = symbols::of_object(&elf, debug_bytes);
    let loader = is_loader(basename(&key.name));
    // The lazy binder is found by what lies between the loader's symbols.
    let known = symbols.complete || loader;
    let ranges = if known { Vec::new() } else { unnamed_ranges(&elf) };
    let strings = symbols.names.strings(&contents, debug_bytes);
    let cold = cold::with_suffix(&symbols.list, strings);
    let split_off = match cold::has_numbered(&symbols.list, strings, &cold) {
        true => {
            unwind_ranges(&elf).into_iter().filter(|range| !range.is_entry).map(|range| range.start).collect()
        }
        false => Vec::new(),
    };
    let functions = build::functions(&Source {
        sections: &elf.code_sections(),
        symbols: &symbols.list,
        strings,
        slots: &elf.slots(),
        file: &contents,
        ranges: &ranges,
        cold: &cold,
        split_off: &split_off,
        loader,
    });
    let (segments, names) = (elf.segments(), symbols.names);
    let (lines, exceptions) = (OnceLock::new(), OnceLock::new());
    Ok(Loaded {
        place,
        contents,
        assumption,
        without_code: None,
        debug,
        supplement,
        segments,
        names,
        functions,
        lines,
        exceptions,
    })
}

/// What the unwind tables have, by start.
fn unwind_ranges(elf: &Elf<'_>) -> Vec<CodeRange> {
    let table = elf.section(".eh_frame").zip(elf.section_address(".eh_frame"));
    table.map_or_else(Vec::new, |(bytes, address)| eh_frame::ranges(bytes, address))
}

/// Code of a stripped object, by start: what its unwind tables have, and where the system enters it.
fn unnamed_ranges(elf: &Elf<'_>) -> Vec<CodeRange> {
    let mut ranges = unwind_ranges(elf);
    let entries = elf.entry_points().into_iter().map(|start| CodeRange { start, size: 0, is_entry: true });
    let known = ranges.len();
    for entry in entries {
        let of_table = ranges.get(..known).unwrap_or_default();
        if of_table.binary_search_by_key(&entry.start, |range| range.start).is_err() {
            ranges.push(entry);
        }
    }
    ranges.sort(); // two sorted lists, one after the other: not unstable, which does not see that
    ranges
}

/// It is the dynamic loader: `ld-linux-x86-64.so.2`, `ld-2.31.so`, `ld.so`, `ld-musl-x86_64.so.1`.
pub(crate) fn is_loader(basename: &str) -> bool {
    basename == "ld.so" || (basename.starts_with("ld-") && basename.contains(".so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_by_name() {
        for name in ["ld-linux-x86-64.so.2", "ld-2.31.so", "ld.so", "ld-musl-x86_64.so.1"] {
            assert!(is_loader(name), "{name}");
        }
        for name in ["libc.so.6", "ld", "ld-wrapper", "build.so"] {
            assert!(!is_loader(name), "{name}");
        }
    }
}
