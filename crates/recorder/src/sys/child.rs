//! A program that is there, and waits to be executed until its events are open.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use model::Pid;

use super::signals;

/// Where a program that is started reads and writes; its messages (stderr) are ours in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramStreams {
    /// Those of this process.
    #[default]
    Ours,
    /// It reads nothing, and what it writes is dropped.
    Null,
}

/// A child that has been forked and not yet executed its program.
///
/// Dropped without [`Self::release`], or if we are killed: the child ends without having executed anything.
#[derive(Debug)]
pub(crate) struct HeldChild {
    pid: Pid,
    gate: UnixStream,
    /// `Command::spawn` returns when the program is executed, so it waits in a thread of its own.
    spawner: JoinHandle<io::Result<Child>>,
}

impl HeldChild {
    /// Forks.
    ///
    /// # Errors
    /// There can be no more processes.
    pub(crate) fn spawn(program: &[OsString], streams: ProgramStreams) -> io::Result<Self> {
        let Some((name, arguments)) = program.split_first() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (mut gate, inner) = UnixStream::pair()?;
        let mut command = Command::new(name);
        command.args(arguments);
        if streams == ProgramStreams::Null {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        let mut inner = inner;
        let our_end = gate.as_raw_fd();
        let wait_for_release = move || -> io::Result<()> {
            // SAFETY: in the child this descriptor is a copy that no code uses. Open, it would hide from the
            // child that we are gone.
            unsafe { libc::close(our_end) };
            signals::let_through();
            inner.write_all(&std::process::id().to_ne_bytes())?;
            // End of file: the process that forked us is gone.
            inner.read_exact(&mut [0])
        };
        // SAFETY: between fork and exec the closure only makes the system calls close, sigprocmask, getpid,
        // write and read, and neither allocates nor locks.
        unsafe { command.pre_exec(wait_for_release) };
        let spawner = std::thread::spawn(move || {
            let spawned = command.spawn();
            // Closes our copy of the child's end, so that a child that could not be forked is noticed below.
            drop(command);
            spawned
        });
        let mut pid = [0; 4];
        if gate.read_exact(&mut pid).is_err() {
            let spawned = spawner.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            return Err(spawned.err().unwrap_or_else(|| io::ErrorKind::Other.into()));
        }
        let pid = Pid(i32::try_from(u32::from_ne_bytes(pid)).unwrap_or(-1));
        Ok(Self { pid, gate, spawner })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Executes the program.
    ///
    /// # Errors
    /// It cannot be executed.
    pub(crate) fn release(mut self) -> io::Result<Child> {
        self.let_go()?;
        self.executed()
    }

    /// Has it execute the program, and does not wait for that.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn let_go(&mut self) -> io::Result<()> {
        self.gate.write_all(&[1])
    }

    /// Waits until it has executed the program.
    ///
    /// # Errors
    /// It cannot be executed.
    pub(crate) fn executed(self) -> io::Result<Child> {
        self.spawner.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_waits_until_it_is_released() {
        let child = HeldChild::spawn(&["true".into()], ProgramStreams::Ours).unwrap();
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", child.pid().0)).unwrap();
        assert_ne!(name().trim(), "true");
        let pid = child.pid().0;
        let mut child = child.release().unwrap();
        assert_eq!(child.id() as i32, pid);
        assert!(child.wait().unwrap().success());
    }

    /// `execve` keeps signals held back: the program was left over, deaf to Ctrl-C and to the end of its
    /// window.
    #[test]
    fn signals_that_are_held_back_here_reach_the_program() {
        let _interrupts = crate::Interrupts::hold().unwrap();
        // Not by a shell, which lets signals through itself.
        let none = ["grep", "-q", "SigBlk:.0000000000000000", "/proc/self/status"];
        let child = HeldChild::spawn(&none.map(OsString::from), ProgramStreams::Ours).unwrap();
        assert!(child.release().unwrap().wait().unwrap().success());
    }

    /// A program that is run again and again would read what the next one should, and write into the figures.
    #[test]
    fn a_program_without_streams_reads_and_writes_nothing() {
        let words = ["sh", "-c", "test /proc/self/fd/0 -ef /dev/null && test /proc/$$/fd/1 -ef /dev/null"];
        let child = HeldChild::spawn(&words.map(OsString::from), ProgramStreams::Null).unwrap();
        assert!(child.release().unwrap().wait().unwrap().success());
    }

    #[test]
    fn what_cannot_be_executed_is_an_error() {
        let child = HeldChild::spawn(&["/no/such/program".into()], ProgramStreams::Ours).unwrap();
        assert_eq!(child.release().map(|_| ()).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(HeldChild::spawn(&[], ProgramStreams::Ours).is_err());
    }

    #[test]
    fn a_child_that_is_not_released_ends() {
        let child = HeldChild::spawn(&["sleep".into(), "1000".into()], ProgramStreams::Ours).unwrap();
        let process = format!("/proc/{}", child.pid().0);
        let HeldChild { gate, spawner, .. } = child;
        drop(gate);
        assert!(spawner.join().unwrap().is_err());
        assert!(!std::path::Path::new(&process).exists());
    }
}
