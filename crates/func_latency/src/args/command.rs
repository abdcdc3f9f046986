//! The command line as clap has it: what is parsed, and what help, completions and man pages are made from.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, Error, FromArgMatches};

use super::CommandLine;
use super::headings::{OF_RECORDINGS, OF_REPORTS};

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    CommandLine::command().mut_subcommand(RECORD, |record| {
        record.mut_args(|arg| {
            let hidden = arg.is_hide_set() || !is_of_recordings(&arg);
            arg.hide(hidden)
        })
    })
}

/// The command line without what is hidden, which completions of bash would offer.
#[must_use]
pub fn completed() -> Command {
    command().mut_subcommand(RECORD, |record| {
        let shown = record.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
        Command::new(RECORD).about(record.get_about().cloned().unwrap_or_default()).args(shown)
    })
}

const RECORD: &str = "record";

fn is_of_recordings(arg: &Arg) -> bool {
    arg.get_help_heading().is_none_or(|heading| OF_RECORDINGS.contains(&heading))
}

/// Parses the process's arguments, of which the first is the program's name.
///
/// # Errors
/// Wrong usage, or help that was asked for.
pub fn parse<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<CommandLine, Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    if let Some((RECORD, record)) = matches.subcommand() {
        check_record(&mut command, record)?;
    }
    CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// An option of reports would have no effect.
fn check_record(command: &mut Command, given: &ArgMatches) -> Result<(), Error> {
    let of_reports = |arg: &&Arg| arg.get_help_heading().is_some_and(|heading| OF_REPORTS.contains(&heading));
    let is_given = |arg: &&Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let record = command.find_subcommand(RECORD);
    let wrong = record.and_then(|record| record.get_arguments().filter(of_reports).find(is_given));
    let Some(option) = wrong.and_then(Arg::get_long) else { return Ok(()) };
    let message =
        format!("--{option} is for reports: give it to `func_latency report`, or leave `record` out");
    Err(command.error(ErrorKind::ArgumentConflict, message))
}
