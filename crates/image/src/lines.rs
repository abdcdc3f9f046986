//! Source lines, from DWARF, read when first asked for.

use std::path::Path;

use addr2line::Loader;
use model::Svma;
use rustc_hash::FxHashMap;

/// Lines that are kept; beyond that they are looked up anew.
const MAX_CACHED_LINES: usize = 1 << 20;

/// Functions inlined into each other at one instruction.
const MAX_INLINE_DEPTH: usize = 256;

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was told.
    pub file: String,
    /// The line; 0 if the compiler does not say.
    pub line: u32,
    /// Where the function that this line is of was inlined, and so on outwards; empty if it was not.
    pub inlined_at: Vec<SourceLine>,
}

/// The lines of one object.
pub(crate) struct Lines {
    loader: Loader,
    cache: FxHashMap<u64, Option<SourceLine>>,
}

impl Lines {
    /// Reads what DWARF the file has; `None` if it has none that can be read.
    pub(crate) fn open(path: &Path, supplement: Option<&Path>) -> Option<Self> {
        Some(Self { loader: Loader::new_with_sup(path, supplement).ok()?, cache: FxHashMap::default() })
    }

    pub(crate) fn at(&mut self, svma: Svma) -> Option<SourceLine> {
        if let Some(known) = self.cache.get(&svma.0) {
            return known.clone();
        }
        let line = self.look_up(svma);
        if self.cache.len() < MAX_CACHED_LINES {
            self.cache.insert(svma.0, line.clone());
        }
        line
    }

    fn look_up(&self, svma: Svma) -> Option<SourceLine> {
        let mut frames = self.loader.find_frames(svma.0).ok()?;
        let mut lines = Vec::new();
        // What precedes damage is good; no compiler inlines deeper.
        while let (true, Ok(Some(frame))) = (lines.len() < MAX_INLINE_DEPTH, frames.next()) {
            lines.extend(frame.location.and_then(source_line));
        }
        if lines.is_empty() {
            // Code that belongs to no function of DWARF may have lines.
            lines.extend(self.loader.find_location(svma.0).ok().flatten().and_then(source_line));
        }
        let mut lines = lines.into_iter();
        let innermost = lines.next()?;
        Some(SourceLine { inlined_at: lines.collect(), ..innermost })
    }
}

fn source_line(location: addr2line::Location<'_>) -> Option<SourceLine> {
    let file = location.file?.to_string();
    Some(SourceLine { file, line: location.line.unwrap_or(0), inlined_at: Vec::new() })
}
