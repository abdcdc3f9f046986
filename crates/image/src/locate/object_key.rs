//! What the kernel's name of a mapping says: a file, memory, code that a program wrote at run time.

use model::{BuildId, Inode, Pid};

/// The name of the mapping of the vDSO, and of the directory in perf's cache.
pub(crate) const VDSO: &str = "[vdso]";

/// Where the kernel has a process run instructions that uprobes have replaced.
const UPROBES: &str = "[uprobes]";

/// What identifies an object: the name that the kernel gave, and the build id; without that, the inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    /// Without ` (deleted)`.
    pub(crate) name: String,
    pub(crate) build_id: Option<BuildId>,
    /// If there is no build id, and inodes tell files apart.
    pub(crate) inode: Option<Inode>,
    /// The file was gone or replaced when it was mapped.
    pub(crate) deleted: bool,
}

/// An object, and a process that has mapped it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedObject {
    pub(crate) key: ObjectKey,
    pub(crate) pid: Pid,
}

impl ObjectKey {
    /// It is memory without a file: `[vdso]`, `[heap]`, `//anon`, also by the name of its perf map.
    pub(crate) fn has_no_file(&self) -> bool {
        const PREFIXES: [&str; 7] =
            ["[", "//", "/memfd:", "/dev/zero", "/SYSV", "anon_inode:", "/anon_hugepage"];
        let is_memory = PREFIXES.iter().any(|prefix| self.name.starts_with(prefix));
        self.name.is_empty() || is_memory || is_perf_map(&self.name)
    }

    /// Code that a program wrote at run time and dumped.
    pub(crate) fn is_jitdump(&self) -> bool {
        is_jitdump(&self.name)
    }

    /// Memory with code that cannot be known: nothing is lost where other code takes its place.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.has_no_file() && !self.is_vdso()
    }

    /// Where instructions run that uprobes have replaced.
    pub(crate) fn is_uprobes_page(&self) -> bool {
        self.name == UPROBES
    }

    /// Code of the kernel, mapped into every process.
    pub(crate) fn is_vdso(&self) -> bool {
        self.name == VDSO
    }
}

/// The last part of a path; all of a name that is no path.
#[must_use]
pub fn basename(name: &str) -> &str {
    if name.starts_with("//") {
        return name;
    }
    name.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(name)
}

/// The name is that of a dump: `jit-PID.dump`.
pub(crate) fn is_jitdump(name: &str) -> bool {
    let pid = basename(name).strip_prefix("jit-").and_then(|rest| rest.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

/// The name is that of a map: `/tmp/perf-PID.map`.
pub(crate) fn is_perf_map(name: &str) -> bool {
    let pid = name.strip_prefix("/tmp/perf-").and_then(|rest| rest.strip_suffix(".map"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_directories() {
        assert_eq!(basename("/usr/lib/libc.so.6"), "libc.so.6");
        assert_eq!(basename("[vdso]"), "[vdso]");
        assert_eq!(basename("//anon"), "//anon");
    }

    #[test]
    fn names_of_dumps() {
        assert!(is_jitdump("/tmp/x/jit-12.dump"));
        for name in ["/tmp/jit-.dump", "/tmp/jit-1x.dump", "/tmp/jit-1.dump (deleted)", "jit-1"] {
            assert!(!is_jitdump(name), "{name}");
        }
    }

    #[test]
    fn names_of_maps() {
        assert!(is_perf_map("/tmp/perf-12.map"));
        for name in ["/tmp/perf-.map", "/tmp/perf-1x.map", "/var/perf-1.map", "/tmp/perf-1"] {
            assert!(!is_perf_map(name), "{name}");
        }
    }
}
