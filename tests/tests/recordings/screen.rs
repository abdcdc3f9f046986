//! The view of `watch` in a pseudo-terminal: what keys, other sizes, signals and the terminal's end do.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use truth_tests::fixture;
use truth_tests::terminal::InTerminal;

/// A watch of the fixture `rare`, in a terminal of 80 columns; `None`: the fixture is not there.
fn watched(more: &[&str]) -> Option<(InTerminal, TempDir)> {
    let directory = tempfile::tempdir().unwrap();
    Some((watched_in(directory.path(), more)?, directory))
}

fn watched_in(directory: &Path, more: &[&str]) -> Option<InTerminal> {
    let data = fixture("rare")?.data;
    let command = [env!("CARGO_BIN_EXE_func_latency_under_test"), "watch", "-f", "rarely_slow"];
    let interval = if more.contains(&"-n") { &[][..] } else { &["-n", "0.001"] };
    let words = [&command[..], interval, more, &["--replay", data.to_str().unwrap()]].concat();
    Some(InTerminal::start(&words, directory, (24, 80)).unwrap())
}

/// What was written when the view had been left.
fn after_view(terminal: &InTerminal) -> String {
    terminal.written().rsplit_once("\x1b[?1049l").unwrap().1.to_owned()
}

#[test]
fn a_slow_call_is_opened_by_keys() {
    let Some((mut terminal, directory)) = watched(&[]) else { return };
    let ended = terminal.shows("the watch has ended").unwrap();
    assert!(ended.contains("ordinary_part") && ended.contains("slowest of 5 minutes"), "{ended}");
    terminal.press("a").unwrap();
    let all = terminal.shows("all calls so far").unwrap();
    assert!(all.contains("60,000"), "all calls: {all}");
    terminal.press("\x1b[B\r").unwrap();
    let tree = terminal.shows("of [rarely_slow], called from").unwrap();
    assert!(tree.contains("slow_part"), "{tree}");
    terminal.press("w").unwrap();
    terminal.shows("page: captures/").unwrap();
    let captures: Vec<_> = fs::read_dir(directory.path().join("captures")).unwrap().collect();
    assert_eq!(captures.len(), 1);
    let page = fs::read_to_string(captures[0].as_ref().unwrap().path().join("page.html")).unwrap();
    assert!(page.contains("rarely_slow"));
    terminal.press("\x1b").unwrap();
    terminal.shows("slowest of 5 minutes").unwrap();
    terminal.press("q").unwrap();
    assert!(terminal.ends().unwrap().success());
    let report = after_view(&terminal);
    assert!(report.contains("count: 60,000") && report.contains("1 captured, 1 kept"), "{report}");
    let wants_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    assert_eq!(terminal.written().contains("48;5;"), wants_colours);

    // Another watch of the recording opens the capture that is there.
    let Some(mut terminal) = watched_in(directory.path(), &[]) else { return };
    terminal.shows("the watch has ended").unwrap();
    terminal.press("\x1b[B\r").unwrap();
    terminal.shows("of [rarely_slow], called from").unwrap();
    terminal.press("q").unwrap();
    assert!(terminal.ends().unwrap().success());
}

/// Ends the view in this way; the report comes all the same.
fn ended_by(end: impl FnOnce(&InTerminal)) {
    let Some((mut terminal, _directory)) = watched(&[]) else { return };
    terminal.shows("the watch has ended").unwrap();
    end(&terminal);
    let status = terminal.ends().unwrap();
    let report = after_view(&terminal);
    assert!(status.success() && report.contains("count: 60,000"), "{status}: {report}");
    assert!(!report.contains("0 hits"), "no capture was asked for: {report}");
}

#[test]
fn ctrl_c_and_signals_end_the_view_with_a_report() {
    ended_by(|terminal| terminal.press("\x03").unwrap());
    ended_by(|terminal| {
        let pid = Pid::from_raw(i32::try_from(terminal.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    });
}

/// All of the recording is one interval, and each call a hit: captures are made for a minute. It was deaf
/// to Ctrl-C until they were.
#[test]
fn ctrl_c_ends_what_still_goes_on_when_the_view_was_left() {
    let many = ["-n", "1000", "--over", "1ns", "--max-captures", "10000/1s", "--keep", "10000"];
    let small = ["--keep-bytes", "50M", "--before", "0ns", "--after", "0ns"];
    let Some((mut terminal, directory)) = watched(&[&many[..], &small].concat()) else { return };
    let captures = || fs::read_dir(directory.path().join("captures"));
    terminal.until("a capture is there", |_| captures().is_ok_and(|mut all| all.next().is_some())).unwrap();
    terminal.press("q").unwrap();
    terminal.writes("\x1b[?1049l").unwrap();
    // The watch may still take the first one, where it looks if it is over; the next one ends the program.
    let until = Instant::now() + Duration::from_secs(20);
    while terminal.child.try_wait().unwrap().is_none() && Instant::now() < until {
        terminal.press("\x03").unwrap();
        let next = Instant::now() + Duration::from_millis(200);
        terminal.until("a moment passes", |_| Instant::now() > next).unwrap();
    }
    assert!(Instant::now() < until, "it is deaf to Ctrl-C");
    let status = terminal.ends().unwrap();
    // Where q was heard between two captures nothing may have been left to interrupt.
    assert!(status.success() || status.signal() == Some(Signal::INT.as_raw()), "{status}");
}

#[test]
fn the_view_follows_the_size_of_the_terminal() {
    let Some((mut terminal, _directory)) = watched(&[]) else { return };
    terminal.shows("the watch has ended").unwrap();
    terminal.resize(10, 40).unwrap();
    terminal.shows("60 x 16 at least").unwrap();
    terminal.resize(60, 200).unwrap();
    terminal.shows("up/down  enter tree  w page").unwrap();
    terminal.press("q").unwrap();
    assert!(terminal.ends().unwrap().success());
}

#[test]
fn a_watch_ends_when_its_terminal_is_gone() {
    let Some((mut terminal, _directory)) = watched(&[]) else { return };
    terminal.shows("the watch has ended").unwrap();
    terminal.close().unwrap();
}

#[test]
fn lines_can_be_had_on_a_terminal() {
    let Some((mut terminal, _directory)) = watched(&["--lines"]) else { return };
    assert!(terminal.ends().unwrap().success());
    let text = terminal.written();
    assert!(text.contains("calls/s") && !text.contains("\x1b[?1049h"), "{text}");
}

/// A program with calls of `work` that sleep (`crates/func_latency/tests/uprobes/slow.c`); `None`: probes are
/// not there, which is said.
fn slow_program(directory: &Path) -> Option<Child> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/func_latency/tests/uprobes/slow.c");
    let program = directory.join("slow");
    let compiled = Command::new("gcc").args(["-O2", "-pthread", source, "-o"]).arg(&program).status();
    assert!(compiled.unwrap().success());
    let mut command = Command::new(&program);
    let mut child = command.arg("200000").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut tried = Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"));
    let words = ["--backend", "uprobe", "-f", "work", "-d", "0.1", "-p", &child.id().to_string()];
    let said = String::from_utf8(tried.args(words).output().unwrap().stderr).unwrap();
    let why = ["does not permit", "/sys/kernel/btf", "without eBPF"];
    if why.iter().any(|why| said.contains(why)) {
        println!("skipped: {said}");
        child.kill().and_then(|()| child.wait()).unwrap();
        return None;
    }
    Some(child)
}

/// Where there is no Intel PT the view is the same; an opened call is what is known of it.
#[test]
fn a_call_that_probes_have_seen_is_opened_by_keys() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut program) = slow_program(directory.path()) else { return };
    let pid = program.id().to_string();
    let words = [
        env!("CARGO_BIN_EXE_func_latency_under_test"),
        "watch",
        "--backend",
        "uprobe",
        "-f",
        "work",
        "-n",
        "0.2",
        // The program does little else than to call it.
        "--max-overhead",
        "1e9",
        "-p",
        &pid,
    ];
    let mut terminal = InTerminal::start(&words, directory.path(), (30, 100)).unwrap();
    let figures = terminal.shows("probes cost").unwrap();
    assert!(figures.contains("slowest of 5 minutes"), "{figures}");
    terminal.press("a").unwrap();
    terminal.shows("all calls so far").unwrap();
    terminal.press("\r").unwrap();
    let call = terminal.shows("called from main").unwrap();
    assert!(call.contains("off the CPU"), "{call}");
    terminal.press("w").unwrap();
    terminal.shows("a page needs a trace").unwrap();
    terminal.press("\x1b").unwrap();
    terminal.shows("slowest of 5 minutes").unwrap();
    // The target ends, and the view stays.
    program.kill().and_then(|()| program.wait()).unwrap();
    terminal.shows("the watch has ended").unwrap();
    terminal.press("q").unwrap();
    assert!(terminal.ends().unwrap().success());
    let report = after_view(&terminal);
    assert!(report.contains("Latency of [work]") && report.contains("1 captured, 1 kept"), "{report}");
}
