//! From a program's text to a log of what it did.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::assembly::assembly;
use crate::program::Program;

/// Programs end within milliseconds; under the emulator, on a busy machine, within seconds.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// What it did, and what it has counted.
const LOG: &str = "log";
const COUNTERS: &str = "counters";

/// Why a program did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be written, or a command not started.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or the command.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A command failed.
    #[error("{command}: {what}")]
    Failed {
        /// The command.
        command: &'static str,
        /// How it ended, and what it said.
        what: String,
    },
    /// The emulator or its plugin.
    #[error(transparent)]
    Tracegen(#[from] tracegen::Error),
}

/// A program that ran.
#[derive(Clone, Debug)]
pub struct Run {
    /// [`Program::throws`].
    pub throws: bool,
    /// It handles signals.
    pub signals: bool,
    /// They come at any instruction.
    pub timer: bool,
    /// Its log.
    pub log: PathBuf,
    /// Symbols of [`Program::entered_in_the_middle`].
    pub entered_in_the_middle: Vec<String>,
    /// How often each function was called, as the program has counted it.
    pub entries: Vec<u64>,
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.into(), source }
}

/// Assembles a program in `dir`, and runs it under the emulator.
///
/// # Errors
/// See [`Error`].
pub fn run(program: &Program, plugin: &Path, dir: &Path) -> Result<Run, Error> {
    fs::create_dir_all(dir).map_err(io(dir))?;
    let [text, object, binary] = ["program.s", "program.o", "program"].map(|name| dir.join(name));
    fs::write(&text, assembly(program)).map_err(io(&text))?;
    tool("as", Command::new("as").arg("--64").arg("-o").arg(&object).arg(&text))?;
    let mut link = Command::new("ld");
    if program.pie {
        link.args(["-pie", "--no-dynamic-linker"]);
    }
    tool("ld", link.arg("-o").arg(&binary).arg(&object))?;
    let log = dir.join(LOG);
    let mut emulator = tracegen::run::emulator(plugin, &log)?;
    let output = within(emulator.arg(&binary), RUN_LIMIT)?;
    let counters = dir.join(COUNTERS);
    fs::write(&counters, output).map_err(io(&counters))?;
    kept(program, dir)
}

/// A run whose files are in `dir`.
///
/// # Errors
/// See [`Error`].
pub fn kept(program: &Program, dir: &Path) -> Result<Run, Error> {
    let [counters, log] = [COUNTERS, LOG].map(|name| dir.join(name));
    let output = fs::read(&counters).map_err(io(&counters))?;
    let entries: Vec<u64> =
        output.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?))).collect();
    let entered = program.entered_in_the_middle();
    if entries.len() == program.functions.len() {
        Ok(Run {
            throws: program.throws(),
            signals: !program.handlers.is_empty(),
            timer: program.timer_us.is_some(),
            entered_in_the_middle: entered.iter().map(|number| format!("f{number}")).collect(),
            log,
            entries,
        })
    } else {
        Err(Error::Failed { command: "the program", what: format!("{} counters", entries.len()) })
    }
}

fn tool(name: &'static str, command: &mut Command) -> Result<(), Error> {
    let output = command.output().map_err(io(Path::new(name)))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed { command: name, what: format!("{}\n{said}", output.status) })
}

/// What a command prints, which is less than a pipe holds.
fn within(command: &mut Command, limit: Duration) -> Result<Vec<u8>, Error> {
    let failed = |what: String| Error::Failed { command: "qemu-x86_64", what };
    let qemu = Path::new("qemu-x86_64");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(io(qemu))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(io(qemu))? {
            Some(status) => break status,
            None if start.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(format!("did not end within {} s", limit.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    let mut printed = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut printed).map_err(io(qemu))?;
    }
    Ok(printed)
}
