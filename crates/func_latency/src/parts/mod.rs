//! Parts of one recording: what `report --part` writes and `merge` joins.
//!
//! ```text
//!   report --part 1/3 --part-out 1     segments of the part, decoded   -> file
//!   merge 1 3 --part-out 13            the files, laid together        -> file
//!   merge 13 2                         the one thread's pass of `report`, over what files have
//! ```
//! A part is the outputs of its segments ([`decoder::SegmentOutput`]): nothing in it depends on what the
//! other parts have. The pass that joins them is that of a report of the whole; so it prints the same bytes.

pub(crate) mod file;
pub(crate) mod make;
pub(crate) mod merge;
pub(crate) mod set;
