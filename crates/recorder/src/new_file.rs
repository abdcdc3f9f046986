//! A file that comes to be beside its place, and takes it when the window begins: whatever goes wrong before, the recording that
//! was there stays what it is, and nothing new is left.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::RecordError;

/// A file that has not taken its place yet; dropped before, it is removed.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    beside: PathBuf,
    placed: bool,
}

impl NewFile {
    /// Creates it beside `path`.
    ///
    /// # Errors
    /// There can be no file.
    pub(crate) fn create(path: &Path) -> Result<(Self, File), RecordError> {
        let beside = with_suffix(path, &format!(".new-{}", std::process::id()));
        // One that was killed may have had our number.
        let _ = fs::remove_file(&beside);
        // For its owner only, as perf's are, and never through a link that somebody else has put there.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        let file = file.map_err(|error| not_written(path, error))?;
        Ok((Self { path: path.to_path_buf(), beside, placed: false }, file))
    }

    /// Takes its place.  A file that is there already gets the name `FILE.old`, as perf does it.
    ///
    /// # Errors
    /// It cannot; it is removed.
    pub(crate) fn take_place(mut self) -> Result<(), RecordError> {
        self.rename().map_err(|error| not_written(&self.path, error))?;
        self.placed = true;
        Ok(())
    }

    fn rename(&self) -> io::Result<()> {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| !file.is_dir()) {
            fs::rename(&self.path, with_suffix(&self.path, ".old"))?;
        }
        fs::rename(&self.beside, &self.path)
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
        let (new, mut file) = NewFile::create(&path).unwrap();
        file.write_all(b"third").unwrap();
        drop(new);
        assert_eq!(files(directory.path()), expect([("perf.data", "second"), ("perf.data.old", "first")]));

        let (new, mut file) = NewFile::create(&path).unwrap();
        file.write_all(b"thi").unwrap();
        new.take_place().unwrap();
        file.write_all(b"rd").unwrap();
        assert_eq!(files(directory.path()), expect([("perf.data", "third"), ("perf.data.old", "second")]));
    }

    #[test]
    fn a_place_that_cannot_be_taken_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("perf.data");
        fs::create_dir(&path).unwrap();
        let (new, _file) = NewFile::create(&path).unwrap();
        let error = new.take_place().unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something is left");
        assert!(NewFile::create(&directory.path().join("nowhere/perf.data")).is_err());
    }
}
