//! What recording costs, on perf's own code alone: the module traces nothing, or pads as fast as it can.  An emulated processor's
//! times say nothing of a real one's; what is held is the rate beside that of plain writing here and now.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::machine;
use super::process::{HEAD_START, command};
use crate::paths::Vm;

/// In memory: what is measured is not the disk.
const PLACE: &str = "/tmp/cost";

const THREADS: &str = "100";
const WINDOW: Duration = Duration::from_secs(1);

/// More than can be drained.
const FLOOD_KIB_PER_MS: u64 = 512;

/// What is written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The least share of the rate of plain writing.
const LEAST_SHARE: f64 = 0.8;

/// Starts on many threads, and drains a flood.
pub(super) fn cost(vm: &Vm) -> Result<String> {
    machine::set_knob("quiet", 1)?;
    let seen = quiet(vm);
    machine::set_knob("flood_kib_per_ms", 0)?;
    machine::set_knob("quiet", 0)?;
    seen
}

fn quiet(vm: &Vm) -> Result<String> {
    fs::create_dir_all(PLACE)?;
    let many = record(vm, &Target::start(vm, THREADS)?)?;
    let target = Target::start(vm, "0")?;
    let empty = record(vm, &target)?;
    machine::set_knob("flood_kib_per_ms", FLOOD_KIB_PER_MS)?;
    let flooded = record(vm, &target)?;
    machine::set_knob("flood_kib_per_ms", 0)?;
    // What is left in the buffer at the end of the window is drained behind it.
    let drain = WINDOW + flooded.elapsed.saturating_sub(empty.elapsed);
    let drained = flooded.bytes as f64 / drain.as_secs_f64();
    let written = write()? as f64 / WINDOW.as_secs_f64();
    let rates = format!("{:.1} MB/s drained, {:.1} MB/s plainly written", drained / 1e6, written / 1e6);
    ensure!(drained >= written * LEAST_SHARE, "{rates}");
    Ok(format!("start-up on {THREADS} threads took {}; {rates}", many.start_up))
}

/// A recording.
struct Recorded {
    /// How long its start took, as the command says it.
    start_up: String,
    /// The size of its file.
    bytes: u64,
    /// How long the command ran.
    elapsed: Duration,
}

fn record(vm: &Vm, target: &Target) -> Result<Recorded> {
    let mut record = command(&[vm.func_latency().display().to_string()])?;
    let seconds = WINDOW.as_secs_f64().to_string();
    record.args(["record", "-p", &target.0.id().to_string(), "-d", &seconds, "-D", PLACE]);
    let start = Instant::now();
    let output = record.output()?;
    let elapsed = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let start_up = said.split("start-up took ").nth(1).and_then(|rest| rest.lines().next());
    let start_up = start_up.with_context(|| format!("no start-up in: {said}"))?.to_owned();
    let bytes = fs::metadata(Path::new(PLACE).join("perf.data"))?.len();
    Ok(Recorded { start_up, bytes, elapsed })
}

/// Bytes that are written to a file in [`WINDOW`].
fn write() -> Result<u64> {
    let path = Path::new(PLACE).join("plain");
    let mut file = File::create(&path)?;
    let chunk = vec![0_u8; CHUNK_BYTES];
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < WINDOW {
        file.write_all(&chunk)?;
        bytes += CHUNK_BYTES as u64;
    }
    fs::remove_file(path)?;
    Ok(bytes)
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
