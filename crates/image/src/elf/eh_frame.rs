//! Where the functions of a stripped object are: its unwind tables (`.eh_frame`) have a range for each.

use gimli::{
    BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindSection,
};
use rustc_hash::FxHashMap;

/// Code that unwinds as one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CodeRange {
    /// Linked address.
    pub(crate) start: u64,
    pub(crate) size: u64,
    /// Callers enter it at its start. A part that is split off (`f.cold`) is jumped to instead, and says so
    /// where the stack has grown by then: its canonical frame address is not that of a function just called.
    pub(crate) is_entry: bool,
}

/// The ranges of `.eh_frame`, which is linked at `address`, by start, one for each; up to the first damage.
pub(crate) fn ranges(section: &[u8], address: u64) -> Vec<CodeRange> {
    let table = EhFrame::new(section, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut list = Vec::new();
    each_entry(&table, &bases, |fde| {
        let size = fde.len();
        if size > 0 {
            let is_entry = starts_as_called(fde.instructions(&table, &bases));
            list.push(CodeRange { start: fde.initial_address(), size, is_entry });
        }
    });
    sort_by_start(&mut list);
    // Of several with one start the least.
    list.dedup_by(|range, kept| {
        let is_same = range.start == kept.start;
        if is_same {
            *kept = (*range).min(*kept);
        }
        is_same
    });
    list
}

/// Sorts ranges by start: of numbers that are near each other few digits.
fn sort_by_start(list: &mut [CodeRange]) {
    let least = list.iter().map(|range| range.start).min().unwrap_or(0);
    radsort::sort_by_key(list, |range| range.start - least);
}

/// Shows the entries of a table that can be read, up to where it is damaged; false if something could not be.
pub(crate) fn each_entry<'a>(
    table: &EhFrame<EndianSlice<'a, LittleEndian>>,
    bases: &BaseAddresses,
    mut each: impl FnMut(&FrameDescriptionEntry<EndianSlice<'a, LittleEndian>>),
) -> bool {
    // Read once each: a damaged one can be long, and all functions refer to it.
    let mut common = FxHashMap::default();
    let mut entries = table.entries(bases);
    let mut is_whole = true;
    loop {
        let partial = match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => partial,
            Ok(Some(CieOrFde::Cie(_))) => continue,
            Ok(None) => return is_whole,
            Err(_) => return false,
        };
        let fde = partial.parse(|table, bases, offset| {
            let known = common.entry(offset).or_insert_with(|| table.cie_from_offset(bases, offset));
            known.clone()
        });
        match fde {
            Ok(fde) => each(&fde),
            Err(_) => is_whole = false,
        }
    }
}

/// No instruction moves the frame's address before the first that advances the location.
fn starts_as_called(
    mut instructions: gimli::CallFrameInstructionIter<'_, EndianSlice<'_, LittleEndian>>,
) -> bool {
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            CallFrameInstruction::AdvanceLoc { .. } => return true,
            CallFrameInstruction::DefCfa { .. }
            | CallFrameInstruction::DefCfaSf { .. }
            | CallFrameInstruction::DefCfaRegister { .. }
            | CallFrameInstruction::DefCfaOffset { .. }
            | CallFrameInstruction::DefCfaOffsetSf { .. }
            | CallFrameInstruction::DefCfaExpression { .. } => return false,
            _ => (),
        }
    }
    true
}

/// Adds an entry to a table: `id` is 0 or how far back its common entry is.
#[cfg(test)]
pub(crate) fn push_entry(bytes: &mut Vec<u8>, id: u32, body: &[u8]) {
    let padding = body.len().next_multiple_of(4) - body.len();
    bytes.extend(((body.len() + padding + 4) as u32).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(body);
    bytes.extend(vec![0; padding]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESS: u64 = 0x1000;
    const DEF_CFA_OFFSET: u8 = 0x0e;
    const ADVANCE_4: u8 = 0x44;
    const REMEMBER_STATE: u8 = 0x0a;

    /// A table of `(start, size, instructions)`.
    fn table(entries: &[(u64, u32, [u8; 3])]) -> Vec<u8> {
        // Version 1, "zR", alignments 1 and -8, return address 16; pc-relative; cfa = rsp + 8, ra at cfa - 8.
        let mut bytes = vec![0x14, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 0x10, 1, 0x1b];
        bytes.extend([0x0c, 7, 8, 0x90, 1, 0, 0]);
        for (start, size, instructions) in entries {
            bytes.extend(0x10u32.to_le_bytes());
            bytes.extend((bytes.len() as u32).to_le_bytes());
            let here = ADDRESS + bytes.len() as u64;
            bytes.extend((start.wrapping_sub(here) as u32).to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.push(0);
            bytes.extend(instructions);
        }
        bytes
    }

    const ENTRIES: [(u64, u32, [u8; 3]); 6] = [
        (0x500, 0x28, [ADVANCE_4, DEF_CFA_OFFSET, 16]),
        (0x500, 0x20, [ADVANCE_4, DEF_CFA_OFFSET, 16]),
        (0x500, 0x28, [DEF_CFA_OFFSET, 48, 0]),
        (0x400, 0x10, [DEF_CFA_OFFSET, 48, 0]),
        (0x600, 0, [0, 0, 0]),
        (0x700, 8, [REMEMBER_STATE, 0, 0]),
    ];

    #[test]
    fn split_off_parts_are_no_entries() {
        let range = |start, size, is_entry| CodeRange { start, size, is_entry };
        let expect = [range(0x400, 0x10, false), range(0x500, 0x20, true), range(0x700, 8, true)];
        assert_eq!(ranges(&table(&ENTRIES), ADDRESS), expect);
    }

    proptest! {
        #[test]
        fn damage_is_harmless(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
            let mut bytes = table(&ENTRIES);
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let list = ranges(&bytes, ADDRESS);
            prop_assert!(list.is_sorted_by(|a, b| a.start < b.start));
        }
    }
}
