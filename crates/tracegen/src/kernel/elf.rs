//! The kernel as files: `vmlinux` as it was linked, and what a running kernel shows of itself, `kcore` and
//! `kallsyms`.

use std::fmt::Write as _;

use model::BuildId;

use super::assemble::KernelFunction;
use super::{Kernel, LINKED_AT, SLIDE};

/// The kernel's build id.
const BUILD_ID: [u8; 20] = *b"made-up kernel text.";

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
/// Where the text is in both files: a page, so that it can be mapped.
const TEXT_OFFSET: usize = 4096;

const ET_EXEC: u16 = 2;
const ET_CORE: u16 = 4;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;

/// Little-endian bytes.
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

    fn header(&mut self, kind: u16, sections: Option<(u64, u16)>) {
        self.0.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        self.u16s(&[kind, 62]); // EM_X86_64
        self.u32s(&[1]);
        let (section_table, count) = sections.unwrap_or_default();
        self.u64s(&[LINKED_AT, HEADER as u64, section_table]);
        self.u32s(&[0]);
        self.u16s(&[HEADER as u16, PROGRAM_HEADER as u16, 1]);
        self.u16s(&[SECTION_HEADER as u16, count, count.saturating_sub(1)]);
    }

    /// The text is a segment: read, execute.
    fn segment(&mut self, address: u64, size: u64) {
        self.u32s(&[1, 5]);
        self.u64s(&[TEXT_OFFSET as u64, address, address, size, size, 4096]);
    }
}

/// A section of `vmlinux`.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    contents: Vec<u8>,
    link: u32,
    entry_size: u64,
}

impl Section {
    fn new(name: &'static str, kind: u32, contents: Vec<u8>) -> Self {
        Self { name, kind, flags: 0, address: 0, contents, link: 0, entry_size: 0 }
    }
}

/// `vmlinux`: linked, with symbols; code that the running kernel has patched is as the linker made it.
pub(crate) fn vmlinux(kernel: &Kernel) -> Vec<u8> {
    let (symbols, strings) = symbols(&kernel.text.functions);
    let mut note = Bytes::default();
    note.u32s(&[4, BUILD_ID.len() as u32, 3]); // NT_GNU_BUILD_ID
    note.0.extend(b"GNU\0");
    note.0.extend(BUILD_ID);
    let text = Section::new(".text", SHT_PROGBITS, kernel.text.linked_bytes.clone());
    let symbol_table = Section::new(".symtab", SHT_SYMTAB, symbols);
    file(vec![
        Section { flags: 6, address: LINKED_AT, ..text },
        Section::new(".notes", SHT_NOTE, note.0),
        Section { link: 4, entry_size: 24, ..symbol_table },
        Section::new(".strtab", SHT_STRTAB, strings),
    ])
}

/// An ELF file of these sections, the first of which is the text, and of their names.
fn file(mut sections: Vec<Section>) -> Vec<u8> {
    sections.push(Section::new(".shstrtab", SHT_STRTAB, vec![]));
    let names = sections.iter().fold(b"\0".to_vec(), |mut names, section| {
        names.extend(section.name.bytes());
        names.push(0);
        names
    });
    if let Some(last) = sections.last_mut() {
        last.contents = names;
    }
    let mut body = vec![];
    let mut headers = Bytes(vec![0; SECTION_HEADER]);
    let mut name = 1;
    for section in &sections {
        let (offset, size) = (TEXT_OFFSET + body.len(), section.contents.len());
        headers.u32s(&[name, section.kind]);
        headers.u64s(&[section.flags, section.address, offset as u64, size as u64]);
        headers.u32s(&[section.link, u32::from(section.kind == SHT_SYMTAB)]);
        headers.u64s(&[4, section.entry_size]);
        body.extend_from_slice(&section.contents);
        body.resize(body.len().next_multiple_of(16), 0);
        name += section.name.len() as u32 + 1;
    }
    let mut out = Bytes::default();
    out.header(ET_EXEC, Some(((TEXT_OFFSET + body.len()) as u64, sections.len() as u16 + 1)));
    out.segment(LINKED_AT, sections.first().map_or(0, |text| text.contents.len() as u64));
    out.0.resize(TEXT_OFFSET, 0);
    [out.0, body, headers.0].concat()
}

fn symbols(functions: &[KernelFunction]) -> (Vec<u8>, Vec<u8>) {
    let mut symbols = Bytes(vec![0; 24]);
    let mut strings = b"\0".to_vec();
    for function in functions {
        symbols.u32s(&[strings.len() as u32]);
        symbols.0.extend([0x12, 0]); // global function
        symbols.u16s(&[1]);
        symbols.u64s(&[function.start, function.size]);
        strings.extend(function.name.bytes());
        strings.push(0);
    }
    (symbols.0, strings)
}

/// `/proc/kcore`: the text as it runs, where it runs.
pub(crate) fn kcore(kernel: &Kernel) -> Vec<u8> {
    let text = &kernel.text.bytes;
    let mut out = Bytes::default();
    out.header(ET_CORE, None);
    out.segment(LINKED_AT + SLIDE, text.len() as u64);
    out.0.resize(TEXT_OFFSET, 0);
    [&out.0[..], text].concat()
}

/// `/proc/kallsyms`.
pub(crate) fn kallsyms(kernel: &Kernel) -> String {
    kernel.text.functions.iter().fold(String::new(), |mut text, function| {
        // writing to a string does not fail
        let _ = writeln!(text, "{:016x} T {}", function.start + SLIDE, function.name);
        text
    })
}

/// The kernel's build id as the recording has it.
pub(crate) fn build_id() -> BuildId {
    BuildId(BUILD_ID.to_vec())
}
