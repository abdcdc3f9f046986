//! The one place that decides exit codes.

use std::fmt;
use std::io;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// No call of any kind was seen, more was lost than allowed, or B is slower than allowed.
    Nothing = 1,
    /// The command line makes no sense, or names what does not exist.
    Usage = 2,
    /// Not permitted, not supported or not possible here.
    NotPossible = 3,
    /// The input file is bad.
    BadInput = 4,
    /// The report contradicts itself (`--check`): a defect of this program, whatever the input.
    Inconsistent = 5,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that knows how the command ends.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    choices: Vec<String>,
}

impl Failure {
    /// What may have been meant, a line each.
    pub(crate) fn choices(&self) -> &[String] {
        &self.choices
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error that ends the command with `exit`.
pub fn failure(exit: Exit, message: impl Into<String>) -> anyhow::Error {
    Failure { exit, message: message.into(), choices: Vec::new() }.into()
}

/// A wrong usage, with what may have been meant.
pub(crate) fn wrong_choice(message: String, choices: Vec<String>) -> anyhow::Error {
    Failure { exit: Exit::Usage, message, choices }.into()
}

/// How the command ends after this error; `None`: the reader of our output has gone, which is no error.
#[must_use]
pub fn of_error(error: &anyhow::Error) -> Option<Exit> {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return Some(failure.exit);
        }
        if let Some(error) = cause.downcast_ref::<perfdata::OpenError>() {
            return Some(of_open(error));
        }
        if let Some(error) = cause.downcast_ref::<recorder::RecordError>() {
            return Some(if error.is_usage() { Exit::Usage } else { Exit::NotPossible });
        }
        #[cfg(feature = "bpf")]
        if cause.is::<bpf::BpfError>() {
            return Some(Exit::NotPossible);
        }
        if let Some(error) = cause.downcast_ref::<perfdata::ReadError>() {
            return Some(match error {
                perfdata::ReadError::Open(error) => of_open(error),
                _ => Exit::BadInput,
            });
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
            return None;
        }
    }
    // What is left is the system's refusal to write: disk full, no such directory, no permission.
    Some(Exit::NotPossible)
}

/// Ends the command, without a word, if `error` says that the reader of our output has gone. For work that
/// cannot be stopped otherwise.
pub fn leave_if_reader_is_gone(error: &io::Error) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(Exit::Done as i32);
    }
}

fn of_open(error: &perfdata::OpenError) -> Exit {
    match error {
        perfdata::OpenError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Exit::NotPossible
        }
        _ => Exit::BadInput,
    }
}

/// What to do about an error, where the error itself does not say.
#[must_use]
pub fn advice(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let open = match cause.downcast_ref::<perfdata::ReadError>() {
            Some(perfdata::ReadError::Open(open)) => Some(open),
            _ => cause.downcast_ref::<perfdata::OpenError>(),
        };
        match open? {
            perfdata::OpenError::Io { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(format!("make it readable: sudo chmod a+r {}", path.display()))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn io_error(kind: io::ErrorKind) -> perfdata::OpenError {
        perfdata::OpenError::Io { path: "p".into(), source: kind.into() }
    }

    #[test]
    fn codes() {
        let check = |error: anyhow::Error, exit| assert_eq!(of_error(&error.context("on top")), exit);
        check(failure(Exit::Usage, "x"), Some(Exit::Usage));
        check(io_error(io::ErrorKind::NotFound).into(), Some(Exit::BadInput));
        check(io_error(io::ErrorKind::PermissionDenied).into(), Some(Exit::NotPossible));
        check(
            perfdata::ReadError::from(io_error(io::ErrorKind::PermissionDenied)).into(),
            Some(Exit::NotPossible),
        );
        check(recorder::RecordError::NoProcess(model::Pid(7)).into(), Some(Exit::Usage));
        check(recorder::RecordError::NoClock { remedy: "" }.into(), Some(Exit::NotPossible));
        check(io::Error::from(io::ErrorKind::BrokenPipe).into(), None);
        check(io::Error::from(io::ErrorKind::StorageFull).into(), Some(Exit::NotPossible));
        let deep: anyhow::Result<()> = Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing");
        check(deep.unwrap_err(), None);
    }
}
