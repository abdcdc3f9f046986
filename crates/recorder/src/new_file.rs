//! A file that is made beside its place, and takes it when nothing can go wrong any more (a recording: when
//! the window begins). Until then an older file there stays as it is, and a failure leaves nothing new.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};

use crate::error::RecordError;

/// A file that has not taken its place yet; dropped before, it is removed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    beside: PathBuf,
    /// The file, if it has no name: it is gone when the process is, also when that is killed.
    unnamed: Option<File>,
    placed: bool,
}

impl NewFile {
    /// Creates it beside `path`, for the users that `mode` and the umask let.
    ///
    /// # Errors
    /// There can be no file.
    pub fn create(path: &Path, mode: u32) -> Result<(Self, File), RecordError> {
        let beside = hidden_beside(path);
        // One that was killed may have had our number.
        let _ = fs::remove_file(&beside);
        if let Ok((file, unnamed)) = create_unnamed(path, mode) {
            let new = Self { path: path.to_path_buf(), beside, unnamed: Some(unnamed), placed: false };
            return Ok((new, file));
        }
        // Not every file system has files without a name.
        // Never through a link that another user has put there.
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside);
        let file = file.map_err(|error| not_written(path, error))?;
        Ok((Self { path: path.to_path_buf(), beside, unnamed: None, placed: false }, file))
    }

    /// Takes its place.  A file that is there already gets the name `FILE.old`, as perf does it.
    ///
    /// # Errors
    /// It cannot; it is removed.
    pub(crate) fn take_place(self) -> Result<(), RecordError> {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| !file.is_dir()) {
            fs::rename(&self.path, with_suffix(&self.path, ".old"))
                .map_err(|error| not_written(&self.path, error))?;
        }
        self.replace()
    }

    /// Takes its place.  A file that is there already is gone then.
    ///
    /// # Errors
    /// It cannot; it is removed.
    pub fn replace(mut self) -> Result<(), RecordError> {
        if let Some(unnamed) = self.unnamed.take() {
            // `open(2)`, O_TMPFILE: how such a file gets a name; no call gives it one that is taken.
            let (open, flags) = (of_open_file(&unnamed), AtFlags::SYMLINK_FOLLOW);
            linkat(CWD, &open, CWD, &self.beside, flags)
                .map_err(|error| not_written(&self.path, error.into()))?;
        }
        fs::rename(&self.beside, &self.path).map_err(|error| not_written(&self.path, error))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.placed {
            // One that cannot be removed does no harm.
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// Creates a file that has no name, in the directory of `path`; returns it twice.
fn create_unnamed(path: &Path, mode: u32) -> io::Result<(File, File)> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(CWD, directory.unwrap_or(Path::new(".")), flags, Mode::from_raw_mode(mode))?;
    let file = File::from(file);
    let unnamed = file.try_clone()?;
    // It could not get its name without.
    fs::metadata(of_open_file(&unnamed))?;
    Ok((file, unnamed))
}

fn of_open_file(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A name beside `path` that begins with a dot: readers of all files of a directory pass it by.
fn hidden_beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".new-{}", std::process::id()));
    path.with_file_name(name)
}

fn not_written(path: &Path, error: io::Error) -> RecordError {
    RecordError::Output { path: path.to_path_buf(), error }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;

    use super::*;

    fn files(directory: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let named = |entry: fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
        };
        entries.map(named).collect()
    }

    fn expect<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, String> {
        files.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
    }

    /// The recording before was `.old` then, and the one before that was gone, for one that never began.
    #[test]
    fn what_was_there_stays_until_the_window_begins() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        fs::write(&path, "second").unwrap();
        fs::write(directory.path().join("perf.data.old"), "first").unwrap();
        let (new, mut file) = NewFile::create(&path, 0o600).unwrap();
        file.write_all(b"third").unwrap();
        drop(new);
        assert_eq!(files(directory.path()), expect([("perf.data", "second"), ("perf.data.old", "first")]));

        let (new, mut file) = NewFile::create(&path, 0o600).unwrap();
        file.write_all(b"thi").unwrap();
        new.take_place().unwrap();
        file.write_all(b"rd").unwrap();
        assert_eq!(files(directory.path()), expect([("perf.data", "third"), ("perf.data.old", "second")]));
    }

    #[test]
    fn what_is_replaced_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.csv");
        fs::write(&path, "first").unwrap();
        let (new, mut file) = NewFile::create(&path, 0o600).unwrap();
        file.write_all(b"second").unwrap();
        new.replace().unwrap();
        assert_eq!(files(directory.path()), expect([("rows.csv", "second")]));
    }

    /// A reader of all files of a directory took the file of a report that was killed for one of its tables.
    #[test]
    fn what_is_killed_leaves_nothing_in_sight() {
        let directory = tempfile::tempdir().unwrap();
        let (new, mut file) = NewFile::create(&directory.path().join("calls.parquet"), 0o600).unwrap();
        file.write_all(b"PAR1").unwrap();
        std::mem::forget(new);
        let in_sight = files(directory.path()).into_keys().filter(|name| !name.starts_with('.'));
        assert_eq!(in_sight.collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn a_place_that_cannot_be_taken_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        fs::create_dir(&path).unwrap();
        let (new, _file) = NewFile::create(&path, 0o600).unwrap();
        let error = new.take_place().unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something is left");
        assert!(NewFile::create(&directory.path().join("nowhere/perf.data"), 0o600).is_err());
    }
}
