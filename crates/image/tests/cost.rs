//! What hostile files cost: one after the other in a process that does nothing else, for its peak of memory
//! is looked at.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use image::{Image, ImageOptions, KernelSymbols};
use model::{Avma, FileOffset, Mmap, ObjectId, Pid, Sideband, SidebandRecord, Svma};

const UNPACKED_BYTES: u64 = 100 << 20;
/// What a hostile file may take: docs/security.md.
const MAX_KILOBYTES: u64 = 256 << 10;
const MAX_SECONDS: u64 = 10;

/// A compressed section: its header (`Elf64_Chdr`) and a zlib stream of zeros.
fn bomb() -> Vec<u8> {
    let mut section = [1u32, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    section.extend([UNPACKED_BYTES, 1].iter().flat_map(|long| long.to_le_bytes()));
    let mut zlib = ZlibEncoder::new(section, Compression::fast());
    (0..UNPACKED_BYTES >> 20).for_each(|_| zlib.write_all(&vec![0; 1 << 20]).unwrap());
    zlib.finish().unwrap()
}

/// An ELF file with four such sections, and a page of code.
fn object() -> Vec<u8> {
    const NAMES: &str = "\0.text\0.debug_info\0.debug_abbrev\0.debug_line\0.debug_str\0.names\0";
    let name = |name: &str| NAMES.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
    let mut file = vec![0u8; 0x1000];
    file.resize(0x2000, 0xc3);
    let bomb = bomb();
    // Name, type, flags, address, offset, size.
    let mut sections = vec![(0, 0, 0, 0, 0, 0), (name(".text"), 1, 6, 0x1000, 0x1000, 0x1000)];
    for section in [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str"] {
        sections.push((name(section), 1, 0x800, 0, file.len() as u64, bomb.len() as u64));
        file.extend(&bomb);
    }
    sections.push((name(".names"), 3, 0, 0, file.len() as u64, NAMES.len() as u64));
    file.extend(NAMES.as_bytes());
    file.resize(file.len().next_multiple_of(8), 0);
    let table = file.len() as u64;
    let count = sections.len() as u16;
    for (name, kind, flags, address, offset, size) in sections {
        [name, kind].iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        [flags, address, offset, size, 0, 1, 0].iter().for_each(|long: &u64| file.extend(long.to_le_bytes()));
    }
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    [0x1000, 64, table].iter().for_each(|long: &u64| header.extend(long.to_le_bytes()));
    header.extend([0; 4]);
    [64, 56, 1, 64, count, count - 1].iter().for_each(|half: &u16| header.extend(half.to_le_bytes()));
    [1u32, 5].iter().for_each(|word| header.extend(word.to_le_bytes()));
    [0x1000, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000]
        .iter()
        .for_each(|l: &u64| header.extend(l.to_le_bytes()));
    file[..header.len()].copy_from_slice(&header);
    file
}

/// Kilobytes of memory that the process has now, or had at most.
fn kilobytes(of: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Does `work` on one file, and holds what that takes against `max_kilobytes`.
fn cost<T>(what: &str, max_kilobytes: u64, work: impl FnOnce() -> T) -> T {
    // The peak is from now on (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (started, before) = (Instant::now(), kilobytes("VmRSS:"));
    let done = work();
    let (taken, elapsed) = (kilobytes("VmHWM:").saturating_sub(before), started.elapsed());
    println!("{what}: {} MB, {elapsed:?}", taken >> 10);
    assert!(taken < max_kilobytes, "{what}: {taken} kB");
    assert!(elapsed.as_secs() < MAX_SECONDS, "{what}: {elapsed:?}");
    done
}

fn map(path: &str) -> SidebandRecord {
    let mmap = Mmap {
        pid: Pid(i32::MAX),
        start: Avma(0x7f00_0000_0000),
        len: 0x1000,
        file_offset: FileOffset(0x1000),
        path: path.into(),
        build_id: None,
        inode: None,
        executable: true,
        kernel: false,
    };
    let body = Sideband::from(mmap);
    SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body }
}

/// A section of 100 MB was unpacked for each of its kind, though no line was asked for.
fn dwarf_that_unpacks_to_much(root: &Path) {
    let path = root.join("bomb.so");
    fs::write(&path, object()).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 4 << 20);
    let record = map(path.to_str().unwrap());
    let load = || Image::load(&[record], &ImageOptions::default());
    let image = cost("an object without lines", 16 << 10, load);
    assert_eq!(image.object_error(ObjectId(0)), None);
    let inlined = cost("inlined instances", MAX_KILOBYTES, || image.inlined_sites("f", None));
    let line = cost("lines", MAX_KILOBYTES, || image.source_line_at(ObjectId(0), Svma(0x1004)));
    assert_eq!((inlined, line), (0, None));
}

fn a_perf_map(root: &Path, lines: u64, name: &str) {
    let path = root.join("perf-2147483647.map");
    let line = |i| format!("{:x} 8 {name}\n", 0x7f00_0000_0000_u64 + 16 * i);
    fs::write(&path, (0..lines).map(line).collect::<String>()).unwrap();
    let options = ImageOptions { symfs: Some(root.into()), ..ImageOptions::default() };
    let image = cost("a perf map", MAX_KILOBYTES, || Image::load(&[map("//anon")], &options));
    assert_eq!(image.object_name(ObjectId(0)), "/tmp/perf-2147483647.map");
}

fn a_jitdump_of_short_records(root: &Path) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let longs = |longs: &[u64]| longs.iter().flat_map(|long| long.to_le_bytes()).collect::<Vec<u8>>();
    let mut dump = words(&[0x4a69_5444, 1, 40, 62, 0, 42, 0, 0, 0, 0]);
    for index in 0..4u64 << 20 {
        dump.extend(words(&[0, 59]));
        dump.extend(longs(&[0, 42, 0, 0x7f00_0000_0000 + 16 * index, 1, index]));
        dump.extend(b"f\0\xc3");
    }
    let path = root.join("jit-42.dump");
    fs::write(&path, &dump).unwrap();
    drop(dump);
    let record = map(path.to_str().unwrap());
    cost("a jitdump", MAX_KILOBYTES, || Image::load(&[record], &ImageOptions::default()));
}

fn kernel_symbols_of_short_lines() {
    let lines: String = (0..5u64 << 18).map(|i| format!("{:x} t a\n", 0xffff_ffff_8100_0000 + i)).collect();
    assert!(lines.len() > 24 << 20);
    cost("kallsyms", MAX_KILOBYTES, || drop(KernelSymbols::parse(&lines[..24 << 20])));
}

#[test]
fn no_file_takes_more_than_it_may() {
    if fs::write("/proc/self/clear_refs", "5").is_err() {
        return println!("skipped: the peak of memory cannot be reset here");
    }
    let dir = tempfile::tempdir().unwrap();
    dwarf_that_unpacks_to_much(dir.path());
    a_perf_map(dir.path(), 4 << 20, "f");
    a_perf_map(dir.path(), 1 << 18, &"f".repeat(300));
    a_jitdump_of_short_records(dir.path());
    kernel_symbols_of_short_lines();
}
