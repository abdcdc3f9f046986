//! Where the functions of a stripped object are: `.eh_frame` (Linux Standard Base Core, "Exception Frames";
//! DWARF 5, section 6.4) has an entry for each.
//!
//! ```text
//! CIE: length  0           version  augmentation  ...  instructions that all its functions begin with
//! FDE: length  back to CIE  start  size  table    ...  instructions
//! ```
//! The table of an FDE (`.gcc_except_table`) says at which landing pad an exception goes on that comes out of
//! a call of the function.

use std::ops::Range;

/// The stack pointer, as DWARF numbers registers.
const RSP: u64 = 7;

/// The frame address (CFA) of a function just called: above the return address.
const JUST_CALLED: Option<(u64, u64)> = Some((RSP, 8));

/// Code that unwinds as one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnwindRange {
    /// Address as linked.
    pub(super) start: u64,
    pub(super) size: u64,
    /// The frame looks as if it had just been called; that of a split-off part does not, unless it is left
    /// for before the function has touched its stack.
    pub(super) is_entry: bool,
}

/// A section, and where it is linked.
pub(super) type Linked<'a> = (&'a [u8], u64);

/// The ranges of an `.eh_frame`, by start; up to what cannot be read.
pub(super) fn ranges(section: Linked<'_>) -> Vec<UnwindRange> {
    let mut list: Vec<UnwindRange> = functions(section).map(|(range, _)| range).collect();
    list.sort_unstable();
    list.dedup_by_key(|r| r.start);
    list
}

/// Where exceptions go on: the landing pad of each call that has one, by the call's addresses.
pub(super) fn landing_pads(frames: Linked<'_>, (tables, at): Linked<'_>) -> Vec<(Range<u64>, u64)> {
    let mut list = vec![];
    for (range, table) in functions(frames) {
        let Some(table) = table.and_then(|table| usize::try_from(table.checked_sub(at)?).ok()) else {
            continue;
        };
        let known = list.len();
        if (Cursor { bytes: tables, at: table }).calls_with_pads(&mut list, range.start, at).is_none() {
            list.truncate(known);
        }
    }
    list.sort_unstable_by_key(|(calls, _)| calls.start);
    list
}

/// The functions of an `.eh_frame`, and where their tables are linked; up to what cannot be read.
fn functions((section, address): Linked<'_>) -> impl Iterator<Item = (UnwindRange, Option<u64>)> + '_ {
    let mut cursor = Cursor { bytes: section, at: 0 };
    let entries = std::iter::from_fn(move || {
        let (id_at, entry) = cursor.entry()?;
        let mut fde = Cursor { bytes: entry, at: id_at };
        Some((id_at, fde.u32()?, fde))
    });
    entries.filter(|(_, back, _)| *back != 0).filter_map(move |(id_at, back, fde)| {
        // A CIE is read where it is referred to.
        function(section, id_at.checked_sub(back as usize), fde, address)
    })
}

fn function(
    section: &[u8],
    cie_at: Option<usize>,
    mut fde: Cursor<'_>,
    address: u64,
) -> Option<(UnwindRange, Option<u64>)> {
    let (id_at, entry) = Cursor { bytes: section, at: cie_at? }.entry()?;
    let mut cie = Cursor { bytes: entry, at: id_at + 4 };
    let augmentation = cie.augmentation()?;
    let start = fde.place(augmentation.encoding, address)?;
    let size = fde.pointer(augmentation.encoding & 0x07)?; // never signed
    let mut table = None;
    if augmentation.is_sized {
        let len = fde.uleb()?;
        let mut data = fde;
        table = augmentation.table.and_then(|encoding| data.place(encoding, address));
        fde.skip(len)?;
    }
    let mut cfa = None;
    cie.first_row(&mut cfa)?;
    fde.first_row(&mut cfa)?;
    (size > 0).then_some((UnwindRange { start, size, is_entry: cfa == JUST_CALLED }, table))
}

/// What a CIE says of the layout of its FDEs.
struct Augmentation {
    /// Of pointers (`DW_EH_PE_*`).
    encoding: u8,
    /// Extra data are there, with their length.
    is_sized: bool,
    /// First of these is where the function's table is, in this encoding.
    table: Option<u8>,
}

/// Reads a little-endian section from its front.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The next CIE or FDE: where its id stands, and the section up to its end.  `None` after the last.
    fn entry(&mut self) -> Option<(usize, &'a [u8])> {
        let len = self.u32().filter(|&len| len != 0 && len != u32::MAX)?; // no section has entries above 4 GB
        let id_at = self.at;
        self.skip(len.into())?;
        Some((id_at, self.bytes.get(..self.at)?))
    }

    /// Reads a CIE up to its instructions.
    fn augmentation(&mut self) -> Option<Augmentation> {
        let version = self.u8()?;
        let letters = self.bytes.get(self.at..)?.split(|&b| b == 0).next()?;
        self.skip(letters.len() as u64 + 1)?;
        self.uleb()?; // code alignment
        self.uleb()?; // data alignment: signed, of the same length
        if version == 1 { self.u8().map(u64::from) } else { self.uleb() }?; // return address
        let mut encoding = 0;
        let is_sized = letters.first() == Some(&b'z');
        let Some(rest) = letters.strip_prefix(b"z") else {
            return letters.is_empty().then_some(Augmentation { encoding, is_sized, table: None });
        };
        let len = self.uleb()?;
        let mut data = *self;
        self.skip(len)?;
        let mut table = None;
        for letter in rest {
            match letter {
                b'R' => encoding = data.u8()?,
                b'L' => table = Some(data.u8()?),
                b'P' => {
                    let encoding = data.u8()?;
                    data.pointer(encoding)?;
                }
                b'S' | b'B' => (),
                _ => return None,
            }
        }
        Some(Augmentation { encoding, is_sized, table })
    }

    /// Reads the table of the function at `start`; the section is linked at `address`.
    fn calls_with_pads(&mut self, list: &mut Vec<(Range<u64>, u64)>, start: u64, address: u64) -> Option<()> {
        const NONE: u8 = 0xff;
        let pads_from = match self.u8()? {
            NONE => start,
            encoding => self.place(encoding, address)?,
        };
        if self.u8()? != NONE {
            self.uleb()?; // where its types are
        }
        let encoding = self.u8()?;
        let len = usize::try_from(self.uleb()?).ok()?;
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        while self.at < end {
            let mut number = || if encoding == 0x01 { self.uleb() } else { self.pointer(encoding) };
            let (from, len, pad) = (number()?, number()?, number()?);
            self.uleb()?; // what it does with which types
            if pad > 0 {
                let from = start.wrapping_add(from);
                list.push((from..from.wrapping_add(len), pads_from.wrapping_add(pad)));
            }
        }
        Some(())
    }

    /// An address in this encoding; the section is linked at `address`.
    fn place(&mut self, encoding: u8, address: u64) -> Option<u64> {
        let here = address.wrapping_add(self.at as u64);
        let value = self.pointer(encoding)?;
        match encoding & 0x70 {
            0 => Some(value),
            0x10 => Some(value.wrapping_add(here)), // relative to where it stands
            _ => None,
        }
    }

    /// Follows instructions as far as they are about the first address. `cfa`: register and offset, `None` if
    /// it is computed otherwise.
    fn first_row(&mut self, cfa: &mut Option<(u64, u64)>) -> Option<()> {
        while self.at < self.bytes.len() {
            let opcode = self.u8()?;
            match opcode {
                0x40..=0x7f | 0x01..=0x04 => return Some(()), // what follows is about later addresses
                0x00 | 0xc0..=0xff | 0x0a | 0x0b => (),
                0x06 | 0x07 | 0x08 | 0x2e | 0x80..=0xbf => _ = self.uleb()?,
                0x05 | 0x09 | 0x11 | 0x14 | 0x15 => _ = (self.uleb()?, self.uleb()?),
                0x0c => *cfa = Some((self.uleb()?, self.uleb()?)),
                0x0d => *cfa = Some((self.uleb()?, (*cfa)?.1)),
                0x0e => *cfa = Some(((*cfa)?.0, self.uleb()?)),
                0x0f => (*cfa, _) = (None, self.block()?),
                0x12 => (*cfa, _) = (None, (self.uleb()?, self.uleb()?)),
                0x13 => (*cfa, _) = (None, self.uleb()?),
                0x10 | 0x16 => _ = (self.uleb()?, self.block()?),
                _ => return None,
            }
        }
        Some(())
    }

    /// A pointer's own bits (`DW_EH_PE_*`, its lower half).
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.take().map(u64::from_le_bytes),
            0x02 => self.take().map(|b| u16::from_le_bytes(b).into()),
            0x03 => self.u32().map(u64::from),
            0x0a => self.take().map(|b| i64::from(i16::from_le_bytes(b)) as u64),
            0x0b => self.take().map(|b| i64::from(i32::from_le_bytes(b)) as u64),
            _ => None,
        }
    }

    /// Skips a length, and that number of bytes.
    fn block(&mut self) -> Option<()> {
        let len = self.uleb()?;
        self.skip(len)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*bytes)
    }

    fn skip(&mut self, len: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(len).ok()?)?;
        self.at = self.bytes.get(..end).map(<[u8]>::len)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x1000;

    fn entry(id: u32, content: &[u8]) -> Vec<u8> {
        let len = content.len() as u32 + 4;
        [&len.to_le_bytes()[..], &id.to_le_bytes(), content].concat()
    }

    /// An FDE at offset `at` of a table with the CIE as its first entry.
    fn fde(at: usize, start: u64, size: u32, instructions: &[u8]) -> Vec<u8> {
        let here = ADDRESS + at as u64 + 8;
        let start = (start.wrapping_sub(here) as u32).to_le_bytes();
        entry(at as u32 + 4, &[&start[..], &size.to_le_bytes(), &[0], instructions].concat())
    }

    #[test]
    fn ranges_by_start_and_whether_they_are_entered() {
        // As GCC writes them for C++: personality, language data, pointers relative and signed; cfa = rsp +
        // 8.
        let cie =
            [1, b'z', b'P', b'L', b'R', 0, 1, 0x78, 16, 7, 0x9b, 0, 0, 0, 0, 0x1b, 0x1b, 0x0c, 7, 8, 0x90, 1];
        let mut table = entry(0, &cie);
        let entries: [(u64, u32, &[u8]); 4] = [
            (0x500, 0x20, &[0x44, 0x0e, 16]), // pushes after its first instruction
            (0x400, 0x10, &[0x0e, 48, 0x86, 2, 0x44, 0x0e, 8]), // has pushed before
            (0x600, 0, &[]),
            (0x700, 8, &[0x0c, 6, 16]), // by frame pointer
        ];
        for (start, size, instructions) in entries {
            table.extend(fde(table.len(), start, size, instructions));
        }
        table.extend([0; 4]);
        let range = |start, size, is_entry| UnwindRange { start, size, is_entry };
        let expect = [range(0x400, 0x10, false), range(0x500, 0x20, true), range(0x700, 8, false)];
        assert_eq!(ranges((&table, ADDRESS)), expect);
        // Cut anywhere: those that are whole.
        for len in 0..table.len() {
            assert!(ranges((&table[..len], ADDRESS)).iter().all(|r| expect.contains(r)));
        }
    }
}
