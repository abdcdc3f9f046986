//! What the simulation needs of an ELF file: segments, function symbols, PLT sections, build id.

use std::collections::HashMap;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};

const PF_X: u32 = 1;

/// A loaded part of the file.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Where in the file.
    pub file_offset: u64,
    /// Linked address.
    pub address: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// It has code.
    pub executable: bool,
}

/// A function symbol.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Linked address.
    pub address: u64,
    /// Bytes; 0 if the symbol does not say.
    pub size: u64,
    /// Mangled name.
    pub name: String,
}

/// An object file.
#[derive(Clone, Debug)]
pub struct Elf {
    /// In the order of the file.
    pub segments: Vec<Segment>,
    /// By address, one per address: the largest.
    pub functions: Vec<Symbol>,
    /// Address and size of every function name, aliases too.
    pub names: HashMap<String, (u64, u64)>,
    /// Linked addresses `[start, end)` of the PLT sections.
    pub plt: Vec<(u64, u64)>,
    /// Build id.
    pub build_id: Option<Vec<u8>>,
}

impl Elf {
    /// Reads a file; `None` if it cannot be read or is not ELF.
    #[must_use]
    pub fn load(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file
            .segments()
            .map(|segment| {
                let (file_offset, file_size) = segment.file_range();
                let executable =
                    matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
                Segment { file_offset, address: segment.address(), file_size, executable }
            })
            .collect();
        let mut functions: Vec<Symbol> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined())
            .map(|symbol| Symbol {
                address: symbol.address(),
                size: symbol.size(),
                name: String::from_utf8_lossy(symbol.name_bytes().unwrap_or_default()).into_owned(),
            })
            .collect();
        let sized = functions.iter().filter(|symbol| symbol.size > 0);
        let names = sized.map(|symbol| (symbol.name.clone(), (symbol.address, symbol.size))).collect();
        functions.sort_by(|a, b| {
            a.address.cmp(&b.address).then(b.size.cmp(&a.size)).then_with(|| a.name.cmp(&b.name))
        });
        functions.dedup_by_key(|symbol| symbol.address);
        let plt = file
            .sections()
            .filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt")))
            .map(|section| (section.address(), section.address() + section.size()))
            .collect();
        let build_id = file.build_id().ok().flatten().map(<[u8]>::to_vec);
        Some(Self { segments, functions, names, plt, build_id })
    }

    /// The linked address of a byte of the file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|s| file_offset >= s.file_offset && file_offset - s.file_offset < s.file_size)?;
        Some(file_offset - segment.file_offset + segment.address)
    }

    /// Where a linked address is in the file.
    #[must_use]
    pub fn file_offset_of(&self, address: u64) -> Option<u64> {
        let segment =
            self.segments.iter().find(|s| address >= s.address && address - s.address < s.file_size)?;
        Some(address - segment.address + segment.file_offset)
    }

    /// The function at a linked address, or what stands for one between symbols.
    #[must_use]
    pub fn place(&self, address: u64) -> Place {
        let after = self.functions.partition_point(|symbol| symbol.address <= address);
        let before = after.checked_sub(1).and_then(|i| self.functions.get(i));
        match before {
            Some(symbol) if address - symbol.address < symbol.size => Place::Function(symbol.address),
            _ if self.plt.iter().any(|&(start, end)| address >= start && address < end) => {
                Place::PltStub(address / PLT_STUB_SIZE)
            }
            _ => Place::Unnamed(before.map_or(0, |symbol| symbol.address)),
        }
    }
}

const PLT_STUB_SIZE: u64 = 16;

/// What stands at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The function that starts here.
    Function(u64),
    /// One stub of the PLT.
    PltStub(u64),
    /// The code between the symbol that starts here and the next one.
    Unnamed(u64),
}
