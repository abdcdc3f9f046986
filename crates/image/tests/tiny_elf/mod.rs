//! A small ELF library, built by hand, with one of everything that `image` reads.
//!
//! ```text
//! 0x1000 .text     alpha 0x1000+0x10 (alias alpha_too), beta 0x1010+0x10, no symbol 0x1020+0x10,
//!                  alpha.cold 0x1030+0x10
//! 0x1040 .plt.sec  puts
//! ```

/// Name, type, flags, address, offset in the file, size, link.
struct Section(&'static str, u32, u64, u64, u64, u64, u32);

/// Where the code is in the file and, with [`BIAS`], linked.
pub(crate) const TEXT: u64 = 0x1000;
/// Linked address minus offset in the file.
pub(crate) const BIAS: u64 = 0x40_0000;
/// The build id.
pub(crate) const BUILD_ID: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];

const CODE_BYTES: u64 = 0x50;
const SLOT: u64 = BIAS + 0x3000;

const STRINGS: &str = "\0alpha\0alpha_too\0beta\0alpha.cold\0file.c\0puts\0";

fn symbol(name: &str, info: u8, section: u16, value: u64, size: u64) -> Vec<u8> {
    let name = STRINGS.find(&format!("\0{name}\0")).map_or(0, |at| at as u32 + 1);
    let mut bytes = name.to_le_bytes().to_vec();
    bytes.extend([info, 0]);
    bytes.extend(section.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes
}

fn code() -> Vec<u8> {
    let mut code = vec![0xc3; 0x40];
    let displacement = (SLOT - (BIAS + TEXT + 0x40 + 11)) as u32;
    code.extend(b"\xf3\x0f\x1e\xfa\xf2\xff\x25");
    code.extend(displacement.to_le_bytes());
    code.extend(b"\x0f\x1f\x44\0\0");
    assert_eq!(code.len() as u64, CODE_BYTES);
    code
}

/// The file's bytes.
pub(crate) fn build() -> Vec<u8> {
    build_with("beta")
}

/// The file's bytes with another name for `beta`, one of [`STRINGS`].
pub(crate) fn build_with(beta: &str) -> Vec<u8> {
    let mut file = vec![0; TEXT as usize];
    file.extend(code());
    let mut put = |bytes: &[u8]| {
        file.resize(file.len().next_multiple_of(8), 0);
        let at = file.len() as u64;
        file.extend(bytes);
        (at, bytes.len() as u64)
    };
    let base = BIAS + TEXT;
    let symbols = [
        symbol("", 0, 0, 0, 0),
        symbol("file.c", 4, 0xfff1, 0, 0),
        symbol("alpha.cold", 2, 1, base + 0x30, 0x10),
        symbol("alpha", 2 | 1 << 4, 1, base, 0x10),
        symbol("alpha_too", 2 | 2 << 4, 1, base, 0x10),
        symbol(beta, 2 | 1 << 4, 1, base + 0x10, 0x10),
    ]
    .concat();
    let dynamic = [symbol("", 0, 0, 0, 0), symbol("puts", 2 | 1 << 4, 0, 0, 0)].concat();
    let relocation: Vec<u8> = [SLOT, 1 << 32 | 7, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut note: Vec<u8> = [4u32, 4, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    note.extend(b"GNU\0");
    note.extend(BUILD_ID);
    let (strings, symbols, dynamic) = (put(STRINGS.as_bytes()), put(&symbols), put(&dynamic));
    let (relocation, note) = (put(&relocation), put(&note));

    let mut list = vec![
        Section("", 0, 0, 0, 0, 0, 0),
        Section(".text", 1, 6, base, TEXT, 0x40, 0),
        Section(".plt.sec", 1, 6, base + 0x40, TEXT + 0x40, 0x10, 0),
        Section(".strtab", 3, 0, 0, strings.0, strings.1, 0),
        Section(".symtab", 2, 0, 0, symbols.0, symbols.1, 3),
        Section(".dynsym", 11, 2, 0, dynamic.0, dynamic.1, 3),
        Section(".rela.plt", 4, 2, 0, relocation.0, relocation.1, 5),
        Section(".note.gnu.build-id", 7, 2, 0, note.0, note.1, 0),
        Section(".shstrtab", 3, 0, 0, 0, 0, 0),
    ];
    let names: Vec<u8> = list.iter().flat_map(|s| s.0.bytes().chain([0])).collect();
    let (at, len) = put(&names);
    if let Some(last) = list.last_mut() {
        (last.4, last.5) = (at, len);
    }
    let mut headers = Vec::new();
    let mut name = 0u32;
    for Section(text, kind, flags, address, offset, size, link) in &list {
        headers.extend([name.to_le_bytes(), kind.to_le_bytes()].concat());
        headers.extend([*flags, *address, *offset, *size].iter().flat_map(|w| w.to_le_bytes()));
        headers.extend([link.to_le_bytes(), [0; 4]].concat());
        let entry_bytes: u64 = [0, 0, 24, 0, 24].get(*kind as usize).copied().unwrap_or(0);
        headers.extend([1, if *kind == 11 { 24 } else { entry_bytes }].iter().flat_map(|w| w.to_le_bytes()));
        name += text.len() as u32 + 1;
    }
    let (section_headers, _) = put(&headers);
    file[..64].copy_from_slice(&header(section_headers, list.len() as u16));
    file[64..120].copy_from_slice(&load_segment());
    file
}

fn header(section_headers: u64, sections: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0, 64, section_headers] {
        header.extend(word.to_le_bytes());
    }
    header.extend([0; 4]); // flags
    for half in [64, 56, 1, 64, sections, sections - 1] {
        header.extend(half.to_le_bytes());
    }
    header
}

fn load_segment() -> Vec<u8> {
    let mut segment = [1u32, 5].iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    for word in [TEXT, BIAS + TEXT, BIAS + TEXT, CODE_BYTES, CODE_BYTES, 0x1000] {
        segment.extend(word.to_le_bytes());
    }
    segment
}
