//! A program that was started, and stands at its entry: all that it is linked with is mapped, and nothing of
//! its own has run.
//!
//! ```text
//! execve   a breakpoint at the entry (AT_ENTRY)  the dynamic loader maps libraries, runs their constructors
//! entry    the byte that was there is put back   the program stands there until it is let go
//! ```

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::ptr;

use libc::{c_int, c_void, user_regs_struct};
use model::Pid;

use super::child::HeldChild;

/// `int3`
const BREAKPOINT: u8 = 0xcc;
const AT_ENTRY: u64 = 9;

/// A program that stands at its entry. The thread that lets it go must be the one that holds it, as `ptrace`
/// goes by threads: it cannot be sent to another one.
#[derive(Debug)]
pub(crate) struct AtEntry {
    tracee: Tracee,
    child: Child,
}

/// A process that we trace; it ends with us.
#[derive(Clone, Copy, Debug)]
struct Tracee {
    pid: Pid,
    of_this_thread: PhantomData<*const ()>,
}

/// Why a tracee stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It has executed a program.
    Executed,
    /// A signal is to be delivered.
    Signal(c_int),
    /// Something else, which is over when it goes on.
    Other,
    /// It does not: it has ended.
    Ended,
}

impl AtEntry {
    /// Has a child execute its program, up to the entry.
    ///
    /// # Errors
    /// It cannot be executed, or ends before.
    pub(crate) fn of(mut held: HeldChild) -> io::Result<Self> {
        let tracee = Tracee::seize(held.pid())?;
        held.let_go()?;
        if !tracee.goes_until(|stop| stop == Stop::Executed)? {
            // The child says why.
            held.executed()?;
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let child = held.executed()?;
        let entry = entry_of(tracee.pid)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{}/mem", tracee.pid.0))?;
        let mut instruction = [0];
        memory.read_exact_at(&mut instruction, entry)?;
        memory.write_all_at(&[BREAKPOINT], entry)?;
        tracee.go_on(0)?;
        if !tracee.goes_until(|stop| stop == Stop::Signal(libc::SIGTRAP))? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        memory.write_all_at(&instruction, entry)?;
        tracee.set_next_instruction(entry)?;
        Ok(Self { tracee, child })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        self.tracee.pid
    }

    /// It ends, and nothing of it has run.
    pub(crate) fn kill(mut self) {
        // One that is dead already cannot be killed, and need not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// It runs.
    ///
    /// # Errors
    /// It has been killed.
    pub(crate) fn go(self) -> io::Result<Child> {
        self.tracee.call(libc::PTRACE_DETACH, ptr::null_mut())?;
        Ok(self.child)
    }
}

impl Tracee {
    fn seize(pid: Pid) -> io::Result<Self> {
        let tracee = Self { pid, of_this_thread: PhantomData };
        let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
        tracee.call(libc::PTRACE_SEIZE, options as usize as *mut c_void)?;
        Ok(tracee)
    }

    /// Lets it run until it stands still for this; false: it has ended.  Signals reach it.
    fn goes_until(self, is_it: impl Fn(Stop) -> bool) -> io::Result<bool> {
        loop {
            match self.next_stop()? {
                stop if is_it(stop) => return Ok(true),
                Stop::Ended => return Ok(false),
                Stop::Signal(signal) => self.go_on(signal)?,
                Stop::Executed | Stop::Other => self.go_on(0)?,
            }
        }
    }

    /// Waits for the next stop. A process that has ended is left for its parent to wait for.
    fn next_stop(self) -> io::Result<Stop> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let kinds = libc::WEXITED | libc::WSTOPPED | libc::__WALL;
        // SAFETY: the kernel writes a siginfo_t to memory that is one.
        let peeked =
            unsafe { libc::waitid(libc::P_PID, self.pid.0 as u32, info.as_mut_ptr(), kinds | libc::WNOWAIT) };
        match checked(peeked.into()) {
            // Its parent was faster.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(Stop::Ended),
            peeked => peeked?,
        }
        // SAFETY: it was zeroed, which is a value of it, and then perhaps written by the kernel.
        let code = unsafe { info.assume_init() }.si_code;
        if code != libc::CLD_TRAPPED && code != libc::CLD_STOPPED {
            return Ok(Stop::Ended);
        }
        let mut status = 0;
        // SAFETY: the kernel writes an int to memory that is one.
        checked(unsafe { libc::waitpid(self.pid.0, &raw mut status, libc::__WALL) }.into())?;
        // ptrace(2): a stop of the kernel's own making has its number above the signal.
        Ok(match (status >> 16, libc::WSTOPSIG(status)) {
            (libc::PTRACE_EVENT_EXEC, _) => Stop::Executed,
            (0, signal) => Stop::Signal(signal),
            _ => Stop::Other,
        })
    }

    fn go_on(self, signal: c_int) -> io::Result<()> {
        self.call(libc::PTRACE_CONT, signal as usize as *mut c_void)
    }

    fn set_next_instruction(self, address: u64) -> io::Result<()> {
        let mut registers = MaybeUninit::<user_regs_struct>::zeroed();
        self.call(libc::PTRACE_GETREGS, registers.as_mut_ptr().cast())?;
        // SAFETY: it was zeroed, which is a value of it, and then written by the kernel.
        let mut registers = unsafe { registers.assume_init() };
        registers.rip = address;
        self.call(libc::PTRACE_SETREGS, (&raw mut registers).cast())
    }

    /// A request with only one argument, which is a number or points to what the request takes.
    fn call(self, request: libc::c_uint, argument: *mut c_void) -> io::Result<()> {
        // SAFETY: those that read or write memory of ours are given memory of that type, above.
        checked(unsafe { libc::ptrace(request, self.pid.0, ptr::null_mut::<c_void>(), argument) })
    }
}

fn checked(result: i64) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where a program that has been executed begins: after its dynamic loader.
fn entry_of(pid: Pid) -> io::Result<u64> {
    let auxv = fs::read(format!("/proc/{}/auxv", pid.0))?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let mut entries = auxv.chunks_exact(16).map(|pair| pair.split_at(8));
    let entry = entries.find(|(key, _)| word(key) == AT_ENTRY).map(|(_, value)| word(value));
    entry.ok_or_else(|| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::child::ProgramStreams;
    use super::*;

    fn at_entry(words: &[&str]) -> io::Result<AtEntry> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        AtEntry::of(HeldChild::spawn(&words, ProgramStreams::Ours)?)
    }

    #[test]
    fn a_program_stands_at_its_entry_with_its_libraries_until_it_is_let_go() {
        let program = at_entry(&["sh", "-c", "exit 7"]).unwrap();
        let process = format!("/proc/{}", program.pid().0);
        let maps = fs::read_to_string(format!("{process}/maps")).unwrap();
        assert!(maps.contains("libc.so.6"), "{maps}");
        // `t`: stopped by its tracer.
        let stat = fs::read_to_string(format!("{process}/stat")).unwrap();
        assert!(stat.contains(") t "), "{stat}");
        assert_eq!(program.go().unwrap().wait().unwrap().code(), Some(7));
    }

    #[test]
    fn what_cannot_be_executed_is_an_error() {
        assert_eq!(at_entry(&["/no/such/program"]).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
