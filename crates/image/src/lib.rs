//! What was mapped where and when: code bytes, functions, lines.
//!
//! An [`Image`] is made from the sideband of a recording.  It knows the address space of every process over
//! time, and has the files that were mapped open, so it answers for any instruction of the trace: which bytes
//! it has, to which function it belongs, what people call it.
//!
//! ```text
//! sideband  --space-->        which object is mapped at an address, when
//! objects   --locate-->       the file of each, by its build id (vdso, build_id_dirs) or inode (host_files)
//! kernel    --kernel-->       its text, from kcore or vmlinux, in every address space
//! jitdump   --jit_code-->     code that programs wrote, as mappings of the dump's bytes
//! perf maps --perf_map-->     names of code that is not there
//! files     --object_file-->  code, and sorted functions
//!   elf --symbols-->          names, also of debug files (debug_file, debuglink) or packed (mini_debug_info)
//!   elf --eh_frame-->         functions without names
//!   elf --unwind_table-->     which frames stand on a stack, and where exceptions are handled (unwinding)
//!   both --build-->           symbols, PLT stubs, gaps; cold parts folded into theirs
//! names     --find-->         what a user writes to functions; demangles what may have that name (needle)
//! places    --find_mark-->    where regions begin and end: addresses, lines (line_begins), probes (usdt)
//! DWARF     --lines,inlines-->  read when asked for
//! ```
//!
//! Loading takes what every run needs, in parallel: headers and symbols.  All ids are the same on every run.
//! A damaged file costs its own functions or code, never more.

mod build;
mod build_id_dirs;
mod bundle;
mod cold;
mod contents;
mod debug_file;
mod debuglink;
mod demangle;
mod eh_frame;
mod elf;
mod error;
mod find;
mod find_mark;
mod functions;
mod host_files;
mod image;
mod inlines;
mod jit_code;
mod jitdump;
mod kernel;
mod line_begins;
mod lines;
mod locate;
mod located;
mod mini_debug_info;
mod name_entry;
mod name_index;
mod named_code;
mod nearest;
mod needle;
mod object_file;
mod object_key;
mod one_per_path;
mod options;
mod padding;
mod perf_map;
mod pieces;
mod plt;
mod query;
mod region_table;
mod regions;
mod space;
mod stretch;
mod strings;
mod symbols;
mod unpacked;
mod untyped;
mod unwind_table;
mod unwinding;
mod usdt;
mod vdso;

pub use bundle::{Bundle, BundledBytes, BundledFile};
pub use error::{ObjectError, Problem, ProblemKind};
pub use find::{FindError, FunctionMatch, MatchedBy};
pub use find_mark::{MarkError, Marks};
pub use host_files::HostFiles;
pub use image::Image;
pub use kernel::KernelSymbols;
pub use lines::SourceLine;
pub use located::{build_id_in, build_id_of};
pub use object_key::basename;
pub use options::{HostVdso, ImageOptions, KernelOptions};
pub use query::Query;
pub use unwind_table::{ReadStack, UnwindRegisters};
pub use unwinding::{StackEnd, StackFrame, StackWalk, Unwinding};
