//! Rows that `report --rows` has written, read again.

use std::fs::File;
use std::ops::ControlFlow;

use analyzer::{CallId, Status};
use anyhow::{Context, Result, bail};
use model::{AuxOffset, Ns, Tid};
use serde::Deserialize;

use crate::exit::{Exit, failure};
use crate::filter::CallNumber;
use crate::lines_with::lines_with;
use crate::one_call::CallKey;
use crate::render::rows::{RowsFile, RowsForm};

/// The columns of [`RowKey`].
const COLUMNS: [&str; 8] =
    ["id", "function", "start_ns", "latency_ns", "off_cpu_ns", "status", "aux_buffer", "aux_offset"];

/// What is said of a line that is none of ours.
const NO_ROW: &str = "no row as report --rows writes it";

/// What of a row leads to its call.
#[derive(Debug, Deserialize)]
struct RowKey {
    id: String,
    function: String,
    start_ns: u64,
    latency_ns: u64,
    off_cpu_ns: Option<u64>,
    status: String,
    aux_buffer: Option<u32>,
    aux_offset: Option<String>,
}

impl RowKey {
    /// # Errors
    /// It is none of ours, or of a call that is in no trace.
    fn key(&self) -> Result<(CallId, CallKey)> {
        if self.aux_offset.is_none() {
            bail!("calls that probes have timed are in no trace, and cannot be opened");
        }
        self.read().context(NO_ROW)
    }

    fn read(&self) -> Option<(CallId, CallKey)> {
        const STATUSES: [Status; 5] =
            [Status::Complete, Status::Unwound, Status::OpenStart, Status::OpenEnd, Status::Cut];
        let CallNumber(id) = self.id.parse().ok()?;
        let offset = u64::from_str_radix(self.aux_offset.as_ref()?.strip_prefix("0x")?, 16).ok()?;
        let key = CallKey {
            tid: Tid(id.tid.0),
            aux_buffer: self.aux_buffer,
            aux_offset: Some(AuxOffset(offset)),
            start: Ns(self.start_ns),
            latency_ns: self.latency_ns,
            off_cpu_ns: self.off_cpu_ns,
            status: STATUSES.into_iter().find(|status| status.name() == self.status)?,
        };
        Some((id, key))
    }
}

/// The call of a function: its key, and how many with the same key are before it. Only lines that can be its
/// own or such a twin's are read as rows: there may be millions. Whether the file is one of rows, its first
/// line says.
///
/// # Errors
/// The file cannot be read, has such lines that are no rows, or does not have the call.
pub(crate) fn find(file: &RowsFile, function: &str, wanted: CallId) -> Result<(CallKey, usize)> {
    search(file, function, wanted)
        .map_err(|error| failure(Exit::BadInput, format!("{}: {error:#}", file.path.display())))?
        .ok_or_else(|| {
            let message = format!("{} has no call {wanted} of {function}", file.path.display());
            failure(Exit::Nothing, message)
        })
}

fn search(file: &RowsFile, function: &str, wanted: CallId) -> Result<Option<(CallKey, usize)>> {
    let rows = Rows::open(file)?;
    let mut found = None;
    rows.each_with(&wanted.to_string(), &mut |row| {
        if row.function == function && row.id == wanted.to_string() {
            found = Some((row.key()?.1, row.aux_offset));
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let Some((key, Some(aux_offset))) = found else { return Ok(None) };
    let mut twins = 0;
    rows.each_with(&aux_offset, &mut |other| {
        if other.function == function {
            let (id, same) = other.key()?;
            twins += usize::from(same == key && id < wanted);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Some((key, twins)))
}

/// A file of rows.
struct Rows<'f> {
    file: &'f RowsFile,
    /// The names of the columns; of lines of JSON each has its own.
    header: csv::StringRecord,
}

impl<'f> Rows<'f> {
    fn open(file: &'f RowsFile) -> Result<Self> {
        let header = match file.form {
            RowsForm::JsonLines => csv::StringRecord::new(),
            RowsForm::Csv => csv::Reader::from_path(&file.path)?.headers()?.clone(),
        };
        let rows = Self { file, header };
        rows.check_first_line()?;
        Ok(rows)
    }

    fn check_first_line(&self) -> Result<()> {
        match self.file.form {
            // Of no call there is no line.
            RowsForm::JsonLines if std::fs::metadata(&self.file.path)?.len() == 0 => Ok(()),
            RowsForm::JsonLines => self.each_with("", &mut |row| row.key().map(|_| ControlFlow::Break(()))),
            RowsForm::Csv => {
                let missing = COLUMNS.into_iter().find(|name| !self.header.iter().any(|has| has == *name));
                match missing {
                    Some(name) => bail!("line 1: no column {name}, which report --rows writes"),
                    None => Ok(()),
                }
            }
        }
    }

    /// Gives `take` the rows with `text` in their line, in order, until it breaks off.
    fn each_with(&self, text: &str, take: &mut dyn FnMut(RowKey) -> Result<ControlFlow<()>>) -> Result<()> {
        let input = File::open(&self.file.path)?;
        lines_with(input, text.as_bytes(), &mut |line| take(self.row(line)?))
    }

    fn row(&self, line: &[u8]) -> Result<RowKey> {
        match self.file.form {
            RowsForm::JsonLines => serde_json::from_slice(line).ok(),
            RowsForm::Csv => {
                let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line);
                let row = reader.records().next().and_then(Result::ok);
                row.and_then(|row| row.deserialize(Some(&self.header)).ok())
            }
        }
        .context(NO_ROW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn file(form: RowsForm, text: &str) -> (tempfile::TempDir, RowsFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows");
        std::fs::write(&path, text).unwrap();
        (directory, RowsFile { path, form })
    }

    const HEADER: &str = "id,function,start_ns,latency_ns,off_cpu_ns,status,aux_buffer,aux_offset\n";

    #[test]
    fn a_call_is_found_with_its_twins() {
        let row = |id| format!("{id},f,100,20,0,complete,,0x1f\n");
        let other = "7-9,g,1,1,0,cut,3,0x0\n";
        let text = format!("{HEADER}{}{other}{}{}", row("7-0"), row("7-2"), row("8-1"));
        let (_directory, file) = file(RowsForm::Csv, &text);
        let id = |tid, number| CallId { tid: Tid(tid), number };
        let (key, twin) = find(&file, "f", id(7, 2)).unwrap();
        let place = (key.tid, key.aux_buffer, key.aux_offset, key.start, key.status);
        assert_eq!(place, (Tid(7), None, Some(AuxOffset(0x1f)), Ns(100), Status::Complete));
        assert_eq!(twin, 1);
        assert!(find(&file, "f", id(7, 9)).unwrap_err().to_string().ends_with("has no call 7-9 of f"));
    }

    /// Files that have no rows had no such call, as it was said.
    #[test]
    fn what_is_no_row_is_said_with_the_file_and_the_line() {
        let check = |form, text: &str, says: &str| {
            let (_directory, file) = file(form, text);
            let error = find(&file, "f", CallId { tid: Tid(7), number: 0 }).unwrap_err();
            assert_eq!(exit::of_error(&error), Some(Exit::BadInput), "{text}: {error}");
            assert!(error.to_string().ends_with(&format!("/rows: {says}")), "{text}: {error}");
        };
        let row = "7-0,f,100,20,0,done,,0x1f\n";
        check(RowsForm::Csv, &format!("{HEADER}7-1,g,\n{row}"), "line 3: no row as report --rows writes it");
        for text in ["", "x", "id,name\n7-0,f\n"] {
            let missing = if text.starts_with("id") { "function" } else { "id" };
            check(RowsForm::Csv, text, &format!("line 1: no column {missing}, which report --rows writes"));
        }
        for text in ["x", "[]", "\n", "{\"id\":\"7-0\"}\n"] {
            check(RowsForm::JsonLines, text, "line 1: no row as report --rows writes it");
        }
    }

    /// It was looked for at offset 0, where another call may be.
    #[test]
    fn a_call_that_probes_have_timed_is_in_no_trace() {
        let json = r#"{"id":"7-0","function":"f","start_ns":1,"latency_ns":1,"off_cpu_ns":0,"status":"complete","aux_buffer":null,"aux_offset":null}"#;
        for (form, text) in [
            (RowsForm::Csv, format!("{HEADER}7-0,f,100,20,0,complete,,\n")),
            (RowsForm::JsonLines, format!("{json}\n")),
        ] {
            let (_directory, file) = file(form, &text);
            let error = find(&file, "f", CallId { tid: Tid(7), number: 0 }).unwrap_err();
            assert!(error.to_string().contains("calls that probes have timed are in no trace"), "{error}");
        }
    }

    /// `report --rows` writes such files where no call was seen.
    #[test]
    fn files_of_no_call_have_none() {
        for (form, text) in [(RowsForm::Csv, HEADER), (RowsForm::JsonLines, "")] {
            let (_directory, file) = file(form, text);
            let error = find(&file, "f", CallId { tid: Tid(7), number: 0 }).unwrap_err();
            assert_eq!(exit::of_error(&error), Some(Exit::Nothing), "{error}");
        }
    }
}
