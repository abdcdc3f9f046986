//! perf maps: names of code that a program wrote at run time, without the code
//! (tools/perf/Documentation/jit-interface.txt).
//!
//! The runtime writes `/tmp/perf-PID.map`, which the recording does not name. As perf does, it is taken for
//! the object that the process's anonymous memory belongs to, and the linked address of code is where it
//! stood. A map says neither since when a function was there nor what stood there before: the last line about
//! an address counts. Where a jitdump has the code, the map is not asked.
//!
//! ```text
//! 7f2a1c000 40 name of the function      start and size, hexadecimal
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use files::{Owners, Place};
use model::{FileOffset, Mmap, Pid, Sideband, SidebandRecord};

use crate::jit::jit_code;
use crate::jit::named_code::NamedCode;
use crate::locate::object_key::MappedObject;
use crate::options::ImageOptions;

/// What follows after this many bytes of a map is left out.
const MAX_BYTES: u64 = 48 << 20;
/// More functions than this of one map are left out.
const MAX_FUNCTIONS: usize = 1 << 19;

/// What the kernel calls memory where runtimes put code; not what it puts there itself (`[vdso]`,
/// `[uprobes]`).
const ANONYMOUS: [&str; 7] =
    ["//anon", "/dev/zero", "/anon_hugepage", "/memfd:", "[heap]", "[stack", "[anon:"];

/// The maps of a recording's processes.
#[derive(Debug, Default)]
pub(crate) struct PerfMaps(BTreeMap<Pid, PerfMap>);

/// One map.
#[derive(Debug)]
pub(crate) struct PerfMap {
    pub(crate) place: Place,
    pub(crate) named: NamedCode,
    /// Lines that have no function, or one too many.
    left_out: u64,
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
        Self(pids.into_iter().filter_map(|pid| Some((pid, PerfMap::find(pid, options)?))).collect())
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
    let Mmap { pid, path, executable, kernel, build_id, start, .. } = &**mmap;
    let is_user_code = *executable && !kernel && !start.is_kernel();
    // A program that was copied to memory (memfd) has a build id; what a runtime writes has none.
    let is_anonymous = build_id.is_none() && ANONYMOUS.iter().any(|name| path.starts_with(name));
    (is_user_code && is_anonymous).then_some(*pid)
}

impl PerfMap {
    fn find(pid: Pid, options: &ImageOptions) -> Option<Self> {
        places(pid, options).into_iter().find_map(|(place, owners)| {
            let (named, left_out) = parse(&read(&place, &owners)?);
            Some(Self { place, named, left_out })
        })
    }

    /// What of the map is not used, for people.
    pub(crate) fn left_out(&self) -> Option<String> {
        let Self { place, left_out, .. } = self;
        (*left_out > 0).then(|| {
            format!(
                "{}: {left_out} of its lines are left out; they are not of the form START SIZE NAME, or after the first \
                 {MAX_FUNCTIONS} functions or {} MB",
                place.path().display(),
                MAX_BYTES >> 20
            )
        })
    }
}

/// The lines of a map with these functions.
pub(crate) fn write(functions: &[(u64, u64, &[u8])]) -> Vec<u8> {
    let mut text = Vec::new();
    for (start, size, name) in functions {
        text.extend(format!("{start:x} {size:x} ").bytes());
        text.extend(*name);
        text.push(b'\n');
    }
    text
}

/// The paths of a process's map, each with the users that may own it there: in the process's own file
/// system, by the process's own number there, then as it is named.
fn places(pid: Pid, options: &ImageOptions) -> Vec<(Place, Owners)> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.0)).unwrap_or_default();
    let own_number = pid_in_its_namespace(&status).filter(|_| options.symfs.is_none());
    let of_number = |number: Pid| jit_code::places(&name_of(number), pid, options).into_iter().rev();
    // By its own number only where the process lives: here that may be the number of another one.
    let own = own_number.into_iter().flat_map(|own| of_number(own).take(1));
    match options.symfs {
        Some(_) => jit_code::places(&name_of(pid), pid, options),
        None => own.chain(of_number(pid)).collect(),
    }
}

/// The number that a process in a container knows itself by (`/proc/PID/status`).
fn pid_in_its_namespace(status: &str) -> Option<Pid> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok().map(Pid)
}

/// The file's bytes, not mapped: the process may still be writing it.
fn read(place: &Place, owners: &Owners) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    place.open_owned(owners).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads a map; also how many lines are left out.
fn parse(text: &[u8]) -> (NamedCode, u64) {
    let mut functions = Stretches::new();
    let mut left_out = 0;
    let lines = text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    for line in lines {
        match function(line).filter(|_| functions.len() < MAX_FUNCTIONS) {
            Some((start, size, name)) => put(&mut functions, start, start.saturating_add(size), name),
            None => left_out += 1,
        }
    }
    let mut code = NamedCode::default();
    for (start, (end, name)) in functions {
        if code.add((start, end), start, name).is_none() {
            left_out += 1;
        }
    }
    (code, left_out + u64::from(text.len() as u64 == MAX_BYTES))
}

/// End and name by start, disjoint.
type Stretches<'a> = BTreeMap<u64, (u64, &'a [u8])>;

/// Of what stood there before, only that which begins and ends in front stays as it was; what reaches into
/// the new function keeps its beginning.
fn put<'a>(functions: &mut Stretches<'a>, start: u64, end: u64, name: &'a [u8]) {
    while let Some(old) = functions.range(start..end).next().map(|(old, _)| *old) {
        functions.remove(&old);
    }
    if let Some((_, (reaches, _))) = functions.range_mut(..start).next_back() {
        *reaches = start.min(*reaches);
    }
    functions.insert(start, (end, name));
}

/// Start, size and name of a function.
fn function(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = first_word(line)?;
    let (size, name) = first_word(rest)?;
    let (start, size) = (hex(start)?, hex(size)?);
    (size > 0 && !name.is_empty() && !name.contains(&0)).then_some((start, size, name))
}

fn first_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = line.split_at_checked(line.iter().position(u8::is_ascii_whitespace)?)?;
    Some((word, rest.trim_ascii_start()))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each function as `start end name`; and how many lines are left out.
    fn check(text: &str, expect: &[&str], expect_left_out: u64) {
        let (code, left_out) = parse(text.as_bytes());
        let names = code.names.split(|b| *b == 0).map(String::from_utf8_lossy);
        let got: Vec<_> = code
            .sections
            .iter()
            .zip(names)
            .map(|(s, name)| format!("{:x} {:x} {name}", s.start, s.end))
            .collect();
        assert_eq!(got, expect, "{text}");
        assert_eq!(left_out, expect_left_out, "{text}");
    }

    #[test]
    fn names_may_have_anything_but_a_line_end() {
        check(
            "2000 10 Lfoo;::bar (I)V\r\n0x1000  20\tLazyCompile:*run /srv/@app/a b.js:1:2\n",
            &["1000 1020 LazyCompile:*run /srv/@app/a b.js:1:2", "2000 2010 Lfoo;::bar (I)V"],
            0,
        );
    }

    #[test]
    fn lines_without_a_function_are_left_out_and_counted() {
        check(
            "not a line\n1000 10 good\n3000 0 empty\n4000 9\n5000\n\n1ffffffffffffffff 1 far\n2000 zz odd\n",
            &["1000 1010 good"],
            6,
        );
        check("fffffffffffffff0 100 end\n", &["fffffffffffffff0 ffffffffffffffff end"], 0);
    }

    #[test]
    fn the_last_line_about_an_address_counts() {
        check("1000 40 old\n1000 20 new\n", &["1000 1020 new"], 0);
        check("1000 40 outer\n1010 8 inner\n", &["1000 1010 outer", "1010 1018 inner"], 0);
        check("1010 8 inner\n1000 40 outer\n", &["1000 1040 outer"], 0);
        check("1000 40 behind\nff0 20 before\n", &["ff0 1010 before"], 0);
        check("1000 10 a\n1010 10 b\n1020 10 c\n1008 20 new\n", &["1000 1008 a", "1008 1028 new"], 0);
    }

    #[test]
    fn a_process_in_a_container_has_a_number_of_its_own() {
        assert_eq!(pid_in_its_namespace("Name:\tjava\nNSpid:\t4711\t12\t1\nNSsid:\t9\n"), Some(Pid(1)));
        assert_eq!(pid_in_its_namespace("Name:\tjava\nNSpid:\t4711\n"), Some(Pid(4711)));
        assert_eq!(pid_in_its_namespace("Name:\tjava\n"), None, "older kernels");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([0-9a-fx]{0,17} ?[0-9a-f]{0,17} ?\\PC{0,6}\n?){0,12}") {
            let (code, _) = parse(text.as_bytes());
            prop_assert!(code.sections.iter().all(|s| s.start <= s.end));
            prop_assert!(code.sections.is_sorted_by(|a, b| a.end <= b.start && a.start < b.start));
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(parse(&bytes).0.sections.is_sorted_by(|a, b| a.end <= b.start));
        }
    }
}
