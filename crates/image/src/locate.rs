//! Which file serves a mapping: the code that ran, or an error that says why there is none.
//!
//! ```text
//! by name     --symfs: DIR/path, then DIR/.build-id, then DIR/file name        otherwise: the path itself
//! by build id /proc/PID/root/path (another mount namespace), perf's and debuginfod's caches
//! ```
//! A build id decides wherever the recording has one.  A file that is found by build id alone needs one.

use std::io;
use std::path::{Path, PathBuf};

use model::{BuildId, Pid};

use crate::build_id_dirs::{self, Part};
use crate::contents::Contents;
use crate::elf::Elf;
use crate::error::ObjectError;
use crate::mapped::MappedFile;
use crate::object_file::basename;
use crate::options::ImageOptions;
use crate::space::ObjectKey;
use crate::vdso;

/// The build id of a file; `None` if it cannot be read, is no ELF file, or has none.
#[must_use]
pub fn build_id_of(path: &Path) -> Option<BuildId> {
    let file = MappedFile::open(path).ok()?;
    Elf::parse(file.bytes()).ok()?.build_id()
}

/// The file of an object.
#[derive(Debug)]
pub(crate) struct Located {
    /// Where it is on this machine.
    pub(crate) path: PathBuf,
    pub(crate) contents: Contents,
    /// What had to be taken for granted, for people.
    pub(crate) assumption: Option<String>,
}

/// Finds the file that `key` names; `pid` is a process that mapped it.
pub(crate) fn locate(key: &ObjectKey, pid: Pid, options: &ImageOptions) -> Result<Located, ObjectError> {
    if key.is_vdso() {
        return vdso::locate(key, options);
    }
    if key.has_no_file() {
        return Err(ObjectError::NoFile { name: key.name.clone() });
    }
    let by_name = by_name(&key.name, options);
    let mut first_error = None;
    for path in by_name.iter().filter(|_| !key.deleted || key.build_id.is_some() || options.symfs.is_some()) {
        match open(path, key.build_id.as_ref()) {
            Ok(Some(contents)) => return Ok(Located { path: path.clone(), contents, assumption: None }),
            Ok(None) => (),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    if let Some(found) = key.build_id.as_ref().and_then(|id| by_build_id(key, id, pid, options)) {
        return Ok(found);
    }
    // The kernel said that the file which ran has no name any more: what is there now is another one.
    let replaced = key.deleted && key.build_id.is_none() && options.symfs.is_none();
    Err(match first_error {
        Some(error) => error,
        None if replaced => ObjectError::Replaced { name: key.name.clone() },
        None => ObjectError::Missing { name: key.name.clone(), tried: by_name },
    })
}

/// Where an object of this name may be.
fn by_name(name: &str, options: &ImageOptions) -> Vec<PathBuf> {
    match &options.symfs {
        None => vec![PathBuf::from(name)],
        Some(root) => vec![options.rooted(Path::new(name)), root.join(basename(name))],
    }
}

fn by_build_id(key: &ObjectKey, id: &BuildId, pid: Pid, options: &ImageOptions) -> Option<Located> {
    let in_its_namespace = format!("/proc/{}/root{}", pid.0, key.name);
    let live = options.symfs.is_none().then(|| PathBuf::from(in_its_namespace));
    open_first(live.into_iter().chain(build_id_dirs::places(id, Part::Code, options)), id)
}

/// The first of the files that has this build id.
pub(crate) fn open_first(places: impl IntoIterator<Item = PathBuf>, id: &BuildId) -> Option<Located> {
    places.into_iter().find_map(|path| {
        let contents = open(&path, Some(id)).ok().flatten()?;
        Some(Located { path, contents, assumption: None })
    })
}

/// Maps the file at `path`; `None` if there is none.
pub(crate) fn open(path: &Path, build_id: Option<&BuildId>) -> Result<Option<Contents>, ObjectError> {
    let file = match MappedFile::open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(ObjectError::Unreadable { path: path.into(), why: e.to_string() }),
    };
    let damaged = |what: String| ObjectError::Damaged { path: path.into(), what };
    let found = Elf::parse(file.bytes()).map_err(|e| damaged(e.to_string()))?.build_id();
    match build_id {
        Some(recording) if !found.as_ref().is_some_and(|found| same_build_id(found, recording)) => {
            Err(ObjectError::BuildId { path: path.into(), file: found, recording: recording.clone() })
        }
        _ => Ok(Some(Contents::Mapped(file.into()))),
    }
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
