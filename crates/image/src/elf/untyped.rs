//! Symbols without a type: which of them are functions.
//!
//! A global symbol of type `STT_NOTYPE` in an executable section (hand-written assembly, musl's `_start`)
//! begins a function where no function symbol covers its address: inside of one it is a label, and a jump to
//! it no tail call. A global function symbol without a size covers its section up to the next function
//! symbol; a local one nothing: GCC's `frame_dummy` stands before a program's code.

use crate::elf::{CodeSection, Symbol};

/// What the symbols of functions cover, looked at by address.
pub(crate) struct Typed<'a> {
    sections: &'a [CodeSection],
    /// Where those with a size end.
    end: u64,
    /// Where the last one must have ended, if it has no size.
    latest_end: u64,
}

impl<'a> Typed<'a> {
    pub(crate) fn new(sections: &'a [CodeSection]) -> Self {
        Self { sections, end: 0, latest_end: 0 }
    }

    /// The next symbols, all at `address`, are labels in a function.
    pub(crate) fn covers<'s>(&mut self, address: u64, symbols: impl Iterator<Item = &'s Symbol>) -> bool {
        let (mut has_function, mut latest_end) = (false, 0);
        for symbol in symbols {
            if symbol.untyped {
                continue;
            }
            has_function = true;
            self.end = self.end.max(address.saturating_add(symbol.size));
            if symbol.size == 0 && !symbol.local {
                latest_end = self.end_of_section(address);
            }
        }
        if has_function {
            self.latest_end = latest_end;
        }
        !has_function && address < self.end.max(self.latest_end)
    }

    fn end_of_section(&self, address: u64) -> u64 {
        let next = self.sections.partition_point(|section| section.end <= address);
        self.sections.get(next).map_or(u64::MAX, |section| section.end)
    }
}
