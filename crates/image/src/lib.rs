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
//!   elf --exception_table-->  at which landing pad an exception goes on that comes out of a call
//!   both --build-->           symbols, PLT stubs, gaps; cold parts folded into theirs
//! names     --find-->         what a user writes to functions; demangles what may have that name (needle)
//! places    --find_mark-->    where regions begin and end: addresses, lines (line_begins), probes (usdt)
//! DWARF     --lines,inlines-->  read when asked for
//! ```
//!
//! Loading takes what every run needs, in parallel: headers and symbols.  All ids are the same on every run.
//! A damaged file costs its own functions or code, never more.

mod bundle;
mod contents;
mod demangle;
mod dwarf;
mod elf;
mod error;
mod host_files;
mod image;
mod inlines;
mod jit;
mod kernel;
mod locate;
mod name_entry;
mod names;
mod needle;
mod object;
mod options;
mod region_table;
mod regions;
mod space;
mod stretch;
mod unwinding;

pub use bundle::{Bundle, BundledBytes, BundledFile};
pub use dwarf::lines::SourceLine;
pub use elf::unwind_table::{ReadStack, UnwindRegisters};
pub use error::{ObjectError, Problem, ProblemKind};
pub use host_files::HostFiles;
pub use image::Image;
pub use kernel::KernelSymbols;
pub use locate::located::{build_id_in, build_id_of};
pub use locate::object_key::basename;
pub use names::find::{FindError, FunctionMatch, MatchedBy};
pub use names::find_mark::{MarkError, Marks};
pub use names::query::Query;
pub use options::{HostVdso, ImageOptions, KernelOptions};
pub use unwinding::{StackEnd, StackFrame, StackWalk, Unwinding};
