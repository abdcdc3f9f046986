//! Runs a program under QEMU's user-mode emulator and logs its blocks.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::error::Error;

const PLUGIN: &str = include_str!("../plugin/bblog.c");
const INTERFACE: &str = include_str!("../plugin/qplug.h");
const EMULATOR: &str = "qemu-x86_64";

/// Builds the plugin with the C compiler (`$CC`, else `cc`), unless `cache` has it already. Returns its path.
///
/// # Errors
/// [`Error::Program`] if the compiler is missing or fails, [`Error::File`].
pub fn build_plugin(cache: &Path) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    (PLUGIN, INTERFACE).hash(&mut hasher);
    let built = cache.join(format!("bblog-{:016x}.so", hasher.finish()));
    if built.exists() {
        return Ok(built);
    }
    // Others may build it at the same time: each in a directory of its own, and the result moves in whole.
    let dir = cache.join(format!("build-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
    for (name, text) in [("bblog.c", PLUGIN), ("qplug.h", INTERFACE)] {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(Error::file(&path))?;
    }
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = dir.join("bblog.so");
    let mut compile = Command::new(&compiler);
    compile.args(["-O2", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden", "-o"]);
    let status = compile.arg(&output).arg(dir.join("bblog.c")).status();
    succeeded(&compiler, status)?;
    std::fs::rename(&output, &built).map_err(Error::file(&built))?;
    std::fs::remove_dir_all(&dir).map_err(Error::file(&dir))?;
    Ok(built)
}

/// Where [`build_plugin`] may keep its result: below the user's cache directory.
#[must_use]
pub fn default_cache() -> PathBuf {
    let home_cache = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home_cache);
    base.unwrap_or_else(std::env::temp_dir).join("tracegen")
}

/// Runs `program` and writes its log to the directory `log`, which is made anew.  Standard streams are
/// inherited.
///
/// # Errors
/// [`Error::Program`] if the emulator is missing or the program fails, [`Error::File`].
pub fn log(plugin: &Path, log: &Path, program: &OsStr, arguments: &[OsString]) -> Result<(), Error> {
    let mut emulator = emulator(plugin, log)?;
    emulator.arg(program).args(arguments);
    let status = emulator.status();
    succeeded(OsStr::new(EMULATOR), status)
}

/// The emulator, set up to log to the directory `log`, which is made anew; program and arguments are to be
/// added.
///
/// # Errors
/// [`Error::File`].
pub fn emulator(plugin: &Path, log: &Path) -> Result<Command, Error> {
    if log.join("cmd.txt").exists() {
        std::fs::remove_dir_all(log).map_err(Error::file(log))?;
    }
    std::fs::create_dir_all(log).map_err(Error::file(log))?;
    let mut option = OsString::from(plugin);
    option.push(",dir=");
    option.push(log);
    let mut command = Command::new(EMULATOR);
    command.arg("-plugin").arg(option);
    Ok(command)
}

fn succeeded(program: &OsStr, status: std::io::Result<ExitStatus>) -> Result<(), Error> {
    let what = match status {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(Error::Program { program: program.to_string_lossy().into_owned(), what })
}
