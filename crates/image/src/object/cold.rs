//! Cold parts: the compiler moves what it thinks is rare of `f` into `f.cold`, far away, reached by jump.
//! Both are one function.
//!
//! A piece that is *called* is a function of its own: `f.part.0`, and the `f.cold.1` of LLVM's outliner.
//! GCC 8 gives that name to cold parts, too: those unwind as the inside of `f` does.

use rustc_hash::FxHashMap;

use crate::elf::Symbol;
use crate::elf::strings::{Strings, WithWord};

const SUFFIX: &[u8] = b".cold";

/// The hot symbol of each cold one, as indices into `symbols`; cold symbols without one are left out.
///
/// `with_suffix`: what [`with_suffix`] gives. `split_off`: where code begins that an unwind table knows for
/// no function's beginning, by address.
///
/// Several statics may share a name: the one of the same source file is meant (the same STT_FILE symbol
/// precedes both), then a global one, then the closest in the table.
pub(crate) fn hot_parts(
    symbols: &[Symbol],
    strings: Strings<'_>,
    with_suffix: &[u32],
    split_off: &[u64],
) -> FxHashMap<u32, u32> {
    let mut candidates: FxHashMap<&[u8], Vec<u32>> = FxHashMap::default();
    let mut cold_parts = Vec::new();
    for (i, symbol) in with_suffix.iter().filter_map(|i| Some((*i, symbols.get(*i as usize)?))) {
        let name = strings.get(symbol.name);
        let numbered = || numbered_hot_name(name).filter(|_| split_off.binary_search(&symbol.value).is_ok());
        if let Some(hot) = hot_name(name).or_else(numbered) {
            candidates.insert(hot, Vec::new());
            cold_parts.push((i, symbol, hot));
        }
    }
    if cold_parts.is_empty() {
        return FxHashMap::default();
    }
    for (i, symbol) in (0..).zip(symbols) {
        if let Some(list) = candidates.get_mut(strings.get(symbol.name)) {
            list.push(i);
        }
    }
    let nearest = |i: u32, cold: &Symbol, hot: &[u8]| {
        let list = candidates.get(hot)?;
        list.iter().copied().min_by_key(|&h| {
            let symbol = symbols.get(h as usize);
            let rank = match symbol {
                Some(s) if s.local && cold.local && s.file == cold.file => 0,
                Some(s) if !s.local => 1,
                _ => 2,
            };
            (rank, h.abs_diff(i))
        })
    };
    cold_parts.into_iter().filter_map(|(i, cold, hot)| Some((i, nearest(i, cold, hot)?))).collect()
}

/// One of the symbols `with_suffix` has a name that says no more than that it is cold.
pub(crate) fn has_numbered(symbols: &[Symbol], strings: Strings<'_>, with_suffix: &[u32]) -> bool {
    let mut symbols = with_suffix.iter().filter_map(|i| symbols.get(*i as usize));
    symbols.any(|symbol| numbered_hot_name(strings.get(symbol.name)).is_some())
}

/// The indices of the symbols that have the suffix of cold parts somewhere in their name: few of many.
pub(crate) fn with_suffix(symbols: &[Symbol], strings: Strings<'_>) -> Vec<u32> {
    let names = WithWord::new(strings, SUFFIX);
    (0..).zip(symbols).filter(|(_, symbol)| names.has(symbol.name)).map(|(i, _)| i).collect()
}

/// `f` of `f.cold`.
fn hot_name(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(SUFFIX).filter(|hot| !hot.is_empty())
}

/// `f` of `f.cold.7`.
fn numbered_hot_name(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, number) = name.split_at_checked(name.len().checked_sub(digits)?)?;
    name.strip_suffix(b".").filter(|_| !number.is_empty()).and_then(hot_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols from text: `name local|global file`; the names' string table.
    fn table(lines: &[(&str, bool, u32)]) -> (Vec<Symbol>, Vec<u8>) {
        let mut strings = vec![0];
        let mut symbols = Vec::new();
        for (name, local, file) in lines {
            let offset = strings.len() as u32;
            strings.extend(name.bytes().chain([0]));
            symbols.push(Symbol {
                value: symbols.len() as u64,
                size: 0,
                name: offset,
                file: *file,
                local: *local,
                weak: false,
                resolver: false,
                untyped: false,
            });
        }
        (symbols, strings)
    }

    fn check(lines: &[(&str, bool, u32)], expect: &[(u32, u32)]) {
        check_split(lines, &[], expect);
    }

    fn check_split(lines: &[(&str, bool, u32)], split_off: &[u64], expect: &[(u32, u32)]) {
        let (symbols, strings) = table(lines);
        let mut got: Vec<_> = {
            let strings = Strings::new(&strings);
            hot_parts(&symbols, strings, &with_suffix(&symbols, strings), split_off)
        }
        .into_iter()
        .collect();
        got.sort_unstable();
        assert_eq!(got, expect);
    }

    #[test]
    fn the_static_of_the_same_file_is_meant() {
        check(
            &[
                ("helper", true, 1),
                ("helper.cold", true, 1),
                ("helper.cold", true, 2),
                ("helper", true, 2),
                ("helper", true, 3),
                ("helper", false, 0),
            ],
            &[(1, 0), (2, 3)],
        );
    }

    #[test]
    fn a_global_function_has_a_local_cold_part() {
        check(
            &[("_Z1fv.cold", true, 1), ("_Z1fv", true, 2), ("other", false, 0), ("_Z1fv", false, 0)],
            &[(0, 3)],
        );
    }

    #[test]
    fn the_closest_static_when_no_file_fits() {
        check(&[("f", true, 1), ("g", true, 1), ("f.cold", true, 2), ("f", true, 3)], &[(2, 3)]);
    }

    #[test]
    fn called_pieces_and_orphans_stay() {
        check(&[("f", false, 0), ("f.cold.1", true, 1), ("gone.cold", true, 1), (".cold", true, 1)], &[]);
        check(&[("f.part.0", true, 1), ("f.part.0.cold", true, 1)], &[(1, 0)]);
    }

    #[test]
    fn a_numbered_part_that_unwinds_as_the_inside_of_a_function_is_its_cold_part() {
        let symbols = [
            ("f", false, 0),
            ("f.cold.1", true, 1),
            ("f.cold.12", true, 1),
            ("f.part.0", true, 1),
            ("f.part.0.cold.3", true, 1),
            ("f.cold.x1", true, 1),
            ("f.cold.", true, 1),
            ("f1", true, 1),
        ];
        check_split(&symbols, &[2, 4, 5, 6, 7], &[(2, 0), (4, 3)]);
    }
}
