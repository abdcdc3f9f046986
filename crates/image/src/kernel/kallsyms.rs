//! `/proc/kallsyms`: the running kernel's symbols.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;

use files::Place;
use model::Avma;

/// A symbol of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelSymbol {
    pub(super) address: Avma,
    /// Up to the next symbol.
    pub(super) size: u64,
    pub(super) name: String,
}

/// The running kernel's functions, by address.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols(Vec<KernelSymbol>);

impl KernelSymbols {
    /// Those of `/proc/kallsyms`; none if it cannot be read, or hides its addresses (`kptr_restrict`).
    #[must_use]
    pub fn read(path: &Path) -> Self {
        Self(read(path))
    }

    /// Those of such lines.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(parse(text))
    }

    /// The function at an address.
    #[must_use]
    pub fn name(&self, address: Avma) -> Option<&str> {
        self.0.get(self.index(address)?).map(|symbol| &*symbol.name)
    }

    /// The lines that name these addresses, and no more: each with the next one, where the function ends.
    #[must_use]
    pub fn excerpt(&self, addresses: impl IntoIterator<Item = Avma>) -> String {
        let needed: BTreeSet<usize> = (addresses.into_iter().filter_map(|address| self.index(address)))
            .flat_map(|index| [index, index + 1])
            .collect();
        let symbols: Vec<KernelSymbol> =
            needed.into_iter().filter_map(|index| self.0.get(index)).cloned().collect();
        write(&symbols)
    }

    fn index(&self, address: Avma) -> Option<usize> {
        let index = self.0.partition_point(|symbol| symbol.address <= address).checked_sub(1)?;
        self.0.get(index).filter(|symbol| address.minus(symbol.address) < symbol.size).map(|_| index)
    }
}

/// By address; empty if the file cannot be read, or hides its addresses (`kptr_restrict`).
pub(super) fn read(path: &Path) -> Vec<KernelSymbol> {
    read_text(path).map(|text| parse(&text)).unwrap_or_default()
}

/// The beginning of a file of lines: a kernel with all that there is has 20 MB of symbols.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    const MAX_BYTES: u64 = 24 << 20;
    let mut text = String::new();
    Place::here(path).open()?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Symbols as lines of [`parse`].
pub(super) fn write(symbols: &[KernelSymbol]) -> String {
    symbols.iter().map(|symbol| format!("{:x} t {}\n", symbol.address.0, symbol.name)).collect()
}

/// Lines of `ffffffff81000000 T _text` and `ffffffffc0000000 t f [module]`.
fn parse(text: &str) -> Vec<KernelSymbol> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = Avma(u64::from_str_radix(words.next()?, 16).ok()?);
        let code = matches!(words.next()?, "t" | "T" | "w" | "W");
        (code && address.is_kernel()).then(|| Some((address, words.next()?.to_owned())))?
    };
    let mut named: Vec<(Avma, String)> = text.lines().filter_map(line).collect();
    named.sort();
    let ends: Vec<Avma> = named.iter().map(|(address, _)| *address).collect();
    let symbol = |(address, name): (Avma, String)| {
        let after = ends.partition_point(|end| *end <= address);
        let size = ends.get(after).map_or(0, |end| end.minus(address));
        KernelSymbol { address, size, name }
    };
    named.into_iter().map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_to_the_next_symbol() {
        let text = "ffffffff81000010 t b\nffffffff81000000 T _text\nffffffff81000000 T a\n\
                    ffffffff81000018 D data\nffffffffc0000000 t f\t[module]\n0000000000000000 A fixed\n";
        let symbols: Vec<_> = parse(text).into_iter().map(|s| (s.address.0, s.size, s.name)).collect();
        let expect = [
            (0xffff_ffff_8100_0000, 0x10, "_text".to_owned()),
            (0xffff_ffff_8100_0000, 0x10, "a".to_owned()),
            (0xffff_ffff_8100_0010, 0x3eff_fff0, "b".to_owned()),
            (0xffff_ffff_c000_0000, 0, "f".to_owned()),
        ];
        assert_eq!(symbols, expect);
        let symbols = KernelSymbols(parse(text));
        let name = |offset: u64| symbols.name(Avma(0xffff_ffff_8100_0000 + offset));
        assert_eq!([name(0xf), name(0x10)], [Some("a"), Some("b")]);
        assert_eq!(symbols.name(Avma(0xffff_ffff_8000_0000)), None);
    }

    #[test]
    fn an_excerpt_names_what_it_was_made_for() {
        let text = "ffffffff81000000 t a\nffffffff81000010 t b\nffffffff81000020 t c\nffffffff81000030 t d\n";
        let all = KernelSymbols::parse(text);
        let address = |offset: u64| Avma(0xffff_ffff_8100_0000 + offset);
        let excerpt = all.excerpt([address(0x15), address(0x11), Avma(7)]);
        assert_eq!(excerpt, "ffffffff81000010 t b\nffffffff81000020 t c\n");
        assert_eq!(KernelSymbols::parse(&excerpt).name(address(0x15)), Some("b"));
    }
}
