//! One row for every call, as JSON lines or CSV.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use analyzer::{CallRow, Report};
use anyhow::{Context, Result};
use serde::Serialize;

use super::Names;
use super::names::caller_name;
use crate::config::{RowsFile, RowsForm};

/// A call as it is written: the columns in their order.
#[derive(Debug, Serialize)]
pub struct Row {
    id: String,
    tid: String,
    cpu: Option<u32>,
    start_ns: u64,
    latency_ns: u64,
    error_ns: u64,
    off_cpu_ns: u64,
    status: &'static str,
    caller: String,
    site: Option<String>,
    function: String,
    aux_buffer: Option<u32>,
    aux_offset: String,
    cut_by: Option<&'static str>,
    /// Its end is a guess, see [`CallRow::undecided`].
    undecided: bool,
    /// It left the IP filter by a jump: how long it went on is not known.
    ended_by_jump: bool,
}

impl Row {
    /// The row of a call.
    #[must_use]
    pub fn new(names: &dyn Names, call: &CallRow) -> Self {
        Self {
            id: call.id.to_string(),
            tid: call.tid.0.to_string(),
            cpu: call.cpu.map(|cpu| cpu.0),
            start_ns: call.start_ns.0,
            latency_ns: call.latency_ns,
            error_ns: call.error_ns,
            off_cpu_ns: call.off_cpu_ns,
            status: call.status.name(),
            caller: caller_name(names, call.caller),
            site: call.site.map(|site| names.site(site)),
            function: names.function(call.function),
            aux_buffer: call.aux_buffer,
            aux_offset: call.aux_offset.to_string(),
            cut_by: call.cut_by.map(|cut| cut.cause.name()),
            undecided: call.undecided,
            ended_by_jump: call.ended_by_jump,
        }
    }
}

/// Writes the rows of all functions to a file.
///
/// # Errors
/// The file could not be created or written.
pub fn write_file(target: &RowsFile, report: &Report, names: &dyn Names) -> Result<()> {
    let context = || format!("cannot write {}", target.path.display());
    let file = File::create(&target.path).with_context(context)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out, target.form, report, names).with_context(context)?;
    out.flush().with_context(context)
}

/// Writes the rows of all functions.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut dyn Write, form: RowsForm, report: &Report, names: &dyn Names) -> io::Result<()> {
    let rows = report.functions.iter().flat_map(|f| &f.rows).map(|call| Row::new(names, call));
    match form {
        RowsForm::JsonLines => {
            for row in rows {
                serde_json::to_writer(&mut *out, &row)?;
                out.write_all(b"\n")?;
            }
        }
        RowsForm::Csv => {
            let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(out);
            csv.write_record(COLUMNS).map_err(io_error)?;
            for row in rows {
                csv.serialize(row).map_err(io_error)?;
            }
            csv.flush()?;
        }
    }
    Ok(())
}

/// The header is written by hand, so that a file without calls has it, too.
const COLUMNS: [&str; 16] = [
    "id",
    "tid",
    "cpu",
    "start_ns",
    "latency_ns",
    "error_ns",
    "off_cpu_ns",
    "status",
    "caller",
    "site",
    "function",
    "aux_buffer",
    "aux_offset",
    "cut_by",
    "undecided",
    "ended_by_jump",
];

fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
