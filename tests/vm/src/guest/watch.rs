//! `watch` on a running target: its intervals add up to what the target did, and slow calls are kept.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use truth_tests::terminal::InTerminal;

use super::disk::Disk;
use super::live::Place;
use super::machine;
use super::process::{HEAD_START, Killed, LIMIT, command, runs_on, signal, wait};
use crate::counts::printed_counts;
use crate::paths::Vm;

/// Requests of the target, each with 20 calls of `hot` and one of `handle`.
const REQUESTS: u64 = 300;

/// From the first call to the target's end, without a filter and with one.
pub(super) fn added_up(vm: &Vm) -> Result<String> {
    let plain = watch(vm, &[])?;
    let filtered = watch(vm, &["-i"])?;
    Ok(format!("{plain}; with a filter {filtered}"))
}

/// Memory does not grow by more than one part of so many.
const GROWTH_SHARE: u64 = 20;

/// Bytes that a latency takes which no call before had: as latency, off the CPU, at least and at most.
const LATENCY_BYTES: u64 = 25;

/// [`for_long`], for a minute. What decoding workers remember of packets fills up to its bound: 8 MB for each
/// of two, of what is decoded once and of what is decoded again.
pub(super) fn for_a_minute(vm: &Vm) -> Result<String> {
    for_long(vm, Duration::from_secs(60), 32 << 10)
}

/// [`for_long`], for ten minutes: in the first of them most of that has filled.
pub(super) fn for_ten_minutes(vm: &Vm) -> Result<String> {
    for_long(vm, Duration::from_secs(600), 5 << 10)
}

/// For half of `time` without a filter, and then with one: the intervals have each call of the target,
/// nothing is left undecoded, and memory does not grow but for `caches_kb` and latencies.
fn for_long(vm: &Vm, time: Duration, caches_kb: u64) -> Result<String> {
    let watch = |more: &[&str]| -> Result<String> {
        let place = Place::new("long")?;
        let more = [&["-f", "handle", "--pt_config", "cyc,mtc_period=9"], more]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let watched = watched(vm, &place, Target::For("server", time / 2), &more, &|_| Ok(()))?;
        let (report, intervals) = watched.documents.split_last().context("nothing was printed")?;
        let undecoded = intervals.iter().find(|line| line["decoded"] != 1.0 || line["lost_ns"] != 0);
        ensure!(undecoded.is_none(), "something is not decoded: {undecoded:?}: {}", watched.said);
        let (_, made) =
            printed_counts(&watched.printed, "handle").context("the target has printed no count")?;
        let sum: u64 = intervals.iter().map(|line| calls(line, 0)).sum();
        let reported = report["functions"][0]["latency_ns"]["count"].as_u64();
        ensure!(
            (sum, reported) == (made, Some(made)),
            "{sum} calls in intervals, {reported:?} in the report, not {made}: {}",
            watched.said
        );
        let (first, last) = watched.taken.first_and_last_kb()?;
        let most = first + first / GROWTH_SHARE + caches_kb + made * LATENCY_BYTES / 1024;
        ensure!(last <= most, "{last} KB are taken at the end, {first} KB at the begin, for {made} calls");
        let spool = watched.taken.spool_bytes >> 10;
        Ok(format!("{made} calls in {} intervals, {first} to {last} KB, spool {spool} KB", intervals.len()))
    };
    Ok(format!("{}; with a filter {}", watch(&[])?, watch(&["-i"])?))
}

/// Slow calls are captured while the target runs on, those that are kept open, and so does what a signal asks
/// for.
pub(super) fn captured(vm: &Vm) -> Result<String> {
    const KEPT: usize = 4;
    let place = Place::new("captures")?;
    let captures = place.path("captures");
    // Each call of `handle` sleeps for 2 ms.
    let triggers = ["--over", "1ms", "--max-captures", "10/1s", "--keep", "4", "--captures"];
    let window = ["--before", "1ms", "--after", "1ms", "-f", "handle"];
    let mut more: Vec<String> = triggers.map(str::to_owned).to_vec();
    more.push(captures.display().to_string());
    more.extend(window.map(str::to_owned));
    let ask = |watch: &Child| {
        // What is captured is not the moment before the target begins.
        sleep(HEAD_START);
        signal("USR2", watch)
    };
    let Watched { documents, said, .. } = watched(vm, &place, SERVER, &more, &ask)?;
    let announced: Vec<&Value> = documents.iter().filter(|line| line.get("trigger").is_some()).collect();
    let of_calls = announced.iter().filter(|capture| capture["id"].is_string()).count();
    ensure!(of_calls > 0, "no slow call was captured: {announced:?}, {said}");
    // A capture says if it does not show its call. On a machine that is busy with other work one in ten does
    // not; without such work none has been seen.
    let lacks_call = |capture: &&&Value| capture["latency_ns"].is_u64() && !capture["id"].is_string();
    let lost: Vec<_> = announced.iter().filter(lacks_call).collect();
    ensure!(lost.len() <= 1, "captures do not have their calls: {lost:?}, {said}");
    let asked_for = announced.len() - of_calls - lost.len();
    ensure!(asked_for > 0, "nothing is captured for SIGUSR2: {announced:?}, {said}");
    let kept: Vec<PathBuf> =
        fs::read_dir(&captures)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(kept.len() == KEPT, "{kept:?} are kept, not {KEPT}");
    let mut by_hand = 0;
    for capture in &kept {
        let about: Value = serde_json::from_slice(&fs::read(capture.join("capture.json"))?)?;
        let (command, expected) = match about["id"].as_str() {
            Some(id) => ("show", format!("call {id} of [handle]")),
            // Kept as long as it can be: it was asked for by hand.
            None => ("report", "Latency of [handle]".to_owned()),
        };
        let slow = about["latency_ns"].as_u64().is_none_or(|ns| ns > 1_000_000);
        ensure!(slow, "{about} is not of a slow call");
        let opened = Command::new(vm.func_latency()).arg(command).arg("-i").arg(capture).output()?;
        let text = String::from_utf8_lossy(&opened.stdout);
        let said = String::from_utf8_lossy(&opened.stderr);
        let is_shown = opened.status.success() && text.contains(&expected);
        ensure!(is_shown, "{about}: {}: {text}{said}; of all {announced:?}", opened.status);
        by_hand += usize::from(about["trigger"] == "SIGUSR2");
    }
    ensure!(by_hand == 1, "{by_hand} of the captures that are kept are for SIGUSR2, not 1: {announced:?}");
    let lost = lost.len();
    Ok(format!("{of_calls} calls captured, {lost} captures without their call, and {asked_for} for SIGUSR2"))
}

/// The view of a target: a slow call is opened, and `q` prints the report while the target runs on; when the
/// target has ended the view stays, until a signal.
pub(super) fn viewed(vm: &Vm) -> Result<String> {
    with_view(vm, 1000 * REQUESTS, |terminal, target| {
        // Each call of `handle` sleeps for 2 ms.
        terminal.shows("ms  max ")?;
        terminal.press("\r")?;
        terminal.shows("of [handle], called from")?;
        terminal.press("\x1b")?;
        terminal.shows("slowest of 5 minutes")?;
        terminal.press("q")?;
        let status = terminal.ends()?;
        ensure!(target.try_wait()?.is_none(), "the target had ended before");
        signal("TERM", target)?;
        Ok(status)
    })?;
    with_view(vm, REQUESTS / 3, |terminal, target| {
        wait(target)?;
        terminal.shows("the watch has ended")?;
        signal("TERM", &terminal.child)?;
        Ok(terminal.ends()?)
    })?;
    Ok("a call was opened; the report came at q as the target ran on, and at a signal after it".to_owned())
}

/// Watches the server and its requests in a terminal, up to the end of the watch.
fn with_view(
    vm: &Vm,
    requests: u64,
    view: impl FnOnce(&mut InTerminal, &mut Child) -> Result<ExitStatus>,
) -> Result<()> {
    let place = Place::new("view")?;
    let program = vm.programs().join("server").display().to_string();
    let mut target =
        command(&[program, requests.to_string()])?.env("WAIT", "1").stdout(Stdio::null()).spawn()?;
    sleep(HEAD_START);
    let starts = machine::starts()?;
    let watch = vm.func_latency().display().to_string();
    let pid = target.id().to_string();
    let words = [&watch, "watch", "-f", "handle", "-n", "0.1", "-p", &pid];
    let mut terminal = InTerminal::start(&words, place.root(), (24, 80))?;
    while machine::starts()? == starts {
        ensure!(terminal.child.try_wait()?.is_none(), "nothing is traced");
        sleep(Duration::from_millis(5));
    }
    sleep(HEAD_START);
    signal("USR1", &target)?;
    terminal.shows(" calls/s  mean")?;
    let status = view(&mut terminal, &mut target)?;
    let written = terminal.written();
    let (_, report) = written.rsplit_once("\x1b[?1049l").context("the view was not left")?;
    ensure!(status.success() && report.contains("Latency of [handle]"), "{status}: {report}");
    ensure!(!report.contains("0 hits"), "no capture was asked for: {report}");
    wait(&mut target)?;
    Ok(())
}

/// Rounds of the target that makes more trace than there is room for: each has one call of `outer`, two of
/// `mid` and six of `leaf`.
const ROUNDS: u64 = 6_000;
const SPOOL_BYTES: u64 = 250 << 10;
/// Records are written where there is no room for trace, too: some seconds of them, until the code is known.
const RECORDS_BYTES: u64 = 250 << 10;

/// Trace comes faster than it is decoded, and has little room: part of it is left out. The calls that are
/// seen whole are right all the same, the ledger has the part that is left out, and the target runs on.
pub(super) fn behind(vm: &Vm) -> Result<String> {
    let place = Place::new("behind")?;
    let spool = format!("{}K", SPOOL_BYTES >> 10);
    let more = ["--spool", &spool, "-w", "1", "-f", "outer", "-f", "mid"].map(str::to_owned);
    let Watched { documents, taken, .. } =
        watched(vm, &place, Target::Rounds("nest", ROUNDS), &more, &|_| Ok(()))?;
    let (report, intervals) = documents.split_last().context("nothing was printed")?;
    let most = SPOOL_BYTES + RECORDS_BYTES;
    ensure!(taken.spool_bytes <= most, "the spool has {} bytes, more than {most}", taken.spool_bytes);
    let decoded = |line: &Value| line["decoded"].as_f64().unwrap_or(0.0);
    let some_left_out = intervals.iter().filter(|line| decoded(line) < 1.0).count();
    ensure!(some_left_out > 0, "everything was decoded: {intervals:?}");
    let lost = report["loss"]["by_cause"].as_array().context("no losses")?;
    let left_out = lost.iter().find(|loss| loss["cause"] == "not decoded").context("none is not decoded")?;
    ensure!(left_out["lost_ns"].as_u64() > Some(0), "it has no time: {left_out}");
    let mut seen = Vec::new();
    for (number, (made, children)) in [(ROUNDS, 2), (2 * ROUNDS, 3)].into_iter().enumerate() {
        let function = &report["functions"][number];
        let count = function["latency_ns"]["count"].as_u64().context("no calls")?;
        let sum: u64 = intervals.iter().map(|line| calls(line, number)).sum();
        ensure!(sum == count, "{sum} calls in intervals, {count} in the report: {report}");
        ensure!(0 < count && count < made, "{count} of {made} calls were seen whole");
        let rows = function["children"].as_array().context("no children")?;
        let called: u64 =
            rows.iter().filter(|row| row["kind"] == "call").filter_map(|row| row["count"].as_u64()).sum();
        ensure!(
            called == children * count,
            "{called} children of {count} calls, not {children} each: {report}"
        );
        seen.push(count);
    }
    Ok(format!("{some_left_out} of {} intervals have less than all; {seen:?} calls seen", intervals.len()))
}

/// A target, and what it does.
#[derive(Clone, Copy)]
enum Target {
    /// Ends after this number of rounds.
    Rounds(&'static str, u64),
    /// Is told to end after this time.
    For(&'static str, Duration),
}

const SERVER: Target = Target::Rounds("server", REQUESTS);

/// A watch of a target from its first call to its end.
struct Watched {
    /// What it prints, and what it says.
    documents: Vec<Value>,
    said: String,
    /// What the target prints.
    printed: String,
    taken: Taken,
}

/// What a watch takes, looked at again and again while the target runs.
#[derive(Default)]
struct Taken {
    /// Memory that is no file's.
    memory_kb: Vec<u64>,
    /// The most that the spool had.
    spool_bytes: u64,
}

/// A watch is looked at so often.
const LOOKED_AT_EACH: Duration = Duration::from_millis(50);

impl Taken {
    fn look(&mut self, watch: &Child, spool: &Disk) -> Result<()> {
        self.spool_bytes = self.spool_bytes.max(spool.used_bytes()?);
        // Gone before its end was noticed.
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", watch.id())) else { return Ok(()) };
        let kb = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
        self.memory_kb.extend(kb.and_then(|kb| kb.parse::<u64>().ok()));
        Ok(())
    }

    /// The most memory in the first and in the last fifth of the time.
    fn first_and_last_kb(&self) -> Result<(u64, u64)> {
        let fifth = self.memory_kb.len() / 5;
        let first = self.memory_kb.iter().take(fifth).max();
        let last = self.memory_kb.iter().rev().take(fifth).max();
        first.copied().zip(last.copied()).context("it was not looked at")
    }
}

/// Watches a target; `meanwhile`: done while that runs.
fn watched(
    vm: &Vm,
    place: &Place,
    target: Target,
    more: &[String],
    meanwhile: &dyn Fn(&Child) -> Result<()>,
) -> Result<Watched> {
    let spool = Disk::new("spool", "64m")?;
    let (mut target, mut watch, time) = started(vm, place, &spool, target, more)?;
    meanwhile(&watch)?;
    let (begun, mut taken, mut is_told) = (Instant::now(), Taken::default(), false);
    while target.try_wait()?.is_none() {
        let most = time.unwrap_or_default() + LIMIT;
        ensure!(begun.elapsed() < most, "the target did not end within {} s", most.as_secs());
        if time.is_some_and(|time| begun.elapsed() >= time) && !is_told {
            signal("TERM", &target)?;
            is_told = true;
        }
        taken.look(&watch, &spool)?;
        sleep(LOOKED_AT_EACH);
    }
    let status = wait(&mut watch)?;
    let said = fs::read_to_string(place.path("said"))?;
    ensure!(status.success(), "{status}: {said}");
    let left = fs::read_dir(spool.root())?.count();
    ensure!(left == 0, "{left} files are left in the spool");
    let lines = fs::read_to_string(place.path("lines"))?;
    let documents = documents(&lines)?;
    let printed = fs::read_to_string(place.path("printed"))?;
    Ok(Watched { documents, said, printed, taken })
}

/// A target that has begun its work, its watch, and how long it is to run. They print to files of `place`:
/// `printed`, `lines`, `said`.
fn started(
    vm: &Vm,
    place: &Place,
    spool: &Disk,
    target: Target,
    more: &[String],
) -> Result<(Killed, Killed, Option<Duration>)> {
    let (Target::Rounds(program, _) | Target::For(program, _)) = target;
    let mut words = vec![vm.programs().join(program).display().to_string()];
    let time = match target {
        Target::Rounds(_, rounds) => {
            words.push(rounds.to_string());
            None
        }
        Target::For(_, time) => Some(time),
    };
    let printed = File::create(place.path("printed"))?;
    let target = Killed(command(&words)?.env("WAIT", "1").stdout(printed).spawn()?);
    sleep(HEAD_START);
    let starts = machine::starts()?;
    let said = place.path("said");
    let mut watch = Command::new(vm.func_latency());
    watch
        .args(["watch", "--format", "json", "-n", "0.3", "-p"])
        .arg(target.id().to_string())
        .arg("--spool-dir")
        .arg(spool.root())
        .args(more)
        .stdin(Stdio::null())
        .stdout(File::create(place.path("lines"))?)
        .stderr(File::create(&said)?);
    let mut watch = Killed(watch.spawn()?);
    while machine::starts()? == starts {
        ensure!(watch.try_wait()?.is_none(), "nothing is traced: {}", fs::read_to_string(&said)?);
        sleep(Duration::from_millis(5));
    }
    sleep(HEAD_START);
    signal("USR1", &target)?;
    Ok((target, watch, time))
}

/// The disk of the spool is full: that is said, what was decoded is reported, nothing is left, and the target
/// runs on.
pub(super) fn full_spool(vm: &Vm) -> Result<String> {
    let place = Place::new("full-spool")?;
    const DISK_BYTES: usize = 4 << 20;
    let disk = Disk::new("full", &DISK_BYTES.to_string())?;
    let more = ["-f", "handle"].map(str::to_owned);
    let (mut target, mut watch, _) = started(vm, &place, &disk, Target::For("server", LIMIT), &more)?;
    let has_calls = || -> Result<bool> {
        let lines = fs::read_to_string(place.path("lines"))?;
        // Half of a line may be there.
        Ok(documents(&lines).unwrap_or_default().iter().any(|line| calls(line, 0) > 0))
    };
    let begun = Instant::now();
    while !has_calls()? {
        ensure!(watch.try_wait()?.is_none() && begun.elapsed() < LIMIT, "no call is seen");
        sleep(LOOKED_AT_EACH);
    }
    let filled = fs::write(disk.root().join("filler"), vec![1; DISK_BYTES]);
    ensure!(filled.is_err(), "the disk is not full");
    let status = wait(&mut watch)?;
    let said = fs::read_to_string(place.path("said"))?;
    ensure!(status.code() == Some(3) && said.contains("No space left"), "{status}: {said}");
    runs_on(&mut target)?;
    signal("TERM", &target)?;
    wait(&mut target)?;
    let lines = fs::read_to_string(place.path("lines"))?;
    let documents = documents(&lines)?;
    let (report, intervals) = documents.split_last().with_context(|| format!("no report: {said}"))?;
    let sum: u64 = intervals.iter().map(|line| calls(line, 0)).sum();
    let reported = report["functions"][0]["latency_ns"]["count"].as_u64();
    ensure!(sum > 0 && reported == Some(sum), "{sum} calls in intervals, {reported:?} in the report: {said}");
    let left: Vec<_> =
        fs::read_dir(disk.root())?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    ensure!(left == ["filler"], "{left:?} are left");
    Ok(format!("{sum} calls up to where the disk was full"))
}

fn watch(vm: &Vm, more: &[&str]) -> Result<String> {
    let place = Place::new("watch")?;
    let metrics = place.path("metrics");
    let of_both = ["-f", "hot", "-f", "handle", "--openmetrics"].map(str::to_owned);
    let more = more.iter().map(|&word| word.to_owned());
    let more: Vec<String> = of_both.into_iter().chain([metrics.display().to_string()]).chain(more).collect();
    let Watched { documents, .. } = watched(vm, &place, SERVER, &more, &|_| Ok(()))?;
    let (report, intervals) = documents.split_last().context("nothing was printed")?;
    let with_calls = intervals.iter().filter(|line| calls(line, 0) > 0).count();
    ensure!(with_calls > 1, "{with_calls} of {} intervals have calls: {intervals:?}", intervals.len());
    for (function, expected) in [(0, 20 * REQUESTS), (1, REQUESTS)] {
        let sum: u64 = intervals.iter().map(|line| calls(line, function)).sum();
        let pointer = format!("/functions/{function}/latency_ns/count");
        let reported = report.pointer(&pointer).and_then(Value::as_u64);
        ensure!(
            (sum, reported) == (expected, Some(expected)),
            "function {function}: {sum} calls in intervals, {reported:?} in the report, not {expected}: {intervals:?}"
        );
    }
    // Each call of `handle` sleeps once, if its time is not over before: it may be where it is preempted.
    let waits = report.pointer("/functions/1/off_cpu_causes/reasons").and_then(Value::as_array);
    let sleeps = waits.into_iter().flatten().find(|reason| reason["name"] == "clock_nanosleep");
    let slept = sleeps.and_then(|reason| reason["count"].as_u64());
    let preempted: u64 = waits
        .into_iter()
        .flatten()
        .filter(|reason| reason["kind"] == "preempted")
        .filter_map(|it| it["count"].as_u64())
        .sum();
    let least = (REQUESTS * 9 / 10).saturating_sub(preempted);
    let is_so = slept.is_some_and(|slept| (least..=REQUESTS).contains(&slept));
    ensure!(is_so, "{slept:?} sleeps in {REQUESTS} calls: {waits:?}");
    let metrics = fs::read_to_string(&metrics)?;
    ensure!(metrics.ends_with("# EOF\n"), "no metrics: {metrics}");
    Ok(format!("{} intervals, {with_calls} with calls, {} calls", intervals.len(), 21 * REQUESTS))
}

/// What a watch has printed.
fn documents(lines: &str) -> Result<Vec<Value>> {
    Ok(serde_json::Deserializer::from_str(lines).into_iter::<Value>().collect::<Result<_, _>>()?)
}

/// Calls of a function in an interval.
fn calls(line: &Value, function: usize) -> u64 {
    line.pointer(&format!("/functions/{function}/calls")).and_then(Value::as_u64).unwrap_or(0)
}
