//! The layout of `programs/edges`: segments that share file pages, and functions at their edges.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, elf::PF_X};

const PAGE_BYTES: u64 = 4096;

/// `first` is at the first byte of the text and in the constants' last page, `last` at its last byte and in
/// the data's first page, and `middle` in a page that only the text has.
pub(crate) fn share_pages(program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let file = object::File::parse(&*bytes)?;
    let pages = |file: &Range<u64>| file.start / PAGE_BYTES..file.end.div_ceil(PAGE_BYTES);
    let (mut text, mut others) = (Vec::new(), Vec::new());
    for segment in file.segments() {
        let (offset, bytes) = segment.file_range();
        let place = (segment.address().wrapping_sub(offset), offset..offset + bytes);
        match segment.flags() {
            SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0 => text.push(place),
            _ => others.push(pages(&place.1)),
        }
    }
    let ([(bias, text)], [constants, data]) = (&text[..], &others[..]) else {
        anyhow::bail!("segments: text {text:?}, others {others:?}");
    };
    let function = |name| {
        let symbol = file.symbol_by_name(name).with_context(|| format!("no function {name}"))?;
        let start = symbol.address().wrapping_sub(*bias);
        anyhow::Ok(start..start + symbol.size())
    };
    let (first, middle, last) = (function("first")?, function("middle")?, function("last")?);
    ensure!(first.start == text.start && last.end == text.end, "{first:x?} and {last:x?} in {text:x?}");
    let shared = |function: &Range<u64>, pages: &Range<u64>| pages.contains(&(function.start / PAGE_BYTES));
    ensure!(shared(&first, constants) && shared(&last, data), "no page of {text:x?} is shared");
    ensure!(!shared(&last, constants), "{last:x?} is in the constants' pages");
    ensure!(!shared(&middle, constants) && !shared(&middle, data), "{middle:x?} is in a shared page");
    Ok(())
}
