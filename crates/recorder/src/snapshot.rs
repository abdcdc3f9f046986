//! What is there before the window begins: threads, names, mappings.
//!
//! The kernel tells only of what changes. So the sideband is opened first and the snapshot taken then: what
//! changes in between is in both, and nothing is in neither.

use std::path::Path;

use model::{Avma, BuildId, FileOffset, Inode, Mmap, Ns, Pid, Sideband, SidebandRecord, Tid};
use perfdata::write::{FileIdentity, Record, SampleId};

use crate::procfs::{MapsLine, Proc};

/// Reads the build id of a file; `None` if it has none.
pub type BuildIdOf<'a> = &'a (dyn Fn(&Path) -> Option<BuildId> + Sync);

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number.
    pub pid: Pid,
    /// Its threads and their names.
    pub threads: Vec<(Tid, String)>,
    /// Its mappings with code.
    pub mappings: Vec<Mapping>,
}

/// A mapping with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The mapping as `/proc` has it.
    pub line: MapsLine,
    /// The build id of its file, if it can be opened and has one.
    pub build_id: Option<BuildId>,
}

impl Snapshot {
    /// Of a process; what cannot be read is empty (it may have ended).
    #[must_use]
    pub fn of(proc: &Proc, pid: Pid, build_id: BuildIdOf<'_>) -> Self {
        let tids = proc.tasks(pid).unwrap_or_default();
        let named = |tid| proc.name(pid, tid).ok().map(|name| (tid, name));
        let lines = proc.maps(pid).unwrap_or_default();
        let mappings = lines.into_iter().filter(MapsLine::executable).map(|line| {
            let build_id = proc.file_of(pid, &line).and_then(|file| build_id(&file));
            Mapping { line, build_id }
        });
        Self { pid, threads: tids.into_iter().filter_map(named).collect(), mappings: mappings.collect() }
    }

    /// The snapshot as records of a file, at `time`; 0: true from the start.
    #[must_use]
    pub fn records(&self, time: Ns) -> Vec<u8> {
        let (pid, main) = (self.pid, Tid(self.pid.0));
        let mut bytes = Vec::new();
        for (tid, name) in &self.threads {
            let id = SampleId { pid, tid: *tid, time, ..SampleId::default() };
            if *tid != main {
                Record::Fork { pid, tid: *tid, parent_pid: pid, parent_tid: main }.encode(&id, &mut bytes);
            }
            Record::Comm { pid, tid: *tid, name, exec: false }.encode(&id, &mut bytes);
        }
        let id = SampleId { pid, tid: main, time, ..SampleId::default() };
        self.mappings.iter().for_each(|mapping| mapping.record(pid).encode(&id, &mut bytes));
        bytes
    }

    /// The mappings, as a recording has them that is true from the start.
    #[must_use]
    pub fn sideband(&self) -> Vec<SidebandRecord> {
        let record = |mapping: &Mapping| SidebandRecord {
            time: None,
            cpu: None,
            pid: Some(self.pid),
            tid: Some(Tid(self.pid.0)),
            file_offset: 0,
            body: Sideband::from(mapping.mmap(self.pid)),
        };
        self.mappings.iter().map(record).collect()
    }
}

impl Mapping {
    /// How perf calls it: anonymous memory has a name, too.
    fn name(&self) -> &str {
        if self.line.path.is_empty() { "//anon" } else { &self.line.path }
    }

    fn record(&self, pid: Pid) -> Record<'_> {
        let MapsLine { start, end, protection, flags, offset, device: (major, minor), inode, .. } = self.line;
        let identity = match &self.build_id {
            Some(build_id) => FileIdentity::BuildId(build_id.clone()),
            None => FileIdentity::Inode { major, minor, inode, generation: 0 },
        };
        Record::Mmap2 {
            pid,
            tid: Tid(pid.0),
            start,
            len: end.saturating_sub(start),
            file_offset: FileOffset(offset),
            identity,
            protection,
            flags,
            path: self.name(),
        }
    }

    fn mmap(&self, pid: Pid) -> Mmap {
        let MapsLine { start, end, offset, device, inode, .. } = self.line;
        Mmap {
            pid,
            start: Avma(start),
            len: end.saturating_sub(start),
            file_offset: FileOffset(offset),
            path: self.name().to_owned(),
            build_id: self.build_id.clone(),
            inode: (inode != 0 && self.build_id.is_none()).then_some(Inode { device, number: inode }),
            executable: true,
            kernel: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// Of a made-up `/proc`: whether a file can be opened by its mapping depends on its file system.
    #[test]
    fn a_process_has_threads_and_mappings_with_code() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("7/task/7/comm", "main\n");
        put("7/task/8/comm", "worker\n");
        put("7/root/bin/x", "x");
        let file = fs::metadata(root.path().join("7/root/bin/x")).unwrap();
        let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let of_file = format!("{major:x}:{minor:x} {} /bin/x", file.ino());
        let maps = format!(
            "1000-2000 r--p 00000000 {of_file}\n2000-3000 r-xp 00001000 {of_file}\n\
             7000-8000 r-xp 00000000 00:00 0 [vdso]\n"
        );
        put("7/maps", &maps);
        let id = BuildId(vec![7; 20]);
        let snapshot = Snapshot::of(&Proc::at(root.path()), Pid(7), &|_| Some(id.clone()));
        assert_eq!(snapshot.threads, [(Tid(7), "main".to_owned()), (Tid(8), "worker".to_owned())]);
        let mappings: Vec<_> =
            snapshot.mappings.iter().map(|m| (m.line.start, m.name(), m.build_id.clone())).collect();
        assert_eq!(mappings, [(0x2000, "/bin/x", Some(id)), (0x7000, "[vdso]", None)]);
        assert_eq!(snapshot.sideband().len(), 2);
    }

    #[test]
    fn threads_are_born_of_the_first() {
        let threads = vec![(Tid(7), "main".to_owned()), (Tid(8), "worker".to_owned())];
        let bytes = Snapshot { pid: Pid(7), threads, mappings: vec![] }.records(Ns(0));
        let mut types = vec![];
        let mut rest = &bytes[..];
        while let [kind, _, _, _, _, _, size, high, ..] = *rest {
            types.push(kind);
            rest = &rest[usize::from(size) + 256 * usize::from(high)..];
        }
        assert_eq!(types, [3, 7, 3]);
    }
}
