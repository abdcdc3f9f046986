//! The window: from the moment the trace is on until it is off.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process};

use crate::drain::Shared;
use crate::error::RecordError;
use crate::events::BufferEvents;
use crate::new_cpus::NewCpus;
use crate::new_file::NewFile;
use crate::procfs::Proc;
use crate::sys::{HeldChild, Interrupts};
use crate::target::Target;
use crate::workers::Workers;

/// Why the window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was as long as was asked for.
    InTime,
    /// All that was traced has ended.
    TargetGone,
    /// A signal came.
    Interrupted,
    /// The file could not be written.
    OutputFailed,
}

/// What there is to say of a window that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) ended: Ended,
    pub(crate) window: Duration,
    pub(crate) start_up: Duration,
    pub(crate) failed: Option<ExitStatus>,
}

/// How a program has ended, if not well.  `None`, too: it runs.
pub(crate) fn failed(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().ok().flatten().filter(|status| !status.success())
}

/// The target is looked at this often for whether it lives.
const LOOK: Duration = Duration::from_millis(20);

/// A program that was asked to end has so long for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A window that is yet to come.
pub(crate) struct Window<'a> {
    pub(crate) target: &'a Target,
    /// `None`: until the target ends.
    pub(crate) length: Option<Duration>,
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) proc: &'a Proc,
    pub(crate) interrupts: &'a Interrupts,
    pub(crate) workers: Workers,
}

impl Window<'_> {
    /// Switches the trace on, waits, and switches it off.  `new_cpus`: where there are events of CPUs.
    ///
    /// # Errors
    /// The program cannot be executed, or the file cannot take its place.
    pub(crate) fn pass(
        &self,
        program: Option<HeldChild>,
        file: NewFile,
        began: Instant,
        mut new_cpus: Option<&mut NewCpus>,
    ) -> Result<Passed, RecordError> {
        let mut child = match program {
            // Its events are enabled by `execve`.
            Some(held) => {
                let child = held.release().map_err(|error| self.not_executed(error))?;
                match file.take_place() {
                    Ok(()) => Some(child),
                    Err(error) => {
                        end(child);
                        return Err(error);
                    }
                }
            }
            None => {
                file.take_place()?;
                self.for_all_events(BufferEvents::enable_trace);
                None
            }
        };
        let start = Instant::now();
        let ended = self.wait(start, &mut child, &mut new_cpus);
        self.shared.end();
        // All of the trace first: the sideband still tells of threads switched out meanwhile.
        self.for_all_events(BufferEvents::disable_trace);
        self.for_all_events(BufferEvents::disable_sideband);
        self.look_for_cpus(&mut new_cpus);
        let window = start.elapsed();
        // The first Ctrl-C ends the window, the second one us; what is in the file stays whole.
        self.interrupts.give_back();
        let failed = child.as_mut().and_then(failed);
        if let Some(child) = child.filter(|_| ended != Ended::TargetGone) {
            end(child);
        }
        Ok(Passed { ended, window, start_up: start.duration_since(began), failed })
    }

    /// On all CPUs: each event is switched where its thread runs.
    fn for_all_events(&self, switch: impl Fn(&BufferEvents) + Sync) {
        self.workers.all(&mut self.shared.all_events(), |events| switch(events));
    }

    fn wait(&self, start: Instant, child: &mut Option<Child>, new_cpus: &mut Option<&mut NewCpus>) -> Ended {
        loop {
            self.look_for_cpus(new_cpus);
            let left = self.length.map(|length| length.saturating_sub(start.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ended::InTime;
            }
            if self.is_interrupted(left.unwrap_or(LOOK).min(LOOK)) {
                return Ended::Interrupted;
            }
            if self.shared.output.failed() {
                return Ended::OutputFailed;
            }
            let lives = match child {
                // One that cannot be asked has been waited for already.
                Some(child) => matches!(child.try_wait(), Ok(None)),
                None => self.target.lives(self.proc),
            };
            if !lives {
                return Ended::TargetGone;
            }
        }
    }

    fn look_for_cpus(&self, new_cpus: &mut Option<&mut NewCpus>) {
        let records = new_cpus.as_mut().map_or_else(Vec::new, |cpus| cpus.look(self.shared.now()));
        if !records.is_empty() {
            self.shared.output.records(&records);
        }
    }

    /// Waits for a signal, so long at most.
    fn is_interrupted(&self, at_most: Duration) -> bool {
        let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        let mut fds = [PollFd::new(self.interrupts, PollFlags::IN)];
        // A wait that was broken off is short.
        let _ = poll(&mut fds, Some(&timeout));
        self.interrupts.take()
    }

    fn not_executed(&self, error: std::io::Error) -> RecordError {
        let words: &[_] = if let Target::Program(words) = self.target { words } else { &[] };
        RecordError::program(words, error)
    }
}

/// Ends a program that was started for the recording: politely, and after [`PATIENCE`] for certain.
pub(crate) fn end(mut child: Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    let asked = Instant::now();
    while asked.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(LOOK);
    }
    // One that has ended already cannot be killed, and need not.
    let _ = child.kill();
    let _ = child.wait();
}
