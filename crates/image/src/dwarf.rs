//! DWARF: source lines and inlined functions, each part read when it is first asked for.

pub(crate) mod lines;
pub(crate) mod unpacked;
