//! Features: what perf noted of the machine and of its own command line.  Sections after the records in
//! the file layout, FEATURE records in the pipe layout, with the same contents.

use std::collections::HashMap;

use model::{BuildId, ClockOffsets, CpuModel, Mmap, Pid};

use super::bytes::{Cursor, text};
use super::sideband::{self, BUILD_ID_MAX};
use crate::feature_bits::{
    ARCH, BUILD_ID, CLOCK_DATA, CMDLINE, COMPRESSED, CPUDESC, CPUID, EVENT_DESC, HOSTNAME, NRCPUS, OSRELEASE,
    TOTAL_MEM, VERSION,
};
use crate::record_types::MISC_BUILD_ID_SIZE;

/// `PERF_COMP_ZSTD`, the only method there is.
const METHOD_ZSTD: u32 = 1;
/// CLOCK_MONOTONIC.
const CLOCK_MONOTONIC: u32 = 1;

/// A stored build id: the bytes, their number, padding.
const BUILD_ID_FIELD: usize = 24;

/// What the features say, as far as we use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownFeatures {
    pub(super) command_line: Vec<String>,
    pub(super) cpu_model: Option<CpuModel>,
    pub(super) kernel_release: Option<String>,
    pub(super) hostname: Option<String>,
    pub(super) event_names: Vec<String>,
    /// How many CPUs were running.
    pub(super) running_cpus: Option<usize>,
    clock: Option<ClockData>,
    /// What our own recorder has compared.
    clock_offsets: Option<ClockOffsets>,
    build_ids: HashMap<String, Option<BuildId>>,
}

impl KnownFeatures {
    /// Takes a feature's contents; `None` if they are shorter than they say.
    pub(super) fn read(&mut self, number: u32, bytes: &[u8]) -> Option<()> {
        let mut c = Cursor::new(bytes);
        match number {
            BUILD_ID => self.build_id_table(bytes)?,
            OSRELEASE => self.kernel_release = Some(c.counted_string()?),
            HOSTNAME => self.hostname = Some(c.counted_string()?),
            // Nothing that we use, but a damaged one is damage.
            VERSION | ARCH | CPUDESC => {
                c.counted_string()?;
            }
            TOTAL_MEM => {
                c.u64()?;
            }
            NRCPUS => {
                let _possible = c.u32()?;
                self.running_cpus = usize::try_from(c.u32()?).ok().filter(|cpus| *cpus > 0);
            }
            COMPRESSED => {
                let _version = c.u32()?;
                return (c.u32()? == METHOD_ZSTD).then_some(());
            }
            CLOCK_DATA => self.clock = Some(ClockData::read(&mut c)?),
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
            // One path in two containers, or before and after an upgrade: the name does not tell which.
            let known = self.build_ids.entry(text(c.rest())).or_insert_with(|| Some(id.clone()));
            if known.as_ref().is_some_and(|known| *known != id) {
                *known = None;
            }
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
            mmap.build_id = self.build_ids.get(name.unwrap_or(&mmap.path)).cloned().flatten();
        }
    }

    /// Takes what our recorder writes after perf's words of TIME_CONV: one instant in perf's clock,
    /// CLOCK_MONOTONIC and real time. Of several the first counts: clocks drift apart.
    pub(super) fn add_clock_sample(&mut self, sample: [u64; 3]) {
        let [time_ns, monotonic_ns, real_ns] = sample;
        let difference = |other: u64| i64::try_from(i128::from(other) - i128::from(time_ns)).ok();
        let offsets =
            ClockOffsets { monotonic_ns: difference(monotonic_ns), realtime_ns: difference(real_ns) };
        self.clock_offsets.get_or_insert(offsets);
    }

    /// What the events' clock is in others: perf's own, if our recorder compared that, or the one that perf
    /// compared with real time.
    pub(super) fn clock_offsets(&self, events_clock: Option<u32>) -> ClockOffsets {
        if let Some(offsets) = self.clock_offsets.filter(|_| events_clock.is_none()) {
            return offsets;
        }
        let Some(clock) = self.clock.filter(|clock| events_clock == Some(clock.id)) else {
            return ClockOffsets::default();
        };
        let difference = |a: u64, b: u64| i64::try_from(i128::from(a) - i128::from(b)).ok();
        ClockOffsets {
            monotonic_ns: (clock.id == CLOCK_MONOTONIC).then_some(0),
            realtime_ns: difference(clock.real_ns, clock.time_ns),
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

/// CLOCK_DATA (`perf record -k`): one instant in the clock of the records and in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockData {
    id: u32,
    real_ns: u64,
    time_ns: u64,
}

impl ClockData {
    fn read(c: &mut Cursor<'_>) -> Option<Self> {
        let _version = c.u32()?;
        Some(Self { id: c.u32()?, real_ns: c.u64()?, time_ns: c.u64()? })
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
        let mut f = KnownFeatures::default();
        let line = [3u32.to_le_bytes().to_vec(), string("perf", 64), string("-p", 8), string("42,43", 8)];
        assert_eq!(f.read(CMDLINE, &line.concat()), Some(()));
        assert_eq!(f.command_line, ["perf", "-p", "42,43"]);
        assert_eq!(f.asked_pid(), Some(Pid(42)));
        assert_eq!(f.read(CMDLINE, &u32::MAX.to_le_bytes()), None);
        f.read(OSRELEASE, &string("6.1.0-37-amd64", 64)).unwrap();
        assert_eq!(f.kernel_release.as_deref(), Some("6.1.0-37-amd64"));
        f.read(HOSTNAME, &string("db7", 64)).unwrap();
        assert_eq!(f.hostname.as_deref(), Some("db7"));
        f.read(CPUID, &string("GenuineIntel,6,78,3", 64)).unwrap();
        assert_eq!(f.cpu_model, Some(CpuModel { family: 6, model: 78, stepping: 3 }));
        f.read(CPUID, &string("AuthenticAMD", 64)).unwrap();
        assert_eq!(f.cpu_model, None);
    }

    #[test]
    fn damaged_features_and_clocks() {
        let mut f = KnownFeatures::default();
        for number in [HOSTNAME, OSRELEASE, VERSION, ARCH, CPUDESC] {
            assert_eq!(f.read(number, &string("x", 8)), Some(()));
            assert_eq!(f.read(number, &[9, 0, 0, 0]), None);
        }
        for number in [NRCPUS, TOTAL_MEM] {
            assert_eq!((f.read(number, &[1; 8]), f.read(number, &[1; 7])), (Some(()), None));
        }
        f.read(NRCPUS, &[8, 0, 0, 0, 6, 0, 0, 0]).unwrap();
        assert_eq!(f.running_cpus, Some(6));
        let start = [[1u32, 1].map(u32::to_le_bytes).concat(), 5000u64.to_le_bytes().to_vec()].concat();
        let clock = [start, 6000u64.to_le_bytes().to_vec()].concat();
        assert_eq!(f.read(CLOCK_DATA, &clock[..23]), None);
        f.read(CLOCK_DATA, &clock).unwrap();
        let monotonic = ClockOffsets { monotonic_ns: Some(0), realtime_ns: Some(-1000) };
        assert_eq!(f.clock_offsets(Some(CLOCK_MONOTONIC)), monotonic);
        assert_eq!(f.clock_offsets(None), ClockOffsets::default(), "the records are in perf's own clock");
        assert_eq!(f.read(COMPRESSED, &[1, 0, 0, 0, 2, 0, 0, 0]), None);
        assert_eq!(f.read(200, &[]), Some(()), "an unknown one is left out");
    }

    #[test]
    fn the_pid_in_a_command_line() {
        let pid = |line: &str| {
            let command_line = line.split(' ').map(str::to_owned).collect();
            KnownFeatures { command_line, ..KnownFeatures::default() }.asked_pid().map(|pid| pid.0)
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
        let mut f = KnownFeatures::default();
        assert_eq!(f.read(BUILD_ID, &table), Some(()));
        let complete = |path: &str, kernel| {
            let mut mmap = Mmap {
                pid: Pid(1),
                start: Avma(0),
                len: 1,
                file_offset: FileOffset(0),
                path: path.into(),
                build_id: None,
                inode: None,
                executable: true,
                kernel,
            };
            f.complete(&mut mmap);
            mmap.build_id.map(|id| id.0.len())
        };
        assert_eq!(complete("[kernel.kallsyms]_text", true), Some(20));
        assert_eq!(complete("/bin/x", false), Some(2));
        assert_eq!(complete("/bin/y", false), None);
        assert_eq!(KnownFeatures::default().read(BUILD_ID, &table[..table.len() - 1]), None);
    }
}
