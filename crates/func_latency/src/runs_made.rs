//! Runs that are made one after the other, each with the rows of its calls.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::args::{CallsArgs, Format, RecordArgs, RepeatArgs};
use crate::exit::{Exit, failure};
use crate::output::create_empty_directory;
use crate::record_command::{RecordEnd, record_rows};
use crate::record_config::{RecordConfig, Then};
use crate::render::runs::FunctionRuns;
use crate::{messages, runs_there};

/// Where rows of runs go: a directory that was asked for, or one that goes with this.
pub(crate) struct RowsDirectory {
    path: PathBuf,
    _scratch: Option<TempDir>,
}

impl RowsDirectory {
    /// That of `--save`, or a scratch one.
    ///
    /// # Errors
    /// It has files already, or cannot be created.
    pub(crate) fn new(save: Option<&Path>) -> Result<Self> {
        if let Some(path) = save {
            create_empty_directory("--save", path)?;
            return Ok(Self { path: path.to_owned(), _scratch: None });
        }
        let scratch = tempfile::tempdir().context("cannot create a directory for rows")?;
        Ok(Self { path: scratch.path().to_owned(), _scratch: Some(scratch) })
    }

    /// A directory in it.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn within(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        create_empty_directory("--save", &path)?;
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// One of the programs, or windows, that are run in turns.
pub(crate) struct Runner<'a> {
    /// What is recorded.
    pub(crate) args: RecordArgs,
    /// What it is called, for messages.
    pub(crate) name: &'a str,
    /// Where its rows go.
    pub(crate) rows: &'a Path,
}

/// What is left of the runs that were to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// All were.
    All,
    /// Ctrl-C ended the run after `whole` runs of each.
    Interrupted { whole: usize },
}

/// Makes the runs of each, those before that do not count, and then those that do, in turns.
///
/// # Errors
/// A run fails, or sees no call.
pub(crate) fn make(runners: &[Runner<'_>], repeat: RepeatArgs) -> Result<Made> {
    let scratch = tempfile::tempdir().context("cannot create a directory for rows")?;
    let runs = usize::from(repeat.runs);
    // Before a run is announced.
    for runner in runners {
        RecordConfig::new(args_of_run(runner, &rows_of_run(runner.rows, 0, runs)), Then::Rows)?;
    }
    for number in 0..usize::from(repeat.warmup) {
        for runner in in_turn(runners, number) {
            messages::note(format!("{}: a run that does not count", runner.name));
            if run(runner, &scratch.path().join("warmup.jsonl"))?.is_interrupted {
                return Ok(Made::Interrupted { whole: 0 });
            }
        }
    }
    for number in 0..runs {
        for runner in in_turn(runners, number) {
            messages::note(format!("{}: run {} of {runs}", runner.name, number + 1));
            if run(runner, &rows_of_run(runner.rows, number, runs))?.is_interrupted {
                if number > 0 {
                    messages::warn(format!("interrupted: {number} of {runs} runs were made"));
                }
                return Ok(Made::Interrupted { whole: number });
            }
        }
    }
    Ok(Made::All)
}

/// The runs of a directory that were whole; they are called as their files are.
///
/// # Errors
/// There is none, or its rows cannot be read.
pub(crate) fn read_made(
    directory: &Path,
    repeat: RepeatArgs,
    made: Made,
    command: &str,
) -> Result<Vec<FunctionRuns>> {
    let runs = usize::from(repeat.runs);
    let whole = match made {
        Made::All => runs,
        Made::Interrupted { whole: 0 } => return Err(failure(Exit::Nothing, "interrupted in the first run")),
        Made::Interrupted { whole } => whole,
    };
    let paths: Vec<PathBuf> = (0..whole).map(|number| rows_of_run(directory, number, runs)).collect();
    // All that was recorded is what was asked for, by names that may be patterns.
    let mut functions = runs_there::read(&paths, &CallsArgs::default(), command)?;
    for run in functions.iter_mut().flat_map(|function| &mut function.runs) {
        if let Some(stem) = Path::new(&run.name).file_stem() {
            run.name = stem.to_string_lossy().into_owned();
        }
    }
    Ok(functions)
}

/// Rows of a run; names are sorted as the runs are.
fn rows_of_run(directory: &Path, number: usize, runs: usize) -> PathBuf {
    let width = runs.to_string().len();
    directory.join(format!("run-{:0width$}.jsonl", number + 1))
}

/// `A B`, then `B A`: what changes evenly in time is the same for both.
fn in_turn<'r, 'a>(runners: &'r [Runner<'a>], number: usize) -> Vec<&'r Runner<'a>> {
    let mut turn: Vec<&Runner<'_>> = runners.iter().collect();
    if !number.is_multiple_of(2) {
        turn.reverse();
    }
    turn
}

fn args_of_run(runner: &Runner<'_>, rows: &Path) -> RecordArgs {
    let mut args = runner.args.clone();
    args.query.rows = Some(rows.to_owned());
    args.query.format = Format::Text;
    args.save = None;
    args
}

fn run(runner: &Runner<'_>, rows: &Path) -> Result<RecordEnd> {
    let recorded = record_rows(args_of_run(runner, rows))?;
    if recorded.exit == Exit::Done || recorded.is_interrupted {
        return Ok(recorded);
    }
    Err(failure(
        recorded.exit,
        format!("{}: this run is of no use, and the others are not made", runner.name),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_change_sides() {
        let runner = |name| Runner { args: RecordArgs::default(), name, rows: Path::new("") };
        let runners = [runner("A"), runner("B")];
        let order: String =
            (0..4).flat_map(|number| in_turn(&runners, number)).map(|runner| runner.name).collect();
        assert_eq!(order, "ABBAABBA");
    }

    #[test]
    fn files_are_sorted_as_their_runs() {
        let name = |number, runs| rows_of_run(Path::new("d"), number, runs).display().to_string();
        assert_eq!(
            (name(0, 5), name(8, 10), name(99, 100)),
            ("d/run-1.jsonl".to_owned(), "d/run-09.jsonl".to_owned(), "d/run-100.jsonl".to_owned(),)
        );
    }
}
