//! Source lines, from DWARF, read when first asked for.

use std::path::Path;

use addr2line::Loader;
use model::Svma;
use rustc_hash::FxHashMap;

/// Lines that are kept; beyond that they are looked up anew.
const MAX_CACHED_LINES: usize = 1 << 20;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was told.
    pub file: String,
    /// The line; 0 if the compiler does not say.
    pub line: u32,
}

/// The lines of one object.
pub(crate) struct Lines {
    loader: Loader,
    cache: FxHashMap<u64, Option<SourceLine>>,
}

impl Lines {
    /// Reads what DWARF the file has; `None` if it has none that can be read.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        Some(Self { loader: Loader::new(path).ok()?, cache: FxHashMap::default() })
    }

    pub(crate) fn at(&mut self, svma: Svma) -> Option<SourceLine> {
        if let Some(known) = self.cache.get(&svma.0) {
            return known.clone();
        }
        let location = self.loader.find_location(svma.0).ok().flatten();
        let line =
            location.and_then(|l| Some(SourceLine { file: l.file?.to_string(), line: l.line.unwrap_or(0) }));
        if self.cache.len() < MAX_CACHED_LINES {
            self.cache.insert(svma.0, line.clone());
        }
        line
    }
}
