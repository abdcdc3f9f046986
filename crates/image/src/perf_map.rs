//! perf maps: names of code that a program wrote at run time, without the code
//! (tools/perf/Documentation/jit-interface.txt).
//!
//! The runtime writes `/tmp/perf-PID.map`, which the recording does not name.  As perf does, it is taken for the
//! object that the process's anonymous memory belongs to, and the linked address of code is where it stood.
//!
//! ```text
//! 7f2a1c000 40 name of the function      start and size, hexadecimal
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::{FileOffset, Pid, Sideband, SidebandRecord};

use crate::contents::Contents;
use crate::mapped::MappedFile;
use crate::named_code::NamedCode;
use crate::object_file::basename;
use crate::options::ImageOptions;
use crate::space::MappedObject;

/// More functions than this of one map are left out.
const MAX_FUNCTIONS: usize = 1 << 20;

/// The maps of a recording's processes.
#[derive(Debug, Default)]
pub(crate) struct PerfMaps(BTreeMap<Pid, PerfMap>);

/// One map.
#[derive(Debug)]
pub(crate) struct PerfMap {
    pub(crate) path: PathBuf,
    pub(crate) contents: Contents,
    pub(crate) named: NamedCode,
}

/// The name is that of a map: `/tmp/perf-PID.map`.
pub(crate) fn is_name(name: &str) -> bool {
    let pid = name.strip_prefix("/tmp/perf-").and_then(|rest| rest.strip_suffix(".map"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
}

fn name_of(pid: Pid) -> String {
    format!("/tmp/perf-{}.map", pid.0)
}

impl PerfMaps {
    /// Opens the maps of the processes that executed anonymous memory, as far as there are any.
    pub(crate) fn find(sideband: &[SidebandRecord], options: &ImageOptions) -> Self {
        let mut pids: Vec<Pid> = sideband.iter().filter_map(anonymous_code).collect();
        pids.sort_unstable();
        pids.dedup();
        Self(pids.into_iter().filter_map(|pid| Some((pid, PerfMap::open(pid, options)?))).collect())
    }

    /// The map that an object is.
    pub(crate) fn get(&self, object: &MappedObject) -> Option<&PerfMap> {
        self.0.get(&object.pid).filter(|_| object.key.name == name_of(object.pid))
    }

    /// The sideband in which anonymous memory is called after the map that names its code.
    pub(crate) fn name<'a>(&self, sideband: &'a [SidebandRecord]) -> Cow<'a, [SidebandRecord]> {
        if self.0.is_empty() {
            return Cow::Borrowed(sideband);
        }
        let mut all = sideband.to_vec();
        for record in &mut all {
            let pid = anonymous_code(record).filter(|pid| self.0.contains_key(pid));
            if let (Some(pid), Sideband::Mmap(mmap)) = (pid, &mut record.body) {
                mmap.path = name_of(pid);
                mmap.file_offset = FileOffset(mmap.start.0);
            }
        }
        Cow::Owned(all)
    }
}

/// The process, if the record maps memory into it that is no file and may be executed.
fn anonymous_code(record: &SidebandRecord) -> Option<Pid> {
    let Sideband::Mmap(mmap) = &record.body else { return None };
    let is_user = mmap.executable && !mmap.kernel && !mmap.start.is_kernel();
    // Where runtimes put code; not what the kernel puts there (`[vdso]`, `[uprobes]`).
    const NAMES: [&str; 7] =
        ["//anon", "/dev/zero", "/anon_hugepage", "/memfd:", "[heap]", "[stack", "[anon:"];
    let is_anonymous = NAMES.iter().any(|name| mmap.path.starts_with(name));
    (is_user && is_anonymous).then_some(mmap.pid)
}

impl PerfMap {
    fn open(pid: Pid, options: &ImageOptions) -> Option<Self> {
        places(pid, options).into_iter().find_map(|path| {
            let contents = Contents::Mapped(MappedFile::open(&path).ok()?.into());
            let named = parse(&contents);
            Some(Self { path, contents, named })
        })
    }
}

/// Where a map may be: as it is named, or in the process's own file system.
fn places(pid: Pid, options: &ImageOptions) -> Vec<PathBuf> {
    let name = name_of(pid);
    match &options.symfs {
        Some(root) => vec![options.rooted(Path::new(&name)), root.join(basename(&name))],
        None => vec![PathBuf::from(format!("/proc/{}/root{name}", pid.0)), PathBuf::from(name)],
    }
}

/// Reads a map; lines that are none of it are left out.
fn parse(text: &[u8]) -> NamedCode {
    // Code that was replaced has a line for each function that stood there: the last is the one that stayed.
    let mut by_start: BTreeMap<u64, (u64, &[u8])> = BTreeMap::new();
    for (start, size, name) in text.split(|&b| b == b'\n').filter_map(line) {
        if by_start.len() < MAX_FUNCTIONS {
            by_start.insert(start, (size, name));
        }
    }
    let mut code = NamedCode::default();
    let mut rest = by_start.into_iter().peekable();
    while let Some((start, (size, name))) = rest.next() {
        let next = rest.peek().map_or(u64::MAX, |(next, _)| *next);
        let end = start.saturating_add(size).min(next);
        if code.add((start, end), start, name).is_none() {
            break;
        }
    }
    code
}

/// Start, size and name of a function.
fn line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut fields = line.trim_ascii().splitn(3, |&b| b == b' ');
    let (start, size, name) = (hex(fields.next()?)?, hex(fields.next()?)?, fields.next()?.trim_ascii());
    (size > 0 && !name.is_empty() && !name.contains(&0)).then_some((start, size, name))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(text: &[u8]) -> Vec<(u64, u64, String)> {
        let code = parse(text);
        let ends = code.names.iter().enumerate().filter(|(_, b)| **b == 0).map(|(at, _)| at);
        let names = code.symbols.iter().zip(ends).map(|(symbol, end)| {
            String::from_utf8_lossy(&code.names[symbol.name as usize..end]).into_owned()
        });
        code.sections.iter().zip(names).map(|(s, name)| (s.start, s.end, name)).collect()
    }

    #[test]
    fn the_last_line_of_an_address_counts_and_functions_do_not_overlap() {
        let text = b"2000 10 Lfoo;::bar (I)V\n1000 40 old\nnot a line\n0x1000 20 new\n1010 8 inner\n3000 0 empty\n4000 9";
        let function = |start, end, name: &str| (start, end, name.to_owned());
        let expect = [
            function(0x1000, 0x1010, "new"),
            function(0x1010, 0x1018, "inner"),
            function(0x2000, 0x2010, "Lfoo;::bar (I)V"),
        ];
        assert_eq!(listed(text), expect);
    }

    #[test]
    fn names_of_maps() {
        assert!(is_name("/tmp/perf-12.map"));
        for name in ["/tmp/perf-.map", "/tmp/perf-1x.map", "/var/perf-1.map", "/tmp/perf-1"] {
            assert!(!is_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([0-9a-fx]{0,17} ?[0-9a-f]{0,17} ?\\PC{0,6}\n?){0,12}") {
            let code = parse(text.as_bytes());
            prop_assert!(code.sections.iter().all(|s| s.start <= s.end));
            prop_assert!(code.sections.is_sorted_by(|a, b| a.end <= b.start && a.start < b.start));
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(parse(&bytes).sections.is_sorted_by(|a, b| a.end <= b.start));
        }
    }
}
