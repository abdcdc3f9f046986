//! `bench`: how fast a recording of 50 MB becomes a report, and in how much memory, beside the same report by libipt,
//! and `perf script` that only prints its calls and returns.  All run here and now; what counts are their ratios.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::check::Extent;
use crate::fixtures::{self, Logs, Recording};
use crate::process::{self, Result};
use crate::{civil, layout, setup};

const RECORDING: &str = "sq50";
const FUNCTION: &str = "sqlite3VdbeExec";

/// Runs of ours; their median counts.  The others run once: they are slow, and their noise is far below the ratio.
const RUNS: usize = 3;

/// How often a run's memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(2);

/// Measures, prints, and with `append` adds a row to docs/benchmarks.md.
pub(crate) fn run(append: bool) -> Result {
    setup::run(Extent::Quick)?;
    let recording = Recording { name: RECORDING, log: RECORDING, options: Vec::new(), full_only: false };
    let build = ["--package", "func_latency", "--features", "func_latency/libipt"];
    fixtures::make(&[recording], Logs::DropBig, &build)?;
    let data = layout::fixtures().join(format!("{RECORDING}.data"));
    let file_mb = fs::metadata(&data).map_err(|e| format!("{}: {e}", data.display()))?.len() as f64 / 1e6;
    println!("bench: {RECORDING}.data, {file_mb:.1} MB; {}; load {}", civil::machine(), load());

    let mut runs = Vec::new();
    for number in 1..=RUNS {
        let run = measure(&mut report(&data))?;
        println!("  func_latency report -w 1, run {number}: {run}");
        runs.push(run);
    }
    let ours = median(runs.iter().map(|run| run.wall).collect());
    let peak_kb = runs.iter().map(|run| run.peak_anonymous_kb).max().unwrap_or(0);
    let libipt = measure(report(&data).args(["--decoder", "libipt"]))?;
    println!("  func_latency report -w 1 --decoder libipt, one run: {libipt}");
    let perf = measure(&mut perf_script(&data))?;
    println!("  perf script --itrace=cr, one run: {perf}");

    let [ours_s, libipt_s, perf_s] = [ours, libipt.wall, perf.wall].map(|time| time.as_secs_f64());
    let (to_libipt, to_perf, peak_mb) = (libipt_s / ours_s, perf_s / ours_s, peak_kb as f64 / 1e3);
    println!("bench: func_latency {ours_s:.2} s (median), libipt {libipt_s:.2} s, perf script {perf_s:.2} s");
    println!("bench: {to_libipt:.1} times faster than libipt, {to_perf:.1} times faster than perf script");
    println!(
        "bench: {:.0} MB of file per second; peak memory beyond the mapped files {peak_mb:.0} MB",
        file_mb / ours_s
    );
    if append {
        let (today, machine) = (civil::today(), civil::machine());
        let row = format!(
            "| {today} | {machine} | {file_mb:.1} | {ours_s:.2} | {libipt_s:.2} | {perf_s:.2} | {to_libipt:.1} | \
             {to_perf:.1} | {peak_mb:.0} |\n"
        );
        append_row(&layout::root().join("docs/benchmarks.md"), &row)?;
    }
    Ok(())
}

fn report(data: &Path) -> Command {
    let binary: PathBuf = layout::target().join("release").join("func_latency");
    let mut command = Command::new(binary);
    command.arg("report").arg("-i").arg(data).args(["-f", FUNCTION, "-w", "1"]);
    command
}

fn perf_script(data: &Path) -> Command {
    let mut command = Command::new("perf");
    command.args(["script", "--itrace=cr", "-F", "tid,time,flags,ip,addr", "--ns", "-i"]).arg(data);
    command
}

struct Measured {
    wall: Duration,
    /// Largest resident size, mapped files and all.
    peak_resident_kb: u64,
    /// Largest part of it that no file backs.
    peak_anonymous_kb: u64,
    output_bytes: u64,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [resident, anonymous] = [self.peak_resident_kb, self.peak_anonymous_kb].map(|kb| kb as f64 / 1e3);
        let (wall, output) = (self.wall.as_secs_f64(), self.output_bytes as f64 / 1e6);
        write!(f, "{wall:.2} s, peak {resident:.0} MB resident, {anonymous:.0} MB of it not files; ")?;
        write!(f, "{output:.1} MB printed")
    }
}

/// Runs to the end with the output into a pipe that we drain, and watches the memory.
fn measure(command: &mut Command) -> Result<Measured> {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| process::cannot_start(command, &e))?;
    let drain = child.stdout.take().map(|mut pipe| std::thread::spawn(move || drained(&mut pipe)));
    let (status, [peak_resident_kb, peak_anonymous_kb]) = watch(&mut child).map_err(|e| e.to_string())?;
    let wall = start.elapsed();
    let output_bytes = drain.and_then(|thread| thread.join().ok()).unwrap_or(0);
    if !status.success() {
        return Err(format!("`{}` failed: {status}", process::command_line(command)));
    }
    Ok(Measured { wall, peak_resident_kb, peak_anonymous_kb, output_bytes })
}

fn watch(child: &mut Child) -> std::io::Result<(std::process::ExitStatus, [u64; 2])> {
    let file = format!("/proc/{}/status", child.id());
    let mut peaks = [0; 2];
    loop {
        let status = fs::read_to_string(&file).unwrap_or_default();
        let now =
            [kilobytes(&status, "VmHWM:"), kilobytes(&status, "RssAnon:") + kilobytes(&status, "RssShmem:")];
        peaks = [peaks[0].max(now[0]), peaks[1].max(now[1])];
        if let Some(status) = child.try_wait()? {
            return Ok((status, peaks));
        }
        std::thread::sleep(SAMPLE_EVERY);
    }
}

/// The number of a line like `VmHWM:     1234 kB`; 0 if there is none.
fn kilobytes(status: &str, key: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn drained(pipe: &mut impl Read) -> u64 {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        total += count as u64;
    }
    total
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The load in the last minute: a busy machine shows.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

fn append_row(file: &Path, row: &str) -> Result {
    let named = |e: std::io::Error| format!("{}: {e}", file.display());
    let mut file_out = fs::File::options().append(true).open(file).map_err(named)?;
    file_out.write_all(row.as_bytes()).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_status_file() {
        let status = "VmHWM:\t    1234 kB\nRssAnon:\t      12 kB\n";
        assert_eq!(
            [kilobytes(status, "VmHWM:"), kilobytes(status, "RssAnon:"), kilobytes(status, "X:")],
            [1234, 12, 0]
        );
    }

    #[test]
    fn the_output_is_drained_and_counted() {
        let script = "head -c 300000 /dev/zero; sleep 0.05";
        let run = measure(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(run.output_bytes, 300_000);
        assert!(run.wall >= Duration::from_millis(50) && run.peak_resident_kb >= run.peak_anonymous_kb);
        assert!(measure(Command::new("sh").args(["-c", "exit 3"])).is_err());
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3, 1, 2].map(Duration::from_secs).to_vec()), Duration::from_secs(2));
    }
}
