//! What a hostile recording, file or name does to the command: docs/security.md.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_func_latency");

fn check(directory: &Path, words: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } =
        Command::new(BINARY).args(words).current_dir(directory).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{words:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// An empty directory.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A file name with a line end had a line of its own on stderr and in reports.
#[test]
fn names_do_not_forge_lines() {
    let forged = "func_latency: error: forged";
    let directory = scratch("hostile-names").join(format!("a\n{forged}"));
    fs::create_dir_all(&directory).unwrap();
    program::write(&directory, &program::BUILD_ID);
    program::rename_outer(&directory, b"o\n\x1b[m");
    let text: [&[&str]; 8] = [
        &["report", "-f", "f"],
        &["report", "-f", "f", "-l"],
        &["modes", "-f", "f"],
        &["graph", "-f", "*"],
        &["dump", "--branches"],
        &["dump", "--sideband"],
        &["show", "-f", "f", "77-0"],
        &["export", "-f", "f", "--format", "folded", "-o", "/dev/stdout"],
    ];
    let harmless = |text: &str| {
        assert!(!text.contains(forged) || text.lines().all(|line| !line.starts_with(forged)), "{text}");
        assert!(!text.contains('\x1b') && !text.lines().any(|line| line.starts_with("\u{1b}[m")), "{text}");
    };
    for words in text {
        let output = Command::new(BINARY).args(words).current_dir(&directory).output().unwrap();
        assert!(output.status.success(), "{words:?} {}", String::from_utf8_lossy(&output.stderr));
        harmless(&String::from_utf8(output.stdout).unwrap());
        harmless(&String::from_utf8(output.stderr).unwrap());
    }
    let (report, _) = check(&directory, &["report", "-f", "f"], 0);
    assert!(report.contains("o\\u{a}\\u{1b}[m"), "{report}");
    // Machines get the name, in their quotes.
    let (json, _) = check(&directory, &["report", "-f", "f", "--format", "json"], 0);
    assert!(json.contains("o\\n\\u001b[m"), "{json}");
    let (_, unknown) = check(&directory, &["report", "-f", "f", "-b", "nothing"], 2);
    harmless(&unknown);
    assert!(
        unknown.contains("\n  ") && unknown.contains("a\\u{a}func_latency: error: forged/program"),
        "{unknown}"
    );
    fs::remove_file(directory.join("program")).unwrap();
    harmless(&check(&directory, &["report", "-f", "f"], 2).1);
}

/// A link to `/etc/shadow` in the place of a perf map had that file copied into the bundle that root made.
#[test]
fn a_link_in_the_place_of_a_map_leads_to_nothing() {
    let directory = scratch("hostile-map");
    program::write(&directory, &program::BUILD_ID);
    program::write_named(&directory, "//anon");
    fs::create_dir_all(directory.join("root/tmp")).unwrap();
    fs::write(directory.join("secret"), "root:$y$j9T$secret:19000::::::\n5 5 not code\n").unwrap();
    symlink("../../secret", directory.join("root/tmp/perf-77.map")).unwrap();
    check(&directory, &["bundle", "--symfs", "root", "-o", "there"], 0);
    assert_eq!(names_in(&directory.join("there")), ["perf.data"]);
    fs::remove_file(directory.join("root/tmp/perf-77.map")).unwrap();
    fs::copy(directory.join("secret"), directory.join("root/tmp/perf-77.map")).unwrap();
    check(&directory, &["bundle", "--symfs", "root", "-o", "of a map"], 0);
    let map = fs::read_to_string(directory.join("of a map/objects/tmp/perf-77.map")).unwrap();
    assert_eq!(map, "5 5 not code\n", "and what is no line of a map is not there");
}

/// It overwrote the recording of the bundle.
#[test]
fn an_object_that_is_named_as_the_recording_is_beside_it() {
    let directory = scratch("hostile-perf-data");
    program::write(&directory, &program::BUILD_ID);
    program::write_named(&directory, "/perf.data");
    fs::create_dir(directory.join("root")).unwrap();
    fs::rename(directory.join("program"), directory.join("root/perf.data")).unwrap();
    check(&directory, &["bundle", "--symfs", "root", "-o", "there"], 0);
    assert_eq!(names_in(&directory.join("there")), ["objects", "perf.data"]);
    assert_eq!(
        fs::read(directory.join("there/perf.data")).unwrap(),
        fs::read(directory.join("perf.data")).unwrap()
    );
    check(&directory, &["report", "-f", "f", "there/perf.data", "--symfs", "there/objects"], 0);
}

#[test]
fn what_a_bundle_does_not_take_is_named() {
    let directory = scratch("hostile-dots");
    program::write(&directory, &program::BUILD_ID);
    let name = format!("/..{}", directory.join("program").display());
    program::write_named(&directory, &name);
    let (_, stderr) = check(&directory, &["bundle", "-o", "there"], 0);
    assert!(stderr.contains(&format!("{name} is not in the bundle: ")), "{stderr}");
    assert_eq!(names_in(&directory.join("there")), ["perf.data"]);
}

/// What was written stayed, and the next try refused to write where it was.
#[test]
fn a_bundle_is_whole_or_not_there() {
    let directory = scratch("hostile-full-disk");
    program::write(&directory, &program::BUILD_ID);
    // Beyond it a write fails: the recording fits, the program does not.
    let size = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
    let kilobytes = size("perf.data").div_ceil(1024);
    assert!(size("program") > kilobytes * 1024);
    let limited = format!("ulimit -f {}; exec \"$0\" bundle -o there", kilobytes * 1024 / 512);
    let output = Command::new("sh").args(["-c", &limited, BINARY]).current_dir(&directory).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("cannot write there/objects/"), "{stderr}");
    assert_eq!(names_in(&directory), ["perf.data", "program"]);
    check(&directory, &["bundle", "-o", "there"], 0);
}

/// Root bundles a directory that another user has made.
#[test]
fn links_of_a_recording_lead_nowhere() {
    let directory = scratch("hostile-links");
    program::write(&directory, &program::BUILD_ID);
    fs::create_dir(directory.join("recording")).unwrap();
    fs::rename(directory.join("perf.data"), directory.join("recording/data")).unwrap();
    symlink("/etc/passwd", directory.join("recording/data.0")).unwrap();
    let (_, stderr) = check(&directory, &["bundle", "recording", "-o", "there"], 4);
    assert!(stderr.contains("recording/data.0 is not a regular file"), "{stderr}");
    fs::remove_file(directory.join("recording/data.0")).unwrap();
    symlink("/etc", directory.join("recording/kcore_dir")).unwrap();
    check(&directory, &["bundle", "recording", "-o", "there"], 0);
    assert_eq!(names_in(&directory.join("there/perf.data")), ["data"]);
}

/// Runs `words`, cuts `file` when the first message is about to be written, and lets it go on: exit code and
/// stderr.
fn cut_while_it_runs(directory: &Path, words: &[&str], file: &str) -> (Option<i32>, String) {
    let (mut ours, mut its) = UnixStream::pair().unwrap();
    // Full, so that its first message waits until we have read.
    its.set_nonblocking(true).unwrap();
    let mut filled = 0;
    let full = loop {
        match its.write(&[b'.'; 4096]) {
            Ok(bytes) => filled += bytes,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    its.set_nonblocking(false).unwrap();
    let stderr = Stdio::from(OwnedFd::from(its));
    let mut command = Command::new(BINARY);
    command.args(words).current_dir(directory).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.spawn().unwrap();
    drop(command);
    let waits = || {
        // write(2, ...)
        let syscall = fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
        syscall.starts_with("1 0x2 ") || syscall.starts_with("44 0x2 ") || syscall.is_empty()
    };
    while !waits() {
        std::thread::yield_now();
    }
    OpenOptions::new().write(true).open(directory.join(file)).unwrap().set_len(0).unwrap();
    ours.read_exact(&mut vec![0; filled]).unwrap();
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

/// SIGBUS ended the command without a word.
#[test]
fn a_recording_that_is_cut_while_it_is_read_is_bad_input() {
    let directory = scratch("hostile-cut-recording");
    program::write(&directory, &program::BUILD_ID);
    let words = ["report", "-f", "f", "--verbose", "--rows", "rows.csv"];
    let (code, stderr) = cut_while_it_runs(&directory, &words, "perf.data");
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("error: perf.data was cut while it was read"), "{stderr}");
    assert!(!directory.join("rows.csv").exists(), "a result of what was not there");
}

#[test]
fn an_object_that_is_cut_while_it_is_read_is_bad_input() {
    let directory = scratch("hostile-cut-object");
    program::write(&directory, &program::BUILD_ID);
    let words = ["report", "-f", "f", "--verbose"];
    let (code, stderr) = cut_while_it_runs(&directory, &words, "program");
    assert_eq!(code, Some(4), "{stderr}");
    let says = format!("error: {} was cut while it was read", directory.join("program").display());
    assert!(stderr.contains(&says), "{stderr}");
}
