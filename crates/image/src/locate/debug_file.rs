//! Separate debug files: where the symbols and the DWARF of a stripped object are.
//!
//! By build id first, then by the name in the object's `.gnu_debuglink`, as GDB does.

use std::path::Path;

use files::Place;

use crate::contents::Contents;
use crate::elf::Elf;
use crate::locate::build_id_dirs::{self, Part};
use crate::locate::debuglink;
use crate::locate::located::{Located, open_first};
use crate::options::ImageOptions;

/// A file that has only symbols and DWARF of an object.
#[derive(Debug)]
pub(crate) struct DebugFile {
    pub(crate) place: Place,
    pub(crate) contents: Contents,
}

impl DebugFile {
    fn of(located: Located) -> Self {
        let Located { place, contents, .. } = located;
        Self { place, contents }
    }
}

/// The debug file of an object: `name` as the recording has it, `place` on this machine.
pub(crate) fn find(elf: &Elf<'_>, name: &str, place: &Place, options: &ImageOptions) -> Option<DebugFile> {
    let by_id = elf.build_id().and_then(|id| {
        let places = build_id_dirs::places(&id, Part::Debug, options).into_iter().map(Place::here);
        Some(DebugFile::of(open_first(places, &id)?))
    });
    let by_link = || {
        let (place, contents) = debuglink::find(elf, name, place, options)?;
        Some(DebugFile { place, contents })
    };
    by_id.or_else(by_link)
}

/// The file with the DWARF that several debug files share (`dwz -m`): the one in `.gnu_debugaltlink` of
/// `elf`, which is the file at `place`.
pub(crate) fn supplement(elf: &Elf<'_>, place: &Place, options: &ImageOptions) -> Option<DebugFile> {
    let (name, id) = elf.debug_alt_link()?;
    let name = Path::new(name);
    let named = match name.is_absolute() {
        true => options.rooted(name).map(Place::here),
        false => Some(place.other(place.path().parent()?.join(name))),
    };
    let places = build_id_dirs::places(&id, Part::Debug, options).into_iter().map(Place::here);
    open_first(named.into_iter().chain(places), &id).map(DebugFile::of)
}
