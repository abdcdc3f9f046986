//! From what a user writes to functions and instructions.

pub(crate) mod find;
pub(crate) mod find_mark;
pub(crate) mod line_begins;
pub(crate) mod name_index;
pub(crate) mod nearest;
pub(crate) mod pieces;
pub(crate) mod query;
