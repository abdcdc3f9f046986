//! What we take from an ELF file: where its code is linked, its build id, its symbols, the slots of its
//! global offset table.  Every table is optional: a file without section headers still has code.

pub(crate) mod eh_frame;
pub(crate) mod exception_table;
pub(crate) mod mini_debug_info;
pub(crate) mod padding;
pub(crate) mod plt;
pub(crate) mod strings;
pub(crate) mod symbols;
pub(crate) mod untyped;
pub(crate) mod unwind_table;
pub(crate) mod usdt;

use std::ops::Range;

use model::BuildId;
use object::LittleEndian;
use object::elf::{
    DT_FINI, DT_INIT, DT_NULL, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD,
    PT_NOTE, ProgramHeader64, R_X86_64_GLOB_DAT, R_X86_64_IRELATIVE, R_X86_64_JUMP_SLOT, Rela64, SHF_ALLOC,
    SHF_EXECINSTR, SHN_UNDEF, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_RELA, SHT_SYMTAB, STB_LOCAL, STB_WEAK,
    STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, SectionHeader64, Sym64,
};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, Rela, SectionHeader, SectionTable, Sym};
use rustc_hash::FxHashMap;

use crate::elf::strings::Strings;

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// What is wrong with a file that should be an ELF file of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElfError {
    #[error("not an ELF file of 64 bits: {0}")]
    NotElf(String),
    #[error("not code of x86-64 (ELF machine {0})")]
    Machine(u16),
    #[error("not a program or library (ELF type {0})")]
    Type(u16),
}

/// A loaded part of the file (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) svma: u64,
    pub(crate) file_offset: u64,
    pub(crate) file_size: u64,
    pub(crate) executable: bool,
}

const PAGE_BYTES: u64 = 4096;

impl Segment {
    /// Its bytes in the file.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.file_offset..self.file_offset.saturating_add(self.file_size)
    }

    /// From the start of its first page in the file to the end of its last.
    pub(crate) fn pages(&self) -> Range<u64> {
        let Range { start, end } = self.bytes();
        start & !(PAGE_BYTES - 1)..end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end)
    }
}

/// A stretch of code by linked address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeSection {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) file_offset: u64,
    /// It holds stubs of the procedure linkage table.
    pub(crate) plt: bool,
}

/// A function's symbol.  Its place in the table is its index in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) value: u64,
    pub(crate) size: u64,
    /// Offset in the string table.
    pub(crate) name: u32,
    /// Which STT_FILE symbol stands before it; 0 for symbols that are not local.
    pub(crate) file: u32,
    pub(crate) local: bool,
    pub(crate) weak: bool,
    /// `STT_GNU_IFUNC`: it chooses the function of this name.
    pub(crate) resolver: bool,
    /// `STT_NOTYPE`: a function of hand-written code, or a label in one ([`crate::elf::untyped`] decides).
    pub(crate) untyped: bool,
}

/// The functions' symbols of a file, with the place of their names in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolTable {
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) strings: Range<usize>,
}

/// What the dynamic linker writes into a slot of the global offset table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotTarget {
    /// The address of this symbol.
    Symbol(String),
    /// What the function at this address chooses (`STT_GNU_IFUNC`).
    Resolver(u64),
}

/// The slots that PLT stubs jump through.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    pub(crate) by_address: FxHashMap<u64, SlotTarget>,
    /// Addresses of the slots of `.rela.plt`, in its order: what a lazy stub pushes is the index.
    pub(crate) lazy: Vec<u64>,
}

/// An ELF file's headers.
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
    start: u64,
    programs: &'a [ProgramHeader64<LittleEndian>],
    sections: SectionTable<'a, Header>,
}

impl<'a> Elf<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`ElfError`] if this is no program or library for x86-64.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        let not_elf = |e: object::read::Error| ElfError::NotElf(e.to_string());
        let header = Header::parse(bytes).map_err(not_elf)?;
        header.endian().map_err(not_elf)?;
        if header.e_machine(LE) != EM_X86_64 {
            return Err(ElfError::Machine(header.e_machine(LE)));
        }
        if ![ET_EXEC, ET_DYN].contains(&header.e_type(LE)) {
            return Err(ElfError::Type(header.e_type(LE)));
        }
        let programs = header.program_headers(LE, bytes).map_err(not_elf)?;
        // Section headers stand at the end of the file: the code is good without them.
        let sections = header.sections(LE, bytes).unwrap_or_default();
        Ok(Self { bytes, start: header.e_entry(LE), programs, sections })
    }

    pub(crate) fn segments(&self) -> Vec<Segment> {
        let loads = self.programs.iter().filter(|p| p.p_type(LE) == PT_LOAD);
        loads
            .map(|p| Segment {
                svma: p.p_vaddr(LE),
                file_offset: p.p_offset(LE),
                file_size: p.p_filesz(LE),
                executable: p.p_flags(LE) & PF_X != 0,
            })
            .collect()
    }

    pub(crate) fn build_id(&self) -> Option<BuildId> {
        let from_programs = self.programs.iter().filter(|p| p.p_type(LE) == PT_NOTE);
        let from_programs = from_programs.filter_map(|p| p.notes(LE, self.bytes).ok().flatten());
        let from_sections = self.sections.iter().filter(|s| s.sh_type(LE) == SHT_NOTE);
        let from_sections = from_sections.filter_map(|s| s.notes(LE, self.bytes).ok().flatten());
        from_programs.chain(from_sections).find_map(build_id_of)
    }

    /// Sections of code by address, disjoint; without section headers, the executable segments.
    pub(crate) fn code_sections(&self) -> Vec<CodeSection> {
        let code = u64::from(SHF_ALLOC | SHF_EXECINSTR);
        let mut list: Vec<_> = self
            .sections
            .iter()
            .filter(|s| s.sh_flags(LE) & code == code && s.sh_type(LE) != SHT_NOBITS)
            .map(|s| CodeSection {
                start: s.sh_addr(LE),
                end: s.sh_addr(LE).saturating_add(s.sh_size(LE)),
                file_offset: s.sh_offset(LE),
                plt: self.is_plt(s),
            })
            .collect();
        if list.is_empty() {
            let executable = self.segments().into_iter().filter(|s| s.executable);
            list.extend(executable.map(|s| CodeSection {
                start: s.svma,
                end: s.svma.saturating_add(s.file_size),
                file_offset: s.file_offset,
                plt: false,
            }));
        }
        make_disjoint(list)
    }

    fn is_plt(&self, section: &SectionHeader64<LittleEndian>) -> bool {
        let name = self.sections.section_name(LE, section).unwrap_or_default();
        matches!(name, b".plt" | b".plt.sec" | b".plt.got" | b".iplt" | b".plt.bnd")
    }

    /// The functions of `.symtab`, local ones and aliases included; `None` if there are none.
    pub(crate) fn static_symbols(&self) -> Option<SymbolTable> {
        self.symbols_of_type(SHT_SYMTAB)
    }

    /// The functions of `.dynsym`: those that other objects can call.
    pub(crate) fn dynamic_symbols(&self) -> Option<SymbolTable> {
        self.symbols_of_type(SHT_DYNSYM)
    }

    fn symbols_of_type(&self, kind: u32) -> Option<SymbolTable> {
        let table = self.sections.iter().find(|s| s.sh_type(LE) == kind)?;
        Some(self.read_symbols(table)).filter(|t| !t.symbols.is_empty())
    }

    fn read_symbols(&self, table: &SectionHeader64<LittleEndian>) -> SymbolTable {
        let entries: &[Sym64<LittleEndian>] = table.data_as_array(LE, self.bytes).unwrap_or_default();
        let mut symbols = Vec::new();
        let mut file = 0;
        for entry in entries {
            let is_function = match entry.st_type() {
                STT_FUNC | STT_GNU_IFUNC => entry.st_shndx(LE) != SHN_UNDEF,
                STT_NOTYPE => self.is_global_in_code(entry),
                STT_FILE => {
                    file += 1;
                    false
                }
                _ => false,
            };
            if !is_function {
                continue;
            }
            let local = entry.st_bind() == STB_LOCAL;
            symbols.push(Symbol {
                value: entry.st_value(LE),
                size: entry.st_size(LE),
                name: entry.st_name(LE),
                file: if local { file } else { 0 },
                local,
                weak: entry.st_bind() == STB_WEAK,
                resolver: entry.st_type() == STT_GNU_IFUNC,
                untyped: entry.st_type() == STT_NOTYPE,
            });
        }
        let strings = self.strings_of(table).unwrap_or_default();
        SymbolTable { symbols, strings }
    }

    /// A symbol that other files see, at an instruction of an executable section.
    ///
    /// A local symbol without a type is a label. What the linker defines (`_etext`, `_end`, `__stop_NAME`) is
    /// absolute, in another section, or at the end of one.
    fn is_global_in_code(&self, symbol: &Sym64<LittleEndian>) -> bool {
        if symbol.st_bind() == STB_LOCAL || symbol.st_name(LE) == 0 {
            return false;
        }
        let index = SectionIndex(usize::from(symbol.st_shndx(LE)));
        // The sections of a separate debug file have flags and addresses, too.
        self.sections.section(index).is_ok_and(|section| {
            let offset = symbol.st_value(LE).checked_sub(section.sh_addr(LE));
            section.sh_flags(LE) & u64::from(SHF_EXECINSTR) != 0
                && offset.is_some_and(|offset| offset < section.sh_size(LE))
        })
    }

    /// The address of the symbol of this name.
    pub(crate) fn address_of(&self, name: &str) -> Option<u64> {
        let table = self.sections.iter().find(|s| s.sh_type(LE) == SHT_SYMTAB)?;
        let entries: &[Sym64<LittleEndian>] = table.data_as_array(LE, self.bytes).ok()?;
        let strings = Strings::new(self.bytes.get(self.strings_of(table)?)?);
        let found = entries.iter().find(|entry| strings.text(entry.st_name(LE)) == name)?;
        Some(found.st_value(LE))
    }

    /// The string table that a symbol table refers to, as a range of the file.
    fn strings_of(&self, table: &SectionHeader64<LittleEndian>) -> Option<Range<usize>> {
        let section = self.sections.section(SectionIndex(table.sh_link(LE) as usize)).ok()?;
        let start = usize::try_from(section.sh_offset(LE)).ok()?;
        let end = start.checked_add(usize::try_from(section.sh_size(LE)).ok()?)?;
        (end <= self.bytes.len()).then_some(start..end)
    }

    /// The slots of the global offset table that the dynamic linker fills with functions.
    pub(crate) fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        // No honest file has more of them than fit into it: sections that overlap cannot cost more either.
        let mut budget = self.bytes.len();
        for section in self.sections.iter().filter(|s| s.sh_type(LE) == SHT_RELA) {
            let size = usize::try_from(section.sh_size(LE)).unwrap_or(usize::MAX);
            let Some(rest) = budget.checked_sub(size) else { break };
            budget = rest;
            let lazy = self.sections.section_name(LE, section).is_ok_and(|n| n == b".rela.plt");
            self.read_slots(section, lazy, &mut slots);
        }
        slots
    }

    fn read_slots(&self, section: &SectionHeader64<LittleEndian>, lazy: bool, slots: &mut Slots) {
        let relocations: &[Rela64<LittleEndian>] = section.data_as_array(LE, self.bytes).unwrap_or_default();
        let table = self.sections.section(SectionIndex(section.sh_link(LE) as usize)).ok();
        let table = table.filter(|t| matches!(t.sh_type(LE), SHT_DYNSYM | SHT_SYMTAB));
        let symbols: &[Sym64<LittleEndian>] =
            table.and_then(|t| t.data_as_array(LE, self.bytes).ok()).unwrap_or_default();
        let strings = table.and_then(|t| self.strings_of(t)).unwrap_or_default();
        let strings = Strings::new(self.bytes.get(strings).unwrap_or_default());
        for relocation in relocations {
            let slot = relocation.r_offset(LE);
            if lazy {
                slots.lazy.push(slot);
            }
            let target = match relocation.r_type(LE, false) {
                R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => {
                    let symbol = symbols.get(relocation.r_sym(LE, false) as usize);
                    symbol.map(|s| SlotTarget::Symbol(strings.text(s.st_name(LE)).into_owned()))
                }
                R_X86_64_IRELATIVE => Some(SlotTarget::Resolver(relocation.r_addend(LE) as u64)),
                _ => None,
            };
            if let Some(target) = target {
                slots.by_address.insert(slot, target);
            }
        }
    }

    /// The dynamic linker is asked for a function of this name.
    pub(crate) fn imports(&self, names: &[&str]) -> bool {
        let Some(table) = self.sections.iter().find(|s| s.sh_type(LE) == SHT_DYNSYM) else { return false };
        let symbols: &[Sym64<LittleEndian>] = table.data_as_array(LE, self.bytes).unwrap_or_default();
        let strings = self.strings_of(table).unwrap_or_default();
        let strings = Strings::new(self.bytes.get(strings).unwrap_or_default());
        let mut undefined = symbols.iter().filter(|s| s.st_shndx(LE) == SHN_UNDEF);
        undefined.any(|s| names.contains(&&*strings.text(s.st_name(LE))))
    }

    /// Where a program begins (`e_entry`).
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// There is a section of this name.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.sections.section_by_name(LE, name.as_bytes()).is_some()
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of a section as they are in the file.
    pub(crate) fn section(&self, name: &str) -> Option<&'a [u8]> {
        let (_, section) = self.sections.section_by_name(LE, name.as_bytes())?;
        section.data(LE, self.bytes).ok().filter(|data| !data.is_empty())
    }

    /// Where a section is linked.
    pub(crate) fn section_address(&self, name: &str) -> Option<u64> {
        self.sections.section_by_name(LE, name.as_bytes()).map(|(_, section)| section.sh_addr(LE))
    }

    /// `.gnu_debuglink`: a file name, padded to four bytes, and the CRC-32 of that file.
    pub(crate) fn debug_link(&self) -> Option<(&'a str, u32)> {
        let data = self.section(".gnu_debuglink")?;
        let (name, len) = leading_name(data)?;
        let crc = data.get(len.next_multiple_of(4)..)?.first_chunk()?;
        Some((name, u32::from_le_bytes(*crc)))
    }

    /// `.gnu_debugaltlink`: a file name and the build id of that file.
    pub(crate) fn debug_alt_link(&self) -> Option<(&'a str, BuildId)> {
        let data = self.section(".gnu_debugaltlink")?;
        let (name, len) = leading_name(data)?;
        let id = data.get(len..).filter(|id| !id.is_empty())?;
        Some((name, BuildId(id.to_vec())))
    }

    /// Where the system enters the object: the program's start, and code for loading and unloading it.
    pub(crate) fn entry_points(&self) -> Vec<u64> {
        let dynamic = self.sections.iter().find_map(|s| s.dynamic(LE, self.bytes).ok().flatten());
        let entries = dynamic.map_or(&[][..], |(entries, _)| entries);
        let of_tags = entries.iter().take_while(|e| e.d_tag.get(LE) != u64::from(DT_NULL));
        let of_tags = of_tags.filter(|e| [DT_INIT, DT_FINI].map(u64::from).contains(&e.d_tag.get(LE)));
        let mut list: Vec<u64> = of_tags.map(|e| e.d_val.get(LE)).chain([self.start]).collect();
        list.retain(|address| *address != 0);
        list
    }
}

/// The text up to the first zero byte, and how many bytes it takes with it.
fn leading_name(data: &[u8]) -> Option<(&str, usize)> {
    let end = memchr::memchr(0, data)?;
    let name = std::str::from_utf8(data.get(..end)?).ok().filter(|name| !name.is_empty())?;
    Some((name, end + 1))
}

fn build_id_of(mut notes: NoteIterator<'_, Header>) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(LE) == NT_GNU_BUILD_ID && !note.desc().is_empty() {
            return Some(BuildId(note.desc().to_vec()));
        }
    }
    None
}

/// Sorts, and cuts off what an earlier section has already: only damaged files need it.
fn make_disjoint(mut list: Vec<CodeSection>) -> Vec<CodeSection> {
    list.sort_by_key(|s| (s.start, s.end));
    let mut covered = 0;
    list.retain_mut(|s| {
        let cut = covered.max(s.start) - s.start;
        s.start += cut;
        s.file_offset = s.file_offset.saturating_add(cut);
        covered = covered.max(s.end);
        s.start < s.end
    });
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(start: u64, end: u64) -> CodeSection {
        CodeSection { start, end, file_offset: start, plt: false }
    }

    #[test]
    fn overlapping_sections_are_cut() {
        let list = make_disjoint(vec![section(30, 40), section(10, 35), section(12, 20), section(50, 50)]);
        assert_eq!(list, [section(10, 35), CodeSection { start: 35, end: 40, file_offset: 35, plt: false }]);
    }

    #[test]
    fn reads_the_file_that_runs_this_test() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        assert!(elf.segments().iter().any(|s| s.executable));
        let text = elf.code_sections();
        let symbols = elf.static_symbols().unwrap();
        let strings = Strings::new(&bytes[symbols.strings]);
        let main = symbols.symbols.iter().find(|s| strings.text(s.name) == "main").unwrap();
        assert!(text.iter().any(|s| s.start <= main.value && main.value < s.end));
        assert!(!main.local);
        assert!(elf.slots().by_address.values().any(|t| *t == SlotTarget::Symbol("memcpy".into())));
    }
}
