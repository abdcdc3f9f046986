//! One object: finds and maps its file, checks its build id, reads its functions.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use model::{BuildId, FileOffset, Svma};

use crate::build::{self, Source};
use crate::elf::{Elf, Segment};
use crate::error::ObjectError;
use crate::functions::Functions;
use crate::lines::Lines;
use crate::mapped::MappedFile;
use crate::space::ObjectKey;
use crate::strings::Strings;

const PAGE_BYTES: u64 = 4096;

/// What was mapped, and what we have of it.
pub(crate) struct ObjectFile {
    pub(crate) key: ObjectKey,
    pub(crate) state: Result<Loaded, ObjectError>,
}

/// An object whose file is there.
pub(crate) struct Loaded {
    /// Where the file is on this machine.
    pub(crate) path: PathBuf,
    pub(crate) file: MappedFile,
    /// A file with the same build id that has only symbols and DWARF, if there is one.
    pub(crate) debug: Option<(PathBuf, MappedFile)>,
    segments: Vec<Segment>,
    strings: Range<usize>,
    strings_in_debug: bool,
    pub(crate) functions: Functions,
    /// DWARF lines, once somebody has asked.
    pub(crate) lines: OnceLock<Mutex<Option<Lines>>>,
}

impl ObjectFile {
    pub(crate) fn load(key: ObjectKey, symfs: Option<&Path>) -> Self {
        let state = load(&key, symfs);
        Self { key, state }
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
    pub(crate) fn strings(&self) -> Strings<'_> {
        let bytes = match &self.debug {
            Some((_, debug)) if self.strings_in_debug => debug.bytes(),
            _ => self.file.bytes(),
        };
        Strings::new(bytes.get(self.strings.clone()).unwrap_or_default())
    }

    fn svma(&self, offset: FileOffset) -> Option<Svma> {
        let offset = offset.0;
        // A page at the border of two segments is mapped with both: code is asked for, so the executable
        // one is meant, from the start of its first page to the end of its last.
        let in_code = |s: &&Segment| {
            let end = s.file_offset.saturating_add(s.file_size);
            let start = s.file_offset & !(PAGE_BYTES - 1);
            s.executable
                && start <= offset
                && offset < end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end)
        };
        let in_any =
            |s: &&Segment| offset.checked_sub(s.file_offset).is_some_and(|inside| inside < s.file_size);
        let segment = self.segments.iter().find(in_code).or_else(|| self.segments.iter().find(in_any))?;
        Some(Svma(segment.svma.wrapping_add(offset.wrapping_sub(segment.file_offset))))
    }
}

/// The last part of a path; all of a name that is no path.
pub(crate) fn basename(name: &str) -> &str {
    if name.starts_with("//") {
        return name;
    }
    name.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(name)
}

fn load(key: &ObjectKey, symfs: Option<&Path>) -> Result<Loaded, ObjectError> {
    if key.has_no_file() {
        return Err(ObjectError::NoFile { name: key.name.clone() });
    }
    let places = places(&key.name, symfs);
    let mut first_error = None;
    for path in &places {
        match open(path, key) {
            Ok(Some(file)) => return read(path.clone(), file, key, symfs),
            Ok(None) => (),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or(ObjectError::Missing { name: key.name.clone(), tried: places }))
}

/// Where an object of this name may be.
fn places(name: &str, symfs: Option<&Path>) -> Vec<PathBuf> {
    match symfs {
        None => vec![PathBuf::from(name)],
        Some(root) => vec![root.join(name.trim_start_matches('/')), root.join(basename(name))],
    }
}

/// Maps the file at `path`; `None` if there is none.
fn open(path: &Path, key: &ObjectKey) -> Result<Option<MappedFile>, ObjectError> {
    let file = match MappedFile::open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(ObjectError::Unreadable { path: path.into(), why: e.to_string() }),
    };
    let damaged = |what: String| ObjectError::Damaged { path: path.into(), what };
    let found = Elf::parse(file.bytes()).map_err(|e| damaged(e.to_string()))?.build_id();
    match &key.build_id {
        Some(recording) if !found.as_ref().is_some_and(|found| same_build_id(found, recording)) => {
            Err(ObjectError::BuildId { path: path.into(), file: found, recording: recording.clone() })
        }
        _ => Ok(Some(file)),
    }
}

/// Older recordings fill build ids with zeros up to 20 bytes.
fn same_build_id(a: &BuildId, b: &BuildId) -> bool {
    let trim = |id: &BuildId| id.0.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    a.0.get(..trim(a)) == b.0.get(..trim(b))
}

fn read(
    path: PathBuf,
    file: MappedFile,
    key: &ObjectKey,
    symfs: Option<&Path>,
) -> Result<Loaded, ObjectError> {
    let damaged = |what: String| ObjectError::Damaged { path: path.clone(), what };
    let elf = Elf::parse(file.bytes()).map_err(|e| damaged(e.to_string()))?;
    let debug = elf.build_id().and_then(|id| debug_file(&id, symfs));
    let debug_symbols = debug.as_ref().and_then(|(_, debug)| {
        let table = Elf::parse(debug.bytes()).ok()?.symbol_table();
        (!table.symbols.is_empty()).then_some((table, debug.bytes()))
    });
    let strings_in_debug = debug_symbols.is_some();
    let (table, table_bytes) = debug_symbols.unwrap_or_else(|| (elf.symbol_table(), file.bytes()));
    let strings = table.strings.clone();
    let functions = build::functions(&Source {
        sections: &elf.code_sections(),
        symbols: &table.symbols,
        strings: Strings::new(table_bytes.get(strings.clone()).unwrap_or_default()),
        slots: &elf.slots(),
        file: file.bytes(),
        loader: is_loader(basename(&key.name)),
    });
    let segments = elf.segments();
    let lines = OnceLock::new();
    Ok(Loaded { path, file, debug, segments, strings, strings_in_debug, functions, lines })
}

/// Where distributions put the symbols that they strip from `/usr`.
fn debug_file(id: &BuildId, symfs: Option<&Path>) -> Option<(PathBuf, MappedFile)> {
    let hex = id.to_string();
    let (first, rest) = hex.split_at_checked(2)?;
    let root = symfs.unwrap_or(Path::new("/"));
    let path = root.join(format!("usr/lib/debug/.build-id/{first}/{rest}.debug"));
    let file = MappedFile::open(&path).ok()?;
    let found = Elf::parse(file.bytes()).ok()?.build_id();
    (found.as_ref() == Some(id)).then_some((path, file))
}

/// It is the dynamic loader: `ld-linux-x86-64.so.2`, `ld-2.31.so`, `ld.so`, `ld-musl-x86_64.so.1`.
fn is_loader(basename: &str) -> bool {
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

    #[test]
    fn names_without_directories() {
        assert_eq!(basename("/usr/lib/libc.so.6"), "libc.so.6");
        assert_eq!(basename("[vdso]"), "[vdso]");
        assert_eq!(basename("//anon"), "//anon");
    }

    #[test]
    fn zeros_at_the_end_of_a_build_id_mean_nothing() {
        let id = |bytes: &[u8]| BuildId(bytes.to_vec());
        assert!(same_build_id(&id(&[1, 2]), &id(&[1, 2, 0, 0])));
        assert!(!same_build_id(&id(&[1, 2]), &id(&[1, 2, 3])));
    }
}
