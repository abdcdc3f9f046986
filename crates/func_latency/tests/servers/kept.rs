//! What servers still do while they are probed with what is taken by default, and whether the command ends in time.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::rate::Rate;

/// The drop that is allowed: 20 %, and 5 points of noise.
const MOST_PERCENT: f64 = 25.0;

/// Rounds, of which the median is judged: the machine is not ours alone.
const ROUNDS: usize = 3;

/// A window, and as long without.
const WINDOW: Duration = Duration::from_secs(5);

/// A window of a second ends in this time.
const IN_TIME: Duration = Duration::from_millis(2500);

/// Load of the machine, which is said beside each figure.
fn machine() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    format!("load {}", load.split(' ').next().unwrap())
}

/// One run: its exit code, what it said, and how long it took.
fn run(pids: &str, function: &str, seconds: Duration) -> (Option<i32>, String, Duration) {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-p", pids, "-f", function, "-d", &seconds.as_secs().to_string()]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said, begun.elapsed())
}

/// The server does nearly what it did, or the guard refuses; false: probes are not permitted here, which is said.
pub(crate) fn keeps_its_rate(load: &Rate, pids: &str, function: &str) -> bool {
    let mut drops = Vec::new();
    for _ in 0..ROUNDS {
        let before = Instant::now();
        std::thread::sleep(WINDOW);
        let begun = Instant::now();
        let (code, said, took) = run(pids, function, WINDOW);
        let ended = Instant::now();
        if crate::probing::not_permitted(&said) {
            return false;
        }
        let said = said.trim().replace("func_latency: ", "");
        if code == Some(3) {
            assert!(said.contains("and --max-overhead allows 20 %"), "{function}: {said}");
            println!("{function}: refused after {took:.1?} ({}): {said}", machine());
            return true;
        }
        assert_eq!(code, Some(0), "{function}: {said}");
        std::thread::sleep(WINDOW);
        let without = [load.between(before, begun), load.between(ended, Instant::now())];
        let without = without.into_iter().flatten().sum::<f64>() / 2.0;
        let with = load.between(begun, ended).unwrap();
        let drop_percent = 100.0 * (1.0 - with / without);
        println!(
            "{function}: {without:.0} transactions a second, {with:.0} while probed: {drop_percent:.1} % fewer ({}): {said}",
            machine()
        );
        drops.push(drop_percent);
    }
    drops.sort_by(f64::total_cmp);
    let median = drops[ROUNDS / 2];
    assert!(median <= MOST_PERCENT, "{function}: {median:.1} % fewer transactions");
    true
}

/// From the command's begin to its end, with all probes gone: the best of some, as others use the machine, too.
pub(crate) fn ends_in_time(pids: &str, function: &str) {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let (code, said, took) = run(pids, function, Duration::from_secs(1));
        let how = if code == Some(3) { "refused" } else { "reported" };
        println!("{function}: -d 1 {how} after {took:.2?} ({}): {}", machine(), said.trim());
        assert!(matches!(code, Some(0 | 3)), "{said}");
        times.push(took);
    }
    let best = times.iter().min().unwrap();
    assert!(*best <= IN_TIME, "{function}: -d 1 took {best:.2?}");
}
