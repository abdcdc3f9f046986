//! `package`: the Debian package, and what it is like where nothing else is.
//!
//! ```text
//!   cargo install --path crates/func_latency     target/package/installed/bin/func_latency
//!     completions, man pages, of that            target/release/package
//!     cargo-deb                                  target/package/func-latency_VERSION_amd64.deb, and -dbgsym
//!     apt-get install in a bare Debian 12        target/package/room
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Result};
use crate::stages::Outcome;
use crate::{cargo, clean_room, fixtures, layout, setup};

/// What the program may have on disk, without its symbols.
const MAX_BYTES: u64 = 15_000_000;

/// A recording that is reported where the package is installed, and a function of it.
const RECORDING: &str = "sq1";
const FUNCTION: &str = "sqlite3VdbeExec";

/// Where the completions of each shell are found, and what they are called when they are made.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "func_latency.bash", "/usr/share/bash-completion/completions/func_latency"),
    ("fish", "func_latency.fish", "/usr/share/fish/vendor_completions.d/func_latency.fish"),
    ("zsh", "_func_latency", "/usr/share/zsh/vendor-completions/_func_latency"),
];

/// Mounts `/proc` in a room and becomes a command there: `ROOM WORD..`
const ENTER: &str = r#"
    room=$1
    shift
    mount -t proc proc "$room/proc"
    exec chroot "$room" "$@"
"#;

/// `package`.
pub(crate) fn run() -> Result {
    if let Outcome::Skipped(why) = stage()? {
        println!("package: not installed: {why}");
    }
    Ok(())
}

/// Makes the package, and installs it in a room.
pub(crate) fn stage() -> Result<Outcome> {
    let directory = layout::target().join("package");
    fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let program = install(&directory.join("installed"))?;
    generate(&program)?;
    let package = pack(&directory)?;
    println!("package: {}", package.display());
    if !setup::is_root() {
        return Ok(Outcome::Skipped("only root can make a room (debootstrap, mount, chroot)".to_owned()));
    }
    fixtures::run(&[RECORDING])?;
    check_in_room(&directory, &package, &program)?;
    Ok(Outcome::Done)
}

/// Installs the command as a user would; its path.
fn install(root: &Path) -> Result<PathBuf> {
    let mut install = cargo::command();
    install.args(["install", "--locked", "--quiet", "--force", "--path"]);
    process::run(install.arg(layout::root().join("crates/func_latency")).arg("--root").arg(root))?;
    Ok(root.join("bin/func_latency"))
}

/// Completions and man pages, where the package's description looks for them.
fn generate(program: &Path) -> Result {
    let directory = layout::target().join("release/package");
    clean_room::remove(&directory)?;
    process::capture(Command::new(program).arg("man").arg(directory.join("man1")))?;
    for (shell, name, _) in COMPLETIONS {
        let script = process::capture(Command::new(program).args(["completions", shell]))?;
        fs::write(directory.join(name), script).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

/// Makes the package of the built program; returns its path.
fn pack(directory: &Path) -> Result<PathBuf> {
    let mut pack = Command::new(setup::cargo_deb()?);
    pack.args(["--no-build", "--package", "func_latency", "--output"]).arg(directory);
    let made = process::capture(pack.current_dir(layout::root()).env("CARGO_TARGET_DIR", layout::target()))?;
    let package = made.lines().find(|path| path.ends_with(".deb"));
    package
        .map(|path| layout::root().join(path))
        .ok_or_else(|| format!("cargo-deb names no package:\n{made}"))
}

fn check_in_room(directory: &Path, package: &Path, program: &Path) -> Result {
    setup::clean_room()?;
    let base = clean_room::base(&directory.join("bare"), &[])?;
    let room = directory.join("room");
    clean_room::remove(&room)?;
    process::capture(Command::new("cp").arg("-a").arg(&base).arg(&room))?;
    clean_room::copy_settings(&room)?;
    fs::copy(package, room.join("package.deb")).map_err(|e| format!("{}: {e}", package.display()))?;
    let recording = fixtures_of(RECORDING);
    process::capture(Command::new(program).args(["bundle", "-o"]).arg(room.join("bundle")).arg(recording))?;

    inside(&room, &["apt-get", "update"]).map_err(process::perhaps_no_network)?;
    let with_apt = ["apt-get", "install", "-y", "--no-install-recommends", "/package.deb"];
    inside(&room, &with_apt).map_err(process::perhaps_no_network)?;
    check_files(&room)?;
    let report = ["report", "-i", "bundle/perf.data", "--symfs", "bundle/objects", "-f", FUNCTION];
    let here = process::capture(Command::new(program).args(report).current_dir(&room))?;
    same("the report", &here, &inside(&room, &[&["func_latency"][..], &report].concat())?)?;
    let completed = "source /usr/share/bash-completion/completions/func_latency && complete -p func_latency";
    inside(&room, &["bash", "-ec", completed])?;
    inside(&room, &["apt-get", "purge", "-y", "func-latency"])?;
    if room.join("usr/bin/func_latency").exists() {
        return Err("package: purged, and the program is still there".to_owned());
    }
    clean_room::remove(&room)
}

fn fixtures_of(name: &str) -> PathBuf {
    layout::fixtures().join(format!("{name}.data"))
}

/// The files that are installed, and the size of the program.
fn check_files(room: &Path) -> Result {
    let listed = inside(room, &["dpkg", "-L", "func-latency"])?;
    let mut installed: Vec<&str> =
        listed.lines().filter(|path| room.join(path.trim_start_matches('/')).is_file()).collect();
    installed.sort_unstable();
    let pages =
        fs::read_dir(layout::target().join("release/package/man1")).map_err(|e| format!("man1: {e}"))?;
    let pages = pages.flatten().filter_map(|page| page.file_name().into_string().ok());
    let documents = ["LICENSE-MIT", "README.md", "copyright", "report.schema.json"];
    let mut expected: Vec<String> = pages.map(|page| format!("/usr/share/man/man1/{page}")).collect();
    expected.extend(documents.map(|name| format!("/usr/share/doc/func-latency/{name}")));
    expected.extend(COMPLETIONS.map(|(.., path)| path.to_owned()));
    expected.push("/usr/bin/func_latency".to_owned());
    expected.sort_unstable();
    same("what is installed", &expected.join("\n"), &installed.join("\n"))?;
    let program = room.join("usr/bin/func_latency");
    let bytes = fs::metadata(&program).map_err(|e| format!("{}: {e}", program.display()))?.len();
    println!("package: the program has {bytes} bytes");
    if bytes > MAX_BYTES {
        return Err(format!("package: the program has more than {MAX_BYTES} bytes"));
    }
    let sections = process::capture(Command::new("readelf").args(["--sections", "--wide"]).arg(program))?;
    if [" .debug_info ", " .symtab "].iter().any(|section| sections.contains(section)) {
        return Err("package: the program has its symbols inside".to_owned());
    }
    Ok(())
}

fn same(what: &str, expected: &str, found: &str) -> Result {
    if expected == found {
        return Ok(());
    }
    Err(format!("package: {what} is another one in the room:\n{found}\nand here:\n{expected}"))
}

/// Runs a command in a room; what it printed.
fn inside(room: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", ENTER, "enter"]).arg(room).args(words);
    command.env_clear().envs(clean_room::environment(room));
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("HOME", "/root").env("LANG", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
    process::capture(&mut command)
}
