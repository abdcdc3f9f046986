//! The code of what runs now, before it is recorded: so that a name that no code has is an error at once, and
//! for IP filters.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use image::{Image, build_id_of};
#[cfg(feature = "bpf")]
use model::Tid;
use model::{
    Avma, CodeSource, FileOffset, FunctionLookup, Mmap, Ns, ObjectId, Pid, Sideband, SidebandRecord,
};
use recorder::{MapsLine, Misplaced, Proc, Snapshot, Target, filter_mapping, ip_filter};

use crate::host;

#[cfg(test)]
pub(crate) mod laid_out;

/// What is known of the code of a target.
pub(crate) enum Known {
    /// This.
    Code(Box<LiveCode>),
    /// The code of all that runs is too much to look through.
    TooMuch,
    /// What a process has mapped may not be read by this user.
    NotReadable,
}

/// Code that is mapped, or will be.
pub(crate) struct LiveCode {
    /// Its functions.
    pub(crate) image: Image,
    /// Where it comes from.
    source: Source,
}

enum Source {
    Processes(Vec<Snapshot>),
    /// A program that is yet to be started: its file, and what it will map besides is not known.
    Program,
}

impl LiveCode {
    /// Of a target.
    pub(crate) fn of(target: &Target, proc: &Proc, object: Option<&str>) -> Known {
        let pids = match target {
            Target::Program(words) => return Known::Code(Box::new(Self::of_program(words.first(), object))),
            Target::WholeCpus => return Known::TooMuch,
            Target::Processes(_) | Target::Families(_) | Target::Threads(_) => target.processes(proc),
        };
        let mut snapshots = Vec::with_capacity(pids.len());
        for pid in pids {
            match proc.may_read_maps(pid) {
                Ok(()) => snapshots.push(Snapshot::of(proc, pid, &build_id_of)),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Known::NotReadable,
                Err(_) => (), // it has ended
            }
        }
        if snapshots.is_empty() {
            return Known::NotReadable;
        }
        let sideband: Vec<SidebandRecord> = snapshots.iter().flat_map(Snapshot::sideband).collect();
        let image = Image::load(&sideband, &host::live_options(None));
        Known::Code(Box::new(Self { image, source: Source::Processes(snapshots) }))
    }

    fn of_program(name: Option<&OsString>, object: Option<&str>) -> Self {
        let files = name
            .and_then(|name| found(name))
            .into_iter()
            .chain(object.map(PathBuf::from).filter(|path| path.is_file()));
        let files: Vec<PathBuf> = files.filter_map(|path| fs::canonicalize(path).ok()).collect();
        let sideband: Vec<SidebandRecord> =
            (1u64..).zip(&files).filter_map(|(n, file)| whole(n, file)).collect();
        let image = Image::load(&sideband, &host::live_options(None));
        Self { image, source: Source::Program }
    }

    /// All that will be executed is known: a name that is not here is nowhere.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.source, Source::Processes(_))
    }

    /// The files of an object, by paths that the kernel's IP filters can use, each file once: processes in
    /// other file systems (containers) may have copies of their own. `None`: that of some process has no such
    /// path.
    pub(crate) fn filter_files(
        &self,
        object: ObjectId,
        offset: FileOffset,
        proc: &Proc,
    ) -> Option<Vec<PathBuf>> {
        let name = self.image.object_name(object);
        let Source::Processes(snapshots) = &self.source else {
            return ip_filter::file_of_program(proc, Path::new(name)).map(|file| vec![file]);
        };
        let mut mapped = BTreeSet::new();
        let mut files = BTreeMap::new();
        for snapshot in snapshots {
            let Some(line) = mapping_of(snapshot, name, offset) else { continue };
            let is_it = self.object_mapped_at(snapshot.pid, line, offset) == Some(object);
            if is_it && mapped.insert((line.device, line.inode)) {
                let path = ip_filter::file_of_mapping(proc, snapshot.pid, line)?;
                // Overlays that have a layer in common have one file.
                let file = fs::metadata(&path).ok()?;
                files.entry((file.dev(), file.ino())).or_insert(path);
            }
        }
        Some(files.into_values().collect()).filter(|files: &Vec<PathBuf>| !files.is_empty())
    }

    /// Whether the kernel finds a range of an object where its code runs, in all processes.
    ///
    /// # Errors
    /// It does not, in the first process that is told.
    pub(crate) fn range_is_found(
        &self,
        object: ObjectId,
        range: &Range<FileOffset>,
        proc: &Proc,
    ) -> Result<(), Misplaced> {
        let Source::Processes(snapshots) = &self.source else {
            return filter_mapping::starting(&self.image.executable_pages(object), range);
        };
        let name = self.image.object_name(object);
        for snapshot in snapshots {
            let Some(line) = mapping_of(snapshot, name, range.start) else { continue };
            // One that has ended meanwhile has no mappings.
            let Ok(maps) = proc.maps(snapshot.pid) else { continue };
            if self.object_mapped_at(snapshot.pid, line, range.start) == Some(object) {
                filter_mapping::attaching(snapshot.pid, &maps, line, range)?;
            }
        }
        Ok(())
    }

    /// Processes that have different files mapped by one name, this object's.
    pub(crate) fn strangers(&self, object: ObjectId, offset: FileOffset) -> Vec<Pid> {
        let Source::Processes(snapshots) = &self.source else { return Vec::new() };
        let name = self.image.object_name(object);
        let mut of_object = BTreeMap::new();
        for snapshot in snapshots {
            if let Some(line) = mapping_of(snapshot, name, offset) {
                let mapped = self.object_mapped_at(snapshot.pid, line, offset);
                of_object.entry(mapped).or_insert(snapshot.pid);
            }
        }
        if of_object.len() > 1 { of_object.into_values().collect() } else { Vec::new() }
    }

    /// Behind a mapping that has this place of its file.
    fn object_mapped_at(&self, pid: Pid, line: &MapsLine, offset: FileOffset) -> Option<ObjectId> {
        let space = self.image.space(pid, Ns(0));
        let at = line.start.saturating_add(offset.0.saturating_sub(line.offset));
        self.image.place(space, Avma(at)).map(|(object, _)| object)
    }

    /// The processes that have this place of an object mapped, and how each one's file can be opened.
    #[cfg(feature = "bpf")]
    pub(crate) fn places(&self, object: ObjectId, offset: FileOffset, proc: &Proc) -> Vec<(Pid, PathBuf)> {
        let Source::Processes(snapshots) = &self.source else { return Vec::new() };
        let name = self.image.object_name(object);
        let file = |snapshot: &Snapshot| {
            let line = mapping_of(snapshot, name, offset)?;
            Some((snapshot.pid, proc.file_of(snapshot.pid, line)?))
        };
        snapshots.iter().filter_map(file).collect()
    }

    /// The objects that a process has mapped code of.
    #[cfg(feature = "bpf")]
    pub(crate) fn mapped(&self, pid: Pid) -> BTreeSet<ObjectId> {
        let Source::Processes(snapshots) = &self.source else { return BTreeSet::new() };
        let space = self.image.space(pid, Ns(0));
        let mappings = snapshots.iter().filter(|snapshot| snapshot.pid == pid).flat_map(|s| &s.mappings);
        mappings
            .filter_map(|mapping| self.image.place(space, Avma(mapping.line.start)))
            .map(|(id, _)| id)
            .collect()
    }

    /// The program that a process executes.
    #[cfg(feature = "bpf")]
    pub(crate) fn program(&self, pid: Pid, proc: &Proc) -> Option<ObjectId> {
        let file = fs::read_link(proc.directory(pid).join("exe")).ok()?;
        let file = file.to_str()?;
        let name = file.strip_suffix(" (deleted)").unwrap_or(file);
        self.mapped(pid).into_iter().find(|id| self.image.object_name(*id) == name)
    }

    /// Names of the threads: as they are now, and of those that have ended as they were.
    #[cfg(feature = "bpf")]
    pub(crate) fn thread_names(&self, proc: &Proc) -> BTreeMap<Tid, String> {
        let Source::Processes(snapshots) = &self.source else { return BTreeMap::new() };
        let then = snapshots.iter().flat_map(|snapshot| snapshot.threads.iter().cloned());
        let now = snapshots.iter().flat_map(|Snapshot { pid, .. }| {
            let named = |tid| proc.name(*pid, tid).ok().map(|name| (tid, name));
            proc.tasks(*pid).unwrap_or_default().into_iter().filter_map(named)
        });
        then.chain(now).collect()
    }

    /// The threads that there were.
    #[cfg(feature = "bpf")]
    pub(crate) fn threads(&self) -> Vec<Tid> {
        let Source::Processes(snapshots) = &self.source else { return Vec::new() };
        snapshots.iter().flat_map(|snapshot| &snapshot.threads).map(|(tid, _)| *tid).collect()
    }
}

/// The mapping that has this place of an object.
fn mapping_of<'s>(snapshot: &'s Snapshot, name: &str, offset: FileOffset) -> Option<&'s MapsLine> {
    snapshot.mappings.iter().map(|mapping| &mapping.line).find(|line| {
        let inside = offset.0.checked_sub(line.offset);
        line.undeleted_path() == name && inside.is_some_and(|inside| inside < line.end - line.start)
    })
}

/// Where the shell would find a program.
fn found(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// A mapping of all of a file, at a made-up address.
fn whole(number: u64, file: &Path) -> Option<SidebandRecord> {
    const APART: u64 = 1 << 40;
    let mmap = Mmap {
        pid: Pid(1),
        start: Avma(number * APART),
        len: fs::metadata(file).ok()?.len().next_multiple_of(4096),
        file_offset: FileOffset(0),
        path: file.to_str()?.to_owned(),
        build_id: None,
        inode: None,
        executable: true,
        kernel: false,
    };
    let body = Sideband::from(mmap);
    Some(SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body })
}

#[cfg(test)]
mod tests {
    use super::laid_out::LaidOut;
    use super::*;

    #[test]
    fn a_program_is_found_as_the_shell_finds_it() {
        assert!(found(OsStr::new("true")).is_some_and(|path| path.ends_with("true")));
        assert_eq!(found(OsStr::new("./true")), Some(PathBuf::from("./true")));
        assert_eq!(found(OsStr::new("no-such-program-anywhere")), None);
    }

    /// Where the kernel looks for a function's code: its range in the file, and whether its mapping is the
    /// one that has it.
    fn places(code: &LiveCode, proc: &Proc) -> Vec<(&'static str, FileOffset, bool)> {
        let place = |name| {
            let function = laid_out::function(code, name);
            let (start, bytes) = code.image.function_file_ranges(function.id)[0];
            assert_eq!(code.filter_files(function.object, start, proc).map(|files| files.len()), Some(1));
            assert_eq!(code.strangers(function.object, start), []);
            let range = start..FileOffset(start.0 + bytes);
            (name, start, code.range_is_found(function.object, &range, proc).is_ok())
        };
        ["shared", "border", "inside", "last"].map(place).to_vec()
    }

    #[test]
    fn a_running_process_hides_functions_in_a_page_that_constants_are_mapped_with_before() {
        let laid = LaidOut::new(laid_out::CONSTANTS_FIRST);
        let expect = [
            ("shared", FileOffset(0x1c30), false),
            ("border", FileOffset(0x2000), false),
            ("inside", FileOffset(0x2c30), true),
            ("last", FileOffset(0x3c30), true),
        ];
        assert_eq!(places(&laid.code, &laid.proc), expect);
        assert!(laid.code.is_complete());
    }

    #[test]
    fn constants_that_are_mapped_behind_the_text_hide_nothing() {
        let laid = LaidOut::new(laid_out::TEXT_FIRST);
        assert!(places(&laid.code, &laid.proc).iter().all(|(.., found)| *found));
    }

    #[test]
    fn a_program_that_is_started_hides_nothing() {
        let laid = LaidOut::new(laid_out::CONSTANTS_FIRST);
        let code = laid.not_started();
        assert!(places(&code, &laid.proc).iter().all(|(.., found)| *found));
        assert!(!code.is_complete());
    }

    #[test]
    fn code_of_whole_cpus_and_of_processes_that_have_ended_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let proc = Proc::at(directory.path());
        assert!(matches!(LiveCode::of(&Target::WholeCpus, &proc, None), Known::TooMuch));
        let ended = Target::Processes(vec![Pid(9)]);
        assert!(matches!(LiveCode::of(&ended, &proc, None), Known::NotReadable));
    }
}
