//! `bench --fleet`: what the parts of a long recording cost on many machines, held against the report of the
//! whole, and whether processes that share a recording's parts hinder one another.
//!
//! ```text
//!   fleet     the trace of sq370 as that of many threads: 64 parts, one after the other, and the whole at
//!             the same time; then the merge                          processor time
//!   sq370     8 parts by two processes, against two processes with a recording each          time
//! ```

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::runs::Runs;
use crate::fixtures::{Recording, parallel};
use crate::layout;
use crate::process::{self, Result};

const FUNCTION: &str = "sqlite3VdbeExec";

/// Of the long recording.
const PARTS: u32 = 64;

/// Processor time of all parts, beyond that of the whole, as a share of that.
const OVERHEAD_MAX: f64 = 0.05;

/// Processor time of a part, beyond its share of the whole.
const BEYOND_SHARE_MAX_S: f64 = 0.15;

/// Processor time of the longest part and the merge, as a share of the whole's.
const LONGEST_MAX: f64 = 1.0 / 45.0;

/// Parts for two processes, and the least share of what two unrelated processes do.
const SHARED_PARTS: u32 = 8;
const SCALING_MIN: f64 = 0.9;

/// Comparisons of two processes with two others.
const TURNS: usize = 5;

/// MB of trace that a copy adds.
const COPY_MB: u64 = 402;

/// Name of the long recording.
const FLEET: &str = "fleet";

/// `bench --fleet [GB]`: measures, prints, and fails where a bound is missed.
pub(super) fn run(gigabytes: u64) -> Result {
    let copies = format!("--copies={}", (gigabytes * 1000).div_ceil(COPY_MB));
    let recording = |name, options| Recording { name, log: "sq370", options, full_only: false };
    let recordings = [recording("sq370", vec![]), recording(FLEET, vec![copies.as_str()])];
    let directory = super::make(&recordings, &["--package", "func_latency"])?;
    let parts = layout::target().join("fleet");
    fs::create_dir_all(&parts).map_err(|e| format!("{}: {e}", parts.display()))?;
    let measured = measure(&directory, &parts);
    let _ = fs::remove_dir_all(&parts);
    if directory == layout::fixtures() {
        for ending in ["data", "truth"] {
            let _ = fs::remove_file(directory.join(FLEET).with_extension(ending));
        }
    }
    measured
}

fn measure(directory: &Path, parts: &Path) -> Result {
    println!("fleet: {}; load {}", super::title()?, super::load());
    let bounds = [
        parts_and_merge(&directory.join(FLEET).with_extension("data"), parts)?,
        two_processes(directory, parts)?,
    ];
    println!("fleet: load at the end {}", super::load());
    let missed: Vec<&str> = bounds.iter().flatten().copied().collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("bench: missed: {}", missed.join("; "))) }
}

/// The long recording; returns the bounds that are missed.
fn parts_and_merge(data: &Path, directory: &Path) -> Result<Vec<&'static str>> {
    let named = |e: io::Error| format!("{}: {e}", data.display());
    let bytes = fs::metadata(data).map_err(named)?.len();
    println!("fleet: {:.1} GB", bytes as f64 / 1e9);
    // From memory, as far as there is enough: one of the two would read for the other one.
    fs::File::open(data).and_then(|mut file| io::copy(&mut file, &mut io::sink())).map_err(named)?;
    // At once, as a machine is not always equally fast.
    let (whole, parts) = std::thread::scope(|scope| {
        let whole = scope.spawn(|| timed(&report(data)));
        let one = |number| timed(&part(data, number, PARTS, directory)).map(|(seconds, _)| seconds);
        let parts: Result<Vec<f64>> = (1..=PARTS).map(one).collect();
        (whole.join().unwrap_or_else(|_| Err("measuring panicked".to_owned())), parts)
    });
    let ((whole, report), parts) = (whole?, parts?);
    let merge = Runs::of(|| timed(&merge(directory)))?;
    let all: f64 = parts.iter().sum();
    let longest = parts.iter().copied().fold(0.0, f64::max);
    let overhead = all / whole - 1.0;
    let beyond_share = (all - whole) / f64::from(PARTS);
    let of_whole = (longest + merge.median()) / whole;
    println!(
        "fleet: the whole {whole:.2} s, {PARTS} parts {all:.2} s, the longest {longest:.2} s; merge {} s",
        merge.cell()
    );
    println!("fleet: each part: {}", parts.iter().map(|s| format!("{s:.2}")).collect::<Vec<_>>().join(" "));
    println!("fleet: parts' overhead {:.1} %, {beyond_share:.3} s a part", 100.0 * overhead);
    println!("fleet: longest part and merge 1/{:.1} of the whole", 1.0 / of_whole);
    Ok(missed(&[
        (merge.last == report, "the merge of all parts is the report"),
        (overhead < OVERHEAD_MAX, "overhead of all parts"),
        (beyond_share < BEYOND_SHARE_MAX_S, "a part beyond its share"),
        (of_whole < LONGEST_MAX, "longest part and merge"),
    ]))
}

/// Parts that two processes work off together, against two processes that have a recording each. Which of
/// the bounds are missed.
fn two_processes(directory: &Path, parts: &Path) -> Result<Vec<&'static str>> {
    let data = directory.join("sq370.data");
    let copy = parts.join("copy.data");
    fs::copy(&data, &copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    let numbers: Vec<u32> = (1..=SHARED_PARTS).collect();
    let [one, other] = ["one", "other"].map(|name| parts.join(name));
    for directory in [&one, &other] {
        fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    }
    let make = |data: &Path, number: u32, to: &Path| {
        process::capture(&mut part(data, number, SHARED_PARTS, to)).map(drop)
    };
    let both = [(&data, &one), (&copy, &other)];
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        let shared = wall_seconds(|| parallel(&numbers, |&number| make(&data, number, &one)))?;
        let unrelated = wall_seconds(|| {
            parallel(&both, |(data, to)| numbers.iter().try_for_each(|&number| make(data, number, to)))
        })?;
        let reports =
            wall_seconds(|| parallel(&both, |(data, _)| process::capture(&mut report(data)).map(drop)))?;
        // The two unrelated ones did twice the work.
        ratios[0].push(unrelated / 2.0 / shared);
        ratios[1].push(reports / 2.0 / shared);
    }
    let [of_parts, of_reports] = ratios.map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        ratios.get(TURNS / 2).copied().unwrap_or_default()
    });
    println!(
        "fleet: {SHARED_PARTS} parts on two processes: {of_parts:.2} of two processes with the parts of a recording each"
    );
    println!("fleet: ... {of_reports:.2} of two processes with the report of a recording each");
    Ok(missed(&[(of_parts >= SCALING_MIN, "parts on two processes")]))
}

fn missed(bounds: &[(bool, &'static str)]) -> Vec<&'static str> {
    bounds.iter().filter(|(holds, _)| !holds).map(|(_, what)| *what).collect()
}

fn func_latency() -> Command {
    Command::new(layout::target().join("release").join("func_latency"))
}

fn report(data: &Path) -> Command {
    let mut command = func_latency();
    command.args(["report", "-w", "1", "-f", FUNCTION, "-i"]).arg(data);
    command
}

fn part(data: &Path, number: u32, of: u32, directory: &Path) -> Command {
    let mut command = report(data);
    command
        .args(["--part", &format!("{number}/{of}"), "--part-out"])
        .arg(directory.join(format!("{number}.part")));
    command
}

/// Of all parts in a directory.
fn merge(directory: &Path) -> Command {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let parts: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("part"))).collect();
    let mut command = func_latency();
    command.args(["merge", "-w", "1"]).args(parts);
    command
}

/// Runs a command; the processor time that it took, in seconds, and what it printed.
fn timed(command: &Command) -> Result<(f64, String)> {
    // The shell has no other child.
    let script = r#""$@" && cat /proc/$$/stat"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    let printed = process::capture(&mut shell)?;
    let (printed, stat) = printed.trim_end().rsplit_once('\n').unwrap_or(("", printed.trim_end()));
    let seconds =
        children_seconds(stat).ok_or_else(|| format!("/proc/PID/stat is not understood: {stat}"))?;
    Ok((seconds, printed.to_owned()))
}

fn wall_seconds(work: impl FnOnce() -> Result) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Processor time of a process's children that have ended, by proc_pid_stat(5): `cutime` and `cstime`, in
/// ticks of 10 ms. The name in parentheses may have spaces.
fn children_seconds(stat: &str) -> Option<f64> {
    let words = stat.rsplit_once(')')?.1.split_whitespace();
    let ticks: Vec<u64> = words.skip(13).take(2).map_while(|word| word.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<u64>() as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_is_read_from_the_stat_file() {
        let stat = "7 (a ) b) R 1 7 7 0 -1 4194304 90 0 0 0 11 12 150 27 20 0 1 0 99\n";
        assert_eq!(children_seconds(stat), Some(1.77));
        assert_eq!(children_seconds("7 (a) R 1"), None);
    }

    #[test]
    fn a_child_is_timed() {
        let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo $i";
        let (seconds, printed) = timed(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(printed, "100000");
        assert!(seconds > 0.0, "{seconds}");
    }

    #[test]
    fn what_does_not_hold_is_missed() {
        assert_eq!(missed(&[(true, "a"), (false, "b")]), ["b"]);
    }
}
