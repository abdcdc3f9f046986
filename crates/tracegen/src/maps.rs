//! The simulated address space.
//!
//! QEMU puts a position-independent program and its libraries at 0x40_0000_0000 and up.  The recording shows
//! them where Linux would: the program at 0x5581..., libraries at 0x7f52...

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use model::{Avma, Tid};

use crate::elf::Elf;
use crate::log::{FirstMapping, LateMapping, Log};

/// Where QEMU starts to put position-independent code.
const QEMU_BASE: u64 = 0x40_0000_0000;
/// From here on lies QEMU itself.
const QEMU_END: u64 = 0x5000_0000_0000;
const PROGRAM_BASE: u64 = 0x5581_2340_0000;
const LIBRARY_BASE: u64 = 0x7f52_3400_0000;
const PAGE: u64 = 0x1000;
const PROT_EXEC: u32 = 4;
/// What the kernel calls memory without a file.
const ANONYMOUS: &str = "//anon";

/// An executable mapping: of a file, or of memory that the program writes code to.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// QEMU's first address.
    pub(crate) qemu_start: u64,
    /// Bytes.
    pub len: u64,
    /// Where in the file.
    pub file_offset: u64,
    /// The file.
    pub path: String,
    /// Thread and word of its log, if it came while the program ran.
    pub(crate) mapped_at: Option<(Tid, usize)>,
    /// Blocks with a number from here on were translated after it.
    first_block: u32,
    /// What to add to QEMU's addresses.
    pub(crate) moved_by: u64,
}

impl Mapping {
    /// First address in the recording.
    #[must_use]
    pub fn start(&self) -> Avma {
        Avma(self.qemu_start.wrapping_add(self.moved_by))
    }

    fn contains(&self, qemu_address: u64) -> bool {
        qemu_address.wrapping_sub(self.qemu_start) < self.len
    }

    /// Where in the file an address of QEMU's is.
    pub(crate) fn file_offset_of(&self, qemu_address: u64) -> u64 {
        qemu_address.wrapping_sub(self.qemu_start).wrapping_add(self.file_offset)
    }

    /// Device (major, minor) and inode, 0 if the file is gone.
    pub(crate) fn inode(&self) -> (u32, u32, u64) {
        std::fs::metadata(&self.path).map_or((0, 0, 0), |file| {
            let device = file.dev(); // encoded as in glibc's gnu_dev_major
            let major = (device >> 8 & 0xfff | device >> 32 & !0xfff) as u32;
            let minor = (device & 0xff | device >> 12 & !0xff) as u32;
            (major, minor, file.ino())
        })
    }
}

/// All mappings of the run, and the files that they are of.
#[derive(Debug, Default)]
pub struct Maps {
    /// In the order in which they came.
    pub mappings: Vec<Mapping>,
    /// By path; `None` if the file is not ELF.
    pub objects: HashMap<String, Option<Elf>>,
    /// The program.
    pub executable: String,
}

impl Maps {
    pub(crate) fn new(log: &Log) -> Self {
        let mut maps = Self::default();
        log.first_mappings.iter().for_each(|mapping| maps.add_first(mapping));
        log.late_mappings.iter().for_each(|mapping| maps.add_late(mapping));
        // What a program says of the code that it makes (jitdump, perf map) has its own addresses.
        let moves = |mapping: &&mut Mapping| mapping.qemu_start >= QEMU_BASE && mapping.path != ANONYMOUS;
        for mapping in maps.mappings.iter_mut().filter(moves) {
            let base = if mapping.path == maps.executable { PROGRAM_BASE } else { LIBRARY_BASE };
            mapping.moved_by = base.wrapping_sub(QEMU_BASE);
        }
        maps
    }

    /// The kernel mapped the program and its loader: the list shows parts of them, the file tells all.
    fn add_first(&mut self, first: &FirstMapping) {
        if first.start >= QEMU_END || self.objects.contains_key(&first.path) {
            return;
        }
        let elf = self.objects.entry(first.path.clone()).or_insert_with(|| Elf::load(Path::new(&first.path)));
        let Some(elf) = elf else { return };
        if self.executable.is_empty() {
            self.executable.clone_from(&first.path);
        }
        let lowest = elf.segments.first().map_or(0, |segment| page(segment.address));
        self.mappings.extend(elf.segments.iter().filter(|segment| segment.executable).map(|segment| {
            Mapping {
                qemu_start: first.start.wrapping_sub(lowest).wrapping_add(page(segment.address)),
                len: (segment.file_size + segment.address % PAGE).next_multiple_of(PAGE),
                file_offset: page(segment.file_offset),
                path: first.path.clone(),
                mapped_at: None,
                first_block: 0,
                moved_by: 0,
            }
        }));
    }

    fn add_late(&mut self, late: &LateMapping) {
        if late.protection & PROT_EXEC == 0 {
            return;
        }
        self.objects.entry(late.path.clone()).or_insert_with(|| Elf::load(Path::new(&late.path)));
        self.mappings.push(Mapping {
            qemu_start: late.start,
            len: late.len.next_multiple_of(PAGE),
            file_offset: late.file_offset,
            path: late.path.clone(),
            mapped_at: Some(late.at),
            first_block: late.first_block,
            moved_by: 0,
        });
    }

    /// The index of the mapping of an address of QEMU's that was the youngest when a block was translated.
    pub(crate) fn find(&self, qemu_address: u64, block: u32) -> Option<usize> {
        let is_it = |mapping: &Mapping| mapping.first_block <= block && mapping.contains(qemu_address);
        self.mappings.iter().rposition(is_it)
    }

    pub(crate) fn elf(&self, path: &str) -> Option<&Elf> {
        self.objects.get(path)?.as_ref()
    }
}

fn page(address: u64) -> u64 {
    address - address % PAGE
}
