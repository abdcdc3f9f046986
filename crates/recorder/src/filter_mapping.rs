//! Which mapping of its file the kernel looks for an IP filter's range in.
//!
//! A filter names a range of a file, the trace unit compares addresses, and the kernel makes one of the other
//! (`kernel/events/core.c`, the same from Linux 5.10 to 6.18):
//!
//! ```text
//! perf_addr_filter_match       A mapping of the file's inode matches a range that it touches. Both ends
//!                              count: a range that begins at the byte after the mapping matches, too.
//! perf_addr_filter_vma_adjust  The addresses are those of the range in the mapping, cut to the mapping.
//! perf_addr_filter_apply       Attaching to a process: the FIRST match by address, executable or not.
//! perf_addr_filters_adjust     Mappings that a traced thread makes (exec, dlopen): the LAST match of those
//!                              that are executable.
//! ```
//!
//! The addresses are wrong where segments share a page of the file, as lld and mold lay out programs:
//!
//! ```text
//! offset    0               0x1000              0x2000
//! segments  [ constants .............. ][ text .......................
//! mapping 1 [ r-- ------------------------------]
//! mapping 2                 [ r-x ------------------------------------
//!                                      | f |          first match: mapping 1, where f never runs
//!                                                | g |  only match: mapping 2, if g begins after 0x2000
//! ```
//!
//! No other range helps a function like f. One that does not match mapping 1 begins after its end, and so
//! after the function's entry; all mappings of the file have the same inode; and ranges without a file are
//! for kernel addresses only (`pt_event_addr_filters_validate`). A program that is started for the
//! recording has f in the filter: mapping 1 is not executable.

use std::ops::Range;

use model::{FileOffset, Pid};

use crate::procfs::MapsLine;

/// The kernel looks for a range in a mapping that does not have its code, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// Of a process that runs already.
    #[error(
        "attaching to process {}, the kernel looks in the first mapping of the file that touches it, and that does not have its code; in \
         a program that is started for the recording (-- CMD) the kernel looks in executable mappings only",
        .0.0
    )]
    Mapping(Pid),
    /// Of a program that is yet to be started.
    #[error(
        "starting the program, the kernel looks in the last executable mapping of the file that touches it, and that does not have all \
         of its code"
    )]
    Segment,
}

/// Whether the kernel, attaching to a process with these mappings (by address), finds a range of `line`'s
/// file in `line`, uncut.
///
/// # Errors
/// It does not.
pub fn attaching(
    pid: Pid,
    maps: &[MapsLine],
    line: &MapsLine,
    range: &Range<FileOffset>,
) -> Result<(), Misplaced> {
    let mut of_file = maps.iter().filter(|other| (other.device, other.inode) == (line.device, line.inode));
    let first = of_file.find(|mapping| matches(&in_file(mapping), range));
    let found = first.is_some_and(|first| first.start == line.start && holds(&in_file(first), range));
    if found { Ok(()) } else { Err(Misplaced::Mapping(pid)) }
}

/// Whether the kernel, starting a program that maps this code of a file (in this order), finds a range of
/// the file where its code is, uncut.
///
/// # Errors
/// It does not.
pub fn starting(code: &[Range<FileOffset>], range: &Range<FileOffset>) -> Result<(), Misplaced> {
    let last = code.iter().rfind(|mapping| matches(mapping, range));
    if last.is_some_and(|last| holds(last, range)) { Ok(()) } else { Err(Misplaced::Segment) }
}

/// `perf_addr_filter_match`.
fn matches(mapping: &Range<FileOffset>, range: &Range<FileOffset>) -> bool {
    range.start <= mapping.end && range.end >= mapping.start
}

/// `perf_addr_filter_vma_adjust` cuts nothing off.
fn holds(mapping: &Range<FileOffset>, range: &Range<FileOffset>) -> bool {
    mapping.start <= range.start && range.end <= mapping.end
}

/// What a mapping has of its file.
fn in_file(line: &MapsLine) -> Range<FileOffset> {
    FileOffset(line.offset)..FileOffset(line.offset.saturating_add(line.end.saturating_sub(line.start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 1;
    const READ_EXECUTE: u32 = 5;

    fn mapping(start: u64, bytes: u64, protection: u32, offset: u64) -> MapsLine {
        MapsLine {
            start,
            end: start + bytes,
            protection,
            flags: 2,
            offset,
            device: (8, 1),
            inode: 7,
            path: "/bin/x".to_owned(),
        }
    }

    fn range(start: u64, end: u64) -> Range<FileOffset> {
        FileOffset(start)..FileOffset(end)
    }

    /// Constants to 0x2000, and text from 0x1000 on: the page at 0x1000 is in both.
    fn shared_page() -> [MapsLine; 2] {
        [mapping(0x10000, 0x2000, READ, 0), mapping(0x12000, 0x4000, READ_EXECUTE, 0x1000)]
    }

    #[test]
    fn attaching_takes_the_first_mapping_that_touches_a_range() {
        let maps = shared_page();
        for (what, range, expect) in [
            ("in the shared page", range(0x1c30, 0x1d00), false),
            ("from the shared page on", range(0x1c30, 0x2100), false),
            ("at the first byte after it", range(0x2000, 0x2100), false),
            ("one byte later", range(0x2001, 0x2100), true),
            ("inside", range(0x3000, 0x3100), true),
            ("up to the last byte", range(0x4f00, 0x5000), true),
            ("beyond the last byte", range(0x4f00, 0x5001), false),
        ] {
            assert_eq!(attaching(Pid(7), &maps, &maps[1], &range).is_ok(), expect, "{what}");
        }
    }

    #[test]
    fn what_lies_above_the_text_hides_nothing() {
        let text = mapping(0x10000, 0x3000, READ_EXECUTE, 0x1000);
        let data = mapping(0x13000, 0x1000, READ, 0x3000); // the last page of the text is its first
        let constants = mapping(0x20000, 0x2000, READ, 0);
        let maps = [text.clone(), data, constants];
        for range in [range(0x1000, 0x1010), range(0x3f00, 0x4000)] {
            assert!(attaching(Pid(7), &maps, &text, &range).is_ok(), "{range:?}");
        }
    }

    #[test]
    fn mappings_of_other_files_do_not_count() {
        let [constants, text] = shared_page();
        for other in [MapsLine { inode: 8, ..constants.clone() }, MapsLine { device: (8, 2), ..constants }] {
            assert!(attaching(Pid(7), &[other, text.clone()], &text, &range(0x1c30, 0x1d00)).is_ok());
        }
    }

    /// `mprotect` leaves mappings like these: the addresses would be right, and are cut to the first half.
    #[test]
    fn a_range_over_two_mappings_is_cut() {
        let maps =
            [mapping(0x10000, 0x1000, READ_EXECUTE, 0), mapping(0x11000, 0x1000, READ_EXECUTE, 0x1000)];
        assert!(attaching(Pid(7), &maps, &maps[0], &range(0xf00, 0x1100)).is_err());
        assert!(attaching(Pid(7), &maps, &maps[1], &range(0x1000, 0x1100)).is_err());
        assert!(attaching(Pid(7), &maps, &maps[0], &range(0xf00, 0x1000)).is_ok());
        assert!(attaching(Pid(7), &maps, &maps[1], &range(0x1001, 0x1100)).is_ok());
    }

    #[test]
    fn starting_takes_the_last_executable_mapping_that_touches_a_range() {
        // Text from 0x1000 to 0x3000, more of it to 0x5000: the page at 0x2000 is in both.
        let code = [range(0x1000, 0x3000), range(0x2000, 0x5000)];
        assert!(starting(&code[..1], &range(0x1c30, 0x1d00)).is_ok(), "constants are not executable");
        assert!(starting(&code[..1], &range(0x2f00, 0x3000)).is_ok());
        assert!(starting(&code, &range(0x1c30, 0x1d00)).is_ok());
        assert!(starting(&code, &range(0x1f00, 0x2000)).is_err(), "ends where the second begins");
        assert!(starting(&code, &range(0x1f00, 0x2100)).is_err(), "ends in the second");
        assert!(starting(&code, &range(0x3000, 0x3100)).is_ok());
        assert!(starting(&code, &range(0x6000, 0x6100)).is_err(), "nobody maps it");
    }
}
