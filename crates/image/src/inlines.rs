//! How often a function was inlined: calls that no trace of branches can show.

use std::borrow::Cow;

use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, DwarfSections, EndianSlice, LittleEndian, Unit, UnitHeader,
};
use model::ObjectId;
use object::{Object, ObjectSection};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::demangle::{Form, demangle};
use crate::image::Image;

type Reader<'a> = EndianSlice<'a, LittleEndian>;
type Entries = FxHashSet<DebugInfoOffset>;

impl Image {
    /// The inlined instances of a function, by symbol or demangled name, in one object or in all.
    ///
    /// Reads all DWARF of the objects: seconds for a large program.  0 without DWARF.
    #[must_use]
    pub fn inlined_sites(&self, name: &str, object: Option<ObjectId>) -> u64 {
        let objects = self.objects().filter(|id| object.is_none_or(|only| only == *id));
        let loaded = objects.filter_map(|id| self.loaded(id));
        loaded.map(|loaded| count(loaded.dwarf_bytes(), name).unwrap_or(0)).sum()
    }
}

/// Instances in one file; `None` if its DWARF cannot be read.
fn count(file: &[u8], name: &str) -> Option<u64> {
    let file = object::File::parse(file).ok()?;
    let sections = DwarfSections::load(|id| {
        let section = file.section_by_name(id.name());
        let data = section.map_or(Ok(Cow::Borrowed(&[][..])), |s| s.uncompressed_data());
        data.map_err(|_| gimli::Error::Io)
    });
    let sections = sections.ok()?;
    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    // What a damaged file has before the damage is better than nothing.
    while let Ok(Some(header)) = headers.next() {
        units.push(header);
    }
    let entries: Entries = units.par_iter().flat_map_iter(|unit| named(&dwarf, *unit, name)).collect();
    if entries.is_empty() {
        return Some(0);
    }
    Some(units.par_iter().map(|unit| instances(&dwarf, *unit, &entries)).sum())
}

/// The entries of a unit that stand for the function, and those that refer to them.
fn named(dwarf: &Dwarf<Reader<'_>>, header: UnitHeader<Reader<'_>>, name: &str) -> Vec<DebugInfoOffset> {
    let mut found = Entries::default();
    let Ok(unit) = dwarf.unit(header) else { return Vec::new() };
    walk(&unit, gimli::DW_TAG_subprogram, |offset, attributes| {
        let mut plain = None;
        let mut linkage = None;
        let mut refers = None;
        for (at, value) in attributes {
            match *at {
                gimli::DW_AT_name => plain = dwarf.attr_string(&unit, *value).ok(),
                gimli::DW_AT_linkage_name => linkage = dwarf.attr_string(&unit, *value).ok(),
                gimli::DW_AT_specification => refers = target(&unit, *value),
                _ => (),
            }
        }
        let is_named = match (linkage, plain) {
            (Some(linkage), plain) => is_linkage_name(linkage.slice(), plain.map(|p| p.slice()), name),
            (None, Some(plain)) => plain.slice() == name.as_bytes(),
            (None, None) => false,
        };
        // A definition outside of its class refers to the declaration, which precedes it.
        if is_named || refers.is_some_and(|target| found.contains(&target)) {
            found.extend(offset);
        }
    });
    found.into_iter().collect()
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

fn instances(dwarf: &Dwarf<Reader<'_>>, header: UnitHeader<Reader<'_>>, of: &Entries) -> u64 {
    let Ok(unit) = dwarf.unit(header) else { return 0 };
    let mut count = 0;
    walk(&unit, gimli::DW_TAG_inlined_subroutine, |_, attributes| {
        let origin = attributes.iter().find(|(at, _)| *at == gimli::DW_AT_abstract_origin);
        let origin = origin.and_then(|(_, value)| target(&unit, *value));
        count += u64::from(origin.is_some_and(|origin| of.contains(&origin)));
    });
    count
}

/// The entry that an attribute refers to.
fn target(unit: &Unit<Reader<'_>>, value: AttributeValue<Reader<'_>>) -> Option<DebugInfoOffset> {
    match value {
        AttributeValue::UnitRef(offset) => offset.to_debug_info_offset(&unit.header),
        AttributeValue::DebugInfoRef(offset) => Some(offset),
        _ => None,
    }
}

type Attributes<'a> = [(gimli::DwAt, AttributeValue<Reader<'a>>)];

/// Shows all entries of one kind; up to the first damage.
fn walk<'a>(
    unit: &Unit<Reader<'a>>,
    tag: gimli::DwTag,
    mut each: impl FnMut(Option<DebugInfoOffset>, &Attributes<'a>),
) {
    let Ok(mut entries) = unit.entries_raw(None) else { return };
    let mut attributes = Vec::new();
    while !entries.is_empty() {
        let offset = entries.next_offset().to_debug_info_offset(&unit.header);
        let Ok(abbreviation) = entries.read_abbreviation() else { return };
        let Some(abbreviation) = abbreviation else { continue };
        if abbreviation.tag() != tag {
            if entries.skip_attributes(abbreviation.attributes()).is_err() {
                return;
            }
            continue;
        }
        attributes.clear();
        for specification in abbreviation.attributes() {
            let Ok(attribute) = entries.read_attribute(*specification) else { return };
            attributes.push((attribute.name(), attribute.value()));
        }
        each(offset, &attributes);
    }
}
