//! A directory with a recording and the code that its analysis needs, in the making and opened.
//!
//! ```text
//! DIR/perf.data      the recording: a file, or a directory (perf record --threads)
//! DIR/objects/       what --symfs gets
//! DIR/capture.json   of a capture of `watch`: which call it is about
//! ```
//! It is written beside its place, which it takes when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::Bundle;
use recorder::let_large_writes_fail;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::args::{CallsArgs, Command, InputArgs, ReportArgs};
use crate::exit::{Exit, failure};
use crate::filter::CallNumber;
use crate::output::{cannot_write, directory};
use crate::recording;

/// The recording in it.
pub(crate) const RECORDING: &str = "perf.data";
/// The directory that `--symfs` gets.
pub(crate) const OBJECTS: &str = "objects";
/// What the capture is about.
pub(crate) const CAPTURE: &str = "capture.json";
/// The call, as text, of a capture of what probes have seen.
pub(crate) const CALL_TEXT: &str = "call.txt";
/// The calls around it, as rows.
#[cfg(feature = "bpf")]
pub(crate) const CALLS_AROUND: &str = "calls.jsonl";
/// Name and version of the contract of that file.
pub(crate) const CAPTURE_SCHEMA: &str = "func_latency.capture/1";

/// Which call a capture is about, and why it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Capture {
    pub(crate) schema: String,
    /// The directory of the capture.
    pub(crate) path: String,
    /// What made it.
    pub(crate) trigger: String,
    /// The function, as `-f` takes it.
    pub(crate) function: String,
    /// The call's number in the capture; `None`: it is about no call.
    pub(crate) id: Option<String>,
    /// The thread of the call, or of what happened.
    pub(crate) tid: Option<i32>,
    /// When the call was entered.
    pub(crate) start_ns: Option<u64>,
    pub(crate) latency_ns: Option<u64>,
    /// All threads' trace is there from here to `to_ns`.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Bytes of the directory.
    pub(crate) bytes: u64,
    /// Why the call was slow, in a sentence; or why that is not known.
    pub(crate) cause: String,
}

/// A directory that is being written; dropped before it takes its place, it is removed.
pub(crate) struct BundleDir<'a> {
    place: &'a Path,
    beside: TempDir,
}

impl<'a> BundleDir<'a> {
    /// Begins it beside its place, under a name that begins with `.bundle-`.
    pub(crate) fn new(place: &'a Path) -> Result<Self> {
        let_large_writes_fail();
        let parent = directory(place);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        // Objects and kernel text that not every user may read are in it.
        let ours = fs::Permissions::from_mode(0o700);
        let beside = tempfile::Builder::new().prefix(".bundle-").permissions(ours).tempdir_in(parent);
        Ok(Self { place, beside: beside.with_context(|| cannot_write(place))? })
    }

    /// Where it is as long as it is written.
    pub(crate) fn beside(&self) -> &Path {
        self.beside.path()
    }

    /// Writes the files of an image.
    pub(crate) fn write_objects(&self, bundles: &[Bundle<'_>]) -> Result<u64> {
        let files = bundles.iter().flat_map(|bundle| &bundle.files);
        files.map(|file| self.write(&Path::new(OBJECTS).join(&file.path), &file.bytes)).sum()
    }

    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        let copy = |out: &mut BufWriter<File>| {
            // By way of memory: of a mapped file that was cut, a system call has no bytes.
            let mut buffer = Vec::new();
            bytes.chunks(COPIED_BYTES).try_for_each(|part| {
                buffer.clear();
                buffer.extend_from_slice(part);
                out.write_all(&buffer)
            })
        };
        self.write_by(path, |out| copy(out).map_err(anyhow::Error::from))?;
        Ok(bytes.len() as u64)
    }

    /// Creates a file of it, which `write` writes.
    pub(crate) fn write_by(
        &self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> Result<()>,
    ) -> Result<()> {
        let create = || -> io::Result<File> {
            let path = self.beside.path().join(path);
            fs::create_dir_all(directory(&path))?;
            File::create_new(path)
        };
        let file = create().map_err(anyhow::Error::from);
        let written = file.map(|file| BufWriter::with_capacity(COPIED_BYTES, file)).and_then(|mut out| {
            write(&mut out)?;
            Ok(out.flush()?)
        });
        written.with_context(|| cannot_write(&self.place.join(path)))
    }

    /// Takes the place of nothing, or of an empty directory.
    pub(crate) fn take_place(self) -> Result<()> {
        // `dir/` and `dir` are one directory.
        let place: PathBuf = self.place.components().collect();
        fs::rename(self.beside.path(), place).with_context(|| cannot_write(self.place))?;
        // There is nothing left to remove.
        let _ = self.beside.keep();
        Ok(())
    }
}

/// Bytes copied in one go.
const COPIED_BYTES: usize = 1 << 20;

/// Lets commands that read a recording take a bundle's directory: its recording, its objects, and of a
/// capture the function and the call that it is about, where the command line names none.
///
/// # Errors
/// The directory's `capture.json` cannot be read.
pub(crate) fn resolve(command: &mut Command) -> Result<()> {
    match command {
        Command::Report(args) => resolve_report(args)?,
        Command::Plan(args) => _ = open(file_of(&mut args.input), &mut CallsArgs::default())?,
        Command::Top(args) => {
            let mut calls = CallsArgs { symfs: args.symfs.take(), ..CallsArgs::default() };
            open(file_of(&mut args.input), &mut calls)?;
            args.symfs = calls.symfs;
        }
        Command::Modes(args) => _ = open(file_of(&mut args.input), &mut args.calls)?,
        Command::Annotate(args) => _ = open(file_of(&mut args.input), &mut args.calls)?,
        Command::Export(args) => _ = open(file_of(&mut args.input), &mut args.calls)?,
        Command::Graph(args) => _ = open(file_of(&mut args.input), &mut args.calls)?,
        Command::Show(args) => {
            check_there(args.input.as_deref(), &args.calls)?;
            let call = open(args.input.as_mut(), &mut args.calls)?;
            args.id = args.id.or(call);
        }
        Command::Explain(args) => {
            check_there(args.input.as_deref(), &args.calls)?;
            let call = open(args.input.as_mut(), &mut args.calls)?;
            let is_chosen = args.slow.is_some() || args.calls.li.is_some();
            args.id = args.id.or(call.filter(|_| !is_chosen));
        }
        _ => (),
    }
    Ok(())
}

/// [`resolve`] of a report's arguments.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_report(args: &mut ReportArgs) -> Result<()> {
    open(file_of(&mut args.input), &mut args.query.calls).map(drop)
}

fn file_of(input: &mut InputArgs) -> Option<&mut PathBuf> {
    input.file.as_mut().or(input.input.as_mut())
}

/// Refuses an input that is not there where it may be to name the function.
fn check_there(input: Option<&Path>, calls: &CallsArgs) -> Result<()> {
    match input.filter(|input| calls.names_nothing() && !input.exists()) {
        Some(input) => recording::open(input).map(drop),
        None => Ok(()),
    }
}

/// Exchanges a bundle's directory for the recording and the objects in it. Returns the call that it is about,
/// if the command line names no function.
fn open(input: Option<&mut PathBuf>, calls: &mut CallsArgs) -> Result<Option<CallNumber>> {
    let Some(input) = input else { return Ok(None) };
    // A recording that is a directory has a file `data`.
    if !input.is_dir() || input.join("data").exists() {
        return Ok(None);
    }
    if !input.join(RECORDING).exists() {
        return if input.join(CAPTURE).exists() { Err(without_trace(input)) } else { Ok(None) };
    }
    let within = std::mem::replace(input, input.join(RECORDING));
    if calls.symfs.is_none() {
        calls.symfs = Some(within.join(OBJECTS)).filter(|objects| objects.is_dir());
    }
    let path = within.join(CAPTURE);
    if !calls.names_nothing() || !path.exists() {
        return Ok(None);
    }
    let capture = read_capture(&path)?;
    calls.functions = vec![capture.function];
    Ok(capture.id.and_then(|id| id.parse().ok()))
}

/// A capture of what probes have seen.
fn without_trace(capture: &Path) -> anyhow::Error {
    let message = format!(
        "{0}: probes have seen these calls, and there is no trace of them: {0}/calls.jsonl has the calls, for stat and diff, \
         and {0}/{CALL_TEXT}, if it is about one, what is known of it",
        capture.display()
    );
    failure(Exit::BadInput, message)
}

/// `capture.json` has names and one sentence.
const CAPTURE_MAX: u64 = 1 << 20;

/// Reads a plain file of at most [`CAPTURE_MAX`] bytes: the directory may come from anywhere, and a pipe or a
/// device in it has no end.
fn read_small(path: &Path) -> io::Result<String> {
    let what = fs::metadata(path)?;
    if !what.is_file() || what.len() > CAPTURE_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "no plain file of up to 1 MB"));
    }
    let mut text = String::new();
    File::open(path)?.take(CAPTURE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn read_capture(path: &Path) -> Result<Capture> {
    let wrong = |why: String| {
        let message = format!("{}: {why}; name the function with -f FUNC", path.display());
        failure(Exit::BadInput, message)
    };
    let text = read_small(path).map_err(|error| wrong(error.to_string()))?;
    let capture: Capture = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match capture.schema.as_str() {
        CAPTURE_SCHEMA => Ok(capture),
        other => Err(wrong(format!("its schema is {other}, not {CAPTURE_SCHEMA}"))),
    }
}
