//! More than one target, and a look at one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::live::{Ended, Live, Place, complete, end_of, server, server_of};
use super::machine;
use super::refusals::USER;
use crate::paths::Vm;

/// `-p A,B`: the calls of both processes.
pub(super) fn processes(vm: &Vm) -> Result<String> {
    let place = Place::new("processes")?;
    let targets = [server(vm)?, server(vm)?];
    let pids = targets.each_ref().map(|target| target.id().to_string());
    let rows = place.path("rows.jsonl");
    let rows_to = rows.display().to_string();
    let arguments = ["-p", &pids.join(","), "-d", "0.5", "-f", "handle", "--rows", &rows_to];
    let ended = Live::start(vm, &place, &arguments)?.end()?;
    targets.into_iter().try_for_each(end_of)?;
    let calls = complete(&ended.report()?).unwrap_or(0);
    ensure!(calls > 0, "no calls: {}", ended.said);
    let callers = threads_with_calls(&rows)?;
    ensure!(callers == pids.iter().cloned().collect(), "-p {pids:?}, and calls of {callers:?}");
    Ok(format!("{calls} calls of {} processes", callers.len()))
}

/// An ordinary user's second recording has what the first one has left of the memory that may be locked.
pub(super) fn two_recordings(vm: &Vm) -> Result<String> {
    machine::with_paranoid(2, || two_of_a_user(vm))
}

fn two_of_a_user(vm: &Vm) -> Result<String> {
    let places = [Place::new("first")?, Place::new("second")?];
    let targets = [server_of(USER, vm)?, server_of(USER, vm)?];
    let mut live = Vec::new();
    for (place, target) in places.iter().zip(&targets) {
        let starts = machine::starts()?;
        let pid = target.id().to_string();
        let mut started = Live::start_by(USER, vm, place, &["-p", &pid, "-d", "3", "-f", "handle"])?;
        started.wait_for_trace(starts)?;
        live.push(started);
    }
    let ended = live.iter_mut().map(Live::end).collect::<Result<Vec<_>>>()?;
    targets.into_iter().try_for_each(end_of)?;
    let smaller: Vec<bool> = ended.iter().map(|ended| ended.said.contains("has no buffers of")).collect();
    ensure!(smaller == [false, true], "smaller buffers: {smaller:?}\n{}{}", ended[0].said, ended[1].said);
    for ended in &ended {
        ensure!(complete(&ended.report()?).unwrap_or(0) > 0, "no calls: {}", ended.said);
    }
    Ok("the second one has smaller buffers".to_owned())
}

/// `--preview`: what would be recorded, by a try of which nothing is left.
pub(super) fn preview(vm: &Vm) -> Result<String> {
    let place = Place::new("preview")?;
    let target = server(vm)?;
    let pid = target.id().to_string();
    let mut rates = Vec::new();
    for (filter, traced) in [(&["-i"][..], "1 range\n"), (&[], "all user code that runs there\n")] {
        let arguments = [&["--preview", "-p", &pid, "-f", "handle"], filter].concat();
        let Ended { status, report, said } = Live::start(vm, &place, &arguments)?.end()?;
        ensure!(status.success(), "{status}: {said}");
        let whom = format!("whom      process {pid} (server), 1 thread\n");
        let function = format!("function  handle ({}+0x", vm.programs().join("server").display());
        for part in [&whom, &function, &format!("traced    {traced}")] {
            ensure!(report.contains(part), "does not say `{part}`: {report}");
        }
        ensure!(report.contains("\ndecoding  ") && report.contains(" keep"), "nothing of decoding: {report}");
        rates.extend(report.lines().filter_map(|line| line.strip_prefix("rate      ")).map(str::to_owned));
        ensure!(
            !place.path("perf.data").exists() && !place.path("perf.data.preview").exists(),
            "leaves a file"
        );
    }
    end_of(target)?;
    ensure!(rates.len() == 2 && rates.iter().all(|rate| !rate.starts_with("0 B")), "rates: {rates:?}");
    Ok(rates.join("; without -i: "))
}

/// The threads whose complete calls the rows have.
pub(super) fn threads_with_calls(rows: &Path) -> Result<BTreeSet<String>> {
    let mut threads = BTreeSet::new();
    for line in fs::read_to_string(rows)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        if row["status"] == "complete" {
            threads.insert(row["tid"].as_i64().context("a row without a thread")?.to_string());
        }
    }
    Ok(threads)
}
