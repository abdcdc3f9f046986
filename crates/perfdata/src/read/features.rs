//! Features: what perf noted of the machine and of its own command line.  Sections behind the records in
//! the file layout, FEATURE records in the pipe layout, with the same contents.

use std::collections::HashMap;

use model::{BuildId, CpuModel, Mmap, Pid};

use super::bytes::{Cursor, text};
use super::sideband::{self, BUILD_ID_MAX};

const BUILD_ID: u32 = 2;
const OSRELEASE: u32 = 4;
const CPUID: u32 = 9;
const CMDLINE: u32 = 11;
const EVENT_DESC: u32 = 12;
pub(super) const DIR_FORMAT: u32 = 24;
pub(super) const COMPRESSED: u32 = 27;

/// Bit of a build id's `misc` that says that its size is stored.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;
/// A stored build id: the bytes, their number, padding.
const BUILD_ID_FIELD: usize = 24;

/// What the features say, as far as we use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) command_line: Vec<String>,
    pub(super) cpu_model: Option<CpuModel>,
    pub(super) kernel_release: Option<String>,
    pub(super) event_names: Vec<String>,
    build_ids: HashMap<String, BuildId>,
}

impl Features {
    /// Takes a feature's contents; `None` if they are shorter than they say.
    pub(super) fn read(&mut self, number: u32, bytes: &[u8]) -> Option<()> {
        let mut c = Cursor::new(bytes);
        match number {
            BUILD_ID => self.build_id_table(bytes)?,
            OSRELEASE => self.kernel_release = Some(c.counted_string()?),
            CPUID => self.cpu_model = cpu_model(&c.counted_string()?),
            CMDLINE => {
                let count = c.u32()?;
                self.command_line = (0..count).map(|_| c.counted_string()).collect::<Option<_>>()?;
            }
            EVENT_DESC => self.event_names = event_names(&mut c)?,
            _ => (),
        }
        Some(())
    }

    /// Records of their own, with headers.
    fn build_id_table(&mut self, bytes: &[u8]) -> Option<()> {
        let mut c = Cursor::new(bytes);
        while !c.rest().is_empty() {
            let _kind = c.u32()?;
            let (misc, size) = (c.u16()?, usize::from(c.u16()?));
            self.add_build_id(misc, c.take(size.checked_sub(8)?)?)?;
        }
        Some(())
    }

    /// Takes `struct perf_record_header_build_id` without its header.
    pub(super) fn add_build_id(&mut self, misc: u16, body: &[u8]) -> Option<()> {
        let mut c = Cursor::new(body);
        let _pid = c.i32()?;
        let field = c.take(BUILD_ID_FIELD)?;
        let stored = field.get(BUILD_ID_MAX).map(|size| usize::from(*size));
        let size = stored.filter(|_| misc & MISC_BUILD_ID_SIZE != 0).unwrap_or(BUILD_ID_MAX);
        if let Some(id) = sideband::build_id(field.get(..size.min(BUILD_ID_MAX))?) {
            self.build_ids.entry(text(c.rest())).or_insert(id);
        }
        Some(())
    }

    /// Gives a mapping the build id of the table, if it has none of its own.
    pub(super) fn complete(&self, mmap: &mut Mmap) {
        if mmap.build_id.is_none() && !self.build_ids.is_empty() {
            // The mapping of the kernel is named for a symbol: `[kernel.kallsyms]_text`.
            let name = match mmap.path.rfind(']') {
                Some(end) if mmap.kernel && mmap.path.starts_with('[') => mmap.path.get(..=end),
                _ => None,
            };
            mmap.build_id = self.build_ids.get(name.unwrap_or(&mmap.path)).cloned();
        }
    }

    /// The process that perf was told to record.
    pub(super) fn asked_pid(&self) -> Option<Pid> {
        let mut args = self.command_line.iter().map(String::as_str).take_while(|arg| *arg != "--");
        while let Some(arg) = args.next() {
            let list = match arg {
                "-p" | "--pid" => args.next()?,
                _ => match arg.strip_prefix("--pid=").or_else(|| arg.strip_prefix("-p")) {
                    Some(list) => list,
                    None => continue,
                },
            };
            if let Some(pid) = list.split(',').next().and_then(|pid| pid.parse().ok()) {
                return Some(Pid(pid));
            }
        }
        None
    }
}

/// `GenuineIntel,6,78,3`
fn cpu_model(cpuid: &str) -> Option<CpuModel> {
    let mut numbers = cpuid.split(',').skip(1).map(|number| number.trim().parse().ok());
    let mut next = || numbers.next().flatten();
    Some(CpuModel { family: next()?, model: next()?, stepping: next()? })
}

fn event_names(c: &mut Cursor<'_>) -> Option<Vec<String>> {
    let (count, attr_size) = (c.u32()?, usize::try_from(c.u32()?).ok()?);
    let mut one = || -> Option<String> {
        c.take(attr_size)?;
        let ids = usize::try_from(c.u32()?).ok()?;
        let name = c.counted_string()?;
        c.take(ids.checked_mul(8)?)?;
        Some(name)
    };
    (0..count).map(|_| one()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Avma, FileOffset};

    fn string(s: &str, padded: usize) -> Vec<u8> {
        let mut bytes = (padded as u32).to_le_bytes().to_vec();
        bytes.extend(s.as_bytes());
        bytes.resize(4 + padded, 0);
        bytes
    }

    #[test]
    fn command_line_and_cpu() {
        let mut f = Features::default();
        let line = [3u32.to_le_bytes().to_vec(), string("perf", 64), string("-p", 8), string("42,43", 8)];
        assert_eq!(f.read(CMDLINE, &line.concat()), Some(()));
        assert_eq!(f.command_line, ["perf", "-p", "42,43"]);
        assert_eq!(f.asked_pid(), Some(Pid(42)));
        assert_eq!(f.read(CMDLINE, &u32::MAX.to_le_bytes()), None);
        f.read(OSRELEASE, &string("6.1.0-37-amd64", 64)).unwrap();
        assert_eq!(f.kernel_release.as_deref(), Some("6.1.0-37-amd64"));
        f.read(CPUID, &string("GenuineIntel,6,78,3", 64)).unwrap();
        assert_eq!(f.cpu_model, Some(CpuModel { family: 6, model: 78, stepping: 3 }));
        f.read(CPUID, &string("AuthenticAMD", 64)).unwrap();
        assert_eq!(f.cpu_model, None);
    }

    #[test]
    fn the_pid_in_a_command_line() {
        let pid = |line: &str| {
            let command_line = line.split(' ').map(str::to_owned).collect();
            Features { command_line, ..Features::default() }.asked_pid().map(|pid| pid.0)
        };
        assert_eq!(pid("perf record -p7"), Some(7));
        assert_eq!(pid("perf record --pid=8,9"), Some(8));
        assert_eq!(pid("perf record --per-thread -e x -- prog -p 7"), None);
        assert_eq!(pid("perf record -p"), None);
    }

    #[test]
    fn build_ids_by_path() {
        let mut table = Vec::new();
        for (misc, size, name) in [(0u16, 0u8, "[kernel.kallsyms]\0"), (MISC_BUILD_ID_SIZE, 2, "/bin/x\0")] {
            table.extend([67, 0, 0, 0]);
            table.extend(misc.to_le_bytes());
            table.extend((8 + 4 + 24 + name.len() as u16).to_le_bytes());
            table.extend((-1i32).to_le_bytes());
            table.extend([7; 20]);
            table.extend([size, 0, 0, 0]);
            table.extend(name.as_bytes());
        }
        let mut f = Features::default();
        assert_eq!(f.read(BUILD_ID, &table), Some(()));
        let complete = |path: &str, kernel| {
            let mut mmap = Mmap {
                pid: Pid(1),
                start: Avma(0),
                len: 1,
                file_offset: FileOffset(0),
                path: path.into(),
                build_id: None,
                executable: true,
                kernel,
            };
            f.complete(&mut mmap);
            mmap.build_id.map(|id| id.0.len())
        };
        assert_eq!(complete("[kernel.kallsyms]_text", true), Some(20));
        assert_eq!(complete("/bin/x", false), Some(2));
        assert_eq!(complete("/bin/y", false), None);
        assert_eq!(Features::default().read(BUILD_ID, &table[..table.len() - 1]), None);
    }
}
