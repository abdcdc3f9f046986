//! The symbols of an object, from the best table that there is.
//!
//! ```text
//! debug file .symtab  >  own .symtab  >  .gnu_debugdata and .dynsym  >  .dynsym
//! ```

use std::ops::Range;

use crate::elf::mini_debug_info;
use crate::elf::strings::Strings;
use crate::elf::{Elf, Symbol};

/// Which bytes hold the names.
#[derive(Debug)]
pub(crate) enum Names {
    /// A part of the object's file.
    InFile(Range<usize>),
    /// A part of its debug file.
    InDebugFile(Range<usize>),
    /// Put together from several tables.
    Joined(Vec<u8>),
    /// Names that a program's runtime gave to its code.
    OfRunTimeCode(Vec<u8>),
}

/// Function symbols and their names.
#[derive(Debug)]
pub(crate) struct Symbols {
    pub(crate) list: Vec<Symbol>,
    pub(crate) names: Names,
    /// All functions that the linker saw are there, the local ones, too.
    pub(crate) complete: bool,
}

/// Reads the symbols of an object.
pub(crate) fn of_object(elf: &Elf<'_>, debug: Option<&[u8]>) -> Symbols {
    let in_debug = debug.and_then(|debug| Elf::parse(debug).ok()?.static_symbols());
    if let Some(table) = in_debug {
        return Symbols { list: table.symbols, names: Names::InDebugFile(table.strings), complete: true };
    }
    if let Some(table) = elf.static_symbols() {
        return Symbols { list: table.symbols, names: Names::InFile(table.strings), complete: true };
    }
    let dynamic = elf.dynamic_symbols().unwrap_or_default();
    let packed = elf.section(".gnu_debugdata").and_then(mini_debug_info::unpack);
    let mini = packed.as_deref().and_then(|bytes| Some((Elf::parse(bytes).ok()?.static_symbols()?, bytes)));
    let Some((mini, mini_bytes)) = mini else {
        return Symbols { list: dynamic.symbols, names: Names::InFile(dynamic.strings), complete: false };
    };
    // What .dynsym has is left out of the packed table.
    let mut names = elf.bytes().get(dynamic.strings).unwrap_or_default().to_vec();
    names.push(0);
    let base = u32::try_from(names.len()).unwrap_or(u32::MAX);
    names.extend(mini_bytes.get(mini.strings).unwrap_or_default());
    let rebased = mini.symbols.into_iter().map(|s| Symbol { name: s.name.saturating_add(base), ..s });
    let list = dynamic.symbols.into_iter().chain(rebased).collect();
    Symbols { list, names: Names::Joined(names), complete: false }
}

impl Names {
    /// The names, given the bytes of the object's file and of its debug file.
    pub(crate) fn strings<'a>(&'a self, file: &'a [u8], debug: Option<&'a [u8]>) -> Strings<'a> {
        let part = |bytes: &'a [u8], range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
        match self {
            Self::InFile(range) => Strings::new(part(file, range)),
            Self::InDebugFile(range) => Strings::new(part(debug.unwrap_or_default(), range)),
            Self::Joined(bytes) => Strings::new(bytes),
            Self::OfRunTimeCode(bytes) => Strings::of_run_time_code(bytes),
        }
    }
}
