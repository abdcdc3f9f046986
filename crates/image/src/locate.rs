//! Which file serves a mapping: the code that ran, or an error that says why there is none.
//!
//! ```text
//! by name     --symfs: DIR/path, then DIR/.build-id, then DIR/file name        otherwise: the path itself
//! by build id /proc/PID/root/path (another mount namespace), perf's and debuginfod's caches
//! else        the file that the user named, if it has the object's file name
//! ```
//! A build id decides wherever the recording has one. A file that is found by build id alone needs one.
//! Without build ids the inode does, as far as it can: /proc/PID/root/path is used if it has the recorded
//! one.

pub(crate) mod build_id_dirs;
pub(crate) mod debug_file;
pub(crate) mod debuglink;
pub(crate) mod located;
pub(crate) mod object_key;
pub(crate) mod one_per_path;
pub(crate) mod vdso;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use files::Place;
use model::{BuildId, Inode, Pid};

use crate::contents::Contents;
use crate::error::{Assumption, ObjectError, ProblemKind};
use crate::locate::build_id_dirs::Part;
use crate::locate::located::{Located, map, open, open_file, open_first};
use crate::locate::object_key::{ObjectKey, basename};
use crate::options::ImageOptions;

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
    for place in by_name.iter().filter(|_| !key.deleted || key.build_id.is_some() || options.symfs.is_some())
    {
        match open_named(place, key, options) {
            Ok(Some(contents)) => return Ok(Located { place: place.clone(), contents, assumption: None }),
            Ok(None) => (),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    if let Some(found) = key.build_id.as_ref().and_then(|id| by_build_id(key, id, pid, options)) {
        return Ok(found);
    }
    if let Some(found) = key.inode.filter(|_| !key.deleted).and_then(|inode| by_inode(key, inode, pid)) {
        return Ok(found);
    }
    match substitute(key, options) {
        Ok(Some(found)) => return Ok(found),
        Ok(None) => (),
        // The user meant this file.
        Err(error) => first_error = Some(error),
    }
    // The kernel said that the file which ran has no name any more: the file of that name is another one.
    let replaced = key.deleted && key.build_id.is_none() && options.symfs.is_none();
    let tried: Vec<PathBuf> = by_name.iter().map(|place| place.path().into()).collect();
    if options.hide_private
        && options.symfs.is_none()
        && !replaced
        && tried.iter().any(|path| is_private(path))
    {
        return Err(ObjectError::Private { name: key.name.clone() });
    }
    Err(match first_error {
        Some(error) => error,
        None if replaced => ObjectError::Replaced { name: key.name.clone() },
        None => ObjectError::Missing { name: key.name.clone(), tried },
    })
}

/// The file that the user named for an object of this file name.
fn substitute(key: &ObjectKey, options: &ImageOptions) -> Result<Option<Located>, ObjectError> {
    let is_its = |path: &&PathBuf| path.file_name().is_some_and(|name| *name == *basename(&key.name));
    let Some(path) = options.binary.as_ref().filter(is_its) else { return Ok(None) };
    let place = Place::here(path);
    let located = |contents| {
        let checked = match key.build_id {
            Some(_) => "it has the build id of what ran",
            None => "the recording has no build id to check it by",
        };
        let what = format!("{} is not here: {} is used in its place; {checked}", key.name, path.display());
        let assumption = Some(Assumption { what, kind: ProblemKind::Substitute });
        Located { place: place.clone(), contents, assumption }
    };
    Ok(open(&place, key.build_id.as_ref())?.map(located))
}

/// Where an object of this name may be.
pub(crate) fn by_name(name: &str, options: &ImageOptions) -> Vec<Place> {
    let of_root = options.symfs.as_ref().and_then(|_| options.rooted(Path::new(basename(name))));
    options.rooted(Path::new(name)).into_iter().chain(of_root).map(Place::here).collect()
}

/// The file with the recorded name, if it is the one that was mapped.
fn open_named(
    place: &Place,
    key: &ObjectKey,
    options: &ImageOptions,
) -> Result<Option<Contents>, ObjectError> {
    let Some(file) = open_file(place)? else { return Ok(None) };
    if let (Some(recorded), Some(host), Ok(metadata)) = (key.inode, &options.host_files, file.metadata())
        && host.contradicts(&metadata, recorded)
    {
        let (path, file) = (place.path().into(), metadata.ino());
        return Err(ObjectError::Inode { path, file, recording: recorded.number });
    }
    map(&file, place, key.build_id.as_ref()).map(Some)
}

/// The file as the process sees it, while that lives: a number given to another process since leads to
/// another inode.
fn by_inode(key: &ObjectKey, inode: Inode, pid: Pid) -> Option<Located> {
    let place = in_its_namespace(&key.name, pid);
    let file = open_file(&place).ok().flatten()?;
    file.metadata().ok().filter(|file| file.ino() == inode.number)?;
    let contents = map(&file, &place, None).ok()?;
    Some(Located { place, contents, assumption: None })
}

/// A path as a process that lives sees it.
pub(crate) fn in_its_namespace(name: &str, pid: Pid) -> Place {
    Place::below(&PathBuf::from(format!("/proc/{}/root", pid.0)), Path::new(name))
}

fn by_build_id(key: &ObjectKey, id: &BuildId, pid: Pid, options: &ImageOptions) -> Option<Located> {
    // A running program still has its file after that was deleted.
    let live = || [in_its_namespace(&key.name, pid), Place::here(format!("/proc/{}/exe", pid.0))];
    let live = options.symfs.is_none().then(live).into_iter().flatten();
    open_first(live.chain(build_id_dirs::places(id, Part::Code, options).into_iter().map(Place::here)), id)
}

/// Not every user may read the file, or know whether it is there.
fn is_private(path: &Path) -> bool {
    const OTHERS_READ: u32 = 0o4;
    const OTHERS_SEARCH: u32 = 0o1;
    // A link leads where its target is.
    let real = path.canonicalize();
    let real = real.as_deref().unwrap_or(path);
    let lacks =
        |path: &Path, right: u32| std::fs::metadata(path).is_ok_and(|found| found.mode() & right == 0);
    lacks(real, OTHERS_READ) || real.ancestors().skip(1).any(|directory| lacks(directory, OTHERS_SEARCH))
}
