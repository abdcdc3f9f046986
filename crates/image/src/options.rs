//! Where objects and their symbols are looked for.

use std::path::{Component, Path, PathBuf};

use model::TscClock;

use crate::host_files::HostFiles;

/// Where to look for objects and their symbols.  The image asks no environment: its caller says where this
/// machine keeps what.
///
/// What is looked up by build id is used only if its own build id is the wanted one, so every cache may be
/// given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Look for the files below this directory only: `DIR/path/of/object`, `DIR/.build-id`, then
    /// `DIR/object`.
    pub symfs: Option<PathBuf>,
    /// A file that is used for an object of its file name that is found nowhere else.
    pub binary: Option<PathBuf>,
    /// Where separate debug files are installed (GDB's `debug-file-directory`).
    pub debug_directory: PathBuf,
    /// perf's build-id cache, `~/.debug`.
    pub build_id_cache: Option<PathBuf>,
    /// The cache of the debuginfod client.  It is only read: nothing is ever downloaded.
    pub debuginfod_cache: Option<PathBuf>,
    /// The vDSO of the kernel that runs here.
    pub host_vdso: Option<HostVdso>,
    /// The file systems here, if the recording was made on this machine: then a file with another inode than
    /// the recorded one is another file. `None`: inodes say nothing.
    pub host_files: Option<HostFiles>,
    /// Errors say nothing of files that only some users may read: this process may read more than the author
    /// of the recording, which names the files.
    pub hide_private: bool,
    /// Where to take the kernel's code from.
    pub kernel: KernelOptions,
    /// The recording's clock: tells when code that a program wrote at run time (jitdump) was where.
    pub clock: Option<TscClock>,
}

/// Where to take the kernel's code from; by default, where it is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelOptions {
    /// A copy of `/proc/kcore`, or a directory with that and `kallsyms`.
    pub kcore: Option<PathBuf>,
    /// `vmlinux`.
    pub vmlinux: Option<PathBuf>,
}

/// The vDSO that the running kernel maps into every process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVdso {
    /// Its ELF file.
    pub bytes: Vec<u8>,
    /// The recording is of a kernel of the same release: where it names no build id, this is taken to be its
    /// vDSO.
    pub same_kernel_release: bool,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            symfs: None,
            binary: None,
            debug_directory: PathBuf::from("/usr/lib/debug"),
            build_id_cache: None,
            debuginfod_cache: None,
            host_vdso: None,
            host_files: None,
            hide_private: false,
            kernel: KernelOptions::default(),
            clock: None,
        }
    }
}

impl ImageOptions {
    /// A path of the traced machine on this one; `None` if it leads out of `symfs`.  Links that the
    /// directory's owner put there may.
    pub(crate) fn rooted(&self, path: &Path) -> Option<PathBuf> {
        match &self.symfs {
            Some(root) => Some(root.join(inside_root(path)?)),
            None => Some(path.to_path_buf()),
        }
    }
}

/// A path without its root and without `..`; `None` if these lead out of the root.
pub(crate) fn inside_root(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => (),
            Component::Normal(name) => inside.push(name),
            Component::ParentDir if inside.pop() => (),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_symfs() {
        let options = ImageOptions { symfs: Some("/s".into()), ..ImageOptions::default() };
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(options.rooted(Path::new(name)), expect.map(PathBuf::from), "{name}");
        };
        check("/usr/lib/libx.so", Some("/s/usr/lib/libx.so"));
        check("/usr/lib/../libx.so", Some("/s/usr/libx.so"));
        check("/usr/../../etc/passwd", None);
        check("..", None);
        assert_eq!(ImageOptions::default().rooted(Path::new("/a/../b")), Some("/a/../b".into()));
    }
}
