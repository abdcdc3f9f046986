//! The one module that calls the kernel in ways that the compiler cannot check.
//!
//! What makes it safe: each type owns its file descriptor or mapping and gives it back when it is dropped; what the
//! kernel writes to is memory that we own for the whole call; and of a ring buffer only the part is handed out that the
//! kernel does not write until we say that we have read it.
#![allow(unsafe_code, reason = "system calls, memory that the kernel writes")]

use model::Tsc;

mod child;
mod event;
mod ring;
mod signals;

pub(crate) use child::HeldChild;
pub(crate) use event::{EventFd, Scope};
pub(crate) use ring::Ring;
pub use signals::Interrupts;

/// The TSC now.
pub(crate) fn tsc() -> Tsc {
    // SAFETY: every x86-64 processor has the instruction, and Linux does not forbid it.
    Tsc(unsafe { core::arch::x86_64::_rdtsc() })
}
