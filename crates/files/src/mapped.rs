//! Files mapped into memory, and what becomes of one that is cut while it is mapped.
//!
//! A page of a mapping that its file does not have any more cannot be read: the kernel sends SIGBUS.  To
//! look at the length before each access would come too late in a race, and to read whole files instead
//! would copy gigabytes.  So the command has the signal caught: the mapping gets zeros from that page on,
//! its file is remembered as cut, and the command says so before it hands out a result.  Where no handler
//! was asked for, the signal ends the process as it ends any other.
//!
//! The signal is synchronous, of the thread that reads the mapping.  That thread is in none of our functions
//! that hold [`MAPPINGS`], and not in the allocator, so the handler may take the lock.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{c_int, c_void, sigaction, siginfo_t};
use memmap2::{Advice, Mmap};

use crate::place::Place;

/// The kernel's pages on x86-64.
const PAGE: usize = 4096;

/// All mappings, by number.
static MAPPINGS: Mutex<Vec<Known>> = Mutex::new(Vec::new());
/// What SIGBUS did before.
static BEFORE: OnceLock<sigaction> = OnceLock::new();

struct Known {
    addresses: Range<usize>,
    path: PathBuf,
    /// Open, if its length is looked at when all is read.
    file: Option<Arc<File>>,
    bytes: u64,
    is_cut: bool,
}

impl Known {
    /// A page that a file ends in is there to its end, with zeros: only the length tells.
    fn is_cut(&self) -> bool {
        let is_shorter = |file: &Arc<File>| file.metadata().is_ok_and(|now| now.len() < self.bytes);
        self.is_cut || self.file.as_ref().is_some_and(is_shorter)
    }
}

fn mappings() -> MutexGuard<'static, Vec<Known>> {
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file's bytes, mapped read-only, never copied.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    /// Kept open.
    file: Option<Arc<File>>,
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// What the system says; also if it is no regular file.
    pub fn open(place: &Place) -> io::Result<Self> {
        Self::of(&place.open()?, place.path())
    }

    /// Maps a whole file, which may be closed afterwards; `path` is its name.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(file: &File, path: &Path) -> io::Result<Self> {
        // SAFETY: the mapping is read-only and private to this process.  Another process that writes to the
        // file can change bytes under us, and one that cuts it can make them zeros: every value is read
        // once, checked and copied out, so this can give a wrong answer, but no invalid access.
        let map = unsafe { Mmap::map(file) }?;
        let start = map.as_ptr() as usize;
        if !map.is_empty() {
            let addresses = start..start + map.len().next_multiple_of(PAGE);
            let bytes = map.len() as u64;
            mappings().push(Known { addresses, path: path.into(), file: None, bytes, is_cut: false });
        }
        Ok(Self { map, file: None })
    }

    /// Maps a whole file and keeps it open: one that loses less than a page is known as cut, too.  For the
    /// few files on which all figures rest.
    ///
    /// # Errors
    /// What the system says.
    pub fn watched(file: File, path: &Path) -> io::Result<Self> {
        let mut mapped = Self::of(&file, path)?;
        let file = Arc::new(file);
        let start = mapped.as_ptr() as usize;
        if let Some(known) = mappings().iter_mut().find(|known| known.addresses.start == start) {
            known.file = Some(Arc::clone(&file));
        }
        mapped.file = Some(file);
        Ok(mapped)
    }

    /// The file, if it is kept open: to read bytes of it without their pages becoming mapped.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_deref()
    }

    /// Does `work`, which looks at few and distant bytes: the kernel reads these and not, as otherwise, what
    /// is around them.
    pub fn sparsely<T>(files: &[&Self], work: impl FnOnce() -> T) -> T {
        // A hint: where the kernel does not take it nothing is lost but time.
        let advise = |advice| files.iter().for_each(|file| drop(file.map.advise(advice)));
        advise(Advice::Random);
        let done = work();
        advise(Advice::Normal);
        done
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let start = self.map.as_ptr() as usize;
        let mut mappings = mappings();
        if let Some(at) = mappings.iter().position(|known| known.addresses.start == start) {
            match mappings.get_mut(at) {
                // It stays, without addresses, so that it can be named.
                Some(known) if known.is_cut() => {
                    *known = Known {
                        addresses: 0..0,
                        is_cut: true,
                        file: None,
                        path: known.path.clone(),
                        bytes: 0,
                    };
                }
                _ => drop(mappings.swap_remove(at)),
            }
        }
    }
}

/// The files that were cut, or could not be read any more, while they were mapped.
#[must_use]
pub fn cut_files() -> Vec<PathBuf> {
    mappings().iter().filter(|known| known.is_cut()).map(|known| known.path.clone()).collect()
}

/// From now on a file that is cut while it is mapped ends nothing: it is one of [`cut_files`].
///
/// # Errors
/// The system refuses the signal handler.
pub fn survive_cut_files() -> io::Result<()> {
    // SAFETY: zeros are a valid `sigaction`; both pointers are to such structures.
    let before = unsafe {
        let mut action: sigaction = std::mem::zeroed();
        let mut before: sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
        // On a stack of its own: the fault may come where ours is nearly full.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if BEFORE.get().is_some() {
            return Ok(());
        }
        if sigaction(libc::SIGBUS, &action, &mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        before
    };
    let _ = BEFORE.set(before);
    Ok(())
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a valid `siginfo_t`, which for SIGBUS has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && put_zeros(address) {
        return;
    }
    // Not ours: the former action runs, when the instruction is tried again, or for a signal that was sent.
    // SAFETY: the saved action came from the kernel; without one, zeros are the default action.
    unsafe {
        let before = BEFORE.get().copied().unwrap_or_else(|| std::mem::zeroed());
        sigaction(libc::SIGBUS, &before, ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

/// Gives a mapping zeros from the page with this address to its end; says whether there is such a mapping.
fn put_zeros(address: usize) -> bool {
    let mut mappings = mappings();
    let Some(known) = mappings.iter_mut().find(|known| known.addresses.contains(&address)) else {
        return false;
    };
    let start = address - address % PAGE;
    let len = known.addresses.end - start;
    let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: all of these pages are of one mapping of ours, which is unmapped only when its `MappedFile` is
    // dropped, and that waits for the lock.  They stay mapped and readable, as references to them demand.
    let mapped = unsafe { libc::mmap(start as *mut c_void, len, libc::PROT_READ, fixed, -1, 0) };
    known.is_cut = mapped != libc::MAP_FAILED;
    known.is_cut
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    /// Reading it ended the process with SIGBUS.
    #[test]
    fn a_file_that_is_cut_while_it_is_mapped_has_zeros_and_is_named() {
        survive_cut_files().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        fs::write(&path, vec![7; 5 * PAGE + 5]).unwrap();
        let mapped = MappedFile::open(&Place::here(&path)).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(2 * PAGE as u64 + 1).unwrap();
        assert!(!cut_files().contains(&path), "nothing beyond the end was read yet");
        assert_eq!(mapped[5 * PAGE + 4], 0);
        assert_eq!(mapped[2 * PAGE..].iter().map(|byte| usize::from(*byte)).sum::<usize>(), 7);
        assert!(mapped[..2 * PAGE].iter().all(|byte| *byte == 7));
        assert!(cut_files().contains(&path));
        drop(mapped);
        assert!(cut_files().contains(&path));
    }

    #[test]
    fn a_watched_file_may_not_lose_a_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("recording");
        fs::write(&path, [7; 100]).unwrap();
        let mapped = MappedFile::watched(File::open(&path).unwrap(), &path).unwrap();
        assert!(!cut_files().contains(&path));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(99).unwrap();
        assert!(cut_files().contains(&path));
        drop(mapped);
        assert!(cut_files().contains(&path));
    }

    #[test]
    fn a_file_that_stays_as_it_is_is_not_cut() {
        survive_cut_files().unwrap();
        let own = std::env::current_exe().unwrap();
        let mapped = MappedFile::open(&Place::here(&own)).unwrap();
        assert_eq!(&mapped[..4], b"\x7fELF");
        assert!(mapped.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
        assert!(!cut_files().contains(&own));
    }
}
