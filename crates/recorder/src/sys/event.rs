//! `perf_event_open`, and the ioctls of what it opens.

use std::ffi::{CStr, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use model::{Cpu, Tid};
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr};
use perf_event_open_sys::{ioctls, perf_event_open};
use perfdata::write::{ATTR_SIZE, Attr};

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A thread, wherever it runs.
    Thread(Tid),
    /// A thread, while it runs on that CPU.
    ThreadOnCpu(Tid, Cpu),
    /// All that runs on that CPU.
    Cpu(Cpu),
}

/// An open event; closing it ends it.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// Opens an event with exactly the attr that the file will have.
    pub(crate) fn open(attr: &Attr, scope: Scope) -> io::Result<Self> {
        let (tid, cpu) = match scope {
            Scope::Thread(tid) => (tid.0, -1),
            Scope::ThreadOnCpu(tid, cpu) => (tid.0, cpu_number(cpu)?),
            Scope::Cpu(cpu) => (-1, cpu_number(cpu)?),
        };
        const { assert!(size_of::<perf_event_attr>() >= ATTR_SIZE) };
        let mut kernel_attr = perf_event_attr::default();
        // SAFETY: both are plain bytes, ours has ATTR_SIZE of them, which the kernel's struct holds (above),
        // and every pattern of bits is a valid `perf_event_attr`.
        unsafe {
            let to = (&raw mut kernel_attr).cast::<u8>();
            to.copy_from_nonoverlapping(attr.bytes().as_ptr(), ATTR_SIZE);
        }
        let flags = c_ulong::from(PERF_FLAG_FD_CLOEXEC);
        // SAFETY: the attr is valid and outlives the call, which writes at most its `size` field.
        let fd = unsafe { perf_event_open(&raw mut kernel_attr, tid, cpu, -1, flags) };
        check(fd)?;
        // SAFETY: the kernel has just given it to us, and no other code knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The id that its records carry.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the kernel writes 8 bytes to `id`.
        check(unsafe { ioctls::ID(self.0.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    /// Starts it, and what threads have inherited of it.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), 0) })
    }

    /// Stops it, and what threads have inherited of it.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { ioctls::DISABLE(self.0.as_raw_fd(), 0) })
    }

    /// Its records go to the ring buffer of `other`, which must be of the same CPU, or of the same thread.
    pub(crate) fn output_to(&self, other: &Self) -> io::Result<()> {
        // SAFETY: no pointers; both descriptors are open.
        check(unsafe { ioctls::SET_OUTPUT(self.0.as_raw_fd(), other.0.as_raw_fd()) })
    }

    /// Restricts the trace to address ranges, in the kernel's syntax (`filter 0x1180/0x58@/usr/bin/x`).
    pub(crate) fn set_filter(&self, text: &CStr) -> io::Result<()> {
        // SAFETY: the kernel copies the string and does not write to it.
        check(unsafe { ioctls::SET_FILTER(self.0.as_raw_fd(), text.as_ptr().cast_mut()) })
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn cpu_number(cpu: Cpu) -> io::Result<i32> {
    i32::try_from(cpu.0).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
