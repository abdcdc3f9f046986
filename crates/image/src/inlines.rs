//! How often a function was inlined: calls that no trace of branches can show.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    Abbreviation, Abbreviations, AttributeValue, DebugInfoOffset, DebugStrOffsetsBase, Dwarf, DwarfSections,
    EndianSlice, EntriesRaw, LittleEndian, Section as _, SectionId, UnitHeader, UnitOffset,
};
use model::ObjectId;
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::contents::Contents;
use crate::demangle::{Form, demangle};
use crate::dwarf::unpacked::{Section, Sections};
use crate::image::Image;
use crate::needle::needle;

type InlineReader<'a> = EndianSlice<'a, LittleEndian>;
type Entries = FxHashSet<DebugInfoOffset>;

impl Image {
    /// The inlined instances of a function, by symbol or demangled name, in one object or in all.
    ///
    /// Reads all DWARF of the objects: seconds for a large program.  0 without DWARF.
    #[must_use]
    pub fn inlined_sites(&self, name: &str, object: Option<ObjectId>) -> u64 {
        let objects = self.objects().filter(|id| object.is_none_or(|only| only == *id));
        let loaded = objects.filter_map(|id| self.loaded(id));
        loaded.filter_map(|loaded| count(loaded.dwarf(), name)).sum()
    }
}

/// Instances in one file; `None` if its DWARF cannot be read.
fn count(file: &Contents, name: &str) -> Option<u64> {
    with_units(file, |dwarf, units| {
        let spellings = Spellings::new(dwarf, name);
        let specifies = specifies(dwarf);
        let of_unit = |unit: &UnitHeader<InlineReader<'_>>| {
            named(dwarf, *unit, name, &spellings.hits(unit, dwarf), specifies)
        };
        let named: Vec<Named> = units.par_iter().map(of_unit).collect();
        let entries: Entries = named.iter().flat_map(|unit| &unit.entries).copied().collect();
        if entries.is_empty() {
            return 0;
        }
        // Only with references from unit to unit, which link-time optimisation makes, a unit has instances of
        // what it does not name.
        let abbreviations = dwarf.debug_abbrev.reader().slice();
        let between_units = memchr::memmem::find(abbreviations, REFERENCE_BETWEEN_UNITS).is_some();
        if !between_units && !named.iter().any(|unit| unit.may_have_instances) {
            return 0;
        }
        let refers =
            |unit: &UnitHeader<InlineReader<'_>>| between_units && may_refer(bytes_of(unit, dwarf), &entries);
        let may_have =
            units.par_iter().zip(&named).filter(|(unit, own)| !own.entries.is_empty() || refers(unit));
        may_have.map(|(unit, _)| instances(dwarf, *unit, &entries)).sum()
    })
}

/// The sections that tell of functions and their names.
const NEEDED: [SectionId; 5] = [
    SectionId::DebugAbbrev,
    SectionId::DebugInfo,
    SectionId::DebugLineStr,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// A file's DWARF, if it can be read, with its units.
fn with_units<T>(
    file: &Contents,
    each: impl FnOnce(&Dwarf<InlineReader<'_>>, Vec<UnitHeader<InlineReader<'_>>>) -> T,
) -> Option<T> {
    let mut file = Sections::of(file)?;
    let sections = DwarfSections::load(|id| match NEEDED.contains(&id) {
        true => file.get(id.name()),
        false => Ok(Section::Unpacked(Vec::new())),
    });
    let sections = sections.ok()?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    // What a damaged file has before the damage is better than nothing.
    while let Ok(Some(header)) = headers.next() {
        units.push(header);
    }
    Some(each(&dwarf, units))
}

/// An abbreviation's `DW_AT_abstract_origin` of form `DW_FORM_ref_addr`.
const REFERENCE_BETWEEN_UNITS: &[u8] = &[0x31, 0x10];

/// An entry may refer to another one as its declaration (`DW_AT_specification`, by any form of reference):
/// never in C.
fn specifies(dwarf: &Dwarf<InlineReader<'_>>) -> bool {
    const SPECIFICATION: u8 = 0x47;
    let abbreviations = dwarf.debug_abbrev.reader().slice();
    let has_reference = |at: &usize| matches!(abbreviations.get(at + 1), Some(0x10..=0x16));
    // After two zeros, which end an abbreviation, it is the number of the next one.
    let is_number =
        |at: usize| at.checked_sub(2).and_then(|before| abbreviations.get(before..at)) == Some(&[0, 0]);
    memchr::memchr_iter(SPECIFICATION, abbreviations).filter(has_reference).any(|at| !is_number(at))
}

/// The bytes of a unit may be a reference to one of these entries.
fn may_refer(unit: &[u8], entries: &Entries) -> bool {
    let is_there = |entry: &DebugInfoOffset| match u32::try_from(entry.0) {
        Ok(offset) => memchr::memmem::find(unit, &offset.to_le_bytes()).is_some(),
        Err(_) => true, // eight bytes, in 64-bit DWARF
    };
    entries.len() > SEARCHES_MAX || entries.iter().any(is_there)
}

/// Parsing a unit takes as long as this many searches of it.
const SEARCHES_MAX: usize = 32;

/// A unit's part of `.debug_info`; all of it if the header does not say.
fn bytes_of<'a>(unit: &UnitHeader<InlineReader<'a>>, dwarf: &Dwarf<InlineReader<'a>>) -> &'a [u8] {
    let debug_info = dwarf.debug_info.reader().slice();
    let start = unit.offset().to_debug_info_offset(unit).map(|offset| offset.0);
    let bytes = start.and_then(|start| debug_info.get(start..)?.get(..unit.length_including_self()));
    bytes.unwrap_or(debug_info)
}

/// How the function's name or symbol may stand in a unit: parsing all units takes long, and few have it.
enum Spellings {
    Any,
    /// This word, or a reference to one of these places of `.debug_str` or `.debug_line_str`.
    Known {
        word: Vec<u8>,
        places: Vec<[u8; 4]>,
    },
}

impl Spellings {
    fn new(dwarf: &Dwarf<InlineReader<'_>>, name: &str) -> Self {
        let word = needle(name).filter(|word| word.len() >= MIN_WORD_BYTES);
        let Some(word) = word else { return Self::Any };
        // An index of strings refers to what the unit does not.
        if !dwarf.debug_str_offsets.reader().slice().is_empty() {
            return Self::Any;
        }
        let tables = [dwarf.debug_str.reader().slice(), dwarf.debug_line_str.reader().slice()];
        let places = tables.iter().flat_map(|strings| places_of(strings, word.as_bytes(), name)).collect();
        Self::Known { word: word.into(), places }
    }

    /// Where in a unit the function may be named.
    fn hits(&self, unit: &UnitHeader<InlineReader<'_>>, dwarf: &Dwarf<InlineReader<'_>>) -> Hits {
        let Self::Known { word, places } = self else { return Hits::Anywhere };
        // Of the section as a whole no offset is one of the unit.
        if unit.offset().to_debug_info_offset(unit).is_none() {
            return Hits::Anywhere;
        }
        let bytes = bytes_of(unit, dwarf);
        let found = |what: &[u8]| memchr::memmem::find_iter(bytes, what).collect::<Vec<_>>();
        let mut hits = found(word);
        hits.extend(places.iter().flat_map(|place| found(place)));
        hits.sort_unstable();
        Hits::At(hits)
    }
}

/// Offsets in a unit of bytes that may name the function.
enum Hits {
    Anywhere,
    /// Ascending.
    At(Vec<usize>),
}

impl Hits {
    /// One of them is in this part of the unit.
    fn is_in(&self, part: Range<usize>) -> bool {
        match self {
            Self::Anywhere => true,
            Self::At(hits) => {
                hits.get(hits.partition_point(|hit| *hit < part.start)).is_some_and(|hit| *hit < part.end)
            }
        }
    }
}

/// Where in a string table the function's name or its symbol stands, which both have `word`: as references of
/// four bytes.
fn places_of(strings: &[u8], word: &[u8], name: &str) -> Vec<[u8; 4]> {
    let finder = memchr::memmem::Finder::new(word);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(found) = strings.get(from..).and_then(|rest| finder.find(rest)) {
        let at = from + found;
        let start = memchr::memrchr(0, strings.get(..at).unwrap_or_default()).map_or(0, |end| end + 1);
        let rest = strings.get(at..).unwrap_or_default();
        let end = at + memchr::memchr(0, rest).unwrap_or(rest.len());
        // A linker lets one string be the end of another.
        let whole = |from: &usize| strings.get(*from..end).is_some_and(|s| is_spelling(s, name));
        let found = (start..end).filter(whole).filter_map(|from| u32::try_from(from).ok());
        places.extend(found.map(u32::to_le_bytes));
        from = end;
    }
    places
}

/// A shorter word is in most units.
const MIN_WORD_BYTES: usize = 4;

/// `string` is the function's name, or its symbol.
fn is_spelling(string: &[u8], name: &str) -> bool {
    let is_mangled = [&b"_Z"[..], b"__Z", b"_R"].iter().any(|prefix| string.starts_with(prefix));
    string == name.as_bytes()
        || (is_mangled
            && std::str::from_utf8(string).is_ok_and(|symbol| demangle(symbol, Form::Short) == name))
}

/// What a unit says of the function.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    /// The entries that stand for it, and those that refer to them.
    entries: Vec<DebugInfoOffset>,
    /// One of them is said to be inlined.
    may_have_instances: bool,
}

/// The entries of a unit that stand for the function: those with one of its `hits`, and those that refer to
/// one of these, if there are any that refer (`specifies`).
fn named(
    dwarf: &Dwarf<InlineReader<'_>>,
    header: UnitHeader<InlineReader<'_>>,
    name: &str,
    hits: &Hits,
    specifies: bool,
) -> Named {
    let mut found = Named::default();
    if !hits.is_in(0..header.length_including_self()) {
        return found;
    }
    let Some(unit) = Unit::new(dwarf, header) else { return found };
    let Some(mut walk) = unit.walk() else { return found };
    while let Some(entry) = walk.next() {
        let only_hits = found.entries.is_empty() || !specifies;
        if only_hits && !hits.is_in(entry.bytes.start..usize::MAX) {
            break;
        }
        let is_hit = hits.is_in(entry.bytes.clone());
        if only_hits && !is_hit {
            // Function bodies are most of a unit.
            let end = entry.sibling().filter(|end| !hits.is_in(entry.bytes.end..end.0));
            if let Some(end) = end {
                walk.go_to(end);
            }
            continue;
        }
        // A definition outside of its class refers to the declaration, which precedes it.
        let may_be = is_hit || entry.has(gimli::DW_AT_specification);
        if may_be && entry.abbreviation.tag() == gimli::DW_TAG_subprogram {
            found.add(dwarf, &entry, name);
        }
    }
    found
}

impl Named {
    /// Adds an entry, if it is of the function.
    fn add<'a>(&mut self, dwarf: &Dwarf<InlineReader<'a>>, entry: &Entry<'_, 'a>, name: &str) {
        let unit = entry.unit;
        let attributes = entry.attributes();
        let mut plain = None;
        let mut linkage = None;
        let mut refers = None;
        for (at, value) in &attributes {
            match *at {
                gimli::DW_AT_name => plain = unit.string(dwarf, *value),
                gimli::DW_AT_linkage_name => linkage = unit.string(dwarf, *value),
                gimli::DW_AT_specification => refers = target(unit, *value),
                _ => (),
            }
        }
        let is_named = match (linkage, plain) {
            (Some(linkage), plain) => is_linkage_name(linkage.slice(), plain.map(|p| p.slice()), name),
            (None, Some(plain)) => plain.slice() == name.as_bytes(),
            (None, None) => false,
        };
        if is_named || refers.is_some_and(|target| self.entries.contains(&target)) {
            self.entries.extend(entry.offset());
            self.may_have_instances |= is_inlined(&attributes);
        }
    }
}

/// The function has `DW_AT_inline`, which compilers give to each that they have inlined somewhere (DWARF 5,
/// 3.3.8.1). What is inlined at link time only may be of a unit that was written before.
fn is_inlined(attributes: &Attributes<'_>) -> bool {
    attributes.iter().any(|(at, _)| *at == gimli::DW_AT_inline)
}

/// `linkage` is the symbol `name`, or what `name` is when demangled.
fn is_linkage_name(linkage: &[u8], plain: Option<&[u8]>, name: &str) -> bool {
    if linkage == name.as_bytes() {
        return true;
    }
    // Demangling every name would take long: the last component has to be there.
    let worth = plain.is_none_or(|plain| {
        let plain = plain.split(|b| *b == b'<').next().unwrap_or(plain);
        String::from_utf8(plain.to_vec()).is_ok_and(|plain| name.contains(&plain))
    });
    worth && std::str::from_utf8(linkage).is_ok_and(|linkage| demangle(linkage, Form::Short) == name)
}

fn instances(dwarf: &Dwarf<InlineReader<'_>>, header: UnitHeader<InlineReader<'_>>, of: &Entries) -> u64 {
    let Some(unit) = Unit::new(dwarf, header) else { return 0 };
    let Some(mut walk) = unit.walk() else { return 0 };
    let mut count = 0;
    while let Some(entry) = walk.next() {
        if entry.abbreviation.tag() == gimli::DW_TAG_inlined_subroutine {
            count += u64::from(entry.origin().is_some_and(|origin| of.contains(&origin)));
        }
    }
    count
}

/// A unit without its lines, for which gimli's would need a section more.
struct Unit<'a> {
    header: UnitHeader<InlineReader<'a>>,
    abbreviations: Arc<Abbreviations>,
    str_offsets_base: DebugStrOffsetsBase,
}

impl<'a> Unit<'a> {
    fn new(dwarf: &Dwarf<InlineReader<'a>>, header: UnitHeader<InlineReader<'a>>) -> Option<Self> {
        let abbreviations = dwarf.abbreviations(&header).ok()?;
        let mut str_offsets_base =
            DebugStrOffsetsBase::default_for_encoding_and_file(header.encoding(), dwarf.file_type);
        let mut entries = header.entries(&abbreviations);
        let root = entries.next_dfs().ok()??;
        let base = root.attr_value(gimli::DW_AT_str_offsets_base);
        if let Some(AttributeValue::DebugStrOffsetsBase(base)) = base {
            str_offsets_base = base;
        }
        Some(Self { header, abbreviations, str_offsets_base })
    }

    fn string(
        &self,
        dwarf: &Dwarf<InlineReader<'a>>,
        value: AttributeValue<InlineReader<'a>>,
    ) -> Option<InlineReader<'a>> {
        match value {
            AttributeValue::String(string) => Some(string),
            AttributeValue::DebugStrRef(offset) => dwarf.string(offset).ok(),
            AttributeValue::DebugLineStrRef(offset) => dwarf.line_string(offset).ok(),
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let format = self.header.format();
                let offset =
                    dwarf.debug_str_offsets.get_str_offset(format, self.str_offsets_base, index).ok()?;
                dwarf.string(offset).ok()
            }
            _ => None,
        }
    }
}

/// The entry that an attribute refers to.
fn target(unit: &Unit<'_>, value: AttributeValue<InlineReader<'_>>) -> Option<DebugInfoOffset> {
    match value {
        AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&unit.header),
        AttributeValue::DebugInfoRef(offset) => Some(offset),
        _ => None,
    }
}

type Attributes<'a> = [(gimli::DwAt, AttributeValue<InlineReader<'a>>)];

/// The entries of a unit in their order, up to the first damage.
struct Walk<'u, 'a> {
    unit: &'u Unit<'a>,
    rest: EntriesRaw<'u, InlineReader<'a>>,
}

impl<'a> Unit<'a> {
    fn walk(&self) -> Option<Walk<'_, 'a>> {
        let rest = self.header.entries_raw(&self.abbreviations, None).ok()?;
        Some(Walk { unit: self, rest })
    }
}

impl<'u, 'a> Walk<'u, 'a> {
    fn next(&mut self) -> Option<Entry<'u, 'a>> {
        while !self.rest.is_empty() {
            let start = self.rest.next_offset();
            let Some(abbreviation) = self.rest.read_abbreviation().ok()? else { continue };
            let attributes = self.rest.clone();
            self.rest.skip_attributes(abbreviation.attributes()).ok()?;
            let bytes = start.0..self.rest.next_offset().0;
            return Some(Entry { unit: self.unit, bytes, abbreviation, attributes });
        }
        None
    }

    /// Goes on with the entry at an offset that is not earlier.
    fn go_to(&mut self, offset: UnitOffset) {
        if let Ok(rest) = self.unit.header.entries_raw(&self.unit.abbreviations, Some(offset)) {
            self.rest = rest;
        }
    }
}

/// One entry of a unit; its attributes are read when asked for.
struct Entry<'u, 'a> {
    unit: &'u Unit<'a>,
    /// Its part of the unit.
    bytes: Range<usize>,
    abbreviation: &'u Abbreviation,
    attributes: EntriesRaw<'u, InlineReader<'a>>,
}

impl<'a> Entry<'_, 'a> {
    fn offset(&self) -> Option<DebugInfoOffset> {
        UnitOffset(self.bytes.start).to_debug_info_offset(&self.unit.header)
    }

    fn has(&self, name: gimli::DwAt) -> bool {
        self.abbreviation.attributes().iter().any(|attribute| attribute.name() == name)
    }

    /// All attributes, up to the first damage.
    fn attributes(&self) -> Vec<(gimli::DwAt, AttributeValue<InlineReader<'a>>)> {
        let mut rest = self.attributes.clone();
        let specifications = self.abbreviation.attributes().iter();
        let read = specifications.map_while(|specification| rest.read_attribute(*specification).ok());
        read.map(|attribute| (attribute.name(), attribute.value())).collect()
    }

    /// The value of an attribute, if the entry has it before any damage.
    fn value(&self, name: gimli::DwAt) -> Option<AttributeValue<InlineReader<'a>>> {
        let mut rest = self.attributes.clone();
        let specifications = self.abbreviation.attributes().iter();
        let mut read = specifications.map_while(|specification| rest.read_attribute(*specification).ok());
        read.find(|attribute| attribute.name() == name).map(|attribute| attribute.value())
    }

    /// Where the entry after its children starts, if it says so.
    fn sibling(&self) -> Option<UnitOffset> {
        if !self.abbreviation.has_children() || !self.has(gimli::DW_AT_sibling) {
            return None;
        }
        match self.value(gimli::DW_AT_sibling)? {
            AttributeValue::UnitRef(end) if end.0 >= self.bytes.end => Some(end),
            _ => None,
        }
    }

    /// The entry that this one is an instance of.
    fn origin(&self) -> Option<DebugInfoOffset> {
        target(self.unit, self.value(gimli::DW_AT_abstract_origin)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over the DWARF of this test's own binary; all of it is read for that.
    #[test]
    fn entries_that_are_left_out_do_not_name_the_function() {
        let file = Contents::Owned(std::fs::read(std::env::current_exe().unwrap()).unwrap().into());
        let left_out = with_units(&file, |dwarf, units| {
            assert!(units.len() > 10);
            let own = ["image::demangle::demangle", "image::needle::needle", "image::elf::make_disjoint"];
            let others = ["core::ptr::drop_in_place", "alloc::vec::Vec::push", "memcpy"];
            let mut left_out = 0;
            for name in own.into_iter().chain(others) {
                let is_free = own.contains(&name);
                let spellings = Spellings::new(dwarf, name);
                let mut found = 0;
                for unit in &units {
                    let hits = spellings.hits(unit, dwarf);
                    let all = named(dwarf, *unit, name, &Hits::Anywhere, true);
                    assert_eq!(named(dwarf, *unit, name, &hits, specifies(dwarf)), all, "{name}");
                    if is_free {
                        assert_eq!(named(dwarf, *unit, name, &hits, false), all, "{name} has no declaration");
                    }
                    found += all.entries.len();
                    left_out += u32::from(!hits.is_in(0..unit.length_including_self()));
                }
                assert!(found > 0 || !is_free, "{name}");
            }
            left_out
        });
        assert!(left_out.is_some_and(|units| units > 10), "{left_out:?}");
    }

    /// This binary has references between units: rustc inlines across them.
    #[test]
    fn units_that_are_left_out_have_no_instances() {
        let file = Contents::Owned(std::fs::read(std::env::current_exe().unwrap()).unwrap().into());
        let left_out = with_units(&file, |dwarf, units| {
            let mut left_out = 0;
            for name in ["image::demangle::demangle", "core::str::converts::from_utf8"] {
                let named: Vec<_> =
                    units.iter().map(|unit| named(dwarf, *unit, name, &Hits::Anywhere, true)).collect();
                let entries: Entries = named.iter().flat_map(|unit| &unit.entries).copied().collect();
                assert!(entries.len() <= SEARCHES_MAX);
                let others = units.iter().zip(&named).filter(|(_, own)| own.entries.is_empty());
                for (unit, _) in others.filter(|(unit, _)| !may_refer(bytes_of(unit, dwarf), &entries)) {
                    assert_eq!(instances(dwarf, *unit, &entries), 0, "{name}");
                    left_out += 1;
                }
            }
            left_out
        });
        assert!(left_out.is_some_and(|count| count > 10), "{left_out:?}");
    }

    #[test]
    fn what_has_instances_is_said_to_be_inlined() {
        let file = Contents::Owned(std::fs::read(std::env::current_exe().unwrap()).unwrap().into());
        let instances = with_units(&file, |dwarf, units| {
            let units: Vec<_> = units.into_iter().filter_map(|header| Unit::new(dwarf, header)).collect();
            let mut inlined = Entries::default();
            let mut instances = vec![];
            for unit in &units {
                let mut walk = unit.walk().unwrap();
                while let Some(entry) = walk.next() {
                    match entry.abbreviation.tag() {
                        gimli::DW_TAG_subprogram if is_inlined(&entry.attributes()) => {
                            inlined.extend(entry.offset());
                        }
                        gimli::DW_TAG_inlined_subroutine => instances.extend(entry.origin()),
                        _ => (),
                    }
                }
            }
            assert!(instances.iter().all(|origin| inlined.contains(origin)));
            instances.len()
        });
        assert!(instances.is_some_and(|count| count > 100), "{instances:?}");
    }

    #[test]
    fn a_name_and_a_symbol_are_spellings() {
        for (string, is) in [("mtr_t::commit", true), ("_ZN5mtr_t6commitEv", true), ("commit", false)] {
            assert_eq!(is_spelling(string.as_bytes(), "mtr_t::commit"), is, "{string}");
        }
    }
}
