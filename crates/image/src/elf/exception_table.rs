//! Where exceptions go on: the landing pads of an object's functions (`.gcc_except_table`).
//!
//! ```text
//!   .eh_frame           f is 1140..11a0, its table stands at 2168
//!   .gcc_except_table   2168: calls in 1152..1157 land at 1180, those in 1160..1165 at 1190
//! ```
//! The format is that of GCC and LLVM for C++, Rust, C, Ada and D ("Exception Handling Tables" of the Itanium
//! C++ ABI). Which exceptions a function handles is not looked at: by where control goes on it is known.

use gimli::{BaseAddresses, DwEhPe, EhFrame, EndianSlice, LittleEndian, Pointer, Reader};

use crate::elf::Elf;
use crate::elf::eh_frame::each_entry;

/// How often the bytes of the tables are read: linkers may let functions share a table.
const SHARED_MAX: usize = 4;

type TableBytes<'a> = EndianSlice<'a, LittleEndian>;

/// Calls that an exception does not just pass through; by linked addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GuardedCalls {
    start: u64,
    end: u64,
    /// Where control goes on.
    pad: u64,
}

/// The tables of all functions of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ExceptionTable {
    /// Sorted by start.
    calls: Vec<GuardedCalls>,
    /// Each landing pad once, by address.
    pads: Vec<u64>,
}

impl ExceptionTable {
    /// Empty if one table is damaged: an exception that a function seems to let pass may be caught there.
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let section = |name| elf.section(name).zip(elf.section_address(name));
        let tables = section(".eh_frame").zip(section(".gcc_except_table"));
        tables.and_then(|(frames, tables)| Self::of_sections(frames, tables)).unwrap_or_default()
    }

    /// Reads the tables that the functions of `.eh_frame` refer to; each section with its linked address.
    fn of_sections((frames, frames_at): (&[u8], u64), (tables, tables_at): (&[u8], u64)) -> Option<Self> {
        let bases = BaseAddresses::default().set_eh_frame(frames_at);
        let mut calls = Vec::new();
        // Bounds the work: in a damaged file many functions could share one large table.
        let mut left = tables.len().saturating_mul(SHARED_MAX);
        let mut is_read = true;
        let is_whole = each_entry(&EhFrame::new(frames, LittleEndian), &bases, |fde| {
            // A function without a table may have a pointer that is zero, or leads to itself.
            let Some(Pointer::Direct(table)) = fde.lsda() else { return };
            let offset = table.checked_sub(tables_at).and_then(|offset| usize::try_from(offset).ok());
            let Some(bytes) = offset.and_then(|offset| tables.get(offset..)) else { return };
            let bytes = bytes.get(..left).unwrap_or(bytes);
            let mut unread = EndianSlice::new(bytes, LittleEndian);
            is_read &= read_function(&mut unread, table, fde.initial_address(), &mut calls).is_ok();
            left -= bytes.len() - unread.len();
        });
        calls.sort_unstable();
        let mut pads: Vec<u64> = calls.iter().map(|calls| calls.pad).collect();
        pads.sort_unstable();
        pads.dedup();
        pads.shrink_to_fit();
        (is_whole && is_read).then_some(Self { calls, pads })
    }

    /// The landing pad of the call that the instruction at this linked address makes.
    pub(crate) fn pad_of_call(&self, svma: u64) -> Option<u64> {
        let after = self.calls.partition_point(|calls| calls.start <= svma);
        let calls = self.calls.get(after.checked_sub(1)?)?;
        (svma < calls.end).then_some(calls.pad)
    }

    /// A landing pad begins here.
    pub(crate) fn is_pad(&self, svma: u64) -> bool {
        self.pads.binary_search(&svma).is_ok()
    }
}

/// The table of a function, which stands at `address`; the function's first instruction is at `start`.
fn read_function(
    table: &mut TableBytes<'_>,
    address: u64,
    start: u64,
    calls: &mut Vec<GuardedCalls>,
) -> gimli::Result<()> {
    let pads_from = match DwEhPe(table.read_u8()?) {
        gimli::DW_EH_PE_omit => start,
        encoding => encoded(table, encoding, address.wrapping_add(1))?,
    };
    if DwEhPe(table.read_u8()?) != gimli::DW_EH_PE_omit {
        table.read_uleb128()?; // where the types stand that are caught
    }
    let encoding = DwEhPe(table.read_u8()?);
    let len = table.read_uleb128()?;
    let mut sites = table.split(usize::try_from(len).unwrap_or(usize::MAX))?;
    while !sites.is_empty() {
        let mut next = || encoded(&mut sites, encoding, 0);
        let (from, len, pad) = (next()?, next()?, next()?);
        sites.read_uleb128()?; // what is to be done with which types
        if pad != 0 && len != 0 {
            let from = start.wrapping_add(from);
            let (end, pad) = (from.wrapping_add(len), pads_from.wrapping_add(pad));
            calls.push(GuardedCalls { start: from, end, pad });
        }
    }
    Ok(())
}

/// A value in this encoding that stands at `place`.
fn encoded(bytes: &mut TableBytes<'_>, encoding: DwEhPe, place: u64) -> gimli::Result<u64> {
    if encoding.is_indirect() {
        return Err(gimli::Error::UnsupportedPointerEncoding(encoding));
    }
    let value = match encoding.format() {
        gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_udata8 => bytes.read_u64()?,
        gimli::DW_EH_PE_uleb128 => bytes.read_uleb128()?,
        gimli::DW_EH_PE_udata2 => u64::from(bytes.read_u16()?),
        gimli::DW_EH_PE_udata4 => u64::from(bytes.read_u32()?),
        gimli::DW_EH_PE_sleb128 => bytes.read_sleb128()?.cast_unsigned(),
        gimli::DW_EH_PE_sdata2 => i64::from(bytes.read_i16()?).cast_unsigned(),
        gimli::DW_EH_PE_sdata4 => i64::from(bytes.read_i32()?).cast_unsigned(),
        gimli::DW_EH_PE_sdata8 => bytes.read_i64()?.cast_unsigned(),
        _ => return Err(gimli::Error::UnknownPointerEncoding(encoding)),
    };
    match encoding.application() {
        gimli::DW_EH_PE_absptr => Ok(value),
        gimli::DW_EH_PE_pcrel => Ok(place.wrapping_add(value)),
        _ => Err(gimli::Error::UnsupportedPointerEncoding(encoding)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::eh_frame::push_entry as entry;
    use proptest::prelude::*;

    const FRAMES: u64 = 0x1000;
    const TABLES: u64 = 0x8000;
    const PCREL_SDATA4: u8 = 0x1b;

    /// Functions at 0x500, 0x900, 0xd00, ..., with these tables.
    fn frames(tables: &[Option<u64>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Version 1, alignments 1 and -8, return address 16; where the table and the function are, relative.
        let with_table = [1, b'z', b'L', b'R', 0, 1, 0x78, 0x10, 2, PCREL_SDATA4, PCREL_SDATA4];
        entry(&mut bytes, 0, &with_table);
        let without_at = bytes.len() as u32;
        entry(&mut bytes, 0, &[1, b'z', b'R', 0, 1, 0x78, 0x10, 1, PCREL_SDATA4]);
        for (start, table) in (0x500u64..).step_by(0x400).zip(tables) {
            let here = FRAMES + bytes.len() as u64 + 8;
            let mut body = (start.wrapping_sub(here) as u32).to_le_bytes().to_vec();
            body.extend(0x100u32.to_le_bytes());
            match table {
                Some(table) => {
                    body.push(4);
                    body.extend((table.wrapping_sub(here + 9) as u32).to_le_bytes());
                }
                None => body.push(0),
            }
            let common = if table.is_some() { 0 } else { without_at };
            let common_at = bytes.len() as u32 + 4 - common;
            entry(&mut bytes, common_at, &body);
        }
        bytes
    }

    /// Landing pads from the function's start, types 0x20 bytes on, numbers in LEB128: as GCC writes them.
    /// Calls from 0x10 to 0x15 land at 0x40 of `f`, those from 0x15 to 0x1a nowhere, those up to 0x20 at
    /// 0x184, in action 1.
    const OF_F: [u8; 17] = [0xff, 0x9b, 0x20, 0x01, 13, 0x10, 5, 0x40, 0, 0x15, 5, 0, 0, 0x1a, 6, 0x84, 0x03];

    /// Landing pads from 0x400, which is `base`, numbers of four bytes: as GCC writes them for a part that
    /// has its landing pads elsewhere.
    fn of_cold(base: u32) -> Vec<u8> {
        let mut table = vec![0x03];
        table.extend(base.to_le_bytes());
        table.extend([0xff, 0x03, 13]);
        for number in [0x8u32, 0x10, 0x140] {
            table.extend(number.to_le_bytes());
        }
        table.push(0);
        table
    }

    fn tables() -> (Vec<u8>, Vec<u8>) {
        let of_f = [&OF_F[..], &[1, 0x7f, 0x7d]].concat(); // its last action, and that one's type
        let cold_at = TABLES + of_f.len() as u64;
        (frames(&[Some(TABLES), Some(cold_at), None]), [of_f, of_cold(0x400)].concat())
    }

    fn read(frames: &[u8], tables: &[u8]) -> Option<ExceptionTable> {
        ExceptionTable::of_sections((frames, FRAMES), (tables, TABLES))
    }

    #[test]
    fn each_call_has_the_landing_pad_of_its_table() {
        let (frames, tables) = tables();
        let read = read(&frames, &tables).unwrap();
        let pads = [0x50f, 0x510, 0x514, 0x515, 0x51a, 0x51f, 0x520, 0x907, 0x908, 0x917, 0x918, 0xd08];
        let found = pads.map(|svma| read.pad_of_call(svma).unwrap_or(0));
        assert_eq!(found, [0, 0x540, 0x540, 0, 0x684, 0x684, 0, 0, 0x540, 0x540, 0, 0]);
        assert_eq!([0x540, 0x684, 0x541, 0x510].map(|svma| read.is_pad(svma)), [true, true, false, false]);
    }

    #[test]
    fn of_a_damaged_table_no_call_seems_to_let_exceptions_pass() {
        let (frames, tables) = tables();
        let mut unknown = tables.clone();
        unknown[3] = 0x50; // an encoding that is none
        assert_eq!(read(&frames, &unknown), None);
        assert_eq!(read(&frames, &tables[..tables.len() - 2]), None, "the second table is cut");
        assert_eq!(read(&frames[..frames.len() - 2], &tables), None, "so is what refers to them");
    }

    /// In a damaged file the same bytes could be read for each of its functions.
    #[test]
    fn a_table_that_many_functions_share_is_not_read_for_all() {
        let mut large = vec![0xff, 0xff, 0x01, 0xc0, 0x0c]; // calls of 1,600 bytes
        large.extend([0, 1, 1, 0].repeat(400));
        let shared = |functions| frames(&vec![Some(TABLES); functions]);
        assert_eq!(read(&shared(4), &large).unwrap().calls.len(), 1600);
        assert_eq!(read(&shared(5), &large), None);
    }

    proptest! {
        #[test]
        fn damage_is_harmless(
            flips in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u8>()), 0..6),
            at in 0x4f0u64..0x930,
        ) {
            let (mut frames, mut tables) = tables();
            for (in_frames, place, value) in flips {
                let bytes = if in_frames { &mut frames } else { &mut tables };
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            if let Some(read) = read(&frames, &tables) {
                prop_assert!(read.calls.len() <= SHARED_MAX * tables.len() / 4);
                prop_assert!(read.pad_of_call(at).is_none_or(|pad| read.is_pad(pad)));
            }
        }
    }
}
