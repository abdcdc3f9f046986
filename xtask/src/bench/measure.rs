//! One run of a program: how long, how much memory.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::process::{self, Result};

/// How often a run's memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) wall: Duration,
    /// Largest resident size, mapped files and all.
    pub(super) peak_kb: u64,
    /// Largest part of it that no file backs.
    pub(super) anonymous_kb: u64,
    pub(super) output_bytes: u64,
}

/// Runs to the end with the output into a pipe that we drain, and watches the memory.
pub(super) fn measure(command: &mut Command) -> Result<Measured> {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| process::cannot_start(command, &e))?;
    let drain = child.stdout.take().map(|mut pipe| std::thread::spawn(move || drained(&mut pipe)));
    let (status, [peak_kb, anonymous_kb]) = watch(&mut child).map_err(|e| e.to_string())?;
    let wall = start.elapsed();
    let output_bytes = drain.and_then(|thread| thread.join().ok()).unwrap_or(0);
    if !status.success() {
        return Err(format!("`{}` failed: {status}", process::command_line(command)));
    }
    Ok(Measured { wall, peak_kb, anonymous_kb, output_bytes })
}

fn watch(child: &mut Child) -> std::io::Result<(ExitStatus, [u64; 2])> {
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
        assert!(run.wall >= Duration::from_millis(50) && run.peak_kb >= run.anonymous_kb);
        assert!(measure(Command::new("sh").args(["-c", "exit 3"])).is_err());
    }
}
