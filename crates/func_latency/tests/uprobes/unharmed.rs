//! Programs that are probed go on as they were, whatever becomes of them or of us; and what was seen is
//! reported.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::probing::{Probing, signal};
use crate::{Case, probed};

/// The first instruction of `work`, as the running program has it.
struct FirstByte {
    memory: String,
    address: u64,
}

impl FirstByte {
    fn of(pid: u32) -> Self {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let start = maps.lines().next().unwrap().split('-').next().unwrap();
        let nm = std::process::Command::new("nm").arg(crate::truth()).output().unwrap();
        let symbols = String::from_utf8(nm.stdout).unwrap();
        let work = symbols.lines().find(|line| line.ends_with(" T work")).unwrap();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let address = hex(start) + hex(work.split(' ').next().unwrap());
        Self { memory: format!("/proc/{pid}/mem"), address }
    }

    fn is_probed(&self) -> bool {
        use std::os::unix::fs::FileExt;
        let mut byte = [0];
        std::fs::File::open(Path::new(&self.memory)).unwrap().read_exact_at(&mut byte, self.address).unwrap();
        // int3
        byte == [0xcc]
    }
}

#[test]
fn five_hundred_threads_that_are_born_and_gone_have_all_their_calls() {
    let Some(seen) = probed("churn", &["work"], &[]) else { return };
    assert_eq!((seen.calls(0), seen.counted.as_slice()), ([20_000, 0, 0, 0], &[20_000][..]));
    assert_eq!(seen.report["trace"]["threads"], 2001);
    assert_eq!(seen.report["loss"]["coverage"], 1.0);
}

/// The call in which the program is replaced has no end, and those of the new one are the same function's.
#[test]
fn a_program_that_executes_another_goes_on_and_all_calls_are_seen() {
    let Some(seen) = probed("executes", &["work", "executes"], &[]) else { return };
    assert_eq!(seen.counted, [100, 100]);
    assert_eq!((seen.calls(0), seen.calls(1)), ([200, 0, 0, 0], [0, 0, 0, 1]));
}

/// What was seen until then is reported.
#[test]
fn a_program_that_is_killed_ends_the_window() {
    let mut case = Case::new("ticks");
    let pid = case.program.id();
    let pid_text = pid.to_string();
    let words = ["-p", &pid_text, "-f", "work", "--format", "json", "--check", "--max-overhead", "1e9"];
    let Some(probing) = Probing::start(&words) else { return };
    case.program.stdin.take().unwrap().write_all(b"go\n").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    signal(pid, "KILL");
    case.program.wait().unwrap();
    let report = probing.end().report();
    let calls = &report["functions"][0]["calls"];
    assert!(calls["complete"].as_u64() > Some(500), "{calls}");
    assert!(report["trace"]["span_ns"].as_u64() < Some(20_000_000_000), "{}", report["trace"]);
}

/// The kernel takes the probes away, and no thread of the program notices.
#[test]
fn no_probe_is_left_when_we_are_killed() {
    let mut case = Case::new("ticks");
    let pid = case.program.id();
    let words = ["-p", &pid.to_string(), "-f", "work", "--max-overhead", "1e9"];
    let Some(probing) = Probing::start(&words) else { return };
    case.program.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let byte = FirstByte::of(pid);
    assert!(byte.is_probed());
    probing.kill();
    let killed = Instant::now();
    while byte.is_probed() {
        assert!(killed.elapsed() < Duration::from_secs(30), "a probe is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("the probes were gone {} ms after", killed.elapsed().as_millis());
    assert!(matches!(case.program.try_wait(), Ok(None)), "it goes on");
    case.program.kill().unwrap();
    case.program.wait().unwrap();
}

/// Calls go from one in a millisecond to as many as the program can: recording ends within 100 ms, where the
/// machine lets us look in time.
#[test]
fn beyond_the_limit_nothing_more_is_recorded_and_probes_are_removed() {
    const TRIES: usize = 4;
    let mut late_ms = Vec::new();
    while late_ms.len() < TRIES {
        let Some(late) = surge() else { return };
        println!("the last call was {late} ms after the surge began");
        late_ms.push(late);
        if late <= 100 {
            return;
        }
    }
    panic!("the last calls were {late_ms:?} ms after the surge began");
}

/// How long after the surge a call was recorded.
fn surge() -> Option<u64> {
    let mut case = Case::new("surge");
    let pid = case.program.id();
    let rows = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("surge-{pid}.csv"));
    let pid_text = pid.to_string();
    let words = ["-p", &pid_text, "-f", "work", "--format", "json", "--rows", rows.to_str().unwrap()];
    let probing = Probing::start(&words)?;
    case.program.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut line = String::new();
    case.output.read_line(&mut line).unwrap();
    let surge_ns: u64 = line.trim_start_matches("surge ").trim().parse().unwrap();
    let ended = probing.end();
    assert!(!FirstByte::of(pid).is_probed(), "we ended when all probes were gone");
    assert!(matches!(case.program.try_wait(), Ok(None)), "it goes on");
    case.program.kill().unwrap();
    case.program.wait().unwrap();
    let report = ended.report();
    assert!(ended.said.contains("--max-overhead allows 20 %: nothing more was recorded"), "{}", ended.said);
    let calls = report["functions"][0]["calls"]["complete"].as_u64().unwrap();
    assert!(calls > 300, "what was seen until then is reported: {calls}");
    let last_ns = last_start_ns(&rows);
    std::fs::remove_file(&rows).unwrap();
    Some(last_ns.saturating_sub(surge_ns) / 1_000_000)
}

fn last_start_ns(rows: &Path) -> u64 {
    let text = std::fs::read_to_string(rows).unwrap();
    let mut lines = text.lines();
    let column = lines.next().unwrap().split(',').position(|name| name == "start_ns").unwrap();
    lines.map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).max().unwrap()
}
