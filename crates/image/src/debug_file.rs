//! Separate debug files: where the symbols and the DWARF of a stripped object are.
//!
//! By build id first, then by the name in the object's `.gnu_debuglink`, as GDB does.

use std::path::{Path, PathBuf};

use crate::build_id_dirs::{self, Part};
use crate::contents::Contents;
use crate::debuglink;
use crate::elf::Elf;
use crate::locate::{Located, open_first};
use crate::options::ImageOptions;

/// A file that has only symbols and DWARF of an object.
#[derive(Debug)]
pub(crate) struct DebugFile {
    pub(crate) path: PathBuf,
    pub(crate) contents: Contents,
}

/// The debug file of an object: `name` as the recording has it, `path` on this machine.
pub(crate) fn find(elf: &Elf<'_>, name: &str, path: &Path, options: &ImageOptions) -> Option<DebugFile> {
    let by_id = elf.build_id().and_then(|id| {
        let Located { path, contents, .. } =
            open_first(build_id_dirs::places(&id, Part::Debug, options), &id)?;
        Some(DebugFile { path, contents })
    });
    by_id.or_else(|| debuglink::find(elf, name, path, options))
}

/// The file with the DWARF that several debug files share (`dwz -m`): the one in `.gnu_debugaltlink` of `elf`,
/// whose file is `path`.
pub(crate) fn supplement(elf: &Elf<'_>, path: &Path, options: &ImageOptions) -> Option<PathBuf> {
    let (name, id) = elf.debug_alt_link()?;
    let name = Path::new(name);
    let named = match name.is_absolute() {
        true => options.rooted(name),
        false => path.parent()?.join(name),
    };
    let places = build_id_dirs::places(&id, Part::Debug, options);
    open_first(std::iter::once(named).chain(places), &id).map(|found| found.path)
}
