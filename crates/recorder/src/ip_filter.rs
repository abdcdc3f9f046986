//! IP filters: which ranges of which files are traced.
//!
//! The kernel takes `filter 0xSTART/0xSIZE@FILE`, opens FILE, and compares its inode with that of whatever
//! the target maps.  What a path says is not enough for that: the target may live in another file system (a
//! container), its file may have been replaced, and on overlayfs the inode that is mapped is that of the
//! layer below.  So a file is named by a path at which there is certainly the inode that is mapped, or
//! not at all.  In which of its mappings the kernel looks for a range: [`crate::filter_mapping`].

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::{FileOffset, Pid};
use rustix::fs::statfs;

use crate::overlay;
use crate::procfs::{MapsLine, Proc};

/// `f_type` of file systems with other devices or inodes than `/proc/PID/maps` shows.
const OVERLAYFS: u64 = 0x794c_7630;
const BTRFS: u64 = 0x9123_683e;

/// A stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpRange {
    /// The file as its process names it: what the recording says.
    pub mapped_as: String,
    /// The file as the kernel finds it.
    pub file: PathBuf,
    /// First byte.
    pub start: FileOffset,
    /// Bytes.
    pub bytes: u64,
}

/// Ranges, for the kernel.
#[must_use]
pub fn for_kernel(ranges: &[IpRange]) -> String {
    joined(ranges, |range| range.file.to_string_lossy().into_owned())
}

/// Ranges, for the recording: perf and our reader look for the names of the mappings. Files of one name are
/// one there.
#[must_use]
pub fn for_recording(ranges: &[IpRange]) -> String {
    joined(ranges, |range| range.mapped_as.clone())
}

fn joined(ranges: &[IpRange], name: impl Fn(&IpRange) -> String) -> String {
    let text = |range: &IpRange| format!("filter {:#x}/{:#x}@{}", range.start.0, range.bytes, name(range));
    let mut texts: Vec<String> = Vec::with_capacity(ranges.len());
    for text in ranges.iter().map(text) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(",")
}

/// The file of a mapping, by a path that the kernel's filters can use; `None` if there is none.
#[must_use]
pub fn file_of_mapping(proc: &Proc, pid: Pid, line: &MapsLine) -> Option<PathBuf> {
    let as_there = proc.seen_by(pid, &line.path)?;
    let by_mapping = proc.by_mapping(pid, line);
    let candidates = [by_mapping, as_there];
    if let Some(direct) = candidates.iter().find(|path| writable(path) && is_mapped(path, line)) {
        return Some(direct.clone());
    }
    // Older kernels show the inode of the layer, newer ones that of the overlay.
    let overlay_is_mapped = candidates.iter().any(|path| shows(path, line));
    let layers = overlay::layers(&proc.mounts(pid)?, Path::new(&line.path));
    let mut files = layers.into_iter().filter(|path| writable(path) && path.is_file());
    files.find(|path| overlay_is_mapped || is_mapped(path, line))
}

/// The file that a program will be executed from, by a path that the kernel's filters can use; `None` if
/// there is none.
#[must_use]
pub fn file_of_program(proc: &Proc, path: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    if file_system(&path) == Some(OVERLAYFS) {
        let own = Pid(i32::try_from(std::process::id()).ok()?);
        let layers = overlay::layers(&proc.mounts(own)?, &path);
        return layers.into_iter().find(|path| writable(path) && path.is_file());
    }
    (writable(&path) && path.is_file()).then_some(path)
}

/// The path can be written into a filter: the kernel ends it at a space or a comma.
fn writable(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.is_empty() && !bytes.iter().any(|byte| byte.is_ascii_whitespace() || *byte == b',')
}

/// At the path there is the inode that is mapped.
fn is_mapped(path: &Path, line: &MapsLine) -> bool {
    match file_system(path) {
        // Whatever it shows, the mapped file is one of a layer.
        Some(OVERLAYFS) => false,
        // Each subvolume shows a device of its own.
        Some(BTRFS) => fs::metadata(path).is_ok_and(|file| file.is_file() && file.ino() == line.inode),
        _ => shows(path, line),
    }
}

/// The file has the device and the inode that the mapping has.
fn shows(path: &Path, line: &MapsLine) -> bool {
    fs::metadata(path).is_ok_and(|file| line.is_of(&file))
}

fn file_system(path: &Path) -> Option<u64> {
    u64::try_from(statfs(path).ok()?.f_type).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_the_recording_name_a_file_differently() {
        let range = |start| IpRange {
            mapped_as: "/bin/x".into(),
            file: "/proc/7/root/bin/x".into(),
            start: FileOffset(start),
            bytes: 0x58,
        };
        let ranges = [range(0x1180), range(0x2000)];
        assert_eq!(
            for_kernel(&ranges),
            "filter 0x1180/0x58@/proc/7/root/bin/x,filter 0x2000/0x58@/proc/7/root/bin/x"
        );
        assert_eq!(for_recording(&ranges[..1]), "filter 0x1180/0x58@/bin/x");
        let copies = ["/proc/7/root/bin/x", "/proc/8/root/bin/x"]
            .map(|file| IpRange { file: file.into(), ..range(0x1180) });
        assert_eq!(for_kernel(&copies).split(',').count(), 2);
        assert_eq!(for_recording(&copies), "filter 0x1180/0x58@/bin/x");
    }

    /// In memory, wherever the repository and `TMPDIR` are: the path has no space.
    fn directory_without_overlay() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    #[test]
    fn a_file_is_found_by_what_is_mapped() {
        let pid = Pid(7);
        let directory = directory_without_overlay();
        let (file, process) = (directory.path().join("x"), directory.path().join("7"));
        fs::write(&file, "x").unwrap();
        fs::create_dir(&process).unwrap();
        std::os::unix::fs::symlink("/", process.join("root")).unwrap();
        let found = fs::metadata(&file).unwrap();
        let line = MapsLine {
            start: 0x10000,
            end: 0x11000,
            protection: 5,
            flags: 2,
            offset: 0,
            device: (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())),
            inode: found.ino(),
            path: file.to_str().unwrap().to_owned(),
        };
        let proc = Proc::at(directory.path());
        let by_path = file_of_mapping(&proc, pid, &line).unwrap();
        assert_eq!(fs::metadata(&by_path).unwrap().ino(), found.ino());
        let other = MapsLine { inode: line.inode + 1, ..line };
        assert_eq!(file_of_mapping(&proc, pid, &other), None, "another file is there now");
        assert!(file_of_program(&Proc::host(), &file).is_some());
    }

    #[test]
    fn a_name_that_the_kernel_would_cut_is_not_used() {
        let directory = directory_without_overlay();
        for (name, usable) in [("plain", true), ("with space", false), ("a,b", false)] {
            let path = directory.path().join(name);
            fs::write(&path, "x").unwrap();
            assert_eq!(file_of_program(&Proc::host(), &path).is_some(), usable, "{name}");
        }
    }
}
