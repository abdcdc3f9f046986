//! The instructions that begin a source line, from the line programs of DWARF.

use gimli::{EndianSlice, LineProgramHeader, LineRow, LittleEndian, Unit};
use model::Svma;

use crate::dwarf::lines::{MAX_LINE_PROGRAM_BYTES, MAX_UNITS, sections};
use crate::object::object_file::Loaded;

type LineReader<'a> = EndianSlice<'a, LittleEndian>;

/// What was learnt of a line and its neighbours, over all objects.
#[derive(Debug, Default)]
pub(crate) struct LineBegins {
    /// There are lines of the file.
    pub(crate) file_is_known: bool,
    /// The last line before it that an instruction begins, and the first one after it.
    pub(crate) before: Option<u32>,
    pub(crate) after: Option<u32>,
}

impl LineBegins {
    /// The addresses at which a statement of the line begins; in a run of rows of one line, the first.
    pub(crate) fn search(&mut self, loaded: &Loaded, file: &str, line: u32) -> Vec<Svma> {
        let mut found = Vec::new();
        let Some(own) = sections(loaded.dwarf()) else { return found };
        let shared = loaded.supplement.as_ref().and_then(|supplement| sections(&supplement.contents));
        let mut dwarf = own.borrow(|section| EndianSlice::new(section, LittleEndian));
        if let Some(shared) = &shared {
            dwarf.set_sup(shared.borrow(|section| EndianSlice::new(section, LittleEndian)));
        }
        let mut headers = dwarf.units();
        for _ in 0..MAX_UNITS {
            let Ok(Some(header)) = headers.next() else { break };
            if let Ok(unit) = dwarf.unit(header) {
                self.unit(&dwarf, &unit, file, line, &mut found);
            }
        }
        found
    }

    fn unit<'a>(
        &mut self,
        dwarf: &gimli::Dwarf<LineReader<'a>>,
        unit: &Unit<LineReader<'a>>,
        file: &str,
        line: u32,
        found: &mut Vec<Svma>,
    ) {
        let Some(program) = unit.line_program.clone() else { return };
        if program.header().raw_program_buf().len() > MAX_LINE_PROGRAM_BYTES {
            return;
        }
        let files = files(dwarf, unit, program.header(), file);
        if files.is_empty() {
            return;
        }
        let mut rows = program.rows();
        // Rows of the line that follow one another begin it once.
        let mut has_begun = false;
        // What precedes damage is good.
        while let Ok(Some((_, row))) = rows.next_row() {
            let at = line_of(row, &files);
            if let Some(at) = at.filter(|_| row.is_stmt()) {
                self.file_is_known = true;
                if at == line && !has_begun {
                    found.push(Svma(row.address()));
                    has_begun = true;
                }
                if at < line {
                    self.before = self.before.max(Some(at));
                } else if at > line {
                    self.after = Some(self.after.map_or(at, |after| after.min(at)));
                }
            }
            has_begun &= at == Some(line);
        }
    }
}

/// The line of a row, if it is in one of these files.
fn line_of(row: &LineRow, files: &[u64]) -> Option<u32> {
    let line = row.line().filter(|_| !row.end_sequence() && files.contains(&row.file_index()))?;
    u32::try_from(line.get()).ok()
}

/// The numbers of the files of a line program that a user means by `wanted`: its path, or the end of that.
fn files<'a>(
    dwarf: &gimli::Dwarf<LineReader<'a>>,
    unit: &Unit<LineReader<'a>>,
    header: &LineProgramHeader<LineReader<'a>>,
    wanted: &str,
) -> Vec<u64> {
    let count = header.file_names().len() as u64;
    let is_it = |number: &u64| {
        let Some(file) = header.file(*number) else { return false };
        let text = |value| dwarf.attr_string(unit, value).map(|text| text.to_string_lossy()).ok();
        let Some(name) = text(file.path_name()) else { return false };
        let directory = file.directory(header).and_then(text).unwrap_or_default();
        ends_with(&format!("{directory}/{name}"), wanted)
    };
    (0..=count).filter(is_it).collect()
}

/// The last components of a path.
fn ends_with(path: &str, wanted: &str) -> bool {
    let wanted = wanted.strip_prefix("./").unwrap_or(wanted);
    let before = path.strip_suffix(wanted);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/') || wanted.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_the_end_of_its_path() {
        assert!(ends_with("/src/db/row.c", "row.c"));
        assert!(ends_with("/src/db/row.c", "db/row.c"));
        assert!(ends_with("/src/db/row.c", "/src/db/row.c"));
        assert!(ends_with("/src/db/row.c", "./row.c"));
        assert!(!ends_with("/src/db/row.c", "ow.c"));
        assert!(!ends_with("/src/db/row.c", "b/row.c"));
    }
}
