//! `stat`: the figures of a function over runs that are repeated.

use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::args::{Format, RecordArgs, StatArgs};
use crate::exit::{Exit, failure};
use crate::printable::Printable;
use crate::render::stat::{self, Repeated};
use crate::report_command::text_width;
use crate::runs_made::{Made, RowsDirectory, Runner, make};
use crate::shell::quoted;
use crate::{messages, runs_there};

pub(crate) fn run(args: StatArgs) -> Result<Exit> {
    let StatArgs { there, repeat, record } = args;
    let (calls, format) = (record.query.calls.clone(), record.query.format);
    let (measured, functions) = if there.is_empty() {
        let measured = what_runs(&record);
        let rows = RowsDirectory::new(record.save.as_deref())?;
        let runner = Runner { args: record, name: &measured, rows: rows.path() };
        let made = make(&[runner], repeat)?;
        let paths = rows_made(rows.path(), usize::from(repeat.runs), made)?;
        // All that was recorded is what was asked for, by names that may be patterns.
        let all = crate::args::CallsArgs::default();
        (measured, runs_there::read(&paths, &all, "stat")?)
    } else {
        let names: Vec<String> = there.iter().map(|path| path.display().to_string()).collect();
        (messages::list(&names), runs_there::read(&there, &calls, "stat")?)
    };
    let repeated = Repeated { measured: &measured, functions: &functions };
    let mut out = BufWriter::new(stdout().lock());
    let written = match format {
        Format::Text => stat::write_text(&mut Printable(&mut out), &repeated, text_width()),
        Format::Json => stat::write_json(&mut out, &repeated),
    };
    written.and_then(|()| out.flush()).context("cannot write to stdout")?;
    Ok(Exit::Done)
}

/// The rows of the runs that were whole.
///
/// # Errors
/// There is none.
pub(crate) fn rows_made(directory: &Path, runs: usize, made: Made) -> Result<Vec<PathBuf>> {
    let whole = match made {
        Made::All => runs,
        Made::Interrupted { whole: 0 } => return Err(failure(Exit::Nothing, "interrupted in the first run")),
        Made::Interrupted { whole } => {
            messages::warn(format!("interrupted: {whole} of {runs} runs were made"));
            whole
        }
    };
    Ok((0..whole).map(|number| crate::runs_made::rows_of_run(directory, number, runs)).collect())
}

/// The program, or whose windows they are.
fn what_runs(record: &RecordArgs) -> String {
    if !record.program.is_empty() {
        let words: Vec<String> = record.program.iter().map(|word| quoted(word)).collect();
        return words.join(" ");
    }
    let seconds = record.duration.unwrap_or(1.0);
    let pids: Vec<String> = record.query.calls.pids.iter().map(i32::to_string).collect();
    let of = match pids.as_slice() {
        [] => "the threads that were asked for".to_owned(),
        [pid] => format!("process {pid}"),
        pids => format!("processes {}", messages::list(pids)),
    };
    format!("{seconds} s of {of}")
}
