//! Ctrl-C and its kind, as something to wait for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

/// The signals that end a recording early.
const SIGNALS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// A set of signals.
fn set(signals: impl Iterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call initialises the set, which is ours.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// The process that started us wants this signal to do nothing: `nohup`, or `&` in a script.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only fills `action`, for which zeroes are valid, too.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// From here on a write beyond the size that files may have (`ulimit -f`) fails, and does not kill this
/// process. Programs that are started later inherit it.
pub fn let_large_writes_fail() {
    // SAFETY: it touches nothing but how the signal is taken.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Holds the signals back in this thread; returns which, and those held back before.
fn hold_back() -> io::Result<(libc::sigset_t, libc::sigset_t)> {
    // The kernel does not ignore signals that are held back.
    hold_back_set(set(SIGNALS.into_iter().filter(|signal| !is_ignored(*signal))))
}

/// Holds a set back in this thread; returns it, and the set held back before.
fn hold_back_set(set: libc::sigset_t) -> io::Result<(libc::sigset_t, libc::sigset_t)> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are ours, and a successful pthread_sigmask initialises `before`.
    unsafe {
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr()) {
            0 => Ok((set, before.assume_init())),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// A descriptor that is read where one of the set has come.
fn signal_fd(set: &libc::sigset_t) -> io::Result<OwnedFd> {
    // SAFETY: the set is valid for the call; the descriptor is new, and no other code knows it.
    unsafe {
        let fd = libc::signalfd(-1, std::ptr::from_ref(set), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Takes a signal off; true: one had come.
fn take_signal(fd: &OwnedFd) -> bool {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes, which `info` has.
    let read = unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    read > 0
}

/// SIGUSR2, which does not kill this process once this is made, but waits to be taken. To be made before any
/// thread: a thread that does not block it would die of it.
#[derive(Debug)]
pub struct UserSignal(OwnedFd);

impl UserSignal {
    /// Begins to hold it back, for as long as this process lives.
    ///
    /// # Errors
    /// What the kernel says; it has no reason to.
    pub fn hold() -> io::Result<Self> {
        let (set, _) = hold_back_set(set([libc::SIGUSR2].into_iter()))?;
        signal_fd(&set).map(Self)
    }

    /// Takes it off; true: it had come.
    #[must_use]
    pub fn take(&self) -> bool {
        take_signal(&self.0)
    }
}

/// Lets the signals through again, in a child that has inherited that they are held back. May be called
/// between fork and exec.
pub(super) fn let_through() {
    let set = set(SIGNALS.into_iter().chain([libc::SIGUSR2]));
    // SAFETY: the set is valid for the call, which neither allocates nor locks.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

/// While it lives SIGINT, SIGTERM and SIGHUP do not kill this process but wait here; those that are ignored
/// stay so.
///
/// To be made before any thread: a thread that does not block them would die of them. When it is dropped they
/// do again what they did before: a second Ctrl-C kills.
#[derive(Debug)]
pub struct Interrupts {
    fd: OwnedFd,
    before: libc::sigset_t,
    /// A signal was taken off.
    was_taken: AtomicBool,
    /// This process wants the recording to end.
    is_asked: AtomicBool,
    /// The end of a window does not give them back.
    are_kept: AtomicBool,
}

impl Interrupts {
    /// Begins to hold the signals back.
    ///
    /// # Errors
    /// What the kernel says; it has no reason to.
    pub fn hold() -> io::Result<Self> {
        let (set, before) = hold_back()?;
        let (was_taken, is_asked, are_kept) = Default::default();
        Ok(Self { fd: signal_fd(&set)?, before, was_taken, is_asked, are_kept })
    }

    /// Does `work`, in which a signal kills this process as if nothing held it back: there is nothing to
    /// clean up yet.
    ///
    /// The signals reach one thread that lets them through and does nothing else, so that all threads that
    /// `work` makes hold them back as this one does.
    pub fn let_kill_during<T>(&self, work: impl FnOnce() -> T) -> T {
        let (working, done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                self.give_back();
                // Nothing is ever sent: it ends when `working` is dropped.
                let _ = done.recv();
            });
            let result = work();
            drop(working);
            result
        })
    }

    /// Holds the signals back beyond the window, until [`Self::let_go`]: there is something to clean up.
    pub fn keep(&self) {
        self.are_kept.store(true, Ordering::Relaxed);
    }

    /// In this thread the signals do again what they did before: the next one ends this process.
    pub fn let_go(&self) {
        self.are_kept.store(false, Ordering::Relaxed);
        self.give_back();
    }

    /// From here on the signals do again what they did before: the next one ends this process. Not if they
    /// [are kept](Self::keep).
    pub fn give_back(&self) {
        if self.are_kept.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: `before` is a set that the kernel gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }

    /// Ends a recording early, as Ctrl-C does. Not by a signal: one that comes when the window has passed
    /// ends this process.
    pub fn end_early(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }

    /// Takes a signal off, or what [`Self::end_early`] asked for; true: one had come.
    #[must_use]
    pub fn take(&self) -> bool {
        let is_asked = self.is_asked.swap(false, Ordering::Relaxed);
        let is_there = take_signal(&self.fd) || is_asked;
        self.was_taken.fetch_or(is_there, Ordering::Relaxed);
        is_there
    }

    /// Whether a signal was taken off before.
    #[must_use]
    pub fn was_taken(&self) -> bool {
        self.was_taken.load(Ordering::Relaxed)
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    /// To this thread: another test's would take one that is for the process.
    fn raise(signal: i32) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }

    fn set_action(signal: i32, action: libc::sighandler_t) {
        // SAFETY: neither of the two actions that are used here runs code of this process.
        assert_ne!(unsafe { libc::signal(signal, action) }, libc::SIG_ERR);
    }

    /// A signal that was ignored was queued once it was held back: closing the terminal ended what nohup had
    /// started.
    #[test]
    fn what_is_ignored_stays_ignored() {
        set_action(libc::SIGHUP, libc::SIG_IGN);
        let interrupts = Interrupts::hold().unwrap();
        raise(libc::SIGHUP);
        let hung_up = interrupts.take();
        set_action(libc::SIGHUP, libc::SIG_DFL);
        assert!(!hung_up);
        raise(libc::SIGTERM);
        assert!(!interrupts.was_taken());
        assert!(interrupts.take(), "SIGTERM is not ignored");
        assert!(!interrupts.take() && interrupts.was_taken());
    }

    /// Where this is set, this process is the one that is to be killed.
    const VICTIM: &str = "FUNC_LATENCY_TEST_VICTIM";

    #[test]
    fn a_recording_is_ended_without_a_signal() {
        let interrupts = Interrupts::hold().unwrap();
        interrupts.end_early();
        assert!(interrupts.take() && !interrupts.take());
        // The window has passed: nothing ends this process.
        interrupts.give_back();
        interrupts.end_early();
    }

    #[test]
    fn the_signal_of_the_user_is_taken_once() {
        let signal = UserSignal::hold().unwrap();
        assert!(!signal.take());
        raise(libc::SIGUSR2);
        assert!(signal.take() && !signal.take());
    }

    /// Symbols of a large program take seconds to read, in which neither Ctrl-C nor kill did anything.
    #[test]
    fn before_there_is_anything_to_clean_up_a_signal_kills() {
        const NAME: &str = "sys::signals::tests::before_there_is_anything_to_clean_up_a_signal_kills";
        if std::env::var_os(VICTIM).is_none() {
            let own = std::env::current_exe().unwrap();
            let mut victim = Command::new(own);
            victim.args(["--exact", NAME]).env(VICTIM, "1");
            // Its other threads, which know nothing of this, must not take the signals.
            // A shell that runs this in the background may ignore Ctrl-C.
            let alone = || {
                // SAFETY: it touches nothing but how the signal is taken.
                unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
                hold_back().map(drop)
            };
            // SAFETY: it neither allocates nor locks.
            let victim = unsafe { victim.pre_exec(alone) }.output().unwrap();
            assert_eq!(victim.status.signal(), Some(libc::SIGTERM), "{victim:?}");
            return;
        }
        let_through();
        let interrupts = Interrupts::hold().unwrap();
        let kill = |signal| kill_process(getpid(), signal).unwrap();
        kill(Signal::INT);
        assert!(interrupts.take(), "it is not held back");
        interrupts.let_kill_during(|| {
            kill(Signal::TERM);
            thread::sleep(Duration::from_secs(60));
        });
    }

    #[test]
    fn work_has_its_result_and_the_signals_are_held_back_after_it() {
        let interrupts = Interrupts::hold().unwrap();
        assert_eq!(interrupts.let_kill_during(|| 7), 7);
        raise(libc::SIGTERM);
        assert!(interrupts.take());
    }
}
