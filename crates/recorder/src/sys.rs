//! The one module that calls the kernel in ways that the compiler cannot check.
//!
//! What makes it safe: each type owns its file descriptor or mapping and gives it back when it is dropped;
//! what the kernel writes to is memory that we own for the whole call; and of a ring buffer only the part is
//! handed out that the kernel does not write until we say that we have read it.
#![allow(unsafe_code, reason = "system calls, memory that the kernel writes")]

use model::{Pid, Tsc};

mod child;
mod entry;
mod event;
mod ring;
mod signals;

pub(crate) use child::HeldChild;
pub use child::ProgramStreams;
pub(crate) use entry::AtEntry;
pub(crate) use event::{EventFd, Scope};
pub(crate) use ring::{Pending, Ring};
pub use signals::{Interrupts, UserSignal, let_large_writes_fail};

/// Ticks of the TSC for ticks of the crystal clock: CPUID leaf 15H, EBX / EAX.  `None` if the processor, or
/// the hypervisor, does not tell.
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

/// Time that all threads of a process, those that have ended, too, were on CPUs so far; `None`: there is no
/// such process.  What a thread that runs has run since the last tick of the scheduler is not in it.
#[must_use]
pub fn process_cpu_ns(pid: Pid) -> Option<u64> {
    /// include/linux/posix-timers_types.h: `CPUCLOCK_SCHED`, of a process.
    const CLOCK_OF_PROCESS: libc::clockid_t = 2;
    /// include/linux/threads.h, `PID_MAX_LIMIT`: a number that is no process's may be another clock's.
    const PID_MAX: i32 = 1 << 22;
    if !(1..=PID_MAX).contains(&pid.0) {
        return None;
    }
    let clock = !pid.0 << 3 | CLOCK_OF_PROCESS;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes `time`, which is ours, and nothing else.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (answer == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_the_cpu_goes_on_while_we_run() {
        let own = || process_cpu_ns(Pid(std::process::id() as i32));
        let before = own();
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        assert!(own() > before && before.is_some(), "{before:?}");
        assert_eq!([0, 1 << 22, i32::MAX].map(|pid| process_cpu_ns(Pid(pid))), [None; 3]);
    }
}
