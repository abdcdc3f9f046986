//! The target's files are not where its mappings say, or are there no more.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::live::{Live, NO_CALLS, Place, complete, end_of, is_a_server, report};
use super::process::command;
use crate::paths::Vm;

/// Where a file may be.
struct Way {
    name: &'static str,
    /// Starts the server there.
    start: fn(&Vm, &Place) -> Result<Command>,
    /// Done when it runs.
    then: fn(&Place) -> std::io::Result<()>,
}

const WAYS: [Way; 4] = [
    Way { name: "deleted", start: from_the_place, then: |place| fs::remove_file(place.path("server")) },
    Way {
        name: "replaced",
        start: from_the_place,
        then: |place| fs::rename(place.path("other"), place.path("server")),
    },
    Way { name: "in another mount namespace", start: in_a_namespace, then: |_| Ok(()) },
    Way { name: "on an overlay", start: on_an_overlay, then: |_| Ok(()) },
];

/// IP filters find the file that is mapped, wherever that is.
pub(super) fn filtered(vm: &Vm) -> Result<String> {
    for way in &WAYS {
        let place = Place::new("filtered")?;
        let seen = is_filtered(vm, &place, way);
        // Most ways have not mounted anything.
        let _ = Command::new("umount").arg(place.path("merged")).stderr(Stdio::null()).status();
        seen.with_context(|| format!("a file that is {}", way.name))?;
    }
    Ok(format!("files {}: all calls", WAYS.map(|way| way.name).join(", ")))
}

fn is_filtered(vm: &Vm, place: &Place, way: &Way) -> Result<()> {
    let mut target = (way.start)(vm, place)?.stdout(Stdio::null()).spawn()?;
    is_a_server(&mut target)?;
    (way.then)(place)?;
    let pid = target.id().to_string();
    let mut live = Live::start(vm, place, &["-p", &pid, "-d", "0.5", "-i", "-f", "handle"])?;
    let ended = live.end()?;
    // Calls of `hot` are seen where `handle` makes them; of its caller nothing is.
    let caller = report(vm, &live.data, &["-f", "main"])?;
    end_of(target)?;
    let calls = complete(&ended.report()?).unwrap_or(0);
    ensure!(calls > 0, "no calls: {}", ended.said);
    ensure!(caller.status.code() == Some(NO_CALLS), "nothing was filtered: {}", caller.status);
    Ok(())
}

/// Runs in the place: a shell that mounts something, and then becomes the server.
fn there_run(place: &Place, words: &[&str]) -> Result<Command> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut command = command(&words)?;
    command.current_dir(place.root());
    Ok(command)
}

/// Beside another program.
fn from_the_place(vm: &Vm, place: &Place) -> Result<Command> {
    let server = place.path("server");
    copy_of_server(vm, &server)?;
    fs::copy(vm.programs().join("nest"), place.path("other"))?;
    command(&[server.display().to_string()])
}

/// A server as in a container: where its path leads is another file here.
pub(super) fn in_a_namespace(vm: &Vm, place: &Place) -> Result<Command> {
    let (there, server) = (place.directory("there")?, place.path("server"));
    copy_of_server(vm, &server)?;
    fs::copy(vm.programs().join("nest"), there.join("server"))?;
    let script = "mount -t tmpfs tmpfs there; cp server there; exec there/server";
    there_run(place, &["unshare", "-m", "sh", "-ec", script])
}

/// A server as in most containers: the inode that is mapped is that of a layer.
fn on_an_overlay(vm: &Vm, place: &Place) -> Result<Command> {
    for name in ["lower", "upper", "work", "merged"] {
        place.directory(name)?;
    }
    copy_of_server(vm, &place.path("lower/server"))?;
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| place.path(name).display().to_string());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let script = format!("mount -t overlay overlay -o {options} merged; exec merged/server");
    there_run(place, &["sh", "-ec", &script])
}

fn copy_of_server(vm: &Vm, to: &Path) -> Result<()> {
    fs::copy(vm.programs().join("server"), to).with_context(|| to.display().to_string())?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// `--bundle`: the report of the copy, when the files are gone, is the live one.
pub(super) fn bundled(vm: &Vm) -> Result<String> {
    let place = Place::new("bundled")?;
    let server = place.path("server");
    copy_of_server(vm, &server)?;
    let target = command(&[server.display().to_string()])?.stdout(Stdio::null()).spawn()?;
    let (pid, bundle) = (target.id().to_string(), place.path("bundle").display().to_string());
    let arguments = ["-p", &pid, "-d", "0.3", "-f", "handle", "--bundle", &bundle];
    let ended = Live::start(vm, &place, &arguments)?.end()?;
    end_of(target)?;
    let live = ended.report()?;
    fs::remove_file(&server)?;
    fs::remove_file(place.path("perf.data"))?;
    let later = report(
        vm,
        &place.path("bundle/perf.data"),
        &["--symfs", &format!("{bundle}/objects"), "-f", "handle"],
    )?;
    ensure!(later.status.success(), "{}: {}", later.status, String::from_utf8_lossy(&later.stderr));
    let later: Value = serde_json::from_slice(&later.stdout)?;
    let calls = complete(&live).unwrap_or(0);
    ensure!(calls > 0, "no calls");
    for part in ["/functions", "/loss", "/trace"] {
        ensure!(live.pointer(part) == later.pointer(part), "{part}: live {live}\nlater {later}");
    }
    Ok(format!("{calls} calls, live and from the copy"))
}
