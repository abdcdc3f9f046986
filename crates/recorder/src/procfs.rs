//! What `/proc` says of processes: threads, names, mappings.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::{Pid, Tid};

/// A `/proc`.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsLine {
    /// First address.
    pub start: u64,
    /// Just after the last one.
    pub end: u64,
    /// PROT_* bits.
    pub protection: u32,
    /// `MAP_SHARED` (1) or `MAP_PRIVATE` (2).
    pub flags: u32,
    /// Where in the file.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0 if there is no file.
    pub inode: u64,
    /// The file as the kernel names it, ` (deleted)` included; empty for anonymous memory.
    pub path: String,
}

impl MapsLine {
    /// The file's path while it had one.
    #[must_use]
    pub fn undeleted_path(&self) -> &str {
        self.path.strip_suffix(" (deleted)").unwrap_or(&self.path)
    }

    /// It is a mapping of this file: the same device, the same inode.
    pub(crate) fn is_of(&self, file: &fs::Metadata) -> bool {
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        file.is_file() && (device, file.ino()) == (self.device, self.inode)
    }

    /// Has code.
    #[must_use]
    pub fn executable(&self) -> bool {
        self.protection & PROT_EXEC != 0
    }
}

const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;

impl Proc {
    /// That of this machine.
    #[must_use]
    pub fn host() -> Self {
        Self::at(Path::new("/proc"))
    }

    /// One that is mounted elsewhere.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Processes have other numbers here than on the host: that of a PID namespace of its own, a container's.
    #[must_use]
    pub fn has_own_numbers(&self) -> bool {
        // The first process outside has this inode (PROC_PID_INIT_INO in include/linux/proc_ns.h).
        const HOST: &str = "pid:[4026531836]";
        fs::read_link(self.root.join("self/ns/pid")).is_ok_and(|link| link.as_os_str() != HOST)
    }

    /// The directory of a process.
    #[must_use]
    pub fn directory(&self, pid: Pid) -> PathBuf {
        self.root.join(pid.0.to_string())
    }

    /// What is mounted where a process lives (`mountinfo`).
    #[must_use]
    pub fn mounts(&self, pid: Pid) -> Option<String> {
        fs::read_to_string(self.directory(pid).join("mountinfo")).ok()
    }

    /// The threads of a process, by number.
    ///
    /// # Errors
    /// There is no such process.
    pub fn tasks(&self, pid: Pid) -> io::Result<Vec<Tid>> {
        let mut tids: Vec<Tid> = numbers(&self.directory(pid).join("task"))?.into_iter().map(Tid).collect();
        tids.sort_unstable();
        Ok(tids)
    }

    /// All processes.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn processes(&self) -> io::Result<Vec<Pid>> {
        let mut pids: Vec<Pid> = numbers(&self.root)?.into_iter().map(Pid).collect();
        pids.sort_unstable();
        Ok(pids)
    }

    /// The process that a thread belongs to.
    ///
    /// # Errors
    /// There is no such thread.
    pub fn process_of(&self, tid: Tid) -> io::Result<Pid> {
        let status = fs::read_to_string(self.directory(Pid(tid.0)).join("status"))?;
        let pid = field(&status, "Tgid:").and_then(|value| value.parse().ok());
        pid.map(Pid).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// These processes, and all that descend from them. A child of an ended parent has got another one, and
    /// is not among them.
    #[must_use]
    pub fn families(&self, roots: &[Pid]) -> Vec<Pid> {
        let all = self.processes().unwrap_or_default().into_iter();
        let parents: Vec<(Pid, Pid)> = all.filter_map(|pid| Some((pid, self.parent_of(pid)?))).collect();
        let mut family: BTreeSet<Pid> = roots.iter().copied().collect();
        // A child may have a lower number than its parent: numbers are given away again.
        loop {
            let before = family.len();
            for (pid, parent) in &parents {
                if family.contains(parent) {
                    family.insert(*pid);
                }
            }
            if family.len() == before {
                return family.into_iter().collect();
            }
        }
    }

    fn parent_of(&self, pid: Pid) -> Option<Pid> {
        let status = fs::read_to_string(self.directory(pid).join("status")).ok()?;
        field(&status, "PPid:")?.parse().ok().map(Pid)
    }

    /// The thread runs, or could: it has not died.
    #[must_use]
    pub fn lives(&self, tid: Tid) -> bool {
        let status = fs::read_to_string(self.directory(Pid(tid.0)).join("status")).unwrap_or_default();
        field(&status, "State:").is_some_and(|state| !state.starts_with(['Z', 'X', 'x']))
    }

    /// A thread of the process lives; its first one may have ended before the others.
    #[must_use]
    pub fn process_lives(&self, pid: Pid) -> bool {
        self.lives(Tid(pid.0)) || self.tasks(pid).is_ok_and(|tids| tids.iter().any(|tid| self.lives(*tid)))
    }

    /// The name of a thread.
    ///
    /// # Errors
    /// There is no such thread.
    pub fn name(&self, pid: Pid, tid: Tid) -> io::Result<String> {
        let path = self.directory(pid).join("task").join(tid.0.to_string()).join("comm");
        let name = fs::read(path)?;
        Ok(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
    }

    /// The directory that has what the process has mapped: that of its first thread is empty when this one
    /// has ended, and the others live on with their numbers.
    fn memory_of(&self, pid: Pid) -> PathBuf {
        let first = self.directory(pid);
        if fs::read_link(first.join("root")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let living = self.tasks(pid).unwrap_or_default().into_iter().find(|tid| self.lives(*tid));
            return living.map_or(first, |tid| self.directory(Pid(tid.0)));
        }
        first
    }

    /// What a process has mapped.
    ///
    /// # Errors
    /// There is no such process, or it may not be read.
    pub fn maps(&self, pid: Pid) -> io::Result<Vec<MapsLine>> {
        let text = fs::read(self.memory_of(pid).join("maps"))?;
        Ok(String::from_utf8_lossy(&text).lines().filter_map(parse_maps_line).collect())
    }

    /// What a process has mapped may be read: the kernel decides that when the file is opened.
    ///
    /// # Errors
    /// There is no such process, or it may not be read.
    pub fn may_read_maps(&self, pid: Pid) -> io::Result<()> {
        fs::File::open(self.memory_of(pid).join("maps")).map(drop)
    }

    /// Where the file of a mapping can be opened, and is certainly that file: by the mapping itself
    /// (`map_files`, for which root or CAP_CHECKPOINT_RESTORE is needed), else by its path as the process
    /// sees it, if device and inode are the same.
    #[must_use]
    pub fn file_of(&self, pid: Pid, line: &MapsLine) -> Option<PathBuf> {
        if line.inode == 0 {
            return None;
        }
        let by_mapping = self.by_mapping(pid, line);
        // Whether it may be followed is known only when it is.
        if fs::metadata(&by_mapping).is_ok_and(|file| file.is_file()) {
            return Some(by_mapping);
        }
        let path = self.seen_by(pid, &line.path)?;
        fs::metadata(&path).is_ok_and(|file| line.is_of(&file)).then_some(path)
    }

    /// A path as the process sees it.
    pub(crate) fn seen_by(&self, pid: Pid, path: &str) -> Option<PathBuf> {
        Some(self.memory_of(pid).join("root").join(path.strip_prefix('/')?))
    }

    /// The link of a mapping to its file.
    pub(crate) fn by_mapping(&self, pid: Pid, line: &MapsLine) -> PathBuf {
        self.memory_of(pid).join("map_files").join(format!("{:x}-{:x}", line.start, line.end))
    }

    /// A number that the kernel keeps below `sys` (`kernel/perf_event_paranoid`).
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<i64> {
        fs::read_to_string(self.root.join("sys").join(name)).ok()?.trim().parse().ok()
    }

    /// Bytes of memory that can be had without swapping (`MemAvailable`).
    #[must_use]
    pub fn memory_available_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.root.join("meminfo")).ok()?;
        let kilobytes = field(&text, "MemAvailable:")?.split_whitespace().next()?;
        kilobytes.parse::<u64>().ok()?.checked_mul(1024)
    }

    /// A text file of `/proc`.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.join(name)).ok()
    }
}

/// The value of `Name:  value` in a file of such lines.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The entries of a directory that are numbers.
fn numbers(directory: &Path) -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        // A process that ends meanwhile is no error.
        let Ok(entry) = entry else { break };
        numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(numbers)
}

/// `7f12-7f34 r-xp 0002a000 08:01 1234   /usr/lib/x.so`.
pub(crate) fn parse_maps_line(line: &str) -> Option<MapsLine> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = word().split_once('-')?;
    let mode = word().as_bytes();
    let (offset, (major, minor), inode) = (word(), word().split_once(':')?, word());
    let bit = |at: usize, letter: u8, bit: u32| if mode.get(at) == Some(&letter) { bit } else { 0 };
    Some(MapsLine {
        start: hex(start)?,
        end: hex(end)?,
        protection: bit(0, b'r', PROT_READ) | bit(1, b'w', PROT_WRITE) | bit(2, b'x', PROT_EXEC),
        flags: if mode.get(3) == Some(&b's') { MAP_SHARED } else { MAP_PRIVATE },
        offset: hex(offset)?,
        device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        // The one character that the kernel writes as its number.
        path: rest.trim_start_matches(' ').replace("\\012", "\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines() {
        let line = "55d0-55d8 r-xp 00002000 fe:01 1234                       /usr/bin/a b (deleted)";
        let expect = MapsLine {
            start: 0x55d0,
            end: 0x55d8,
            protection: 5,
            flags: 2,
            offset: 0x2000,
            device: (0xfe, 1),
            inode: 1234,
            path: "/usr/bin/a b (deleted)".into(),
        };
        assert_eq!(expect.undeleted_path(), "/usr/bin/a b");
        assert_eq!(parse_maps_line(line), Some(expect));
        let anonymous = parse_maps_line("7f00-7f10 rw-s 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.path.as_str(), anonymous.protection, anonymous.flags), ("", 3, 1));
        for wrong in ["", "7f00 r-xp 0 0:0 0", "x-y r-xp 0 0:0 0", "1-2 r-xp 0 0 0"] {
            assert_eq!(parse_maps_line(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_is_there() {
        let host = Proc::host();
        let pid = Pid(std::process::id() as i32);
        assert!(host.tasks(pid).unwrap().contains(&Tid(pid.0)));
        assert_eq!(host.process_of(Tid(pid.0)).unwrap(), pid);
        assert!(host.lives(Tid(pid.0)) && !host.name(pid, Tid(pid.0)).unwrap().is_empty());
        assert!(host.processes().unwrap().contains(&pid));
        let own = std::env::current_exe().unwrap();
        let maps = host.maps(pid).unwrap();
        assert!(maps.iter().any(|line| line.executable() && Path::new(&line.path) == own));
        assert!(host.memory_available_bytes().unwrap() > 0);
    }

    #[test]
    fn a_family_is_all_that_descend() {
        let root = tempfile::tempdir().unwrap();
        for (pid, parent) in [(7, 1), (8, 7), (5, 8), (9, 1), (10, 9)] {
            let process = root.path().join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
        }
        let made_up = Proc::at(root.path());
        assert_eq!(made_up.families(&[Pid(7)]), [Pid(5), Pid(7), Pid(8)], "5 is the child of 8");
        assert_eq!(
            made_up.families(&[Pid(10), Pid(11)]),
            [Pid(10), Pid(11)],
            "11 is not there, and is named"
        );
    }

    #[test]
    fn a_process_is_mapped_as_long_as_a_thread_of_it_lives() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // As the kernel has it: the files of the first one are empty or lead nowhere.
        put("7/status", "Tgid:\t7\nState:\tZ (zombie)\n");
        put("7/maps", "");
        for tid in ["7", "8", "9"] {
            fs::create_dir_all(root.path().join("7/task").join(tid)).unwrap();
        }
        put("8/status", "Tgid:\t7\nState:\tX (dead)\n");
        put("9/status", "Tgid:\t7\nState:\tS (sleeping)\n");
        put("9/maps", "1000-2000 r-xp 00000000 08:01 5 /bin/x\n");
        put("9/root/bin/x", "x");
        let proc = Proc::at(root.path());
        let maps = proc.maps(Pid(7)).unwrap();
        assert_eq!(maps.iter().map(|line| line.path.as_str()).collect::<Vec<_>>(), ["/bin/x"]);
        assert_eq!(proc.seen_by(Pid(7), "/bin/x"), Some(root.path().join("9/root/bin/x")));
        assert!(proc.may_read_maps(Pid(7)).is_ok());
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let empty = tempfile::tempdir().unwrap();
        let nothing = Proc::at(empty.path());
        assert!(nothing.tasks(Pid(1)).is_err() && nothing.maps(Pid(1)).is_err());
        assert!(nothing.may_read_maps(Pid(1)).is_err());
        assert!(!nothing.lives(Tid(1)));
        assert_eq!(
            (nothing.setting("kernel/perf_event_paranoid"), nothing.memory_available_bytes()),
            (None, None)
        );
    }

    /// The path says nothing: another file may have taken its place.
    #[test]
    fn a_replaced_file_is_not_the_one_that_is_mapped() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("7/root/bin");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("x"), "x").unwrap();
        let file = fs::metadata(process.join("x")).unwrap();
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        let line = MapsLine {
            start: 0x1000,
            end: 0x2000,
            protection: 5,
            flags: 2,
            offset: 0,
            device,
            inode: file.ino(),
            path: "/bin/x".into(),
        };
        let fake = Proc::at(root.path());
        assert_eq!(fake.file_of(Pid(7), &line), Some(process.join("x")));
        assert_eq!(fake.file_of(Pid(7), &MapsLine { inode: line.inode + 1, ..line.clone() }), None);
        assert_eq!(fake.file_of(Pid(7), &MapsLine { path: "[vdso]".into(), ..line }), None);
    }
}
