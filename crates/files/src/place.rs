//! Where a file is, and how it is opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A path, and the root directory in which it and the links on it are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path here; it begins with the root.
    path: PathBuf,
    /// `None`: ours.
    root: Option<PathBuf>,
}

impl Place {
    /// The path as this process sees it.
    #[must_use]
    pub fn here(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), root: None }
    }

    /// `path` as a process with this root directory sees it (`/proc/PID/root`).
    #[must_use]
    pub fn below(root: &Path, path: &Path) -> Self {
        let path = root.join(path.strip_prefix("/").unwrap_or(path));
        Self { path, root: Some(root.into()) }
    }

    /// The path here, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another path, resolved in the same root.
    #[must_use]
    pub fn other(&self, path: PathBuf) -> Self {
        match &self.root {
            Some(root) if !path.starts_with(root) => Self::below(root, &path),
            root => Self { path, root: root.clone() },
        }
    }

    /// Opens a regular file for reading.  Links are followed.
    ///
    /// # Errors
    /// What the system says; also if it is no regular file.
    pub fn open(&self) -> io::Result<File> {
        self.open_with(OFlags::empty())
    }

    /// Opens a regular file for reading, which is no link; the directories above it may be.
    ///
    /// # Errors
    /// As [`Self::open`]; also if it is a link.
    pub fn open_unlinked(&self) -> io::Result<File> {
        self.open_with(OFlags::NOFOLLOW)
    }

    /// Opens a regular file in a directory where every user may write (`/tmp`): not through a link, with no
    /// other name (a hard link to another user's file), and of one of these owners.
    ///
    /// # Errors
    /// As [`Self::open`]; also if it is not such a file.
    pub fn open_owned(&self, owners: &Owners) -> io::Result<File> {
        let file = self.open_unlinked()?;
        let metadata = file.metadata()?;
        let is_trusted = metadata.nlink() == 1 && owners.0.contains(&metadata.uid());
        is_trusted.then_some(file).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// What the file is, is asked of the very file that is then opened: to open a device may act on it, and
    /// to open a pipe waits.  `NONBLOCK` is for files with a lease.
    fn open_with(&self, flags: OFlags) -> io::Result<File> {
        let found = File::from(self.resolve(OFlags::PATH | OFlags::CLOEXEC | flags)?);
        if !found.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let again = format!("/proc/self/fd/{}", found.as_raw_fd());
        let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(again, read, Mode::empty()) {
            // No `/proc` is mounted.
            Err(Errno::NOENT) => self.same_file(&found, read | flags),
            opened => Ok(opened?.into()),
        }
    }

    /// The file by its path again, if that is still the same one.
    fn same_file(&self, found: &File, flags: OFlags) -> io::Result<File> {
        let file = File::from(self.resolve(flags)?);
        let identity = |file: &File| file.metadata().map(|file| (file.dev(), file.ino()));
        let is_same = identity(&file)? == identity(found)?;
        is_same.then_some(file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Below another root by `openat2`: no link leads out of it.  On kernels without (before 5.6) nothing is
    /// opened there.
    fn resolve(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let Some(root) = &self.root else { return rustix::fs::openat(CWD, &self.path, flags, Mode::empty()) };
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_fd = rustix::fs::open(root, directory, Mode::empty())?;
        let inside = self.path.strip_prefix(root).unwrap_or(&self.path);
        let inside_only = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(root_fd, inside, flags, Mode::empty(), inside_only)
    }
}

/// Users that may own a file in a directory where every user may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners(Vec<u32>);

impl Owners {
    /// Root and the user of this process.
    #[must_use]
    pub fn of_host() -> Self {
        Self(vec![0, rustix::process::geteuid().as_raw()])
    }

    /// These and the owner of a directory; `/proc/PID` belongs to the user of the process.
    #[must_use]
    pub fn and_owner_of(mut self, directory: &Path) -> Self {
        self.0.extend(std::fs::metadata(directory).map(|directory| directory.uid()));
        self
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_none_waits() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for other in [pipe.as_path(), directory.path(), "/dev/null".as_ref(), "/dev/tty".as_ref()] {
            assert!(Place::here(other).open().is_err(), "{}", other.display());
        }
        fs::write(directory.path().join("file"), "text").unwrap();
        let file = Place::here(directory.path().join("file")).open().unwrap();
        assert_eq!(io::read_to_string(file).unwrap(), "text");
    }

    #[test]
    fn no_link_leads_out_of_a_root() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        fs::write(of("secret"), "secret").unwrap();
        fs::create_dir_all(of("root/lib")).unwrap();
        fs::write(of("root/lib/real"), "inside").unwrap();
        symlink(of("secret"), of("root/lib/absolute")).unwrap();
        symlink("../../secret", of("root/lib/relative")).unwrap();
        symlink(directory.path(), of("root/lib/directory")).unwrap();
        symlink("/lib/real", of("root/lib/link")).unwrap();
        let read =
            |path: &str| Place::below(&of("root"), Path::new(path)).open().and_then(io::read_to_string);
        for path in ["/lib/real", "/lib/link", "/../lib/real"] {
            assert_eq!(read(path).unwrap(), "inside", "{path}");
        }
        for path in ["/lib/absolute", "/lib/relative", "/lib/directory/secret", "/../secret"] {
            assert!(read(path).is_err(), "{path}");
        }
        let beside = Place::below(&of("root"), Path::new("/lib/real")).other(of("root/lib/absolute"));
        assert!(beside.open().is_err(), "a neighbour is resolved in the same root");
    }

    #[test]
    fn owned_files_have_no_links_and_known_owners() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        fs::write(of("map"), "").unwrap();
        fs::write(of("two"), "").unwrap();
        symlink(of("map"), of("link")).unwrap();
        let owners = Owners::of_host();
        let opens = |name: &str, owners: &Owners| Place::here(of(name)).open_owned(owners).is_ok();
        assert!(opens("map", &owners));
        assert!(!opens("link", &owners));
        fs::hard_link(of("two"), of("another name of two")).unwrap();
        assert!(!opens("two", &owners));
        if chown(of("map"), Some(12345), None).is_err() {
            println!("skipped: not root, so no file can be given to another user");
            return;
        }
        assert!(!opens("map", &owners));
        chown(directory.path(), Some(12345), None).unwrap();
        assert!(opens("map", &owners.and_owner_of(directory.path())));
    }
}
