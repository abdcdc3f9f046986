//! `clean-room`: the commands of the README in a bare Debian 12 with nothing but a Rust toolchain, in a
//! clone at another path.
//!
//! ```text
//! target/clean-room/base   debootstrap's, with the C compiler without which Rust links nothing; made once
//! target/clean-room/room   a copy of it for each path, with the clone, and what leads this machine to its
//!                          registries
//! ```
//!
//! What is mounted in the room is so in a mount namespace of the command alone, and goes with it, however
//! that ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, Result};
use crate::stages::{Outcome, Stages};
use crate::{layout, mirror, setup};

mod host;

pub(crate) use host::{copy_settings, environment};

/// Bytes of the long path, which has a space: longer than a socket's name may be.
const LONG_PATH_BYTES: usize = 120;

/// What is run in the room: the commands of the README, and the library tests alone.
const STEPS: [&str; 3] = ["demo", "lib-tests", "test"];

/// Mounts what programs expect, and becomes the command: `ROOM TOOLCHAIN PATH WORD..`
const ENTER: &str = r#"
    room=$1 toolchain=$2 path=$3
    shift 3
    mount -t proc proc "$room/proc"
    mount --rbind /sys "$room/sys"
    mount --rbind /dev "$room/dev"
    mount --bind "$toolchain" "$room/opt/rust"
    mount -o remount,bind,ro "$room/opt/rust"
    exec chroot "$room" sh -c 'cd "$0" && exec "$@"' "$path" "$@"
"#;

/// `clean-room [STEP..] [--path DIR] [--keep]`.
struct Options<'a> {
    steps: Vec<&'a str>,
    /// Where clones lie, each with its name.
    paths: Vec<(&'static str, String)>,
    keep: bool,
}

/// Makes the rooms and runs the steps in them.
pub(crate) fn run(arguments: &[&str]) -> Result {
    let options = Options::parse(arguments)?;
    if !setup::is_root() {
        return Err("clean-room: only root can make one (debootstrap, mount, chroot)".to_owned());
    }
    setup::clean_room()?;
    let directory = layout::target().join("clean-room");
    let base = base(&directory, &["gcc", "libc6-dev"])?;
    if !process::capture(Command::new("git").arg("-C").arg(layout::root()).args(["status", "--porcelain"]))?
        .is_empty()
    {
        println!("clean-room: what is not committed is not in the clone");
    }
    let room = directory.join("room");
    let mut stages = Stages::new();
    for (name, path) in &options.paths {
        println!("clean-room: a clone at {path}, in {}", room.display());
        if !stages.run(&format!("room, {name}"), || furnish(&base, &room, path).map(|()| Outcome::Done)) {
            continue;
        }
        for step in &options.steps {
            stages.run(&format!("{step}, {name}"), || enter(&room, path, step).map(|()| Outcome::Done));
        }
        if options.keep {
            println!("clean-room: kept {}", room.display());
        } else {
            remove(&room)?;
        }
    }
    stages.finish()
}

impl<'a> Options<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Self> {
        let mut options = Self { steps: Vec::new(), paths: Vec::new(), keep: false };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match *word {
                "--keep" => options.keep = true,
                "--path" => {
                    let path = words.next().filter(|path| path.starts_with('/'));
                    let path = path.ok_or("clean-room: --path needs an absolute path in the room")?;
                    options.paths.push(("given", (*path).to_owned()));
                }
                step if STEPS.contains(&step) => options.steps.push(step),
                _ => return Err(format!("clean-room [{}].. [--path DIR] [--keep]", STEPS.join("|"))),
            }
        }
        if options.steps.is_empty() {
            options.steps.extend(STEPS);
        }
        if options.paths.is_empty() {
            options.paths = vec![("short", "/src/func_latency".to_owned()), ("long", long_path())];
        }
        if options.keep && options.paths.len() > 1 {
            return Err("clean-room: --keep needs --path: there is one room at a time".to_owned());
        }
        Ok(options)
    }
}

fn long_path() -> String {
    let start = "/src/a path with spaces/";
    format!("{start}{}", "x".repeat(LONG_PATH_BYTES - start.len()))
}

/// Debian as debootstrap makes it, with these packages.
pub(crate) fn base(directory: &Path, packages: &[&str]) -> Result<PathBuf> {
    let (base, done) = (directory.join("base"), directory.join("base.done"));
    if done.exists() {
        return Ok(base);
    }
    remove(&base)?;
    fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    println!("clean-room: making a bare Debian 12 in {}, 210 to 460 MB; two minutes", base.display());
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase");
    if !packages.is_empty() {
        debootstrap.arg(format!("--include={}", packages.join(",")));
    }
    debootstrap.arg(mirror::SUITE).arg(&base);
    process::capture(debootstrap.arg(mirror::mirror()?)).map_err(process::perhaps_no_network)?;
    fs::write(&done, "").map_err(|e| format!("{}: {e}", done.display()))?;
    Ok(base)
}

/// A room of which nothing is used yet.
fn furnish(base: &Path, room: &Path, path: &str) -> Result {
    remove(room)?;
    process::capture(Command::new("cp").arg("-a").arg(base).arg(room))?;
    fs::create_dir_all(room.join("opt/rust")).map_err(|e| format!("{}: {e}", room.display()))?;
    copy_settings(room)?;
    let clone = room.join(path.trim_start_matches('/'));
    if let Some(parent) = clone.parent() {
        fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(layout::root()).arg(clone);
    process::capture(&mut git).map(drop)
}

/// `cargo xtask STEP` in the room.
fn enter(room: &Path, path: &str, step: &str) -> Result {
    let toolchain = process::capture(Command::new("rustc").args(["--print", "sysroot"]))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", ENTER, "enter"]);
    command.arg(room).arg(toolchain.trim()).arg(path).args(["cargo", "xtask", step]);
    command.env_clear().envs(environment(room));
    command.env("PATH", "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let start = format!("cargo xtask {step}");
    process::run(command.env("HOME", "/root").env("LANG", "C.UTF-8"))
        .map_err(|_| format!("`{start}` failed in the clone at {path}"))
}

/// Removes what an earlier run has left.
pub(crate) fn remove(directory: &Path) -> Result {
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|e| format!("mountinfo: {e}"))?;
    if is_mounted_below(&mounts, directory) {
        return Err(format!("something is mounted below {}: unmount it first", directory.display()));
    }
    process::capture(Command::new("rm").args(["-rf", "--one-file-system"]).arg(directory)).map(drop)
}

/// The fifth word of a line is the mount point, with spaces as `\040`.
fn is_mounted_below(mountinfo: &str, directory: &Path) -> bool {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(|point| point.replace("\\040", " ")).any(|point| Path::new(&point).starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_at_both_paths_unless_told_otherwise() {
        let all = Options::parse(&[]).unwrap();
        assert_eq!(all.steps, STEPS);
        assert_eq!(all.paths.iter().map(|(_, path)| path.len()).collect::<Vec<_>>(), [17, 120]);
        assert!(all.paths[1].1.contains(' ') && !all.keep);
        let one = Options::parse(&["demo", "--path", "/a b", "--keep"]).unwrap();
        assert_eq!(
            (one.steps, one.paths, one.keep),
            (vec!["demo"], vec![("given", "/a b".to_owned())], true)
        );
        for wrong in [&["--path"][..], &["--path", "here"], &["nothing"], &["--keep"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_mounted_is_not_removed() {
        let mounts =
            "22 1 0:5 / /proc rw - proc proc rw\n40 22 0:5 / /t/a\\040b/room/proc rw - proc proc rw\n";
        assert!(is_mounted_below(mounts, Path::new("/t/a b/room")));
        assert!(!is_mounted_below(mounts, Path::new("/t/a")));
    }
}
