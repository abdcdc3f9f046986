//! Files that results go to.
//!
//! ```text
//!   a file, or none yet        written beside its place, which it takes when it is whole
//!   a link to one              the same of what it leads to
//!   a device, a pipe           written as it comes
//!   /dev/stdout, /dev/stderr   goes on where that is
//! ```
//! What is read is never written, and no two outputs are one file: that is refused before anything is opened
//! for writing.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use recorder::{NewFile, RecordError, let_large_writes_fail};

use crate::exit::{Exit, failure};
use crate::recording;

/// Links that the kernel follows, at most.
const LINKS_MAX: usize = 40;

/// An output, as it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputAsked<'a> {
    pub(crate) option: &'a str,
    pub(crate) path: &'a Path,
}

/// Creates a directory for files of ours, or takes an empty one.
///
/// # Errors
/// It has files already, which would be mixed up with ours, or it cannot be created.
pub(crate) fn create_empty_directory(option: &str, path: &Path) -> Result<()> {
    if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        let message = format!("{option} {}: not an empty directory; name another one", path.display());
        return Err(failure(Exit::Usage, message));
    }
    fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Whether `outputs` are files of their own: none of `inputs`, and not each other or what stdout is
/// redirected to.
///
/// # Errors
/// One is not, which is wrong usage.
pub(crate) fn check_apart(inputs: &[&Path], outputs: &[OutputAsked<'_>]) -> Result<()> {
    let read: Vec<(PathBuf, Identity)> = inputs
        .iter()
        .flat_map(|input| parts(input))
        .filter_map(|path| Identity::of(&path).map(|id| (path, id)))
        .collect();
    let mut written: Vec<(String, Identity, bool)> =
        own_stdout().map(|identity| ("stdout".to_owned(), identity, true)).into_iter().collect();
    for OutputAsked { option, path } in outputs {
        let named = format!("{option} {}", path.display());
        // A device or a pipe is nothing that could be lost.
        let Some(identity) = Identity::of(path) else { continue };
        if let Some((input, _)) = read.iter().find(|(_, of_input)| *of_input == identity) {
            let message = format!("{named}: would be written over {}: name another file", input.display());
            return Err(failure(Exit::Usage, message));
        }
        // What goes on where the other is does not overwrite it.
        let goes_on = matches!(OutputPlace::of(path), Ok(OutputPlace::Stdout | OutputPlace::Stderr));
        let same = |(_, other, other_goes_on): &&(String, Identity, bool)| {
            *other == identity && !(goes_on && *other_goes_on)
        };
        if let Some((other, ..)) = written.iter().find(same) {
            return Err(failure(
                Exit::Usage,
                format!("{named}: is the file of {other}, too: name another one"),
            ));
        }
        written.push((named, identity, goes_on));
    }
    Ok(())
}

/// What makes two paths one file.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    There(u64, u64),
    /// The path of one that is yet to come, without links.
    ToCome(PathBuf),
}

impl Identity {
    /// The identity of the file at `path`; `None`: no regular file, or one that cannot be looked at.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(file) => Self::of_file(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let end = followed(path);
                Some(Self::ToCome(directory(&end).canonicalize().ok()?.join(end.file_name()?)))
            }
            Err(_) => None,
        }
    }

    fn of_file(file: &Metadata) -> Option<Self> {
        file.is_file().then(|| Self::There(file.dev(), file.ino()))
    }
}

fn own_stdout() -> Option<Identity> {
    let file = File::from(stdout().as_fd().try_clone_to_owned().ok()?);
    Identity::of_file(&file.metadata().ok()?)
}

/// The input, or the files of one that is a directory (`perf record --threads`, `--kcore`).
fn parts(input: &Path) -> Vec<PathBuf> {
    let is_read = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name == "data" || name.starts_with("data.") || ["kcore", "kallsyms", "modules"].contains(&name)
    };
    match fs::read_dir(input) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(is_read).collect(),
        Err(_) => vec![input.to_owned()],
    }
}

/// The directory that a file is in.
pub(crate) fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What a path leads to by links; those to open files (`/proc/self/fd/1`) lead nowhere.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(link) if !is_open_file(&path) => path = directory(&path).join(link),
            _ => break,
        }
    }
    path
}

fn is_open_file(path: &Path) -> bool {
    let open_files = fs::canonicalize("/proc/self/fd");
    open_files.is_ok_and(|open_files| fs::canonicalize(directory(path)).is_ok_and(|path| path == open_files))
}

/// How something is written there.
enum OutputPlace {
    /// Beside it first; its path without links.
    File(PathBuf),
    Stdout,
    Stderr,
    /// Written as it comes: a device, a pipe, another open file; a directory, too, which then cannot be
    /// opened.
    Other,
}

impl OutputPlace {
    fn of(path: &Path) -> io::Result<Self> {
        let end = followed(path);
        if is_open_file(&end) {
            return Ok(match end.file_name().and_then(|name| name.to_str()) {
                Some("1") => Self::Stdout,
                Some("2") => Self::Stderr,
                _ => Self::Other,
            });
        }
        match fs::metadata(path) {
            Ok(file) if !file.is_file() => Ok(Self::Other),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Self::File(end)),
        }
    }
}

/// Whether it can be written there, so that nothing is measured or decoded in vain; nothing is changed.
///
/// # Errors
/// It cannot.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    let can = || match OutputPlace::of(path)? {
        OutputPlace::File(end) => open_file(&end).map(drop),
        // To open a pipe waits for its reader, which would take our closing it for the end.
        OutputPlace::Other if fs::metadata(path)?.file_type().is_fifo() => Ok(()),
        OutputPlace::Other => OpenOptions::new().write(true).open(path).map(drop),
        OutputPlace::Stdout | OutputPlace::Stderr => Ok(()),
    };
    can().with_context(|| cannot_write(path))
}

/// Opens what is written in place of a file: a new one, if its directory takes one.
fn open_file(end: &Path) -> io::Result<(File, Option<NewFile>)> {
    // One that may not be written is not replaced either.
    let old = match OpenOptions::new().write(true).open(end) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    match (NewFile::create(end, mode), old) {
        (Ok((new, file)), None) => Ok((file, Some(new))),
        (Ok((new, file)), Some(old)) => {
            let old = old.metadata()?;
            // It stays its owner's, where we may give files away.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())?;
            Ok((file, Some(new)))
        }
        (Err(RecordError::Output { error, .. }), Some(old))
            if error.kind() == io::ErrorKind::PermissionDenied =>
        {
            Ok((old, None))
        }
        (Err(RecordError::Output { error, .. }), _) => Err(error),
        (Err(error), _) => Err(io::Error::other(error)),
    }
}

/// What is said where it fails.
pub(crate) fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// An output that is being written; dropped before [`Self::finish`], it leaves a file that was there as it
/// was.
pub(crate) struct OutputFile {
    path: PathBuf,
    /// What is written to it.
    pub(crate) out: BufWriter<File>,
    new: Option<NewFile>,
}

impl OutputFile {
    /// Opens it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        // Whatever was started for a measurement runs already.
        let_large_writes_fail();
        let (file, new) = Self::open(path).with_context(|| cannot_write(path))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::with_capacity(1 << 20, file), new })
    }

    fn open(path: &Path) -> io::Result<(File, Option<NewFile>)> {
        match OutputPlace::of(path)? {
            OutputPlace::File(end) => {
                let (file, new) = open_file(&end)?;
                if new.is_none() {
                    file.set_len(0)?;
                }
                Ok((file, new))
            }
            OutputPlace::Stdout => Ok((stdout().as_fd().try_clone_to_owned()?.into(), None)),
            OutputPlace::Stderr => Ok((stderr().as_fd().try_clone_to_owned()?.into(), None)),
            OutputPlace::Other => Ok((File::create(path)?, None)),
        }
    }

    /// All is written: the file takes its place.
    ///
    /// # Errors
    /// It could not be written, or a file was cut while it was read.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.out.flush().with_context(|| cannot_write(&self.path))?;
        recording::check_uncut()?;
        self.new.map_or(Ok(()), NewFile::replace)?;
        Ok(())
    }
}

/// Writes a file.
///
/// # Errors
/// It could not be written; one that was there is as it was.
pub(crate) fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut file = OutputFile::create(path)?;
    write(&mut file.out).with_context(|| cannot_write(path))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_that_is_yet_to_come_is_known_by_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        symlink("new", of("link")).unwrap();
        symlink(of("link"), of("link-of-link")).unwrap();
        fs::create_dir(of("sub")).unwrap();
        let new = Identity::of(&of("new"));
        assert!(matches!(&new, Some(Identity::ToCome(_))), "{new:?}");
        for same in ["link", "link-of-link", "sub/../new"] {
            assert_eq!(Identity::of(&of(same)), new, "{same}");
        }
        assert_ne!(Identity::of(&of("other")), new);
        for nothing_to_lose in ["/dev/null", "/dev/full", "/"] {
            assert_eq!(Identity::of(Path::new(nothing_to_lose)), None, "{nothing_to_lose}");
        }
    }

    /// A check changes no file, and does not open a pipe, which would wait for its reader.
    #[test]
    fn to_check_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        fs::write(of("old"), "old").unwrap();
        let pipe = of("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [of("old"), of("new"), pipe, "/dev/stdout".into(), "/dev/fd/2".into(), "/dev/null".into()]
        {
            check_writable(&path).unwrap();
        }
        let error = check_writable(&of("no/such/file")).unwrap_err();
        assert_eq!(error.to_string(), cannot_write(&of("no/such/file")));
        assert!(check_writable(directory.path()).is_err(), "a directory");
        assert_eq!(fs::read_to_string(of("old")).unwrap(), "old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_was_given_up_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.csv");
        fs::write(&path, "old").unwrap();
        let fails = |out: &mut dyn Write| {
            out.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let error = write_file(&path, fails).unwrap_err();
        assert_eq!(error.to_string(), cannot_write(&path));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write_file(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }
}
