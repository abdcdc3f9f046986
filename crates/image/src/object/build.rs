//! Builds the functions of an object from its symbols, unwind tables, PLT stubs and what lies between.

use std::cmp::Reverse;

use model::FunctionKind;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::elf::eh_frame::CodeRange;
use crate::elf::padding::is_padding;
use crate::elf::plt;
use crate::elf::strings::Strings;
use crate::elf::untyped::Typed;
use crate::elf::{CodeSection, SlotTarget, Slots, Symbol};
use crate::object::cold;
use crate::object::functions::{Function, Functions, NONE};

/// What the table is built from.
pub(crate) struct Source<'a> {
    /// Disjoint, by address.
    pub(crate) sections: &'a [CodeSection],
    pub(crate) symbols: &'a [Symbol],
    pub(crate) strings: Strings<'a>,
    pub(crate) slots: &'a Slots,
    /// The file's bytes.
    pub(crate) file: &'a [u8],
    /// Code that the symbols may not have, by start.
    pub(crate) ranges: &'a [CodeRange],
    /// The symbols that may be of cold parts, see [`cold::with_suffix`].
    pub(crate) cold: &'a [u32],
    /// Where code begins that an unwind table knows for no function's beginning, by address.
    pub(crate) split_off: &'a [u64],
    /// It is the dynamic loader.
    pub(crate) loader: bool,
}

/// All symbols at one address, or a range that has none.  Small, as there are half a million of them.
#[derive(Debug)]
struct Group {
    start: u64,
    /// The largest that a symbol says; 0: unknown.
    size: u64,
    /// Its symbols, the best first: `symbols` entries of the sorted list from `first_symbol` on.
    first_symbol: u32,
    symbols: u32,
    /// It is entered at its start.
    is_entry: bool,
}

/// A symbol by its number, and its address.
#[derive(Clone, Copy, Debug)]
struct Addressed {
    address: u64,
    symbol: u32,
}

impl Group {
    fn symbols<'o>(&self, order: &'o [Addressed]) -> &'o [Addressed] {
        let (first, count) = (self.first_symbol as usize, self.symbols as usize);
        order.get(first..).and_then(|rest| rest.get(..count)).unwrap_or_default()
    }
}

/// Builds the table.
pub(crate) fn functions(source: &Source<'_>) -> Functions {
    let (order, groups) = group(source);
    let mut build = Build {
        source,
        hot: hot_groups(source, &order, &groups),
        order: &order,
        groups: &groups,
        of_group: vec![NONE; groups.len()],
        pieces: Vec::with_capacity(groups.len()),
        out: Functions {
            list: Vec::with_capacity(groups.len()),
            names: Vec::with_capacity(order.len()),
            ..Functions::default()
        },
    };
    let mut next = 0;
    for section in source.sections {
        // Symbols outside of all code are left out.
        next += groups.get(next..).unwrap_or_default().partition_point(|g| g.start < section.start);
        let inside = groups.get(next..).unwrap_or_default();
        let count = inside.partition_point(|g| g.start < section.end);
        match section.plt {
            true => build.plt(section),
            false => build.section(section, next..next + count),
        }
        build.pieces.push((section.end, Owner::None));
        next += count;
    }
    build.finish()
}

/// Symbols by address, the best of each address first; and where each address's begin.
fn group(source: &Source<'_>) -> (Vec<Addressed>, Vec<Group>) {
    let symbols = source.symbols;
    let symbol = |of: &Addressed| symbols.get(of.symbol as usize).unwrap_or(&NO_SYMBOL);
    let mut order = by_address(symbols);
    let mut groups: Vec<Group> = Vec::with_capacity(order.len());
    let mut first = 0;
    let mut typed = Typed::new(source.sections);
    for run in order.chunk_by_mut(|a, b| a.address == b.address) {
        let (first_symbol, count) = (first, run.len() as u32);
        first += count;
        let Some(&Addressed { address: start, .. }) = run.first() else { continue };
        if typed.covers(start, run.iter().map(symbol)) {
            continue;
        }
        if count > 1 {
            run.sort_unstable_by(|a, b| {
                let by_symbol = rank(symbol(a)).cmp(&rank(symbol(b)));
                let by_name =
                    || name_rank(symbol(a), source.strings).cmp(&name_rank(symbol(b), source.strings));
                by_symbol.then_with(by_name).then(a.symbol.cmp(&b.symbol))
            });
        }
        let size = run.first().map_or(0, |best| symbol(best).size);
        groups.push(Group { start, size, first_symbol, symbols: count, is_entry: true });
    }
    add_ranges(source.ranges, &mut groups);
    (order, groups)
}

/// Symbols by address, those of one address in their order.
fn by_address(symbols: &[Symbol]) -> Vec<Addressed> {
    let least = symbols.iter().map(|symbol| symbol.value).min().unwrap_or(0);
    let addressed = |(symbol, of): (u32, &Symbol)| Addressed { address: of.value, symbol };
    let mut all: Vec<Addressed> = (0..).zip(symbols).map(addressed).collect();
    // Of small numbers few digits are sorted.
    radsort::sort_by_key(&mut all, |of| of.address - least);
    all
}

/// Adds the ranges that start outside of all symbols.
fn add_ranges(ranges: &[CodeRange], groups: &mut Vec<Group>) {
    if ranges.is_empty() {
        return;
    }
    let named = groups.len();
    let mut covered = 0;
    let mut next = 0;
    for range in ranges {
        while let Some(group) = groups.get(next).filter(|group| next < named && group.start <= range.start) {
            covered = group.start.saturating_add(group.size.max(1)).max(covered);
            next += 1;
        }
        if range.start >= covered {
            let CodeRange { start, size, is_entry } = *range;
            groups.push(Group { start, size, first_symbol: 0, symbols: 0, is_entry });
        }
    }
    groups.sort_by_key(|group| group.start);
}

const NO_SYMBOL: Symbol =
    Symbol { value: 0, size: 0, name: 0, file: 0, local: true, weak: false, resolver: false, untyped: false };

/// Of several symbols at one address, first: one of a function, the largest, then one that other files see.
fn rank(symbol: &Symbol) -> impl Ord + use<> {
    (symbol.untyped, Reverse(symbol.size), symbol.local)
}

/// Of several that [`rank`] alike, first: the plainest name, and of equally plain ones the strong (`strrchr`,
/// which has the weak alias `rindex`).
fn name_rank<'a>(symbol: &Symbol, strings: Strings<'a>) -> impl Ord + use<'a> {
    let name = strings.get(symbol.name);
    let underscores = name.iter().take_while(|b| **b == b'_').count();
    (underscores, symbol.weak, name.len(), name)
}

/// Maps each group that has only symbols of cold parts to the group of its hot part.
fn hot_groups(source: &Source<'_>, order: &[Addressed], groups: &[Group]) -> FxHashMap<u32, u32> {
    let hot_parts = cold::hot_parts(source.symbols, source.strings, source.cold, source.split_off);
    let mut hot_of = FxHashMap::default();
    if hot_parts.is_empty() {
        return hot_of;
    }
    for (g, group) in (0..).zip(groups) {
        let symbols = group.symbols(order);
        if !symbols.iter().all(|of| hot_parts.contains_key(&of.symbol)) {
            continue;
        }
        let hot = symbols.first().and_then(|of| source.symbols.get(*hot_parts.get(&of.symbol)? as usize));
        let hot = hot.and_then(|hot| groups.binary_search_by_key(&hot.value, |g| g.start).ok());
        if let Some(hot) = hot.and_then(|hot| u32::try_from(hot).ok()).filter(|hot| *hot != g) {
            hot_of.insert(g, hot);
        }
    }
    // The hot part of a hot part would be a cycle in a damaged table.
    let cold: FxHashSet<u32> = hot_of.keys().copied().collect();
    hot_of.retain(|_, hot| !cold.contains(hot));
    hot_of
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    None,
    /// What this group becomes.
    Group(u32),
    Function(u32),
}

struct Build<'a> {
    source: &'a Source<'a>,
    order: &'a [Addressed],
    groups: &'a [Group],
    /// See [`hot_groups`].
    hot: FxHashMap<u32, u32>,
    /// The function that each group became.
    of_group: Vec<u32>,
    pieces: Vec<(u64, Owner)>,
    out: Functions,
}

impl Build<'_> {
    /// Cuts a section into pieces: at each address the function that starts last and still reaches it.
    fn section(&mut self, section: &CodeSection, inside: std::ops::Range<usize>) {
        // Groups that cover the current address, each reaching beyond the one above it.
        let mut open: Vec<(u64, Owner)> = Vec::new();
        let mut at = section.start;
        for g in inside.clone() {
            let Some(group) = self.groups.get(g) else { continue };
            self.close(section, &mut open, &mut at, group.start);
            let next = self.groups.get(g + 1).filter(|_| g + 1 < inside.end);
            let next = next.map_or(section.end, |next| next.start);
            let around = open.last().map_or(section.end, |(end, _)| *end);
            let end = match group.size {
                0 => next.min(around),
                size => group.start.saturating_add(size).min(section.end),
            };
            let owner = self.add_group(g, end);
            self.pieces.push((group.start, owner));
            at = group.start;
            open.push((end, owner));
        }
        self.close(section, &mut open, &mut at, section.end);
    }

    /// Ends what ends at or before `to`, and fills from there: with the function around, or with a gap.
    fn close(&mut self, section: &CodeSection, open: &mut Vec<(u64, Owner)>, at: &mut u64, to: u64) {
        while let Some((end, _)) = open.last().copied() {
            if end > to {
                return;
            }
            open.pop();
            *at = (*at).max(end);
            // What ended earlier does not come back.
            while open.last().is_some_and(|(outer, _)| *outer <= *at) {
                open.pop();
            }
            if let Some((_, outer)) = open.last()
                && *at < to
            {
                self.pieces.push((*at, *outer));
            }
        }
        if *at < to {
            self.gap(section, *at, to);
            *at = to;
        }
    }

    /// Code without a symbol.  Padding belongs to the function before it.
    fn gap(&mut self, section: &CodeSection, start: u64, end: u64) {
        let bytes = self.bytes(section, start, end);
        if start > section.start && is_padding(bytes) {
            return;
        }
        let function = self.add(start, end - start, self.unnamed(), false);
        self.pieces.push((start, Owner::Function(function)));
    }

    fn unnamed(&self) -> FunctionKind {
        if self.source.loader { FunctionKind::Loader } else { FunctionKind::Unnamed }
    }

    fn add(&mut self, entry: u64, size: u64, kind: FunctionKind, has_entry: bool) -> u32 {
        let index = u32::try_from(self.out.list.len()).unwrap_or(NONE);
        let first_name = u32::try_from(self.out.names.len()).unwrap_or(u32::MAX);
        self.out.list.push(Function { entry, size, first_name, kind, has_entry });
        index
    }

    /// The owner of a group's addresses: a function of its own, or that of the group's hot part.
    fn add_group(&mut self, g: usize, end: u64) -> Owner {
        let Some(group) = self.groups.get(g) else { return Owner::None };
        if let Some(hot) = u32::try_from(g).ok().and_then(|g| self.hot.get(&g)) {
            return Owner::Group(*hot);
        }
        let symbols = group.symbols(self.order);
        // The lazy binder is the loader's, whether its symbols are there or not.
        let is_binder = |best: &Symbol| self.source.strings.get(best.name).starts_with(b"_dl_runtime_");
        let best = || self.source.symbols.get(symbols.first()?.symbol as usize);
        let binder = self.source.loader && best().is_some_and(is_binder);
        let kind = match symbols {
            [] => self.unnamed(),
            _ if binder => FunctionKind::Loader,
            _ => FunctionKind::Symbol,
        };
        let function = self.add(group.start, end.saturating_sub(group.start), kind, group.is_entry);
        let mut is_resolver = false;
        for symbol in symbols.iter().filter_map(|of| self.source.symbols.get(of.symbol as usize)) {
            self.out.names.push(symbol.name);
            is_resolver |= symbol.resolver;
        }
        if is_resolver {
            self.out.resolvers.push(function);
        }
        if let Some(slot) = self.of_group.get_mut(g) {
            *slot = function;
        }
        Owner::Function(function)
    }

    /// One function per stub, with a name as far as it is known.
    fn plt(&mut self, section: &CodeSection) {
        let entry = plt::stub_bytes(self.bytes(section, section.start, section.end));
        let mut start = section.start;
        while start < section.end {
            let end = start.saturating_add(entry).min(section.end);
            let stub = self.bytes(section, start, end);
            if stub.is_empty() {
                break; // the file ends before the section does
            }
            let name = self.stub_name(stub, start);
            let function = self.add(start, end - start, FunctionKind::Plt, true);
            self.pieces.push((start, Owner::Function(function)));
            if let Some(name) = name {
                self.out.stub_names.push((function, name));
            }
            start = end;
        }
    }

    fn stub_name(&self, stub: &[u8], start: u64) -> Option<String> {
        match plt::stub_target(stub, start, self.source.slots)? {
            SlotTarget::Symbol(name) => Some(name.clone()),
            SlotTarget::Resolver(address) => {
                let g = self.groups.binary_search_by_key(address, |g| g.start).ok()?;
                let best = self.groups.get(g)?.symbols(self.order).first()?;
                let symbol = self.source.symbols.get(best.symbol as usize)?;
                Some(self.source.strings.text(symbol.name).into_owned())
            }
        }
    }

    /// The file's bytes of a part of a section, or the first of them if the file ends before.
    fn bytes(&self, section: &CodeSection, start: u64, end: u64) -> &[u8] {
        let from = section.file_offset.saturating_add(start.saturating_sub(section.start));
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let len = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let tail = self.source.file.get(from..).unwrap_or_default();
        tail.get(..len).unwrap_or(tail)
    }

    fn finish(mut self) -> Functions {
        self.out.starts.reserve(self.pieces.len());
        self.out.owners.reserve(self.pieces.len());
        for (start, owner) in self.pieces {
            let owner = match owner {
                Owner::None => NONE,
                Owner::Function(function) => function,
                Owner::Group(hot) => self.of_group.get(hot as usize).copied().unwrap_or(NONE),
            };
            // The end of one section is the start of the next.
            if self.out.starts.last() == Some(&start) {
                self.out.starts.pop();
                self.out.owners.pop();
            }
            if self.out.owners.last() != Some(&owner) {
                self.out.starts.push(start);
                self.out.owners.push(owner);
            }
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols from lines `name start size [file]`, hexadecimal; with a file they are local.
    fn check(code: &[CodeSection], symbols: &str, file: &[u8], expect: &str) {
        check_ranges(code, symbols, &[], file, expect);
    }

    fn check_ranges(code: &[CodeSection], symbols: &str, ranges: &[CodeRange], file: &[u8], expect: &str) {
        let mut strings = vec![0];
        let mut table = Vec::new();
        for line in symbols.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let number = |i: usize| u64::from_str_radix(words[i], 16).unwrap();
            let name = strings.len() as u32;
            strings.extend(words[0].bytes().chain([0]));
            let file = words.get(3).map_or(0, |f| f.parse().unwrap());
            table.push(Symbol {
                value: number(1),
                size: number(2),
                name,
                file,
                local: file > 0,
                weak: words[0].ends_with("_weak"),
                resolver: false,
                untyped: words[0].ends_with("_label"),
            });
        }
        let strings = Strings::new(&strings);
        let slots = Slots::default();
        let source = Source {
            sections: code,
            symbols: &table,
            strings,
            slots: &slots,
            file,
            ranges,
            cold: &cold::with_suffix(&table, strings),
            split_off: &[],
            loader: false,
        };
        let functions = functions(&source);
        let mut got = String::new();
        for (start, owner) in functions.starts.iter().zip(&functions.owners) {
            let name = match functions.get(*owner) {
                None => "none".to_string(),
                Some(f) => match functions.names_of(*owner).first() {
                    Some(name) => format!("{} {:x}+{:x}", strings.text(*name), f.entry, f.size),
                    None => {
                        let entry =
                            if f.has_entry && f.kind == FunctionKind::Unnamed { " entry" } else { "" };
                        format!("{:?} {:x}+{:x}{entry}", f.kind, f.entry, f.size)
                    }
                },
            };
            got += &format!("{start:x} {name}\n");
        }
        let expect: String = expect.lines().map(|l| format!("{}\n", l.trim())).collect();
        assert_eq!(got, expect.trim_start_matches('\n'), "symbols:\n{symbols}");
    }

    fn text(start: u64, end: u64) -> CodeSection {
        CodeSection { start, end, file_offset: start, plt: false }
    }

    /// 256 bytes of `ret`: no padding anywhere.
    const RET: &[u8] = &[0xc3; 0x100];

    #[test]
    fn gaps_get_functions_without_names() {
        check(
            &[text(0x10, 0x80), text(0x90, 0xa0)],
            "f 20 10\ng 30 8\nh 90 10",
            RET,
            "10 Unnamed 10+10
             20 f 20+10
             30 g 30+8
             38 Unnamed 38+48
             80 none
             90 h 90+10
             a0 none",
        );
    }

    #[test]
    fn padding_belongs_to_the_function_before() {
        let mut file = RET.to_vec();
        file[0x28..0x30].fill(0x90);
        file[0x38..0x3c].fill(0xcc);
        check(
            &[text(0x20, 0x40)],
            "f 20 8\ng 30 8\nh 3d 3",
            &file,
            "20 f 20+8
             30 g 30+8
             38 Unnamed 38+5
             3d h 3d+3
             40 none",
        );
    }

    #[test]
    fn a_symbol_without_size_reaches_to_the_next() {
        check(
            &[text(0x10, 0x60)],
            "a 10 0\nb 20 20\ninner 28 0\nlast 50 0",
            RET,
            "10 a 10+10
             20 b 20+20
             28 inner 28+18
             40 Unnamed 40+10
             50 last 50+10
             60 none",
        );
    }

    #[test]
    fn a_symbol_without_a_type_is_a_function_where_no_function_is() {
        check(
            &[text(0x8, 0x10), text(0x10, 0x60), text(0x60, 0x80)],
            "_init 8 0\n_start_label 10 0\nf 20 10\ninside_label 24 0\nhelper_label 30 0\nlast_label 34 4\ng 40 0\nloop_label 48 0\nframe_dummy 50 0 1\nmain_label 58 0\n_fini_label 60 0",
            RET,
            "8 _init 8+8
             10 _start_label 10+10
             20 f 20+10
             30 helper_label 30+4
             34 last_label 34+4
             38 Unnamed 38+8
             40 g 40+10
             50 frame_dummy 50+8
             58 main_label 58+8
             60 _fini_label 60+20
             80 none",
        );
    }

    #[test]
    fn a_function_with_a_second_symbol_without_a_type_has_its_own_name() {
        check(
            &[text(0x10, 0x20)],
            "a_label 10 0\nlonger_name 10 8",
            RET,
            "10 longer_name 10+8\n18 Unnamed 18+8\n20 none",
        );
    }

    #[test]
    fn the_innermost_owns_an_address() {
        check(
            &[text(0, 0xb0)],
            "outer 0 a0\nmid 10 30\ninner 20 10\nlate 38 20\n",
            RET,
            "0 outer 0+a0
             10 mid 10+30
             20 inner 20+10
             30 mid 10+30
             38 late 38+20
             58 outer 0+a0
             a0 Unnamed a0+10
             b0 none",
        );
    }

    #[test]
    fn sizes_end_with_their_section() {
        check(&[text(0x10, 0x20)], "f 10 ffffffffffffffff\nout 80 10", RET, "10 f 10+10\n20 none");
    }

    #[test]
    fn a_cold_part_belongs_to_its_function() {
        check(
            &[text(0x10, 0x80)],
            "f.cold 10 8 1\nf 20 10 1\nf.cold 18 8 2\nf 30 50 2",
            RET,
            "10 f 20+10
             18 f 30+50
             20 f 20+10
             30 f 30+50
             80 none",
        );
    }

    #[test]
    fn aliases_are_one_function_with_the_best_name() {
        check(
            &[text(0x10, 0x20)],
            "__GI_puts 10 10 1\n_IO_puts 10 10\na_weak 10 10\nputs 10 10\nlabel 10 0",
            RET,
            "10 puts 10+10\n20 none",
        );
    }

    #[test]
    fn stubs_are_functions() {
        let plt = CodeSection { plt: true, ..text(0x20, 0x48) };
        check(
            &[text(0, 0x20), plt],
            "f 0 20",
            RET,
            "0 f 0+20
             20 Plt 20+10
             30 Plt 30+10
             40 Plt 40+8
             48 none",
        );
    }

    #[test]
    fn unwind_tables_have_the_functions_without_symbols() {
        let range = |start, size, is_entry| CodeRange { start, size, is_entry };
        check_ranges(
            &[text(0x10, 0x80)],
            "f 20 10",
            &[
                range(0x10, 8, false),
                range(0x20, 0x10, true),
                range(0x28, 4, true),
                range(0x30, 0x20, true),
                range(0x50, 0x20, true),
            ],
            RET,
            "10 Unnamed 10+8
             18 Unnamed 18+8
             20 f 20+10
             30 Unnamed 30+20 entry
             50 Unnamed 50+20 entry
             70 Unnamed 70+10
             80 none",
        );
    }
}
