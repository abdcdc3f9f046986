//! The commands that read ground truth: `tracegen calls`, `tracegen verify`, `tracegen truth`.

use std::io::{self, BufRead, Write};
use std::path::Path;

use model::Tid;

use super::calls::{self, Oracle};
use super::format::{self, File, Flags};
use super::verify::perf_script::{self, Branches};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ground truth file.
    #[error(transparent)]
    Truth(#[from] format::Error),
    /// The oracle.
    #[error(transparent)]
    Calls(#[from] calls::Error),
    /// Reading or writing text.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Prints every call of a function as JSON; with `rows`, first a line for each call.
///
/// # Errors
/// See [`Error`].
pub fn calls(
    truth: &Path,
    data: &Path,
    function: &str,
    rows: bool,
    out: &mut impl Write,
) -> Result<(), Error> {
    let truth = File::load(truth)?;
    let calls = Oracle::new(&truth, data)?.calls(function)?;
    if rows {
        calls.write_rows(out)?;
    }
    Ok(calls.write_json(out)?)
}

/// Compares `perf script -F tid,time,flags,ip,addr --ns` text with the truth and prints the result; false
/// if they differ.
///
/// # Errors
/// See [`Error`].
pub fn verify(
    truth: &Path,
    script: impl BufRead,
    which: Branches,
    out: &mut impl Write,
) -> Result<bool, Error> {
    let truth = File::load(truth)?;
    let result = perf_script::compare(&truth, script, which)?;
    write!(out, "{result}")?;
    Ok(result.agrees())
}

/// Prints the events of all threads, or of one, at most `max` of each: `TID SECONDS KIND[,FLAG..] FROM TO`.
///
/// # Errors
/// See [`Error`].
pub fn list(truth: &Path, tid: Option<Tid>, max: usize, out: &mut impl Write) -> Result<(), Error> {
    let truth = File::load(truth)?;
    for thread in truth.threads().iter().filter(|t| tid.is_none_or(|tid| t.tid == tid)) {
        for event in truth.events(thread).take(max) {
            let flag = |flag, name| if event.flags.has(flag) { name } else { "" };
            let ns = truth.ns(event.tsc).0;
            writeln!(
                out,
                "{} {}.{:09} {}{}{}{} {:x} {:x}",
                thread.tid.0,
                ns / 1_000_000_000,
                ns % 1_000_000_000,
                event.kind.name(),
                flag(Flags::FILTER_OUT, ",fout"),
                flag(Flags::LOST, ",lost"),
                flag(Flags::SIGNAL, ",sig"),
                event.from.0,
                event.to.0
            )?;
        }
    }
    Ok(())
}
