//! What must hold for any input at all.
//!
//! Each check takes bytes as they may come from a disk or a fuzzer, and panics where one of the project's
//! promises is broken: no input makes us panic, hang or exhaust memory, the output does not depend on the
//! number of workers, time never runs backwards within a thread, sums add up.
//!
//! ```text
//! packets    bytes         -> packets -> text, bytes, packets
//! flow       PT stream     -> branches and gaps over the code of a real program -> report
//! perfdata   file or pipe  -> recording -> branches and gaps -> report
//! elf        object file   -> functions, names, lines, code
//! lines      DWARF         -> lines of the program's code
//! files      names, file   -> jitdump, perf map or object -> code, functions, bundle
//! command    options, rows, recording -> reports, exports, bundle
//! parts      outputs of segments -> report
//! wires      records       -> what the recorder and probes make of them
//! ```
//!
//! `fuzz/` runs them under libFuzzer with the corpora in `fuzz/corpus`; `tests/corpus.rs` runs the same
//! corpora through them on any toolchain.
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

mod command;
mod elf;
mod files;
mod flow;
mod input;
mod lines;
mod packets;
mod parts;
mod perfdata;
mod pipeline;
mod program;
mod scratch;
mod stream;
mod wires;

pub use command::command;
pub use elf::elf;
pub use files::files;
pub use flow::flow;
pub use lines::lines;
pub use packets::packets;
pub use parts::{parts, parts_of_stream};
pub use perfdata::perfdata;
pub use stream::mutate as mutate_stream;
pub use wires::wires;

/// A check, by the name of its fuzz target and corpus.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Name.
    pub name: &'static str,
    /// The check; it panics where a promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const CHECKS: [Check; 9] = [
    Check { name: "packets", run: packets },
    Check { name: "flow", run: flow },
    Check { name: "perfdata", run: perfdata },
    Check { name: "elf", run: elf },
    Check { name: "lines", run: lines },
    Check { name: "files", run: files },
    Check { name: "command", run: command },
    Check { name: "parts", run: parts },
    Check { name: "wires", run: wires },
];
