//! `stat`: the figures of a function over runs that are repeated.

use std::io::{BufWriter, Write, stdout};

use anyhow::{Context, Result};

use crate::args::{Format, RecordArgs, StatArgs};
use crate::exit::Exit;
use crate::printable::Printable;
use crate::render::stat::{self, Repeated};
use crate::runs_made::{RowsDirectory, Runner, make, read_made};
use crate::shell::quoted;
use crate::terminal::text_width;
use crate::{messages, runs_there};

pub(crate) fn run(args: StatArgs) -> Result<Exit> {
    let StatArgs { there, repeat, record } = args;
    let (calls, format) = (record.query.calls.clone(), record.query.format);
    let (measured, functions) = if there.is_empty() {
        let measured = what_runs(&record);
        let rows = RowsDirectory::new(record.save.as_deref())?;
        let runner = Runner { args: record, name: &measured, rows: rows.path() };
        let made = make(&[runner], repeat)?;
        let functions = read_made(rows.path(), repeat, made, "stat")?;
        (measured, functions)
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

/// What the runs are of: the program, or windows of processes or threads.
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
