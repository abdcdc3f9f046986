//! What was mapped where and when: code bytes, functions, lines.
//!
//! An [`Image`] is made from the sideband of a recording.  It knows the address space of every process over
//! time, and has the files that were mapped open, so it answers for any instruction of the trace: which bytes
//! it has, to which function it belongs, what people call it.
//!
//! ```text
//! sideband  --space-->        which object is mapped at an address, when
//! objects   --object_file-->  mapped ELF files, checked against the recording's build ids
//!   elf --build-->            sorted functions: symbols, PLT stubs, gaps; cold parts folded into theirs
//! names     --find-->         what a user writes to functions; demangled on first use
//! DWARF     --lines,inlines-->  read when asked for
//! ```
//!
//! Loading takes what every run needs, in parallel: headers and symbols.  All ids are the same on every run.
//! A damaged file costs its own functions or code, never more.

mod build;
mod cold;
mod demangle;
mod elf;
mod error;
mod find;
mod functions;
mod image;
mod inlines;
mod lines;
mod mapped;
mod name_index;
mod nearest;
mod object_file;
mod padding;
mod plt;
mod query;
mod space;
mod strings;

pub use error::{ObjectError, Problem};
pub use find::{FindError, FunctionMatch, MatchedBy};
pub use image::{Image, ImageOptions};
pub use lines::SourceLine;
pub use query::Query;
