//! Opens a file that may serve a mapping, if its build id is the wanted one.

use std::fs::File;
use std::io;
use std::path::Path;

use files::{MappedFile, Place};
use model::BuildId;

use crate::contents::Contents;
use crate::elf::Elf;
use crate::error::{Assumption, ObjectError};

/// The build id of a file; `None` if it cannot be read, is no ELF file, or has none.
#[must_use]
pub fn build_id_of(path: &Path) -> Option<BuildId> {
    build_id_in(&MappedFile::open(&Place::here(path)).ok()?)
}

/// [`build_id_of`] a file that is in memory.
#[must_use]
pub fn build_id_in(bytes: &[u8]) -> Option<BuildId> {
    Elf::parse(bytes).ok()?.build_id()
}

/// The file of an object.
#[derive(Debug)]
pub(crate) struct Located {
    /// Where it is on this machine.
    pub(crate) place: Place,
    pub(crate) contents: Contents,
    /// What had to be taken for granted, for people.
    pub(crate) assumption: Option<Assumption>,
}

/// The first of the files that has this build id.
pub(crate) fn open_first(places: impl IntoIterator<Item = Place>, id: &BuildId) -> Option<Located> {
    places.into_iter().find_map(|place| {
        let contents = open(&place, Some(id)).ok().flatten()?;
        Some(Located { place, contents, assumption: None })
    })
}

/// Maps an ELF file; `None` if there is none.
pub(crate) fn open(place: &Place, build_id: Option<&BuildId>) -> Result<Option<Contents>, ObjectError> {
    open_file(place)?.map(|file| map(&file, place, build_id)).transpose()
}

pub(crate) fn open_file(place: &Place) -> Result<Option<File>, ObjectError> {
    match place.open() {
        Ok(file) => Ok(Some(file)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(unreadable(place, &e)),
    }
}

pub(crate) fn map(file: &File, place: &Place, build_id: Option<&BuildId>) -> Result<Contents, ObjectError> {
    let path = || place.path().to_owned();
    let bytes = MappedFile::of(file, place.path()).map_err(|e| unreadable(place, &e))?;
    let elf = Elf::parse(&bytes).map_err(|e| ObjectError::Damaged { path: path(), what: e.to_string() })?;
    let found = elf.build_id();
    match build_id {
        Some(recording) if !found.as_ref().is_some_and(|found| same_build_id(found, recording)) => {
            Err(ObjectError::BuildId { path: path(), file: found, recording: recording.clone() })
        }
        _ => Ok(Contents::Mapped(bytes.into())),
    }
}

fn unreadable(place: &Place, error: &io::Error) -> ObjectError {
    ObjectError::Unreadable { path: place.path().into(), why: error.to_string() }
}

/// Older recordings fill build ids with zeros up to 20 bytes.
pub(crate) fn same_build_id(a: &BuildId, b: &BuildId) -> bool {
    let trim = |id: &BuildId| id.0.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    a.0.get(..trim(a)) == b.0.get(..trim(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_of_a_build_id_mean_nothing() {
        let id = |bytes: &[u8]| BuildId(bytes.to_vec());
        assert!(same_build_id(&id(&[1, 2]), &id(&[1, 2, 0, 0])));
        assert!(!same_build_id(&id(&[1, 2]), &id(&[1, 2, 3])));
    }
}
