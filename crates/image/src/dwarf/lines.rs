//! Source lines, from DWARF, read when first asked for.

use addr2line::Context;
use gimli::{DwarfSections, EndianSlice, LittleEndian, Section as _, SectionId};
use model::Svma;
use rustc_hash::{FxHashMap, FxHashSet};
use self_cell::self_cell;

use crate::contents::Contents;
use crate::dwarf::unpacked::{Section, Sections};

/// Lines that are kept; beyond that they are looked up anew.
const MAX_CACHED_LINES: usize = 1 << 20;

/// Functions inlined into each other at one instruction.
const MAX_INLINE_DEPTH: usize = 256;

/// Compilation units of one object: each takes half a kilobyte before anything is asked of it.
pub(crate) const MAX_UNITS: usize = 1 << 17;

/// The longest line program: it may have a row of 24 bytes for each of its bytes. An object with a longer one
/// (some of link-time optimisation) has no lines.
pub(crate) const MAX_LINE_PROGRAM_BYTES: usize = 4 << 20;

/// What the units in use may take: beyond it all are dropped, and parsed again when they are asked for.
const MAX_PARSED_BYTES: usize = 64 << 20;

/// Bytes in memory for a byte of a line program.
const BYTES_PER_LINE_BYTE: usize = 24;

type DwarfReader<'a> = EndianSlice<'a, LittleEndian>;
type ParsedLines<'a> = Context<DwarfReader<'a>>;

/// DWARF of an object, and of the file that it shares a part of its DWARF with.
struct Dwarf {
    own: DwarfSections<Section>,
    shared: Option<DwarfSections<Section>>,
}

self_cell!(
    struct ParsedDwarf {
        owner: Dwarf,

        #[not_covariant]
        dependent: ParsedLines,
    }
);

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the compiler was told.
    pub file: String,
    /// The line; 0 if the compiler does not say.
    pub line: u32,
    /// Where the function that this line is of was inlined, and so on outwards; empty if it was not.
    pub inlined_at: Vec<SourceLine>,
}

/// The lines of one object.
pub(crate) struct Lines {
    /// `None`: it could not be parsed.
    dwarf: Option<ParsedDwarf>,
    cache: FxHashMap<u64, Option<SourceLine>>,
    /// Units that were parsed, by where they begin in `.debug_info`, and about how many bytes they take.
    parsed: FxHashSet<usize>,
    parsed_bytes: usize,
}

impl Lines {
    /// Reads what DWARF the file has; `None` if it has none that can be read.
    pub(crate) fn open(file: &Contents, supplement: Option<&Contents>) -> Option<Self> {
        let shared = match supplement {
            Some(supplement) => Some(sections(supplement)?),
            None => None,
        };
        let dwarf = parse(Dwarf { own: sections(file)?, shared })?;
        Some(Self {
            dwarf: Some(dwarf),
            cache: FxHashMap::default(),
            parsed: FxHashSet::default(),
            parsed_bytes: 0,
        })
    }

    pub(crate) fn at(&mut self, svma: Svma) -> Option<SourceLine> {
        if let Some(known) = self.cache.get(&svma.0) {
            return known.clone();
        }
        let line = self.look_up(svma);
        if self.cache.len() < MAX_CACHED_LINES {
            self.cache.insert(svma.0, line.clone());
        }
        line
    }

    fn look_up(&mut self, svma: Svma) -> Option<SourceLine> {
        let dwarf = self.dwarf.as_ref()?;
        let line = dwarf.with_dependent(|_, parsed| line_of(parsed, svma));
        if let Some((unit, bytes)) = dwarf.with_dependent(|_, parsed| unit_of(parsed, svma))
            && self.parsed.insert(unit)
        {
            self.parsed_bytes = self.parsed_bytes.saturating_add(bytes);
        }
        if self.parsed_bytes > MAX_PARSED_BYTES {
            self.parsed.clear();
            self.parsed_bytes = 0;
            self.dwarf = self.dwarf.take().and_then(|dwarf| parse(dwarf.into_owner()));
        }
        line
    }
}

/// The sections with lines and what they refer to.
pub(crate) fn sections(file: &Contents) -> Option<DwarfSections<Section>> {
    const NOT_NEEDED: [SectionId; 6] = [
        SectionId::DebugFrame,
        SectionId::DebugLoc,
        SectionId::DebugLocLists,
        SectionId::DebugMacinfo,
        SectionId::DebugMacro,
        SectionId::DebugTypes,
    ];
    let mut sections = Sections::of(file)?;
    let load = |id: SectionId| match NOT_NEEDED.contains(&id) {
        true => Ok(Section::Unpacked(Vec::new())),
        false => sections.get(id.name()),
    };
    DwarfSections::load(load).ok()
}

fn parse(dwarf: Dwarf) -> Option<ParsedDwarf> {
    ParsedDwarf::try_new(dwarf, |Dwarf { own, shared }| context(own, shared.as_ref()).ok_or(())).ok()
}

fn context<'a>(
    own: &'a DwarfSections<Section>,
    shared: Option<&'a DwarfSections<Section>>,
) -> Option<ParsedLines<'a>> {
    let reader = |section: &'a Section| EndianSlice::new(section, LittleEndian);
    let mut dwarf = own.borrow(reader);
    if let Some(shared) = shared {
        dwarf.set_sup(shared.borrow(reader));
    }
    let mut units = 0;
    let mut headers = dwarf.units();
    while let Ok(Some(_)) = headers.next() {
        units += 1;
    }
    if units > MAX_UNITS || longest_line_program(dwarf.debug_line.reader().slice()) > MAX_LINE_PROGRAM_BYTES {
        return None;
    }
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    Context::from_dwarf(dwarf).ok()
}

/// Each begins with its length (DWARF 5, 7.4).
fn longest_line_program(mut rest: &[u8]) -> usize {
    let mut longest = 0;
    while let Some((len, after)) = rest.split_first_chunk() {
        let (len, after) = match (u32::from_le_bytes(*len), after.split_first_chunk()) {
            (u32::MAX, Some((len, after))) => (u64::from_le_bytes(*len), after),
            (len, _) => (len.into(), after),
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(after.len());
        longest = longest.max(len);
        rest = after.get(len..).unwrap_or_default();
    }
    longest
}

/// The unit that was parsed for an address, and about how many bytes it takes.
fn unit_of(parsed: &ParsedLines<'_>, svma: Svma) -> Option<(usize, usize)> {
    let unit = parsed.find_dwarf_and_unit(svma.0).skip_all_loads()?;
    let program =
        unit.line_program.as_ref().map_or(0, |program| program.header().raw_program_buf().slice().len());
    let entries = unit.header.length_including_self();
    let offset = unit.header.offset().to_debug_info_offset(&unit.header)?.0;
    Some((offset, entries.saturating_add(program.saturating_mul(BYTES_PER_LINE_BYTE))))
}

fn line_of(parsed: &ParsedLines<'_>, svma: Svma) -> Option<SourceLine> {
    // What the compiler put into other files (split DWARF) is not read.
    let mut frames = parsed.find_frames(svma.0).skip_all_loads().ok()?;
    let mut lines = Vec::new();
    // What precedes damage is good; no compiler inlines deeper.
    while let (true, Ok(Some(frame))) = (lines.len() < MAX_INLINE_DEPTH, frames.next()) {
        lines.extend(frame.location.and_then(source_line));
    }
    if lines.is_empty() {
        // Code that belongs to no function of DWARF may have lines.
        lines.extend(parsed.find_location(svma.0).ok().flatten().and_then(source_line));
    }
    let mut lines = lines.into_iter();
    let innermost = lines.next()?;
    Some(SourceLine { inlined_at: lines.collect(), ..innermost })
}

fn source_line(location: addr2line::Location<'_>) -> Option<SourceLine> {
    let file = location.file?.to_string();
    Some(SourceLine { file, line: location.line.unwrap_or(0), inlined_at: Vec::new() })
}
