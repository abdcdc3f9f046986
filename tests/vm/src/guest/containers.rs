//! `-p A,B -i` where each process has a file of its own by the same path, as in two containers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::files::in_a_namespace;
use super::live::{Ended, Live, NO_CALLS, Place, end_of, is_a_server, report};
use super::targets::threads_with_calls;
use crate::paths::Vm;

/// The usage is wrong.
const USAGE: i32 = 2;

/// Copies are filtered all; files that differ are refused.
pub(super) fn filtered(vm: &Vm) -> Result<String> {
    copies_are(vm)?;
    strangers_are(vm)?;
    Ok("calls of both copies; files that differ are refused".to_owned())
}

fn copies_are(vm: &Vm) -> Result<()> {
    let place = Place::new("containers")?;
    let targets = [contained(vm, &place)?, contained(vm, &place)?];
    let copies = copies(vm, &place, &targets);
    targets.into_iter().try_for_each(end_of)?;
    copies
}

fn strangers_are(vm: &Vm) -> Result<()> {
    let place = Place::new("strangers")?;
    let first = contained(vm, &place)?;
    let second = changed(vm, &place);
    let refused = second.as_ref().map_or(Ok(()), |second| strangers(vm, &place, [&first, second]));
    end_of(first)?;
    end_of(second?)?;
    refused
}

/// A server in a mount namespace of its own, where its file is a copy of that of the place.
fn contained(vm: &Vm, place: &Place) -> Result<Child> {
    let mut target = in_a_namespace(vm, place)?.stdout(Stdio::null()).spawn()?;
    is_a_server(&mut target)?;
    Ok(target)
}

/// A container with a file of another build id.
fn changed(vm: &Vm, place: &Place) -> Result<Child> {
    let mut command = in_a_namespace(vm, place)?;
    change_build_id(&place.path("server"))?;
    let mut target = command.stdout(Stdio::null()).spawn()?;
    is_a_server(&mut target)?;
    Ok(target)
}

fn change_build_id(file: &Path) -> Result<()> {
    /// Of a note: the sizes of name and contents, its type, its name.
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let mut bytes = fs::read(file)?;
    let note = bytes.windows(NOTE.len()).position(|bytes| bytes == NOTE);
    let first = note.and_then(|at| bytes.get_mut(at + NOTE.len())).context("the server has no build id")?;
    *first ^= 1;
    Ok(fs::write(file, bytes)?)
}

fn pids(targets: [&Child; 2]) -> [String; 2] {
    targets.map(|target| target.id().to_string())
}

fn copies(vm: &Vm, place: &Place, targets: &[Child; 2]) -> Result<()> {
    let pids = pids(targets.each_ref());
    let rows = place.path("rows.jsonl");
    let rows_to = rows.display().to_string();
    let arguments = ["-p", &pids.join(","), "-d", "0.5", "-i", "-f", "handle", "--rows", &rows_to];
    let mut live = Live::start(vm, place, &arguments)?;
    let ended = live.end()?;
    ended.report()?;
    let callers = threads_with_calls(&rows)?;
    ensure!(callers == BTreeSet::from(pids.clone()), "-p {pids:?}, and calls of {callers:?}");
    let caller = report(vm, &live.data, &["-f", "main"])?;
    ensure!(caller.status.code() == Some(NO_CALLS), "nothing was filtered: {}", caller.status);
    Ok(())
}

fn strangers(vm: &Vm, place: &Place, targets: [&Child; 2]) -> Result<()> {
    let pids = pids(targets);
    // A name without a star would not say which of the two.
    let arguments = ["-p", &pids.join(","), "-d", "0.5", "-i", "-f", "handl*"];
    let Ended { status, said, .. } = Live::start(vm, place, &arguments)?.end()?;
    let says =
        pids.iter().all(|pid| said.contains(&format!("process {pid}"))) && said.contains("another file");
    ensure!(status.code() == Some(USAGE) && says, "{status}: {said}");
    ensure!(!place.path("perf.data").exists(), "leaves a file");
    Ok(())
}
