//! `/proc/kcore`, or what perf or a bundle copied of it: an ELF core file of the kernel's memory.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use files::Place;
use model::{Avma, BuildId};
use object::LittleEndian;
use object::elf::{EM_X86_64, ET_CORE, FileHeader64, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

const LE: LittleEndian = LittleEndian;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Size of the headers in front: the file header, and the most program headers that it can count.
const HEADERS: usize = HEADER_BYTES + PROGRAM_HEADER_BYTES * u16::MAX as usize;
const READ_EXECUTE: u32 = 5;

pub(super) struct Kcore {
    file: File,
    /// It is the memory of the kernel that runs here, not a copy.
    pub(super) is_live: bool,
    /// Address, size and place in the file.
    segments: Vec<(Avma, u64, u64)>,
}

impl Kcore {
    /// # Errors
    /// What the system says; also if it is no ELF file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = Place::here(path).open()?;
        let is_live = rustix::fs::fstatfs(&file)?.f_type == rustix::fs::PROC_SUPER_MAGIC;
        let mut head = vec![0; HEADERS];
        let len = read_at(&file, &mut head, 0)?;
        head.truncate(len);
        let not_elf = |e: object::read::Error| io::Error::new(ErrorKind::InvalidData, e.to_string());
        let header = FileHeader64::<LittleEndian>::parse(&head[..]).map_err(not_elf)?;
        let programs: &[ProgramHeader64<LittleEndian>] =
            header.program_headers(LE, &head[..]).map_err(not_elf)?;
        let loads = programs.iter().filter(|p| p.p_type(LE) == PT_LOAD);
        let segments = loads.map(|p| (Avma(p.p_vaddr(LE)), p.p_filesz(LE), p.p_offset(LE))).collect();
        Ok(Self { file, is_live, segments })
    }

    /// The bytes of a stretch, as far as one segment has them and no more than `max_bytes`, and where they
    /// start.
    pub(super) fn read(&self, (start, end): (Avma, Avma), max_bytes: u64) -> Option<(Avma, Vec<u8>)> {
        let overlap = |&(address, size, offset): &(Avma, u64, u64)| {
            let (from, to) = (address.max(start), Avma(address.0.saturating_add(size)).min(end));
            (from < to)
                .then(|| (from, to.minus(from).min(max_bytes), offset.saturating_add(from.minus(address))))
        };
        let (from, size, offset) = self.segments.iter().filter_map(overlap).max_by_key(|found| found.1)?;
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let len = read_at(&self.file, &mut bytes, offset).ok()?;
        bytes.truncate(len);
        (len > 0).then_some((from, bytes))
    }
}

/// An ELF core file of these stretches of memory, or of the first ones if its header cannot count all.
pub(crate) fn write(stretches: &[(Avma, &[u8])]) -> Vec<u8> {
    let count = u16::try_from(stretches.len()).unwrap_or(u16::MAX);
    let stretches = stretches.get(..usize::from(count)).unwrap_or_default();
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves = |out: &mut Vec<u8>, list: &[u16]| list.iter().for_each(|n| out.extend(n.to_le_bytes()));
    let words = |out: &mut Vec<u8>, list: &[u32]| list.iter().for_each(|n| out.extend(n.to_le_bytes()));
    let longs = |out: &mut Vec<u8>, list: &[u64]| list.iter().for_each(|n| out.extend(n.to_le_bytes()));
    halves(&mut out, &[ET_CORE, EM_X86_64]);
    words(&mut out, &[1]);
    longs(&mut out, &[0, HEADER_BYTES as u64, 0]);
    words(&mut out, &[0]);
    halves(&mut out, &[HEADER_BYTES as u16, PROGRAM_HEADER_BYTES as u16, count, 0, 0, 0]);
    let mut offset = (HEADER_BYTES + PROGRAM_HEADER_BYTES * stretches.len()) as u64;
    for (start, bytes) in stretches {
        let size = bytes.len() as u64;
        words(&mut out, &[PT_LOAD, READ_EXECUTE]);
        longs(&mut out, &[offset, start.0, 0, size, size, 1]);
        offset += size;
    }
    stretches.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
    out
}

/// Reads until the buffer is full, or there is nothing more.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// The kernel with this build id runs here.
pub(super) fn is_running(build_id: Option<&BuildId>) -> bool {
    let notes = std::fs::read("/sys/kernel/notes").unwrap_or_default();
    build_id.is_some_and(|wanted| build_id_of(&notes).is_some_and(|running| running == wanted.0))
}

/// The build id in a list of ELF notes.
fn build_id_of(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let word = |at: usize| notes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        let (name, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let start = name.checked_next_multiple_of(4)?.checked_add(12)?;
        let contents = notes.get(start..start.checked_add(size)?)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") {
            return Some(contents);
        }
        notes = notes.get(start.checked_add(size.checked_next_multiple_of(4)?)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (text, module) = (Avma(0xffff_ffff_8100_0000), Avma(0xffff_ffff_c000_0000));
        std::fs::write(&file, write(&[(text, b"the kernel's"), (module, b"a module's")])).unwrap();
        let kcore = Kcore::open(file.path()).unwrap();
        let read = |start, end| kcore.read((start, end), 12);
        assert!(!kcore.is_live);
        assert_eq!(read(text, text.plus(0x1000)), Some((text, b"the kernel's".to_vec())));
        assert_eq!(kcore.read((text, text.plus(0x1000)), 3), Some((text, b"the".to_vec())));
        assert_eq!(read(Avma(module.0 - 8), module.plus(8)), Some((module, b"a module".to_vec())));
        assert_eq!(read(text.plus(0x1000), module), None);
    }

    #[test]
    fn the_build_id_among_other_notes() {
        let note = |name: &[u8], kind: u32, contents: &[u8]| {
            let mut bytes = vec![];
            for word in [name.len() as u32, contents.len() as u32, kind] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(name);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(contents);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let notes = [note(b"Linux\0", 0x101, &[1; 6]), note(b"GNU\0", 3, &[7; 20])].concat();
        assert_eq!(build_id_of(&notes), Some(&[7; 20][..]));
        assert_eq!(build_id_of(&notes[..40]), None);
    }
}
