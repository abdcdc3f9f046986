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
    /// By start.
    calls: Vec<GuardedCalls>,
    /// Each landing pad once, by address.
    pads: Vec<u64>,
}

impl ExceptionTable {
    /// Damaged tables are left out: their functions seem to have no landing pads.
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let section = |name| elf.section(name).zip(elf.section_address(name));
        let Some((frames, tables)) = section(".eh_frame").zip(section(".gcc_except_table")) else {
            return Self::default();
        };
        Self::of_sections(frames, tables)
    }

    /// Of the two sections, and where they are linked.
    fn of_sections((frames, frames_at): (&[u8], u64), (tables, tables_at): (&[u8], u64)) -> Self {
        let bases = BaseAddresses::default().set_eh_frame(frames_at);
        let mut calls = Vec::new();
        // Each function has a table of its own: of a damaged file no more is read than if that held.
        let mut left = tables.len();
        each_entry(&EhFrame::new(frames, LittleEndian), &bases, |fde| {
            let Some(Pointer::Direct(table)) = fde.lsda() else { return };
            let offset = table.checked_sub(tables_at).and_then(|offset| usize::try_from(offset).ok());
            let Some(bytes) = offset.and_then(|offset| tables.get(offset..)) else { return };
            let bytes = bytes.get(..left).unwrap_or(bytes);
            let (before, mut unread) = (calls.len(), EndianSlice::new(bytes, LittleEndian));
            if read_function(&mut unread, table, fde.initial_address(), &mut calls).is_err() {
                calls.truncate(before);
            }
            left -= bytes.len() - unread.len();
        });
        calls.sort_unstable();
        let mut pads: Vec<u64> = calls.iter().map(|calls| calls.pad).collect();
        pads.sort_unstable();
        pads.dedup();
        Self { calls, pads }
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
        if pad != 0 {
            let from = start.wrapping_add(from);
            let (end, pad) = (from.wrapping_add(len), pads_from.wrapping_add(pad));
            calls.push(GuardedCalls { start: from, end, pad });
        }
    }
    Ok(())
}

/// A value in this encoding that stands at `place`.
fn encoded(bytes: &mut TableBytes<'_>, encoding: DwEhPe, place: u64) -> gimli::Result<u64> {
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
    use proptest::prelude::*;

    const FRAMES: u64 = 0x1000;
    const TABLES: u64 = 0x8000;
    const PCREL_SDATA4: u8 = 0x1b;

    /// Two functions, `f` at 0x500 and its part `f.cold` at 0x900, and a third without a table.
    fn frames(tables: [Option<u64>; 3]) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Version 1, alignments 1 and -8, return address 16; where the table and the function are, relative.
        let with_table = [1, b'z', b'L', b'R', 0, 1, 0x78, 0x10, 2, PCREL_SDATA4, PCREL_SDATA4];
        entry(&mut bytes, 0, &with_table);
        let without_at = bytes.len() as u32;
        entry(&mut bytes, 0, &[1, b'z', b'R', 0, 1, 0x78, 0x10, 1, PCREL_SDATA4]);
        for (start, table) in [0x500u64, 0x900, 0xd00].into_iter().zip(tables) {
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

    fn entry(bytes: &mut Vec<u8>, id: u32, body: &[u8]) {
        let padding = body.len().next_multiple_of(4) - body.len();
        bytes.extend(((body.len() + padding + 4) as u32).to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(body);
        bytes.extend(vec![0; padding]);
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
        (frames([Some(TABLES), Some(cold_at), None]), [of_f, of_cold(0x400)].concat())
    }

    fn read(frames: &[u8], tables: &[u8]) -> ExceptionTable {
        ExceptionTable::of_sections((frames, FRAMES), (tables, TABLES))
    }

    #[test]
    fn each_call_has_the_landing_pad_of_its_table() {
        let (frames, tables) = tables();
        let read = read(&frames, &tables);
        let pads = [0x50f, 0x510, 0x514, 0x515, 0x51a, 0x51f, 0x520, 0x907, 0x908, 0x917, 0x918, 0xd08];
        let found = pads.map(|svma| read.pad_of_call(svma).unwrap_or(0));
        assert_eq!(found, [0, 0x540, 0x540, 0, 0x684, 0x684, 0, 0, 0x540, 0x540, 0, 0]);
        assert_eq!([0x540, 0x684, 0x541, 0x510].map(|svma| read.is_pad(svma)), [true, true, false, false]);
    }

    /// The tables of a damaged file stand in one another.
    #[test]
    fn no_more_is_read_than_tables_that_stand_apart_have() {
        let mut large = vec![0xff, 0xff, 0x01, 0xc0, 0x0c]; // calls of 1,600 bytes
        large.extend([0, 1, 1, 0].repeat(400));
        let frames = frames([Some(TABLES), Some(TABLES), Some(TABLES)]);
        let read = read(&frames, &large);
        assert_eq!((read.calls.len(), read.pads), (400, vec![0x501]));
    }

    #[test]
    fn a_damaged_table_is_its_functions_alone() {
        let (frames, mut tables) = tables();
        tables[3] = 0x50; // an encoding that is none
        let read = read(&frames, &tables);
        assert_eq!((read.pad_of_call(0x510), read.pad_of_call(0x908)), (None, Some(0x540)));
        assert_eq!(ExceptionTable::of_sections((&[], 0), (&tables, TABLES)), ExceptionTable::default());
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
            let read = read(&frames, &tables);
            if let Some(pad) = read.pad_of_call(at) {
                prop_assert!(read.is_pad(pad));
            }
        }
    }
}
