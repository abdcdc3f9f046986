//! Sections of DWARF, unpacked where they are compressed: how much all of them become is bounded.

use std::ops::{Deref, Range};

use object::{CompressionFormat, Object, ObjectSection};

use crate::contents::Contents;

/// What all compressed sections of one object become, at the most.  Where they are larger, the object has no
/// DWARF.
const MAX_BYTES: u64 = 128 << 20;

/// The bytes of a section.
pub(crate) enum Section {
    /// An uncompressed part of the file.
    InFile(Contents, Range<usize>),
    /// Unpacked.
    Unpacked(Vec<u8>),
}

impl Deref for Section {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InFile(contents, range) => contents.get(range.clone()).unwrap_or_default(),
            Self::Unpacked(bytes) => bytes,
        }
    }
}

/// Gives the sections of one file, by name.
pub(crate) struct Sections<'a> {
    contents: &'a Contents,
    file: object::File<'a>,
    bytes_left: u64,
}

impl<'a> Sections<'a> {
    /// `None` if it is no object file.
    pub(crate) fn of(contents: &'a Contents) -> Option<Self> {
        Some(Self { contents, file: object::File::parse(&**contents).ok()?, bytes_left: MAX_BYTES })
    }

    /// A section, empty if there is none.
    ///
    /// # Errors
    /// It is damaged, or too large with those before it.
    pub(crate) fn get(&mut self, name: &str) -> Result<Section, gimli::Error> {
        let Some(section) = self.file.section_by_name(name) else { return Ok(Section::Unpacked(Vec::new())) };
        let range = section.compressed_file_range().map_err(|_| gimli::Error::Io)?;
        if range.format == CompressionFormat::None {
            let start = usize::try_from(range.offset).map_err(|_| gimli::Error::Io)?;
            let len = usize::try_from(range.uncompressed_size).map_err(|_| gimli::Error::Io)?;
            return Ok(Section::InFile(self.contents.clone(), start..start.saturating_add(len)));
        }
        // The size is only what the section's header says, and more is not unpacked.
        self.bytes_left = self.bytes_left.checked_sub(range.uncompressed_size).ok_or(gimli::Error::Io)?;
        let bytes = section.uncompressed_data().map_err(|_| gimli::Error::Io)?;
        Ok(Section::Unpacked(bytes.into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_corpus(name: &str) -> Contents {
        let path = format!("{}/../../fuzz/corpus/elf/{name}", env!("CARGO_MANIFEST_DIR"));
        Contents::Owned(std::fs::read(path).unwrap().into())
    }

    fn debug_sections(contents: &Contents) -> Result<Vec<usize>, gimli::Error> {
        let mut sections = Sections::of(contents).unwrap();
        let names = [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line"];
        names.iter().map(|name| sections.get(name).map(|section| section.len())).collect()
    }

    #[test]
    fn a_section_that_claims_to_be_large() {
        assert!(
            debug_sections(&of_corpus("seed-compressed"))
                .is_ok_and(|sizes| sizes.iter().all(|size| *size > 0))
        );
        assert!(debug_sections(&of_corpus("a-section-that-claims-to-be-large")).is_err());
    }
}
