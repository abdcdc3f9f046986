//! The one module that calls the kernel in ways that the compiler cannot check.
//!
//! What makes it safe: each type owns its file descriptor or mapping and gives it back when it is dropped; what the
//! kernel writes to is memory that we own for the whole call; and of a ring buffer only the part is handed out that the
//! kernel does not write until we say that we have read it.
#![allow(unsafe_code, reason = "system calls, memory that the kernel writes")]

use model::Tsc;

mod child;
mod entry;
mod event;
mod ring;
mod signals;

pub(crate) use child::HeldChild;
pub(crate) use entry::AtEntry;
pub(crate) use event::{EventFd, Scope};
pub(crate) use ring::Ring;
pub use signals::{Interrupts, let_large_writes_fail};

/// Ticks of the TSC for ticks of the crystal clock: CPUID leaf 15H, EBX / EAX.  `None` if the processor, or the hypervisor,
/// does not tell.
#[allow(unused_unsafe, reason = "newer compilers take the instruction for safe")]
pub(crate) fn tsc_ctc_ratio() -> Option<(u32, u32)> {
    const LEAF: u32 = 0x15;
    // SAFETY: every x86-64 processor has the instruction.
    let leaf = |number| unsafe { core::arch::x86_64::__cpuid(number) };
    let ratio = (leaf(0).eax >= LEAF).then(|| leaf(LEAF))?;
    (ratio.eax != 0 && ratio.ebx != 0).then_some((ratio.ebx, ratio.eax))
}

/// The TSC now.
pub(crate) fn tsc() -> Tsc {
    // SAFETY: every x86-64 processor has the instruction, and Linux does not forbid it.
    Tsc(unsafe { core::arch::x86_64::_rdtsc() })
}
