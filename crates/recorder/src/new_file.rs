//! A file that comes to be beside its place, and takes it when nothing can go wrong any more (a recording:
//! when the window begins): until then what was there stays what it is, and where something goes wrong
//! nothing new is left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::RecordError;

/// A file that has not taken its place yet; dropped before, it is removed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    beside: PathBuf,
    placed: bool,
}

impl NewFile {
    /// Creates it beside `path`, for those whom `mode` and the umask let.
    ///
    /// # Errors
    /// There can be no file.
    pub fn create(path: &Path, mode: u32) -> Result<(Self, File), RecordError> {
        let beside = with_suffix(path, &format!(".new-{}", std::process::id()));
        // One that was killed may have had our number.
        let _ = fs::remove_file(&beside);
        // Never through a link that somebody else has put there.
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside);
        let file = file.map_err(|error| not_written(path, error))?;
        Ok((Self { path: path.to_path_buf(), beside, placed: false }, file))
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
        fs::rename(&self.beside, &self.path).map_err(|error| not_written(&self.path, error))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.placed {
            // One that cannot be removed is in nobody's way.
            let _ = fs::remove_file(&self.beside);
        }
    }
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
