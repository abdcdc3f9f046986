//! One object: its file, and the functions that its code is divided into.

pub(crate) mod build;
pub(crate) mod cold;
pub(crate) mod functions;
pub(crate) mod object_file;
