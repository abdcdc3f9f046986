//! What the oracle needs of an ELF file: where its bytes are loaded, its functions, its PLT.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

use super::unwind::{self, UnwindRange};

/// A function symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionSymbol {
    /// Address as linked.
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) name: String,
}

/// A loaded stretch of the file.
#[derive(Clone, Debug)]
struct LoadedSegment {
    file: Range<u64>,
    /// Linked address of its first byte.
    address: u64,
}

/// An ELF file.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) path: String,
    bytes: Vec<u8>,
    segments: Vec<LoadedSegment>,
    /// By address, one for each.
    symbols: Vec<FunctionSymbol>,
    /// Address of each name, aliases too.
    addresses: HashMap<String, u64>,
    plt: Vec<Range<u64>>,
    /// Address of `f.cold` to address of `f`.
    hot: HashMap<u64, u64>,
    /// Of a stripped object: its functions, also those without a symbol, by start. Not of the loader: its
    /// lazy binder is known by lying between symbols.
    ranges: Vec<UnwindRange>,
    /// Landing pads of calls, by the calls' addresses.
    pads: Vec<(Range<u64>, u64)>,
    pad_starts: HashSet<u64>,
}

impl Object {
    /// An object with these bytes, at its linked addresses, and these functions.
    #[cfg(test)]
    pub(super) fn of(bytes: Vec<u8>, symbols: Vec<FunctionSymbol>) -> Self {
        let addresses = symbols.iter().map(|s| (s.name.clone(), s.address)).collect();
        let segments = vec![LoadedSegment { file: 0..bytes.len() as u64, address: 0 }];
        let (path, plt, ranges, pads) = ("program".to_owned(), vec![], vec![], vec![]);
        let (hot, pad_starts) = (HashMap::new(), HashSet::new());
        Self { path, bytes, segments, symbols, addresses, plt, hot, ranges, pads, pad_starts }
    }

    /// Reads a file; `None` if it is not there or not an object file (`[vdso]`).
    pub(super) fn load(path: &str) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let elf = object::File::parse(bytes.as_slice()).ok()?;
        let segments = elf
            .segments()
            .map(|s| {
                let (offset, len) = s.file_range();
                LoadedSegment { file: offset..offset.saturating_add(len), address: s.address() }
            })
            .collect();
        let plt = elf
            .sections()
            .filter(|s| s.name().is_ok_and(|name| name.starts_with(".plt")))
            .map(|s| s.address()..s.address().saturating_add(s.size()))
            .collect();
        let mut symbols: Vec<FunctionSymbol> = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|s| s.kind() == SymbolKind::Text && !s.is_undefined())
            .filter_map(|s| {
                Some(FunctionSymbol { address: s.address(), size: s.size(), name: s.name().ok()?.into() })
            })
            .collect();
        // Of several symbols of one name, one that has a size.
        symbols.sort_by_key(|s| s.size > 0);
        let addresses: HashMap<String, u64> = symbols.iter().map(|s| (s.name.clone(), s.address)).collect();
        let section = |name| elf.section_by_name(name).and_then(|s| Some((s.data().ok()?, s.address())));
        let frames = section(".eh_frame").unwrap_or_default();
        let pads = section(".gcc_except_table").map(|tables| unwind::landing_pads(frames, tables));
        let pads = pads.unwrap_or_default();
        let unwind: Vec<UnwindRange> = unwind::ranges(frames);
        let hot = symbols
            .iter()
            .filter_map(|s| Some((s.address, *addresses.get(hot_name(s, &unwind)?)?)))
            .collect();
        // Of several names for one address: the largest, then the first by name.
        symbols.sort_by(|a, b| (a.address, b.size, &a.name).cmp(&(b.address, a.size, &b.name)));
        symbols.dedup_by_key(|s| s.address);
        reach_to_next(
            &mut symbols,
            elf.sections().map(|s| s.address()..s.address().saturating_add(s.size())),
        );
        let is_stripped = elf.symbol_table().is_none() && !is_dynamic_loader(file_name(path));
        let ranges = if is_stripped { unwind } else { vec![] };
        let pad_starts = pads.iter().map(|(_, pad)| *pad).collect();
        Some(Self {
            path: path.into(),
            bytes,
            segments,
            symbols,
            addresses,
            plt,
            hot,
            ranges,
            pads,
            pad_starts,
        })
    }

    /// File name without its directory.
    pub(super) fn file_name(&self) -> &str {
        file_name(&self.path)
    }

    pub(super) fn is_dynamic_loader(&self) -> bool {
        is_dynamic_loader(self.file_name())
    }

    /// The bytes from a file offset to the end of the file.
    pub(super) fn bytes_at(&self, offset: u64) -> &[u8] {
        usize::try_from(offset).ok().and_then(|o| self.bytes.get(o..)).unwrap_or(&[])
    }

    pub(super) fn address_of_offset(&self, offset: u64) -> Option<u64> {
        let segment = self.segments.iter().find(|s| s.file.contains(&offset))?;
        Some(offset - segment.file.start + segment.address)
    }

    pub(super) fn offset_of_address(&self, address: u64) -> Option<u64> {
        let inside = |s: &&LoadedSegment| {
            address >= s.address && address - s.address < s.file.end.saturating_sub(s.file.start)
        };
        let segment = self.segments.iter().find(inside)?;
        Some(address - segment.address + segment.file.start)
    }

    /// The last symbol at or before an address, whether it reaches that far or not.
    pub(super) fn symbol_before(&self, address: u64) -> Option<&FunctionSymbol> {
        let next = self.symbols.partition_point(|s| s.address <= address);
        self.symbols.get(next.checked_sub(1)?)
    }

    /// The symbol that covers an address.
    pub(super) fn symbol_at(&self, address: u64) -> Option<&FunctionSymbol> {
        self.symbol_before(address).filter(|s| address - s.address < s.size.max(1))
    }

    /// The last unwind range at or before an address, whether it reaches that far or not.
    pub(super) fn range_before(&self, address: u64) -> Option<&UnwindRange> {
        let next = self.ranges.partition_point(|r| r.start <= address);
        self.ranges.get(next.checked_sub(1)?)
    }

    /// The function without a symbol that covers an address.
    pub(super) fn range_at(&self, address: u64) -> Option<&UnwindRange> {
        let range = self.range_before(address).filter(|r| address - r.start < r.size)?;
        self.symbol_at(range.start).is_none().then_some(range)
    }

    /// The function that a symbol belongs to: for `f.cold` that is `f`.
    pub(super) fn whole<'a>(&'a self, part: &'a FunctionSymbol) -> &'a FunctionSymbol {
        self.hot.get(&part.address).and_then(|&hot| self.symbol_before(hot)).unwrap_or(part)
    }

    /// Where an exception goes on that comes out of the call which the instruction at an address makes.
    pub(super) fn pad_of_call(&self, address: u64) -> Option<u64> {
        let next = self.pads.partition_point(|(calls, _)| calls.start <= address);
        let (calls, pad) = self.pads.get(next.checked_sub(1)?)?;
        calls.contains(&address).then_some(*pad)
    }

    pub(super) fn is_pad(&self, address: u64) -> bool {
        self.pad_starts.contains(&address)
    }

    pub(super) fn is_plt(&self, address: u64) -> bool {
        self.plt.iter().any(|p| p.contains(&address))
    }

    pub(super) fn address_of_name(&self, name: &str) -> Option<u64> {
        self.addresses.get(name).copied()
    }

    /// The functions with the identifier `name` in their mangled name.
    pub(super) fn mangled<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a FunctionSymbol> {
        let part = format!("{}{name}", name.len());
        self.symbols
            .iter()
            .filter(move |s| s.name.starts_with("_Z") && !s.name.ends_with(".cold") && s.name.contains(&part))
    }
}

/// `f` of `f.cold`, and of the `f.cold.7` of GCC 8. What LLVM gives that name to is called, and unwinds as a
/// function does.
fn hot_name<'a>(symbol: &'a FunctionSymbol, unwind: &[UnwindRange]) -> Option<&'a str> {
    let (hot, number) = symbol.name.rsplit_once(".cold")?;
    let is_number = number.strip_prefix('.').is_some_and(|n| n.parse::<u64>().is_ok());
    let at = unwind.binary_search_by_key(&symbol.address, |range| range.start).ok();
    let is_split_off = at.and_then(|at| unwind.get(at)).is_some_and(|range| !range.is_entry);
    (number.is_empty() || is_number && is_split_off).then_some(hot)
}

/// Symbols without a size (hand-written code, GCC's retpolines) reach to the next, or to the end of their
/// section.
fn reach_to_next(symbols: &mut [FunctionSymbol], sections: impl Iterator<Item = Range<u64>>) {
    let sections: Vec<Range<u64>> = sections.filter(|s| s.start > 0).collect();
    for i in 0..symbols.len() {
        let FunctionSymbol { address, size, .. } = symbols[i];
        let end = sections.iter().find(|s| s.contains(&address)).map_or(address, |s| s.end);
        if size == 0 {
            let next = symbols.get(i + 1).map_or(end, |next| next.address);
            symbols[i].size = end.min(next) - address;
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_dynamic_loader(file_name: &str) -> bool {
    file_name.starts_with("ld-") || file_name.starts_with("ld.")
}
