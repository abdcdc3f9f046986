//! Rows that `report --rows` has written, read again.

use std::fs::File;
use std::io::{BufRead, BufReader};

use analyzer::{CallId, Status};
use anyhow::{Context, Result};
use model::{AuxOffset, Ns, Tid};
use serde::Deserialize;

use crate::config::{RowsFile, RowsForm};
use crate::exit::{Exit, failure};
use crate::filter::CallNumber;
use crate::one_call::CallKey;

/// What of a row leads to its call.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    function: String,
    start_ns: u64,
    latency_ns: u64,
    off_cpu_ns: u64,
    status: String,
    aux_buffer: Option<u32>,
    aux_offset: String,
}

impl Row {
    /// `None`: it is none of ours.
    fn key(&self) -> Option<(CallId, CallKey)> {
        const STATUSES: [Status; 5] =
            [Status::Complete, Status::Unwound, Status::OpenStart, Status::OpenEnd, Status::Cut];
        let CallNumber(id) = self.id.parse().ok()?;
        let offset = u64::from_str_radix(self.aux_offset.strip_prefix("0x")?, 16).ok()?;
        let key = CallKey {
            tid: Tid(id.tid.0),
            aux_buffer: self.aux_buffer,
            aux_offset: AuxOffset(offset),
            start: Ns(self.start_ns),
            latency_ns: self.latency_ns,
            off_cpu_ns: self.off_cpu_ns,
            status: STATUSES.into_iter().find(|status| status.name() == self.status)?,
        };
        Some((id, key))
    }
}

/// The call of a function: its key, and how many with the same key are before it.
///
/// # Errors
/// The file cannot be read, has lines that are no rows, or does not have the call.
pub(crate) fn find(file: &RowsFile, function: &str, wanted: CallId) -> Result<(CallKey, usize)> {
    let mut keys: Vec<(CallId, CallKey)> = Vec::new();
    let mut number = 0u64;
    each(file, &mut |row: Row| {
        number += 1;
        if row.function != function {
            return Ok(());
        }
        let key = row.key().with_context(|| format!("row {number} is not as report --rows writes it"))?;
        if key.0.tid == wanted.tid {
            keys.push(key);
        }
        Ok(())
    })
    .map_err(|error| failure(Exit::BadInput, format!("{}: {error:#}", file.path.display())))?;
    let Some(&(_, key)) = keys.iter().find(|(id, _)| *id == wanted) else {
        let message = format!("{} has no call {wanted} of {function}", file.path.display());
        return Err(failure(Exit::Nothing, message));
    };
    Ok((key, keys.iter().filter(|(id, other)| *other == key && *id < wanted).count()))
}

fn each(file: &RowsFile, take: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let input = BufReader::new(File::open(&file.path)?);
    match file.form {
        RowsForm::JsonLines => {
            for line in input.lines() {
                take(serde_json::from_str(&line?)?)?;
            }
        }
        RowsForm::Csv => {
            for row in csv::Reader::from_reader(input).deserialize() {
                take(row?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(place, (Tid(7), None, AuxOffset(0x1f), Ns(100), Status::Complete));
        assert_eq!(twin, 1);
        assert!(find(&file, "f", id(7, 9)).unwrap_err().to_string().ends_with("has no call 7-9 of f"));
    }

    #[test]
    fn what_is_no_row_is_said_with_the_file() {
        let (_directory, csv) = file(RowsForm::Csv, &format!("{HEADER}7-0,f,100,20,0,done,,0x1f\n"));
        let id = CallId { tid: Tid(7), number: 0 };
        assert!(
            find(&csv, "f", id).unwrap_err().to_string().contains("row 1 is not as report --rows writes it")
        );
        let (_directory, json) = file(RowsForm::JsonLines, "{}\n");
        assert!(find(&json, "f", id).is_err());
    }
}
