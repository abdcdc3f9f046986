//! A program in a terminal: what it shows, and keys for it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Nothing takes longer, on a busy machine in a debug build.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program in a pseudo-terminal that controls it.
pub struct InTerminal {
    outside: File,
    inside: OwnedFd,
    /// The program.
    pub child: KilledChild,
    screen: vt100::Parser,
    written: Vec<u8>,
}

/// A program that is killed where a test fails before its end: it would run on, and slow what follows.
pub struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        // It has ended, in most cases.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Deref for KilledChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// Rows or columns; the emulated terminal has at least one.
fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap_or(NonZero::<u16>::MIN)
}

impl InTerminal {
    /// Starts a program in a directory.
    ///
    /// # Errors
    /// There are no pseudo-terminals, or the program cannot be started.
    pub fn start<S: AsRef<OsStr>>(
        words: &[S],
        directory: &Path,
        (rows, columns): (u16, u16),
    ) -> io::Result<Self> {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&outside)?;
        unlockpt(&outside)?;
        let path = ptsname(&outside, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let inside = open(path.as_c_str(), flags, Mode::empty())?;
        set_size(&inside, rows, columns)?;
        // What `setsid` starts takes its place: it leads no group of processes that it would have to leave.
        // A shell's job in the background ignores Ctrl-C, and so would all that the tests start.
        let child = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal"])
            .args(words)
            .current_dir(directory)
            .env("TERM", "xterm-256color")
            .stdin(inside.try_clone()?)
            .stdout(inside.try_clone()?)
            .stderr(inside.try_clone()?)
            .spawn()?;
        let screen = vt100::Parser::new(cells(rows), cells(columns), 0);
        let (outside, child) = (outside.into(), KilledChild(child));
        Ok(Self { outside, inside, child, screen, written: Vec::new() })
    }

    /// Gives the terminal another size.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resize(&mut self, rows: u16, columns: u16) -> io::Result<()> {
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
        set_size(&self.inside, rows, columns)
    }

    /// Presses keys.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn press(&self, keys: &str) -> io::Result<()> {
        rustix::io::write(&self.outside, keys.as_bytes())?;
        Ok(())
    }

    /// Everything that was written so far, with what controls the terminal.
    #[must_use]
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }

    /// Reads what is there, or what comes soon; false: nothing came.
    fn read(&mut self) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut [PollFd::new(&self.outside, PollFlags::IN)], Some(&timeout))? == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 1 << 14];
        // Reading fails where nothing holds the other side any more.
        let length = self.outside.read(&mut bytes).unwrap_or_default();
        let new = bytes.get(..length).unwrap_or_default();
        self.screen.process(new);
        self.written.extend_from_slice(new);
        Ok(length > 0)
    }

    /// What is on the screen as soon as it has this text.
    ///
    /// # Errors
    /// It never has.
    pub fn shows(&mut self, text: &str) -> io::Result<String> {
        self.until(&format!("{text:?} is on the screen"), |contents| contents.contains(text))
    }

    /// What is on the screen as soon as `is_so`, which is told what is there.
    ///
    /// # Errors
    /// It does not come to be so.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> io::Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let contents = self.screen.screen().contents();
            if is_so(&contents) {
                return Ok(contents);
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("never came true: {what}; on the screen:\n{contents}")));
            }
            self.read()?;
        }
    }

    /// Waits until this was written, with what controls the terminal.
    ///
    /// # Errors
    /// It never is.
    pub fn writes(&mut self, text: &str) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !self.written().contains(text) {
            if Instant::now() > until {
                return Err(io::Error::other(format!("{text:?} is not written")));
            }
            self.read()?;
        }
        Ok(())
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    /// It does not end, or leaves the terminal without echo, lines, cursor or on another screen.
    pub fn ends(&mut self) -> io::Result<ExitStatus> {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            let is_more = self.read()?;
            match self.child.try_wait()? {
                Some(status) if !is_more => break status,
                _ if Instant::now() > until => return Err(io::Error::other("it does not end")),
                _ => (),
            }
        };
        let has_lines = tcgetattr(&self.inside)?.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON);
        let screen = self.screen.screen();
        if !has_lines || screen.alternate_screen() || screen.hide_cursor() {
            return Err(io::Error::other("the terminal is not left as it was"));
        }
        Ok(status)
    }

    /// Closes the terminal's window. Waits for the program's end.
    ///
    /// # Errors
    /// It does not end, or by another signal than SIGHUP.
    pub fn close(self) -> io::Result<ExitStatus> {
        let Self { outside, inside, mut child, .. } = self;
        drop((outside, inside));
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait()? {
                // The signal of a closed terminal may end it once it has cleaned up.
                let is_well = status.signal().is_none_or(|signal| signal == Signal::HUP.as_raw());
                return match is_well {
                    true => Ok(status),
                    false => Err(io::Error::other(format!("it was killed: {status}"))),
                };
            }
            if Instant::now() > until {
                return Err(io::Error::other("it goes on without its terminal"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn set_size(terminal: &OwnedFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}
