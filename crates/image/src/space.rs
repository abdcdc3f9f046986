//! The address space of every process over time.
//!
//! A process has one list of mappings after another; a new list begins where code at an address changes:
//! with `execve`, or when a mapping takes the place of another.  Code that is only added joins the list at
//! hand, so it is also found at earlier times: nothing else was there.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Avma, BuildId, FileOffset, Inode, Mmap, Ns, ObjectId, Pid, Sideband, SidebandRecord, SpaceId};
use rustc_hash::FxHashMap;

use crate::host_files::HostFiles;
use crate::locate::object_key::{MappedObject, ObjectKey, is_jitdump};
use crate::locate::one_per_path::OnePerPath;

/// Mappings that all lists together may hold beyond one list per process; 32 bytes each.  A process that
/// changes its code more often keeps its last list, and the loss is reported.
const MAX_COPIED_MAPPINGS: usize = 8 << 20;

/// Executable memory that is mapped from an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mapping {
    pub(crate) start: Avma,
    /// Exclusive.
    pub(crate) end: Avma,
    /// Of `start`.
    pub(crate) file_offset: FileOffset,
    pub(crate) object: ObjectId,
}

impl Mapping {
    /// The part from `start` to `end`.
    fn part(&self, start: Avma, end: Avma) -> Self {
        Self { start, end, file_offset: self.offset_of(start), ..*self }
    }

    /// Where in the file the byte at `ip` is.
    pub(crate) fn offset_of(&self, ip: Avma) -> FileOffset {
        self.file_offset.plus(ip.minus(self.start))
    }
}

/// Sorted by address, disjoint.
type Mappings = Arc<Vec<Mapping>>;

#[derive(Clone, Debug)]
struct Epoch {
    from: Ns,
    mappings: Mappings,
}

/// All address spaces.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    /// By id; the first is empty.
    spaces: Vec<Mappings>,
    /// Of each process: the spaces by the time from which on they hold.
    processes: BTreeMap<Pid, Vec<(Ns, SpaceId)>>,
    /// Of the kernel: in every address space.  By address, disjoint.
    pub(crate) kernel: Vec<Mapping>,
    /// Changes of code that were not followed: [`MAX_COPIED_MAPPINGS`].
    pub(crate) unfollowed: u64,
}

impl Spaces {
    /// Follows the sideband; returns the objects by id, too.
    pub(crate) fn new(
        sideband: &[SidebandRecord],
        host_files: Option<&HostFiles>,
    ) -> (Self, Vec<MappedObject>) {
        let mut build = SpaceBuild::new(sideband, host_files);
        for record in sideband {
            build.add(record);
        }
        build.finish()
    }

    /// The address space of a process.
    pub(crate) fn at(&self, pid: Pid, time: Ns) -> SpaceId {
        let Some(epochs) = self.processes.get(&pid) else { return SpaceId(0) };
        epochs.get(later(epochs, time) - 1).map_or(SpaceId(0), |(_, space)| *space)
    }

    /// Until when that is so.
    pub(crate) fn until(&self, pid: Pid, time: Ns) -> Ns {
        let Some(epochs) = self.processes.get(&pid) else { return Ns::MAX };
        epochs.get(later(epochs, time)).map_or(Ns::MAX, |(from, _)| *from)
    }

    /// The mapping of an address.
    pub(crate) fn mapping(&self, space: SpaceId, ip: Avma) -> Option<&Mapping> {
        let mappings =
            if ip.is_kernel() { &self.kernel } else { self.spaces.get(space.0 as usize)?.as_ref() };
        let after = mappings.partition_point(|m| m.start <= ip);
        mappings.get(after.checked_sub(1)?).filter(|m| ip < m.end)
    }

    /// All address spaces that hold code.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SpaceId> + use<> {
        (1..u32::try_from(self.spaces.len()).unwrap_or(u32::MAX)).map(SpaceId)
    }
}

/// The number of the first one after that of `time`: code that ran before the first record of the process
/// is that which this record tells of.
fn later(epochs: &[(Ns, SpaceId)], time: Ns) -> usize {
    epochs.partition_point(|(from, _)| *from <= time).max(1)
}

struct SpaceBuild {
    processes: BTreeMap<Pid, Vec<Epoch>>,
    objects: Vec<MappedObject>,
    ids: FxHashMap<ObjectKey, ObjectId>,
    build_ids: OnePerPath<BuildId>,
    inodes: OnePerPath<Inode>,
    host_files: Option<HostFiles>,
    copied: usize,
    unfollowed: u64,
}

impl SpaceBuild {
    fn new(sideband: &[SidebandRecord], host_files: Option<&HostFiles>) -> Self {
        let (mut build_ids, mut inodes) = (OnePerPath::default(), OnePerPath::default());
        for record in sideband {
            let Sideband::Mmap(mmap) = &record.body else { continue };
            let (name, _) = strip_deleted(&mmap.path);
            if let Some(id) = &mmap.build_id {
                build_ids.add(name, id);
            }
            let told = |inode: &Inode| host_files.is_some_and(|host| host.can_tell(*inode));
            if let Some(inode) = mmap.inode.filter(told) {
                inodes.add(name, &inode);
            }
        }
        Self {
            host_files: host_files.cloned(),
            inodes,
            processes: BTreeMap::new(),
            objects: Vec::new(),
            ids: FxHashMap::default(),
            build_ids,
            copied: 0,
            unfollowed: 0,
        }
    }

    fn add(&mut self, record: &SidebandRecord) {
        let time = record.time.unwrap_or_default();
        match &record.body {
            Sideband::Mmap(mmap) if mmap.executable && !mmap.kernel && !mmap.start.is_kernel() => {
                self.map(time, mmap);
            }
            Sideband::Comm { pid, exec: true, .. } => self.replace(*pid, time, Mappings::default()),
            // perf tells of processes that are there before it starts by records without a time:
            // what they have mapped follows, and is not their parent's.
            Sideband::Fork { pid, parent_pid, .. } if pid != parent_pid && time > Ns(0) => {
                let parent = self.processes.get(parent_pid).and_then(|epochs| epochs.last());
                if let Some(mappings) = parent.map(|epoch| epoch.mappings.clone()) {
                    self.replace(*pid, time, mappings);
                }
            }
            _ => (),
        }
    }

    /// From `time` on the process has these mappings and no others.
    fn replace(&mut self, pid: Pid, time: Ns, mappings: Mappings) {
        let epochs = self.processes.entry(pid).or_default();
        match epochs.last_mut() {
            Some(last) if last.from >= time || last.mappings.is_empty() => last.mappings = mappings,
            _ => epochs.push(Epoch { from: time, mappings }),
        }
    }

    fn map(&mut self, time: Ns, mmap: &Mmap) {
        let end = mmap.start.0.saturating_add(mmap.len).min(Avma::KERNEL_HALF.0);
        if end == mmap.start.0 {
            return;
        }
        let object = self.object(mmap);
        let new = Mapping { start: mmap.start, end: Avma(end), file_offset: mmap.file_offset, object };
        if !self.is(object, ObjectKey::is_anonymous) {
            return self.put(time, mmap.pid, new);
        }
        // The kernel tells of anonymous memory anew when it grows.  What a program has written there stays.
        for hole in self.holes_in_jit_code(mmap.pid, new) {
            self.put(time, mmap.pid, hole);
        }
    }

    fn is(&self, object: ObjectId, what: impl Fn(&ObjectKey) -> bool) -> bool {
        self.objects.get(object.0 as usize).is_some_and(|object| what(&object.key))
    }

    /// What of a mapping is not known to hold code from a dump.
    fn holes_in_jit_code(&self, pid: Pid, new: Mapping) -> Vec<Mapping> {
        let last = self.processes.get(&pid).and_then(|epochs| epochs.last());
        let old = last.map_or(&[][..], |epoch| &epoch.mappings);
        let old = old.get(touching(old, &new)).unwrap_or_default();
        let mut holes = Vec::new();
        let mut at = new.start;
        for jit in old.iter().filter(|m| self.is(m.object, ObjectKey::is_jitdump)) {
            if at < jit.start {
                holes.push(new.part(at, jit.start));
            }
            at = at.max(jit.end);
        }
        if at < new.end {
            holes.push(new.part(at, new.end));
        }
        holes
    }

    fn put(&mut self, time: Ns, pid: Pid, new: Mapping) {
        let object = new.object;
        let anonymous = |m: &Mapping| self.is(m.object, ObjectKey::is_anonymous);
        let no_file = self.is(object, ObjectKey::has_no_file);
        // Memory without a file is the same memory whatever offset the kernel made up for it.
        let agrees =
            |old: &Mapping| old.object == object && (no_file || old.offset_of(new.start) == new.file_offset);
        let touched_by = |old: &[Mapping]| {
            let touched = touching(old, &new);
            let old = old.get(touched.clone()).unwrap_or_default();
            let overlaps = |m: &&Mapping| m.start < new.end && new.start < m.end;
            let conflict = old.iter().filter(overlaps).any(|m| !agrees(m) && !anonymous(m));
            (touched, conflict, merge(old, new, agrees))
        };
        let last = self.processes.get(&pid).and_then(|epochs| epochs.last());
        let (touched, conflict, pieces) = touched_by(last.map_or(&[], |epoch| &epoch.mappings));
        let epochs = self.processes.entry(pid).or_default();
        if epochs.is_empty() {
            epochs.push(Epoch { from: Ns(0), mappings: Mappings::default() });
        }
        let Some(last) = epochs.last_mut() else { return };
        let size = last.mappings.len();
        if !conflict || last.from >= time {
            Arc::make_mut(&mut last.mappings).splice(touched, pieces);
        } else if self.copied.saturating_add(size) > MAX_COPIED_MAPPINGS {
            self.unfollowed += 1;
            Arc::make_mut(&mut last.mappings).splice(touched, pieces);
        } else {
            self.copied = self.copied.saturating_add(size);
            let mut mappings = Vec::clone(&last.mappings);
            mappings.splice(touched, pieces);
            epochs.push(Epoch { from: time, mappings: Arc::new(mappings) });
        }
    }

    fn object(&mut self, mmap: &Mmap) -> ObjectId {
        let (name, deleted) = strip_deleted(&mmap.path);
        let build_id = mmap.build_id.clone().or_else(|| self.build_ids.get(name));
        let told = |inode: &Inode| self.host_files.as_ref().is_some_and(|host| host.can_tell(*inode));
        let inode = || mmap.inode.filter(told).or_else(|| self.inodes.get(name));
        // A dump of run-time code is known by its name.
        let has_inode = build_id.is_none() && !is_jitdump(name);
        let inode = has_inode.then(inode).flatten();
        let key = ObjectKey { name: name.to_string(), build_id, inode, deleted };
        let next = ObjectId(u32::try_from(self.objects.len()).unwrap_or(u32::MAX));
        *self.ids.entry(key).or_insert_with_key(|key| {
            self.objects.push(MappedObject { key: key.clone(), pid: mmap.pid });
            next
        })
    }

    /// Gives equal spaces of different processes one id: forked servers share their decoded code.
    fn finish(self) -> (Spaces, Vec<MappedObject>) {
        let mut spaces = Spaces { unfollowed: self.unfollowed, ..Spaces::default() };
        spaces.spaces.push(Mappings::default());
        let mut ids: FxHashMap<(u32, Mappings), SpaceId> = FxHashMap::default();
        for (pid, epochs) in self.processes {
            // Within one process they stay apart: `execve` of the same program is a change, too.
            let mut seen: FxHashMap<Mappings, u32> = FxHashMap::default();
            let mut list = Vec::with_capacity(epochs.len());
            for Epoch { from, mappings } in epochs {
                let turn = seen.entry(mappings.clone()).or_insert(0);
                *turn += 1;
                let id = *ids.entry((*turn, mappings.clone())).or_insert_with(|| {
                    spaces.spaces.push(mappings);
                    SpaceId(u32::try_from(spaces.spaces.len() - 1).unwrap_or(0))
                });
                list.push((from, id));
            }
            spaces.processes.insert(pid, list);
        }
        (spaces, self.objects)
    }
}

/// The mappings that `new` overlaps or is adjacent to.
fn touching(mappings: &[Mapping], new: &Mapping) -> std::ops::Range<usize> {
    let first = mappings.partition_point(|m| m.end < new.start);
    let end = mappings.partition_point(|m| m.start <= new.end);
    first..end.max(first)
}

/// `new` with what stays of the mappings that it touches: those that agree with it become one with it.
fn merge(old: &[Mapping], new: Mapping, agrees: impl Fn(&Mapping) -> bool) -> Vec<Mapping> {
    let mut whole = new;
    let mut before = None;
    let mut after = None;
    for m in old {
        if agrees(m) {
            whole = Mapping {
                start: whole.start.min(m.start),
                end: whole.end.max(m.end),
                file_offset: if m.start < whole.start { m.file_offset } else { whole.file_offset },
                object: whole.object,
            };
            continue;
        }
        if m.start < new.start {
            before = Some(m.part(m.start, m.end.min(new.start)));
        }
        if m.end > new.end {
            after = Some(m.part(m.start.max(new.end), m.end));
        }
    }
    before.into_iter().chain([whole]).chain(after).collect()
}

fn strip_deleted(path: &str) -> (&str, bool) {
    match path.strip_suffix(" (deleted)") {
        Some(name) => (name, true),
        None => (path, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ns: u64, body: Sideband) -> SidebandRecord {
        let time = (ns > 0).then_some(Ns(ns));
        SidebandRecord { time, cpu: None, pid: None, tid: None, file_offset: 0, body }
    }

    fn map(ns: u64, pid: i32, start: u64, len: u64, path: &str) -> SidebandRecord {
        map_at(ns, pid, start, len, path, 0)
    }

    fn map_at(ns: u64, pid: i32, start: u64, len: u64, path: &str, offset: u64) -> SidebandRecord {
        let mmap = Mmap {
            pid: Pid(pid),
            start: Avma(start),
            len,
            file_offset: FileOffset(offset),
            path: path.into(),
            build_id: None,
            inode: None,
            executable: true,
            kernel: false,
        };
        record(ns, Sideband::from(mmap))
    }

    fn fork(ns: u64, pid: i32, tid: i32, parent: i32) -> SidebandRecord {
        let (pid, parent) = (Pid(pid), Pid(parent));
        let (tid, parent_tid) = (model::Tid(tid), model::Tid(parent.0));
        record(ns, Sideband::Fork { pid, tid, parent_pid: parent, parent_tid })
    }

    fn exec(ns: u64, pid: i32) -> SidebandRecord {
        let (pid, tid) = (Pid(pid), model::Tid(pid));
        record(ns, Sideband::Comm { pid, tid, name: "x".into(), exec: true })
    }

    /// `pid@time: start-end object+offset ...` for each of the asked.
    fn check(sideband: &[SidebandRecord], asked: &[(i32, u64)], expect: &[&str]) {
        let (spaces, objects) = Spaces::new(sideband, None);
        for ((pid, ns), expect) in asked.iter().zip(expect) {
            let id = spaces.at(Pid(*pid), Ns(*ns));
            let until = spaces.until(Pid(*pid), Ns(*ns));
            assert!(until > Ns(*ns) && spaces.at(Pid(*pid), Ns(until.0 - 1)) == id);
            let mut got = format!("{}:", id.0);
            for m in spaces.spaces[id.0 as usize].iter() {
                let name = &objects[m.object.0 as usize].key.name;
                got += &format!(" {:x}-{:x} {name}+{:x}", m.start.0, m.end.0, m.file_offset.0);
                assert_eq!(spaces.mapping(id, m.start), Some(m));
                assert_eq!(spaces.mapping(id, Avma(m.end.0 - 1)), Some(m));
            }
            assert_eq!(got, *expect, "pid {pid} at {ns}");
        }
    }

    #[test]
    fn later_code_is_in_the_same_space() {
        check(
            &[map(0, 7, 0x1000, 0x1000, "/a"), map(50, 7, 0x3000, 0x1000, "/b")],
            &[(7, 0), (7, 99), (8, 0)],
            &["1: 1000-2000 /a+0 3000-4000 /b+0", "1: 1000-2000 /a+0 3000-4000 /b+0", "0:"],
        );
    }

    #[test]
    fn other_code_in_its_place_is_another_space() {
        check(
            &[map(0, 7, 0x1000, 0x3000, "/a"), map(50, 7, 0x2000, 0x1000, "/b")],
            &[(7, 49), (7, 50)],
            &["1: 1000-4000 /a+0", "2: 1000-2000 /a+0 2000-3000 /b+0 3000-4000 /a+2000"],
        );
    }

    #[test]
    fn the_same_code_told_twice_is_one_mapping() {
        check(
            &[
                map(0, 7, 0x1000, 0x2000, "/a"),
                map_at(10, 7, 0x2000, 0x3000, "/a", 0x1000),
                map_at(20, 7, 0x8000, 0x1000, "//anon", 0x8000),
                map_at(30, 7, 0x8000, 0x2000, "//anon", 0),
                map_at(20, 7, 0x20_0000, 0x20_0000, "/anon_hugepage (deleted)", 0x20_0000),
                map_at(30, 7, 0x20_0000, 0x40_0000, "/anon_hugepage (deleted)", 0),
            ],
            &[(7, 0)],
            &["1: 1000-5000 /a+0 8000-a000 //anon+0 200000-600000 /anon_hugepage+0"],
        );
    }

    #[test]
    fn a_fork_copies_and_a_thread_shares() {
        check(
            &[
                map(0, 7, 0x1000, 0x1000, "/a"),
                fork(10, 7, 8, 7),
                fork(20, 9, 9, 7),
                map(30, 7, 0x3000, 0x1000, "/b"),
                map(40, 9, 0x3000, 0x1000, "/c"),
                fork(50, 10, 10, 7),
            ],
            &[(7, 0), (9, 25), (10, 60), (8, 60)],
            &[
                "1: 1000-2000 /a+0 3000-4000 /b+0",
                "2: 1000-2000 /a+0 3000-4000 /c+0",
                "1: 1000-2000 /a+0 3000-4000 /b+0",
                "0:",
            ],
        );
    }

    #[test]
    fn exec_starts_afresh_even_with_the_same_code() {
        check(
            &[
                map(0, 7, 0x1000, 0x1000, "/a"),
                exec(10, 7),
                map(11, 7, 0x1000, 0x1000, "/a"),
                exec(20, 7),
                map(21, 7, 0x5000, 0x1000, "/b"),
            ],
            &[(7, 9), (7, 10), (7, 20)],
            &["1: 1000-2000 /a+0", "2: 1000-2000 /a+0", "3: 5000-6000 /b+0"],
        );
    }

    #[test]
    fn processes_that_perf_found_do_not_copy_their_parents() {
        check(
            &[map(0, 1, 0x1000, 0x1000, "/init"), fork(0, 7, 7, 1), map(0, 7, 0x1000, 0x1000, "/a")],
            &[(7, 5)],
            &["2: 1000-2000 /a+0"],
        );
    }

    #[test]
    fn strange_mappings_are_harmless() {
        check(
            &[
                map(0, 7, 0x1000, 0, "/a"),
                map(0, 7, u64::MAX - 5, 50, "/b"),
                map(0, 7, 0x2000, u64::MAX, "/c"),
            ],
            &[(7, 0)],
            &["1: 2000-8000000000000000 /c+0"],
        );
    }

    #[test]
    fn a_build_id_known_for_a_path_holds_for_its_other_mappings() {
        let mut with_id = map(0, 7, 0x1000, 0x1000, "/a");
        let Sideband::Mmap(mmap) = &mut with_id.body else { unreachable!() };
        mmap.build_id = Some(BuildId(vec![1, 2]));
        let (_, objects) = Spaces::new(&[with_id, map(0, 8, 0x1000, 0x1000, "/a")], None);
        assert_eq!(objects.len(), 1);
    }
}
