//! The block log that `plugin/bblog.c` writes: a directory of
//!
//! | file | |
//! |---|---|
//! | `cmd.txt` | process id, then the command line, an argument a line |
//! | `blocks.bin` | one [`BlockRecord`] per translated block; its number is its id |
//! | `maps0.txt` | `/proc/self/maps` when the first block ran |
//! | `maps.txt` | later mappings: of files, and of anonymous memory that is executable |
//! | `tTID.log` | what a thread did: 32-bit words, see [`Entry`] |

mod mapped;

use std::path::{Path, PathBuf};

use model::Tid;

use crate::error::Error;
use mapped::MappedFile;

/// Words from here on are not block ids.
const ESCAPE: u32 = 0xf000_0000;
const ESCAPE_SYSCALL: u32 = 0xf000_0001;
const ESCAPE_SYSRET: u32 = 0xf000_0002;
const ESCAPE_WORDS: usize = 6;

/// System calls that the simulation knows.
pub(crate) mod syscall {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const POLL: u32 = 7;
    pub(crate) const RT_SIGACTION: u32 = 13;
    pub(crate) const RT_SIGRETURN: u32 = 15;
    pub(crate) const PREAD64: u32 = 17;
    pub(crate) const PWRITE64: u32 = 18;
    pub(crate) const SELECT: u32 = 23;
    pub(crate) const NANOSLEEP: u32 = 35;
    pub(crate) const ACCEPT: u32 = 43;
    pub(crate) const RECVFROM: u32 = 45;
    pub(crate) const CLONE: u32 = 56;
    pub(crate) const EXIT: u32 = 60;
    pub(crate) const WAIT4: u32 = 61;
    pub(crate) const FSYNC: u32 = 74;
    pub(crate) const FDATASYNC: u32 = 75;
    pub(crate) const FUTEX: u32 = 202;
    pub(crate) const CLOCK_NANOSLEEP: u32 = 230;
    pub(crate) const EXIT_GROUP: u32 = 231;
    pub(crate) const EPOLL_WAIT: u32 = 232;
    pub(crate) const PSELECT6: u32 = 270;
    pub(crate) const PPOLL: u32 = 271;
    pub(crate) const CLONE3: u32 = 435;
}

/// One entry of a thread's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A block ran.
    Block(u32),
    /// A system call begins.
    Syscall {
        /// Its number.
        number: u32,
        /// Real time, ns.
        ns: u64,
        /// First argument; for `rt_sigaction` the handler's address, and the signal in the highest byte.
        argument: u64,
    },
    /// A system call returned.
    Sysret {
        /// Its number.
        number: u32,
        /// Real time, ns.
        ns: u64,
        /// What it returned.
        value: u64,
    },
}

/// One thread's log.
#[derive(Debug)]
pub struct ThreadLog {
    /// The thread.
    pub tid: Tid,
    words: MappedFile,
}

impl ThreadLog {
    /// The entry at a word, and the word after it; `None` at the end.
    #[inline]
    #[must_use]
    pub fn entry(&self, at: usize) -> Option<(Entry, usize)> {
        let word = self.word(at)?;
        if word < ESCAPE {
            return Some((Entry::Block(word), at + 1));
        }
        let number = self.word(at + 1)?;
        let ns = self.two_words(at + 2)?;
        let value = self.two_words(at + 4)?;
        let entry = match word {
            ESCAPE_SYSCALL => Entry::Syscall { number, ns, argument: value },
            ESCAPE_SYSRET => Entry::Sysret { number, ns, value },
            _ => return None,
        };
        Some((entry, at + ESCAPE_WORDS))
    }

    /// All entries from a word on.
    pub fn entries(&self, from: usize) -> impl Iterator<Item = Entry> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let (entry, next) = self.entry(at)?;
            at = next;
            Some(entry)
        })
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.words.bytes().get(at.checked_mul(4)?..)?;
        bytes.first_chunk().map(|word| u32::from_le_bytes(*word))
    }

    fn two_words(&self, at: usize) -> Option<u64> {
        Some(u64::from(self.word(at)?) | u64::from(self.word(at + 1)?) << 32)
    }
}

/// A translated block as QEMU reports it, at QEMU's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// First instruction.
    pub start: u64,
    /// Last instruction.
    pub last: u64,
    /// After the last instruction.
    pub end: u64,
    /// How many instructions.
    pub instructions: u32,
    last_len: u32,
    bytes: [u8; 16],
}

impl BlockRecord {
    const SIZE: usize = 64;

    fn parse(record: &[u8]) -> Option<Self> {
        let quad = |at: usize| record.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        let word = |at: usize| record.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        Some(Self {
            start: quad(0)?,
            last: quad(8)?,
            end: quad(16)?,
            instructions: word(24)?,
            last_len: word(28)?,
            bytes: *record.get(32..)?.first_chunk()?,
        })
    }

    /// The bytes of the last instruction that QEMU had.
    #[must_use]
    pub fn last_bytes(&self) -> &[u8] {
        self.bytes.get(..self.last_len as usize).unwrap_or(&self.bytes)
    }
}

/// A file mapping that came while the program ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateMapping {
    /// The thread that mapped it, and the word in its log that follows the system call.
    pub at: (Tid, usize),
    /// Blocks with a number from here on were translated after it.
    pub first_block: u32,
    /// QEMU's address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// PROT_*.
    pub protection: u32,
    /// Where in the file.
    pub file_offset: u64,
    /// The file.
    pub path: String,
}

/// A mapping of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstMapping {
    /// QEMU's address.
    pub start: u64,
    /// The file.
    pub path: String,
}

/// A log, opened.
#[derive(Debug)]
pub struct Log {
    /// The process.
    pub pid: i32,
    /// By id.
    pub blocks: Vec<BlockRecord>,
    /// File mappings when the program started, by address.
    pub first_mappings: Vec<FirstMapping>,
    /// Those that came later, in order.
    pub late_mappings: Vec<LateMapping>,
    /// By thread id.
    pub threads: Vec<ThreadLog>,
}

impl Log {
    /// Opens a log directory.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Log`].
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let text = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).map_err(Error::file(&path)).map(|text| (path, text))
        };
        let (path, command) = text("cmd.txt")?;
        let pid = command.lines().next().and_then(|line| line.parse().ok());
        let pid = pid.ok_or(Error::Log { path, record: 1, what: "no process id" })?;
        let (_, maps) = text("maps0.txt")?;
        let first_mappings = maps.lines().filter_map(first_mapping).collect();
        let (path, maps) = text("maps.txt")?;
        let late = |(i, line)| {
            late_mapping(line).ok_or(Error::Log { path: path.clone(), record: i + 1, what: "not a mapping" })
        };
        let late_mappings = maps.lines().enumerate().map(late).collect::<Result<_, _>>()?;
        let path = dir.join("blocks.bin");
        let bytes = std::fs::read(&path).map_err(Error::file(&path))?;
        let blocks = bytes.chunks_exact(BlockRecord::SIZE).filter_map(BlockRecord::parse).collect();
        Ok(Self { pid, blocks, first_mappings, late_mappings, threads: threads(dir)? })
    }
}

fn first_mapping(line: &str) -> Option<FirstMapping> {
    let mut fields = line.split_whitespace();
    let (start, _) = fields.next()?.split_once('-')?;
    let path = fields.nth(4)?;
    let start = u64::from_str_radix(start, 16).ok()?;
    path.starts_with('/').then(|| FirstMapping { start, path: path.to_owned() })
}

fn late_mapping(line: &str) -> Option<LateMapping> {
    let mut fields = line.splitn(9, ' ');
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let tid = Tid(fields.next()?.parse().ok()?);
    let at = (tid, fields.next()?.parse().ok()?);
    let first_block = fields.next()?.parse().ok()?;
    let start = hex(fields.next()?)?;
    let len = hex(fields.next()?)?;
    let protection = fields.next()?.parse().ok()?;
    let _flags = fields.next()?;
    let file_offset = hex(fields.next()?)?;
    let path = fields.next()?.to_owned();
    Some(LateMapping { at, first_block, start, len, protection, file_offset, path })
}

fn threads(dir: &Path) -> Result<Vec<ThreadLog>, Error> {
    let mut files: Vec<(i32, PathBuf)> = vec![];
    for entry in std::fs::read_dir(dir).map_err(Error::file(dir))? {
        let path = entry.map_err(Error::file(dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let tid = name.strip_prefix('t').and_then(|name| name.strip_suffix(".log")?.parse().ok());
        files.extend(tid.map(|tid| (tid, path.clone())));
    }
    files.sort();
    let open = |(tid, path): (i32, PathBuf)| {
        let words = MappedFile::open(&path).map_err(Error::file(&path))?;
        Ok(ThreadLog { tid: Tid(tid), words })
    };
    files.into_iter().map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        write("cmd.txt", b"71\nprog\n");
        write(
            "maps0.txt",
            b"00400000-00401000 r--p 00000000 fe:01 12     /usr/bin/x\n7f0000000000-7f0000001000 rw-p 0 0:0 0\n",
        );
        write("maps.txt", b"71 9 1 0x4001000000 0x2000 5 2050 0x1000 /usr/lib/my lib.so\n");
        let mut block = [0x40, 0x44, 0x45].map(u64::to_le_bytes).concat();
        block.extend([3u32, 1].map(u32::to_le_bytes).concat());
        block.extend([0xc3; 16]);
        block.resize(64, 0);
        write("blocks.bin", &block);
        write("t71.log", &[0, ESCAPE_SYSCALL, 9, 1, 2, 3, 4, 5].map(u32::to_le_bytes).concat());
        write("t72.log", &[]);

        let log = Log::open(dir.path()).unwrap();
        assert_eq!(log.pid, 71);
        assert_eq!(log.first_mappings, [FirstMapping { start: 0x40_0000, path: "/usr/bin/x".into() }]);
        assert_eq!(log.late_mappings[0].at, (Tid(71), 9));
        assert_eq!(log.late_mappings[0].path, "/usr/lib/my lib.so");
        assert_eq!((log.blocks[0].start, log.blocks[0].end), (0x40, 0x45));
        assert_eq!(log.blocks[0].last_bytes(), [0xc3]);
        let entries: Vec<Entry> = log.threads[0].entries(0).collect();
        let call = Entry::Syscall { number: 9, ns: 1 | 2 << 32, argument: 3 | 4 << 32 };
        assert_eq!(entries, [Entry::Block(0), call, Entry::Block(5)]);
        assert_eq!(log.threads[1].entry(0), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Log::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("cmd.txt"), "{error}");
    }
}
