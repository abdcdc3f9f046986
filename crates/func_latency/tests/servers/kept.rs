//! What servers still do while they are probed with the default options, and whether the command ends in
//! time.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::rate::{Done, Rate};

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
    format!("load {:.1}", load())
}

/// Threads that ran or wanted to, by the kernel's mean over a minute.
fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().parse().unwrap()
}

/// Threads that run beside the server and its clients where the machine is not ours.
const OTHERS: f64 = 12.0;

/// One run: its exit code, what it said, and how long it took.
fn run(pids: &str, function: &str, seconds: Duration) -> (Option<i32>, String, Duration) {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(["--backend", "uprobe", "-p", pids, "-f", function, "-d", &seconds.as_secs().to_string()]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said, begun.elapsed())
}

/// The server does nearly what it did, or the guard refuses; false: probes are not permitted here, which is
/// said.
///
/// By transactions a second; where others use the machine, too, by those for each second that the server was
/// on a CPU.
pub(crate) fn keeps_its_rate(rate: &Rate, pids: &str, function: &str) -> bool {
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
        let (first, last) =
            (rate.between(before, begun).unwrap(), rate.between(ended, Instant::now()).unwrap());
        let with = rate.between(begun, ended).unwrap();
        let fewer = |of: fn(&Done) -> f64| 100.0 * (1.0 - 2.0 * of(&with) / (of(&first) + of(&last)));
        let by_second = fewer(|done| done.a_second);
        let by_cpu = fewer(|done| done.a_cpu_second);
        println!(
            "{function}: {:.0}, {:.0} while probed, {:.0} transactions a second: {by_second:.1} % fewer, {by_cpu:.1} % for each \
             CPU second ({}): {said}",
            first.a_second,
            with.a_second,
            last.a_second,
            machine()
        );
        drops.push(if load() > OTHERS { by_cpu } else { by_second });
    }
    drops.sort_by(f64::total_cmp);
    let median = drops[ROUNDS / 2];
    assert!(median <= MOST_PERCENT, "{function}: {median:.1} % fewer transactions");
    true
}

/// From the command's begin to its end, with all probes gone: the best of some, as others use the machine,
/// too.
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
    if *best > IN_TIME && load() > OTHERS {
        return println!("skipped: whether that is in time, as others use the machine ({})", machine());
    }
    assert!(*best <= IN_TIME, "{function}: -d 1 took {best:.2?}");
}
