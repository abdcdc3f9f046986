//! The command line as clap has it: what is parsed, and what help, completions and man pages are made from.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, Error, FromArgMatches};

use super::headings::{NOT_OF_RUNS, OF_RECORDINGS, OF_REPORTS, OF_RUNS};
use super::{CommandLine, form};
use crate::render::{compare, stat};

/// The whole command line.
#[must_use]
pub fn command() -> Command {
    let command = CommandLine::command().mut_subcommand(RECORD, |record| hide(record, is_of_recordings));
    [(STAT, stat::SCHEMA), (COMPARE, compare::SCHEMA)].into_iter().fold(command, |command, (name, schema)| {
        command.mut_subcommand(name, |runs| {
            hide(runs, is_of_runs).mut_arg("format", |format| format.help(form("figures", schema)))
        })
    })
}

/// Hides what has no effect on a command.
fn hide(command: Command, is_of_command: fn(&Arg) -> bool) -> Command {
    command.mut_args(|arg| {
        let hidden = arg.is_hide_set() || !is_of_command(&arg);
        arg.hide(hidden)
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
const STAT: &str = "stat";
const COMPARE: &str = "compare";

fn is_of_recordings(arg: &Arg) -> bool {
    arg.get_help_heading().is_none_or(|heading| OF_RECORDINGS.contains(&heading))
}

fn is_of_runs(arg: &Arg) -> bool {
    let is_once = ["preview", "bundle"].contains(&arg.get_id().as_str());
    let is_of_reports = arg.get_help_heading().is_some_and(|heading| NOT_OF_RUNS.contains(&heading));
    !is_once && !is_of_reports || OF_RUNS.contains(&arg.get_id().as_str())
}

/// Parses the process's arguments, of which the first is the program's name.
///
/// # Errors
/// Wrong usage, or help that was asked for.
pub fn parse<W: Into<OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<CommandLine, Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    match matches.subcommand() {
        Some((RECORD, record)) => check_record(&mut command, record)?,
        Some((name @ (STAT | COMPARE), runs)) => check_runs(&mut command, name, runs)?,
        _ => (),
    }
    CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// An option of reports would have no effect.
fn check_record(command: &mut Command, given: &ArgMatches) -> Result<(), Error> {
    let of_reports = |arg: &Arg| arg.get_help_heading().is_some_and(|heading| OF_REPORTS.contains(&heading));
    refuse(
        command,
        RECORD,
        given,
        of_reports,
        "is for reports: give it to `func_latency report`, or leave `record` out",
    )
}

fn check_runs(command: &mut Command, name: &str, given: &ArgMatches) -> Result<(), Error> {
    refuse(
        command,
        name,
        given,
        |arg| !is_of_runs(arg),
        "has no effect on runs that are repeated: these have rows, which --save keeps",
    )
}

/// Refuses an option that has no effect on a subcommand, and says why.
fn refuse(
    command: &mut Command,
    name: &str,
    given: &ArgMatches,
    is_of_reports: impl Fn(&Arg) -> bool,
    why: &str,
) -> Result<(), Error> {
    let is_given = |arg: &&Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let arguments = command.find_subcommand(name).map(Command::get_arguments);
    let wrong = arguments.and_then(|mut all| all.find(|arg| is_of_reports(arg) && is_given(arg)));
    let Some(option) = wrong.and_then(Arg::get_long) else { return Ok(()) };
    Err(command.error(ErrorKind::ArgumentConflict, format!("--{option} {why}")))
}
