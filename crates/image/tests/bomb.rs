//! An object of a few hundred kilobytes whose DWARF would fill the memory: alone in its process, whose peak is looked at.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use image::{Image, ImageOptions};
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

fn peak_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A section of 100 MB was unpacked for each of its kind, though no line was asked for.
#[test]
fn unpacked_dwarf_is_bounded_and_lines_are_read_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.so");
    fs::write(&path, object()).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < 4 << 20);
    let mmap = Mmap {
        pid: Pid(1),
        start: Avma(0x7f00_0000_0000),
        len: 0x1000,
        file_offset: FileOffset(0x1000),
        path: path.to_str().unwrap().into(),
        build_id: None,
        inode: None,
        executable: true,
        kernel: false,
    };
    let body = Sideband::from(mmap);
    let record = SidebandRecord { time: None, cpu: None, pid: None, tid: None, file_offset: 0, body };
    let (started, before) = (Instant::now(), peak_kilobytes());
    let image = Image::load(&[record], &ImageOptions::default());
    assert_eq!(image.object_error(ObjectId(0)), None);
    let loaded = peak_kilobytes();
    assert!(loaded - before < 16 << 10, "{before} to {loaded} kB: DWARF was unpacked for nothing");
    assert_eq!(image.inlined_sites("f", None), 0);
    assert_eq!(image.source_line_at(ObjectId(0), Svma(0x1004)), None);
    let peak = peak_kilobytes();
    println!("from {before} to {loaded} kB, at most {peak} kB, in {:?}", started.elapsed());
    assert!(peak - before < MAX_KILOBYTES, "{before} to {peak} kB");
    assert!(started.elapsed().as_secs() < MAX_SECONDS);
}
