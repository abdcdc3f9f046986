//! A program of five instructions and a recording of it, both made by hand.
//!
//! ```text
//! outer:  call f      f:  ret          never:  ret
//!         call f
//!         syscall
//! ```

#![allow(dead_code, reason = "each file of tests uses some of it")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use model::{AuxOffset, AuxOwner, AuxRecord, BuildId, Cpu, FileOffset, Ns, Pid, Tid, TscClock};
use packet::{IpPayload, Packet, Tnt};
use perfdata::write::{
    Attr, AuxChunk, Event, EventId, Features, FileIdentity, IntelPtInfo, Record, SampleId, Writer, pt_config,
};

const PMU: u32 = 8;
const TEXT: u64 = 0x1000;
const OUTER: u64 = TEXT;
const F: u64 = TEXT + 0x20;
const NEVER: u64 = TEXT + 0x30;
const BASE: u64 = 0x5555_0000_0000;
const LIBRARY: u64 = 0x7f00_0000_0000;
const THREAD: Tid = Tid(77);
const START_TSC: u64 = 1_000_000;
pub(crate) const BUILD_ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];

/// Runs the command in a directory, where it must end with `code`; returns stdout and stderr.
pub(crate) fn check(directory: &Path, words: &[&str], code: i32) -> (String, String) {
    let (ended, stdout, stderr) = ran(directory, words);
    assert_eq!(ended, Some(code), "{words:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Runs the command in a directory; returns its exit code, stdout and stderr.
pub(crate) fn ran(directory: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    let Output { status, stdout, stderr } = command.args(words).current_dir(directory).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// How the recording is made.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    /// The trace has a TSC packet; the attribute says so in any case.
    pub(crate) has_tsc: bool,
    /// There are records of context switches.
    pub(crate) has_switches: bool,
    /// The AUX buffer was full behind the trace, while the program ran on for twice the time.
    pub(crate) is_truncated: bool,
    /// The IP filter, as AUXTRACE_INFO says it; empty: none.
    pub(crate) filter: &'static str,
    /// `f` calls a library that is nowhere, and returns are not compressed.
    pub(crate) calls_missing: bool,
}

impl Made {
    /// With all that there can be.
    pub(crate) const WHOLE: Self =
        Self { has_tsc: true, has_switches: true, is_truncated: false, filter: "", calls_missing: false };
}

/// Writes program and recording into `directory`, the recording to a file of that name.
pub(crate) fn write_made(directory: &Path, name: &str, made: Made) {
    let program = directory.join("program");
    let elf = if made.calls_missing { elf_of(&[0xff, 0xd0, 0xc3]) } else { elf() };
    std::fs::write(&program, elf).unwrap();
    let recording = recording(&program, of_build_id(&BUILD_ID), made, &Features::default());
    std::fs::write(directory.join(name), recording).unwrap();
}

/// Writes program and recording into `directory`; the recording says that the program has build id
/// `build_id`.
pub(crate) fn write(directory: &Path, build_id: &[u8]) -> PathBuf {
    let program = directory.join("program");
    std::fs::write(&program, elf()).unwrap();
    let path = directory.join("perf.data");
    std::fs::write(&path, recording(&program, of_build_id(build_id), Made::WHOLE, &Features::default()))
        .unwrap();
    path
}

/// Writes a recording of this machine, without build ids, of the program's inode as it is now.
pub(crate) fn write_with_inode(directory: &Path) {
    let program = directory.join("program");
    let file = std::fs::metadata(&program).unwrap();
    let (dev, inode) = (file.dev(), file.ino());
    let (major, minor) = ((dev >> 8 & 0xfff) as u32, (dev & 0xff | dev >> 12 & 0xffff_ff00) as u32);
    let identity = FileIdentity::Inode { major, minor, inode, generation: 0 };
    let here =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap().trim().to_owned();
    let features =
        Features { hostname: here("hostname"), os_release: here("osrelease"), ..Features::default() };
    std::fs::write(directory.join("perf.data"), recording(&program, identity, Made::WHOLE, &features))
        .unwrap();
}

/// Writes a recording without a build id, of a program that was mapped under the name `name`.
pub(crate) fn write_named(directory: &Path, name: &str) {
    let identity = FileIdentity::Inode { major: 0, minor: 0, inode: 1, generation: 0 };
    let recording = recording(Path::new(name), identity, Made::WHOLE, &Features::default());
    std::fs::write(directory.join("perf.data"), recording).unwrap();
}

/// Calls the function `outer` so, in five bytes.
pub(crate) fn rename_outer(directory: &Path, name: &[u8; 5]) {
    let path = directory.join("program");
    let mut elf = std::fs::read(&path).unwrap();
    let at = elf.windows(7).position(|bytes| bytes == b"\0outer\0").unwrap();
    elf[at + 1..at + 6].copy_from_slice(name);
    std::fs::write(path, elf).unwrap();
}

fn of_build_id(id: &[u8]) -> FileIdentity {
    FileIdentity::BuildId(BuildId(id.to_vec()))
}

/// The same, but the AUX buffer was full behind the trace, while the program ran on for twice the time.
pub(crate) fn write_truncated(directory: &Path) {
    write_made(directory, "perf.data", Made { is_truncated: true, ..Made::WHOLE });
}

fn code(f: &[u8]) -> Vec<u8> {
    let mut code = vec![0x90; 0x40];
    code[..5].copy_from_slice(&[0xe8, 0x1b, 0, 0, 0]); // call f
    code[5..10].copy_from_slice(&[0xe8, 0x16, 0, 0, 0]); // call f
    code[10..12].copy_from_slice(&[0x0f, 0x05]); // syscall
    code[0x20..0x20 + f.len()].copy_from_slice(f);
    code[0x30] = 0xc3;
    code
}

/// An ELF file with one code segment, symbols and a build id.
fn elf() -> Vec<u8> {
    elf_of(&[0xc3])
}

/// One with this code of `f`.
fn elf_of(f: &[u8]) -> Vec<u8> {
    let mut file = vec![0; TEXT as usize];
    file.extend(code(f));
    let mut put = |bytes: &[u8]| {
        let at = file.len() as u64;
        file.extend_from_slice(bytes);
        (at, bytes.len() as u64)
    };
    let strings = b"\0outer\0f\0never\0";
    let strtab = put(strings);
    let mut symbols = vec![0; 24];
    for (name, address, size) in [(1, OUTER, 12), (7, F, f.len() as u64), (9, NEVER, 1)] {
        symbols.extend(u32::to_le_bytes(name));
        symbols.extend([0x12, 0, 1, 0]); // global function, section 1
        symbols.extend(u64::to_le_bytes(address));
        symbols.extend(u64::to_le_bytes(size));
    }
    let symtab = put(&symbols);
    let mut note = vec![4, 0, 0, 0, BUILD_ID.len() as u8, 0, 0, 0, 3, 0, 0, 0];
    note.extend(b"GNU\0");
    note.extend(BUILD_ID);
    let note = put(&note);
    let names = put(b"\0.text\0.symtab\0.strtab\0.note.gnu.build-id\0.shstrtab\0");
    // Name, type, flags, address, place, link, info, alignment, entry size.
    type Section = (u32, u32, u64, u64, (u64, u64), u32, u32, u64, u64);
    let sections: [Section; 6] = [
        (0, 0, 0, 0, (0, 0), 0, 0, 0, 0),
        (1, 1, 6, TEXT, (TEXT, 0x40), 0, 0, 16, 0),
        (7, 2, 0, 0, symtab, 3, 1, 8, 24),
        (15, 3, 0, 0, strtab, 0, 0, 1, 0),
        (23, 7, 2, note.0, note, 0, 0, 4, 0),
        (42, 3, 0, 0, names, 0, 0, 1, 0),
    ];
    let mut table = vec![];
    for (name, kind, flags, address, (offset, size), link, info, align, entry) in sections {
        [name, kind].iter().for_each(|v| table.extend(v.to_le_bytes()));
        [flags, address, offset, size].iter().for_each(|v| table.extend(v.to_le_bytes()));
        [link, info].iter().for_each(|v| table.extend(v.to_le_bytes()));
        [align, entry].iter().for_each(|v| table.extend(v.to_le_bytes()));
    }
    let (table_at, _) = put(&table);
    file[..120].copy_from_slice(&headers(table_at, sections.len() as u16));
    file
}

/// The ELF header and one program header.
fn headers(sections_at: u64, section_count: u16) -> Vec<u8> {
    let mut header =
        vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 62, 0, 1, 0, 0, 0];
    [OUTER, 64, sections_at].iter().for_each(|v| header.extend(v.to_le_bytes()));
    header.extend([0; 4]);
    [64, 56, 1, 64, section_count, section_count - 1].iter().for_each(|v| header.extend(v.to_le_bytes()));
    [1_u32, 5].iter().for_each(|v| header.extend(v.to_le_bytes())); // PT_LOAD, r-x
    [0, 0, 0, TEXT + 0x40, TEXT + 0x40, 0x1000_u64].iter().for_each(|v| header.extend(v.to_le_bytes()));
    header
}

fn trace(has_tsc: bool) -> Vec<u8> {
    let ip = |value: u64| IpPayload { ip_bytes: 6, value };
    let taken = Tnt::new(1, 1);
    let packets = [
        Packet::Psb,
        Packet::Tsc(START_TSC),
        Packet::Cbr(20),
        Packet::ModeExec { long: true, default_32: false, interrupts: false },
        Packet::PsbEnd,
        Packet::TipPge(ip(BASE + OUTER)),
        Packet::Cyc(100),
        Packet::Tnt(taken),
        Packet::Cyc(50),
        Packet::Tnt(taken),
        Packet::Cyc(10),
        Packet::TipPgd(IpPayload { ip_bytes: 0, value: 0 }),
    ];
    encoded(&packets, has_tsc)
}

/// Both calls of `f` call the library: for 40 and 90 cycles.
fn trace_of_missing() -> Vec<u8> {
    let ip = |value: u64| IpPayload { ip_bytes: 6, value };
    let to = |ip_value: u64, cycles: u64| [Packet::Cyc(cycles), Packet::Tip(ip(ip_value))];
    let in_f = |cycles: u64| [to(LIBRARY + 0x100, 10), to(BASE + F + 2, cycles)].concat();
    let begin = [
        Packet::Psb,
        Packet::Tsc(START_TSC),
        Packet::Cbr(20),
        Packet::ModeExec { long: true, default_32: false, interrupts: false },
        Packet::PsbEnd,
        Packet::TipPge(ip(BASE + OUTER)),
    ];
    let calls = [&in_f(40)[..], &to(BASE + OUTER + 5, 10), &in_f(90), &to(BASE + OUTER + 10, 10)].concat();
    let end = [Packet::Cyc(10), Packet::TipPgd(IpPayload { ip_bytes: 0, value: 0 })];
    encoded(&[&begin[..], &calls, &end].concat(), true)
}

fn encoded(packets: &[Packet], has_tsc: bool) -> Vec<u8> {
    let mut bytes = vec![];
    let is_there = |packet: &&Packet| has_tsc || !matches!(packet, Packet::Tsc(_));
    packets.iter().filter(is_there).for_each(|p| packet::encode(p, &mut bytes));
    bytes
}

fn recording(program: &Path, identity: FileIdentity, made: Made, features: &Features) -> Vec<u8> {
    let attr = Attr {
        event_type: PMU,
        config: pt_config::TSC
            | pt_config::CYC
            | 0x2001
            | if made.calls_missing { pt_config::NORETCOMP } else { 0 },
        flags: Attr::EXCLUDE_KERNEL
            | Attr::MMAP
            | Attr::MMAP2
            | Attr::COMM
            | Attr::TASK
            | Attr::CONTEXT_SWITCH,
        aux_watermark: 0,
    };
    let ids = vec![EventId { id: 1, index: 0, cpu: -1, tid: THREAD.0 }];
    let events = vec![Event { name: "intel_pt//u".to_owned(), attr, ids }];
    let info = IntelPtInfo {
        pmu_type: PMU,
        clock: TscClock { shift: 0, mult: 1, zero: 0 },
        have_sched_switch: 2,
        snapshots: false,
        per_cpu_buffers: false,
        tsc_ctc_ratio: (2, 1),
        max_nonturbo_ratio: 20,
        filter: made.filter.to_owned(),
    };
    let mut writer = Writer::new(std::io::Cursor::new(vec![]), events).unwrap();
    writer.record(&info.auxtrace_info()).unwrap();
    writer.record(&info.time_conv()).unwrap();
    let pid = Pid(THREAD.0);
    let bytes = if made.calls_missing { trace_of_missing() } else { trace(made.has_tsc) };
    let library = Record::Mmap2 {
        pid,
        tid: THREAD,
        start: LIBRARY,
        len: 0x2000,
        file_offset: FileOffset(0),
        identity: of_build_id(&[1, 2, 3, 4]),
        protection: 5,
        flags: 2,
        path: "/nowhere/library.so",
    };
    let mmap = Record::Mmap2 {
        pid,
        tid: THREAD,
        start: BASE,
        len: 0x2000,
        file_offset: FileOffset(0),
        identity,
        protection: 5,
        flags: 2,
        path: program.to_str().unwrap(),
    };
    let (flags, end) = if made.is_truncated { (AuxRecord::TRUNCATED, 1500) } else { (0, 500) };
    let records = [
        (Record::Comm { pid, tid: THREAD, name: "program", exec: true }, START_TSC - 20),
        (mmap, START_TSC - 20),
        (library, START_TSC - 20),
        (Record::ItraceStart { pid, tid: THREAD }, START_TSC - 10),
        (Record::Switch { out: false, preempted: false }, START_TSC - 10),
        (Record::Aux { offset: 0, size: bytes.len() as u64, flags }, START_TSC + 500),
        (Record::Switch { out: true, preempted: false }, START_TSC + end),
    ];
    let is_there = |record: &Record<'_>| match record {
        Record::Switch { .. } => made.has_switches,
        Record::Mmap2 { start, .. } => *start != LIBRARY || made.calls_missing,
        _ => true,
    };
    for (record, time) in records.into_iter().filter(|(record, _)| is_there(record)) {
        let mut encoded = vec![];
        let id = SampleId { pid, tid: THREAD, time: Ns(time), cpu: Cpu(3), id: 1 };
        record.encode(&id, &mut encoded);
        writer.record(&encoded).unwrap();
    }
    let chunk =
        AuxChunk { index: 0, owner: AuxOwner::Thread(THREAD), offset: AuxOffset(0), reference: START_TSC };
    writer.aux(&chunk, &[&bytes]).unwrap();
    writer.finish(features).unwrap().into_inner()
}
