//! Ctrl-C and its kind, as something to wait for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The signals that end a recording early.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// While it lives SIGINT, SIGTERM and SIGHUP do not kill this process but wait here.
///
/// To be made before any thread: a thread that does not block them would die of them.  When it is dropped they do again
/// what they did before: a second Ctrl-C kills.
#[derive(Debug)]
pub struct Interrupts {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Interrupts {
    /// Begins to hold the signals back.
    ///
    /// # Errors
    /// What the kernel says; it has no reason to.
    pub fn hold() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are ours; the first call initialises `set`, and a successful pthread_sigmask `before`.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in SIGNALS {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => (),
                error => return Err(io::Error::from_raw_os_error(error)),
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { fd: OwnedFd::from_raw_fd(fd), before: before.assume_init() })
        }
    }

    /// Takes a signal off, if one has come.
    pub(crate) fn take(&self) -> bool {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of_val(&info);
        // SAFETY: the kernel writes at most `size` bytes, which `info` has.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        read > 0
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // SAFETY: `before` is a set that the kernel gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
