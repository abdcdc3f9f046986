//! What is there before the window begins: threads, names, mappings.
//!
//! The kernel tells only of what changes.  So the sideband is opened first and the snapshot taken then: what changes in between is
//! in both, and nothing is in neither.

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
    /// As `/proc` has it.
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

    /// As records of a file, at `time`; 0: true from the start.
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
    use super::*;

    #[test]
    fn this_process() {
        let own = std::env::current_exe().unwrap();
        let pid = Pid(std::process::id() as i32);
        let id = BuildId(vec![7; 20]);
        let of_own = |path: &Path| {
            let path = std::fs::canonicalize(path).unwrap();
            (path == own).then(|| id.clone())
        };
        let snapshot = Snapshot::of(&Proc::host(), pid, &of_own);
        assert!(snapshot.threads.iter().any(|(tid, _)| tid.0 == pid.0));
        let with_id: Vec<_> = snapshot.mappings.iter().filter(|m| m.build_id.is_some()).collect();
        assert!(!with_id.is_empty() && with_id.iter().all(|m| Path::new(&m.line.path) == own));
        assert!(snapshot.mappings.iter().any(|m| m.name() == "[vdso]"));
        assert_eq!(snapshot.sideband().len(), snapshot.mappings.len());
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
