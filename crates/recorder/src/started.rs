//! A program that is started and not recorded: it stands at its entry until all is ready, and ends with the
//! window.

use std::ffi::OsString;
use std::process::{Child, ExitStatus};

use model::Pid;

use crate::error::RecordError;
use crate::sys::{AtEntry, HeldChild, ProgramStreams};
use crate::window::{end, failed};

/// A program, at its entry or running. Dropped, it is ended: politely, if it runs, and after two seconds for
/// certain.
#[derive(Debug)]
pub struct StartedProgram {
    pid: Pid,
    state: StartedState,
}

#[derive(Debug)]
enum StartedState {
    AtEntry(AtEntry),
    Runs(Child),
    /// It has been killed before it ran.
    Gone,
}

impl StartedProgram {
    /// Starts it, up to its entry: its libraries are there, and of its own code nothing has run.
    ///
    /// # Errors
    /// It cannot be executed, or must not be traced.
    pub fn at_entry(words: &[OsString], streams: ProgramStreams) -> Result<Self, RecordError> {
        let program = HeldChild::spawn(words, streams).and_then(AtEntry::of);
        let program = program.map_err(|error| RecordError::program(words, error))?;
        Ok(Self { pid: program.pid(), state: StartedState::AtEntry(program) })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// It runs, if it did not yet.
    pub fn go(&mut self) {
        self.state = match std::mem::replace(&mut self.state, StartedState::Gone) {
            StartedState::AtEntry(program) => program.go().map_or(StartedState::Gone, StartedState::Runs),
            other => other,
        };
    }

    /// How it has ended, if not well.
    pub fn failed(&mut self) -> Option<ExitStatus> {
        if let StartedState::Runs(child) = &mut self.state { failed(child) } else { None }
    }

    /// It has not ended.
    pub fn lives(&mut self) -> bool {
        match &mut self.state {
            StartedState::AtEntry(_) => true,
            StartedState::Runs(child) => matches!(child.try_wait(), Ok(None)),
            StartedState::Gone => false,
        }
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        let lives = self.lives();
        match std::mem::replace(&mut self.state, StartedState::Gone) {
            StartedState::AtEntry(program) => program.kill(),
            StartedState::Runs(child) if lives => end(child),
            StartedState::Runs(_) | StartedState::Gone => (),
        }
    }
}
