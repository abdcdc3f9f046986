//! Files that a recording or a traced process names: how they are opened, and how they are mapped.
//!
//! Such names come from the profiled side, and the profiler is often root.  So a file is opened without
//! waiting for a pipe's writer and without touching a device; what a process names is resolved below that
//! process's root; and what is read from a directory where every user may write has no link, and an owner
//! that the profiler has reason to trust.
//!
//! ```text
//! Place       a path, and the root directory that it and its links are resolved in
//! Owners      the users that may own a file in a directory where every user may write
//! MappedFile  a file's bytes; a file that is cut meanwhile has zeros, and is remembered
//! ```
//!
//! This crate writes nothing, prints nothing, and installs its signal handler only where the command asks
//! for it.

mod mapped;
mod place;

pub use mapped::{MappedFile, cut_files, survive_cut_files};
pub use place::{Owners, Place};
