//! Kernel text and its symbols as an ELF file in memory: then it is an object as others are.

use object::elf::{
    EM_X86_64, ET_EXEC, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB,
};

use super::kallsyms::KernelSymbol;

const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
const SECTION_HEADER: u16 = 64;
const SYMBOL_SIZE: u64 = 24;
/// Global function.
const SYMBOL_INFO: u8 = 0x12;
const READ_EXECUTE: u32 = 5;

/// Where the text is in the file.
pub(super) const TEXT_OFFSET: u64 = HEADER + PROGRAM_HEADER;

/// Little-endian numbers, appended.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16s(&mut self, values: &[u16]) {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    fn u32s(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    fn u64s(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    /// A section header; its name is the first of the string table, which is empty.
    fn section(
        &mut self,
        kind: u32,
        flags: u32,
        address: u64,
        (offset, size): (u64, u64),
        link: u32,
        entry: u64,
    ) {
        self.u32s(&[0, kind]);
        self.u64s(&[u64::from(flags), address, offset, size]);
        self.u32s(&[link, 0]);
        self.u64s(&[1, entry]);
    }
}

/// An ELF file of text that is linked at `svma`; the symbols' addresses are `slide` higher.
pub(super) fn write(svma: u64, slide: u64, text: &[u8], symbols: &[KernelSymbol]) -> Vec<u8> {
    let mut table = Bytes(vec![0; SYMBOL_SIZE as usize]);
    let mut strings = vec![0];
    for symbol in symbols {
        table.u32s(&[u32::try_from(strings.len()).unwrap_or(0)]);
        table.0.extend([SYMBOL_INFO, 0]);
        table.u16s(&[1]);
        table.u64s(&[symbol.address.0.wrapping_sub(slide), symbol.size]);
        strings.extend(symbol.name.bytes());
        strings.push(0);
    }
    let text_at = (TEXT_OFFSET, text.len() as u64);
    let table_at = (text_at.0 + text_at.1, table.0.len() as u64);
    let strings_at = (table_at.0 + table_at.1, strings.len() as u64);
    let mut out = Bytes(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    out.u16s(&[ET_EXEC, EM_X86_64]);
    out.u32s(&[1]);
    out.u64s(&[svma, HEADER, strings_at.0 + strings_at.1]);
    out.u32s(&[0]);
    out.u16s(&[HEADER as u16, PROGRAM_HEADER as u16, 1, SECTION_HEADER, 4, 3]);
    out.u32s(&[PT_LOAD, READ_EXECUTE]);
    out.u64s(&[text_at.0, svma, svma, text_at.1, text_at.1, 1]);
    out.0.extend_from_slice(text);
    out.0.append(&mut table.0);
    out.0.append(&mut strings);
    out.section(0, 0, 0, (0, 0), 0, 0);
    out.section(SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, svma, text_at, 0, 0);
    out.section(SHT_SYMTAB, 0, 0, table_at, 3, SYMBOL_SIZE);
    out.section(SHT_STRTAB, 0, 0, strings_at, 0, 0);
    out.0
}

#[cfg(test)]
mod tests {
    use model::Avma;

    use super::*;
    use crate::elf::Elf;

    /// Readers take no section headers from a file that names no table of section names: functions of
    /// `kcore` had no names.
    #[test]
    fn symbols_are_read_as_those_of_any_object() {
        let (linked, slide) = (0xffff_ffff_8100_0000, 0x1b40_0000);
        let symbol = |offset, name: &str| KernelSymbol {
            address: Avma(linked + slide + offset),
            size: 3,
            name: name.to_owned(),
        };
        let file = write(linked, slide, &[0x90; 7], &[symbol(0, "_text"), symbol(3, "vfs_read")]);
        let table = Elf::parse(&file).unwrap().static_symbols().unwrap();
        let names = crate::elf::strings::Strings::new(&file[table.strings]);
        let found: Vec<_> = table.symbols.iter().map(|s| (s.value - linked, names.text(s.name))).collect();
        assert_eq!(found, [(0, "_text".into()), (3, "vfs_read".into())]);
    }
}
