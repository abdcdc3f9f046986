//! What recording costs, on perf's own code alone: the module traces nothing, or pads as fast as it can.
//!
//! An emulated processor is slow, and its host is busy: so each figure stands beside what the same kernel
//! takes here and now for the least that must be done, and the best of some tries counts.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::machine;
use super::process::{HEAD_START, command, signal};
use crate::paths::Vm;

/// In memory: what is measured is not the disk.
const PLACE: &str = "/tmp/cost";

const THREADS: &str = "100";

/// A start takes less than this, or than [`START_UP_SHARE`] allows.
const START_UP_MS: f64 = 100.0;
/// A start takes less than this many times the kernel's own part, where [`START_UP_MS`] is too much for the
/// host.
const START_UP_SHARE: f64 = 8.0;

/// A thread's birth takes at most so many times what it takes alone.
const BIRTH_SHARE: f64 = 10.0;

/// More than can be drained.
const FLOOD_KIB_PER_MS: u64 = 512;
const FLOOD: Duration = Duration::from_millis(300);

/// The most that is written plainly: with a flood, 150 MB, it fits the guest's memory disk on a machine of
/// any speed.
const PLAIN_BYTES: u64 = 128 << 20;

/// What is written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The least share of the rate of plain writing. It is 0.8 to 1.2 where the host does nothing else, and 0.78
/// was seen where it did.
const LEAST_SHARE: f64 = 0.6;

const TRIES: usize = 8;

/// Starts on many threads, and drains a flood.
pub(super) fn cost(vm: &Vm) -> Result<String> {
    machine::set_second_cpu(false)?;
    machine::set_knob("quiet", 1)?;
    let seen = quiet(vm);
    machine::set_knob("flood_kib_per_ms", 0)?;
    machine::set_knob("quiet", 0)?;
    seen
}

fn quiet(vm: &Vm) -> Result<String> {
    fs::create_dir_all(PLACE)?;
    let said = figures(vm);
    // A full disk would fail the cases after this one.
    fs::remove_dir_all(PLACE)?;
    said
}

fn figures(vm: &Vm) -> Result<String> {
    Ok([start_up(vm)?, births(vm)?, drained(vm)?].join("; "))
}

/// The start on threads that all sleep: what is measured is not what they do.
fn start_up(vm: &Vm) -> Result<String> {
    let target = Target::start(vm, THREADS)?;
    signal("STOP", &target.0)?;
    let (mut ours_ms, mut kernels_ms) = (f64::MAX, f64::MAX);
    for _ in 0..TRIES {
        ours_ms = ours_ms.min(record(vm, &target, Duration::from_millis(10))?.start_up_ms);
        kernels_ms = kernels_ms.min(opened_ms(vm, &target)?);
    }
    let said =
        format!("start-up on {THREADS} threads took {ours_ms:.1} ms, the kernel's part {kernels_ms:.1} ms");
    ensure!(ours_ms < START_UP_MS || ours_ms < kernels_ms * START_UP_SHARE, "{said}");
    Ok(said)
}

/// How long it takes to do nothing but open the events and map the buffers.
fn opened_ms(vm: &Vm, target: &Target) -> Result<f64> {
    let opens = Command::new(vm.programs().join("opens")).arg(target.0.id().to_string()).output()?;
    let said = String::from_utf8_lossy(&opens.stderr);
    ensure!(opens.status.success(), "opens: {}: {said}", opens.status);
    let us: f64 = String::from_utf8_lossy(&opens.stdout).trim().parse().context("opens")?;
    Ok(us / 1e3)
}

/// A thread's life, alone and while its process is recorded: it inherits two events for each CPU.
fn births(vm: &Vm) -> Result<String> {
    let program = vm.programs().join("born");
    let alone_us = born_us(&mut Command::new(&program))?;
    let mut record = Command::new(vm.func_latency());
    let recorded_us = born_us(record.args(["record", "-D", PLACE, "--"]).arg(&program))?;
    let said = format!("a thread's life takes {alone_us:.0} us, and {recorded_us:.0} us recorded");
    ensure!(recorded_us < alone_us * BIRTH_SHARE, "{said}");
    Ok(said)
}

fn born_us(command: &mut Command) -> Result<f64> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "born: {}: {said}", output.status);
    let ns: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().context("born")?;
    Ok(ns / 1e3)
}

/// The rate at which a flood is drained, beside that of plain writing.
fn drained(vm: &Vm) -> Result<String> {
    let target = Target::start(vm, "0")?;
    let (mut best_share, mut said) = (0.0, String::new());
    for _ in 0..TRIES {
        machine::set_knob("flood_kib_per_ms", FLOOD_KIB_PER_MS)?;
        let flooded = record(vm, &target, FLOOD)?;
        machine::set_knob("flood_kib_per_ms", 0)?;
        let drained = flooded.bytes as f64 / flooded.written_in.as_secs_f64();
        let plainly = bytes_per_second_written()?;
        if drained / plainly > best_share {
            best_share = drained / plainly;
            said = format!("{:.1} MB/s drained, {:.1} MB/s plainly written", drained / 1e6, plainly / 1e6);
        }
        if best_share >= LEAST_SHARE {
            return Ok(said);
        }
    }
    Err(anyhow::Error::msg(said))
}

/// A recording.
struct Recorded {
    /// How long its start took, as the command says it.
    start_up_ms: f64,
    /// The size of its file.
    bytes: u64,
    /// From the window's begin to the command's end: what is left in the buffer is drained after the window.
    written_in: Duration,
}

fn record(vm: &Vm, target: &Target, window: Duration) -> Result<Recorded> {
    let mut record = command(&[vm.func_latency().display().to_string()])?;
    let seconds = window.as_secs_f64().to_string();
    // What a start takes that is the kernel's, too: to load programs is not.
    record.args(["record", "--no-sched", "-p", &target.0.id().to_string(), "-d", &seconds, "-D", PLACE]);
    let start = Instant::now();
    let output = record.output()?;
    let elapsed = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let start_up_ms = milliseconds(&said).with_context(|| format!("no start-up in: {said}"))?;
    let bytes = fs::metadata(Path::new(PLACE).join("perf.data"))?.len();
    let written_in = elapsed.saturating_sub(Duration::from_secs_f64(start_up_ms / 1e3));
    Ok(Recorded { start_up_ms, bytes, written_in })
}

/// `start-up took 45.1 ms`, or s.
fn milliseconds(said: &str) -> Option<f64> {
    let mut words = said.split("start-up took ").nth(1)?.split_whitespace();
    let (number, unit) = (words.next()?.parse::<f64>().ok()?, words.next()?);
    match unit {
        "ms" => Some(number),
        "s" => Some(number * 1e3),
        _ => None,
    }
}

/// Writes a file, for at most [`FLOOD`] and [`PLAIN_BYTES`].
fn bytes_per_second_written() -> Result<f64> {
    let path = Path::new(PLACE).join("plain");
    let mut file = File::create(&path)?;
    let chunk = vec![0_u8; CHUNK_BYTES];
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < FLOOD && bytes < PLAIN_BYTES {
        file.write_all(&chunk)?;
        bytes += CHUNK_BYTES as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(bytes as f64 / seconds)
}

/// A program that never sleeps, until it is dropped.
struct Target(Child);

impl Target {
    fn start(vm: &Vm, sleeping_threads: &str) -> Result<Self> {
        let mut target = command(&[vm.programs().join("idle").display().to_string()])?;
        let target = target.arg(sleeping_threads).stdout(Stdio::null()).spawn()?;
        std::thread::sleep(HEAD_START);
        Ok(Self(target))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
