//! Code that a program wrote at run time, as its runtime tells: a function each, with its name.

use crate::elf::{CodeSection, Symbol};

/// Longer names are cut.
const MAX_NAME_BYTES: usize = 1 << 16;

/// The functions; sections may overlap.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedCode {
    /// One for each function.
    pub(crate) sections: Vec<CodeSection>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) names: Vec<u8>,
}

impl NamedCode {
    /// Adds a function at these linked addresses; `None` if there are too many names.
    pub(crate) fn add(&mut self, (start, end): (u64, u64), file_offset: u64, name: &[u8]) -> Option<()> {
        let offset = u32::try_from(self.names.len()).ok()?;
        self.names.extend(name.get(..MAX_NAME_BYTES).unwrap_or(name));
        self.names.push(0);
        self.sections.push(CodeSection { start, end, file_offset, plt: false });
        let (size, local, weak, resolver) = (end.saturating_sub(start), false, false, false);
        self.symbols.push(Symbol {
            value: start,
            size,
            name: offset,
            file: 0,
            local,
            weak,
            resolver,
            untyped: false,
        });
        Some(())
    }
}
