//! The module, and what else of the machine is set for a case.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::paths::Vm;

const LOG: &str = "/sys/kernel/debug/soft_pt/log";
const COUNTERS: &str = "/sys/kernel/debug/soft_pt/stat";
const KNOBS: &str = "/sys/module/soft_pt/parameters";
const RATIO: &str = "/sys/bus/event_source/devices/intel_pt/tsc_art_ratio";
const TRACING: &str = "/sys/kernel/tracing";
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const SECOND_CPU: &str = "/sys/devices/system/cpu/cpu1/online";

/// Room in the module's log: 32 MB.
const LOG_EVENTS: u64 = 1_000_000;

/// From here on there is a PMU.
pub(super) fn load_module(vm: &Vm) -> Result<()> {
    let insmod = Command::new("insmod").arg(vm.module()).arg(format!("log_entries={LOG_EVENTS}")).status()?;
    ensure!(insmod.success(), "insmod: {insmod}");
    Ok(())
}

/// From here on there is none.
pub(super) fn unload_module() -> Result<()> {
    let rmmod = Command::new("rmmod").arg("soft_pt").status()?;
    ensure!(rmmod.success(), "rmmod: {rmmod}");
    Ok(())
}

/// While it runs `kernel.perf_event_paranoid` is `value`.
pub(super) fn with_paranoid<T>(value: i32, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = fs::read_to_string(PARANOID).context(PARANOID)?;
    fs::write(PARANOID, value.to_string()).context(PARANOID)?;
    let done = run();
    fs::write(PARANOID, before.trim()).context(PARANOID)?;
    done
}

/// A parameter of the module.
pub(super) fn set_knob(knob: &str, value: u64) -> Result<()> {
    fs::write(Path::new(KNOBS).join(knob), value.to_string()).with_context(|| format!("knob {knob}"))
}

/// The second CPU.  One thread emulates both, so that it only costs time where it is not needed.
pub(super) fn set_second_cpu(online: bool) -> Result<()> {
    let there = fs::read_to_string(SECOND_CPU).context(SECOND_CPU)?.trim() == "1";
    if there == online {
        return Ok(());
    }
    fs::write(SECOND_CPU, u8::from(online).to_string()).context(SECOND_CPU)
}

/// The log begins anew.
pub(super) fn empty_log() -> Result<()> {
    fs::write(LOG, "0").context(LOG)
}

/// A copy of the log.
pub(super) fn save_log(to: &Path) -> Result<()> {
    fs::copy(LOG, to).map(drop).context(LOG)
}

/// The scheduler's own trace begins anew, in perf's clock.
pub(super) fn trace_switches() -> Result<()> {
    let settings = [
        ("buffer_size_kb", "8192"), // nothing of a case is overwritten
        ("trace_clock", "perf"),
        ("events/sched/sched_switch/enable", "1"),
        ("trace", ""),
    ];
    for (file, value) in settings {
        let path = Path::new(TRACING).join(file);
        fs::write(&path, value).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A copy of that trace.
pub(super) fn save_switches(to: &Path) -> Result<()> {
    let trace = Path::new(TRACING).join("trace");
    fs::write(to, fs::read(&trace).with_context(|| trace.display().to_string())?)?;
    Ok(())
}

/// How often the PMU was started.
pub(super) fn starts() -> Result<u64> {
    counter("starts")
}

/// Events of the PMU that are open.
pub(super) fn open_events() -> Result<u64> {
    counter("open")
}

/// One of the module's counters.
fn counter(name: &str) -> Result<u64> {
    let text = fs::read_to_string(COUNTERS).context(COUNTERS)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let value = lines.find_map(|(found, value)| (found == name).then(|| value.parse().ok())?);
    value.with_context(|| format!("{COUNTERS} has no {name}"))
}

/// What the checker wants to know of the module.
pub(super) fn save_facts(vm: &Vm, number: &str) -> Result<()> {
    let ratio = fs::read(RATIO).context(RATIO)?;
    match File::create_new(vm.of_run("ratio")) {
        Ok(mut file) => file.write_all(&ratio).context("the ratio")?,
        // Another machine's, which has the same.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        Err(error) => return Err(error).context("the ratio"),
    }
    fs::copy(COUNTERS, vm.of_machine(number, "counters")).context(COUNTERS)?;
    for wrong in ["desyncs", "unread"] {
        let times = counter(wrong)?;
        ensure!(times == 0, "the module did not understand the code that ran: {wrong} {times}");
    }
    Ok(())
}

/// The kernel has found nothing wrong with itself, or with the module.
pub(super) fn is_healthy() -> Result<()> {
    let messages = Command::new("dmesg").output()?.stdout;
    let messages = String::from_utf8_lossy(&messages);
    let bad =
        messages.lines().find(|line| ["WARNING", "BUG:", "Oops"].iter().any(|word| line.contains(word)));
    bad.map_or(Ok(()), |line| bail!("the kernel says: {line}"))
}
