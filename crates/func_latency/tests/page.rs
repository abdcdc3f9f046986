//! `--html` and `--open` from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A session without a display, and with nothing that opens pages.
fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(words).current_dir(directory);
    for name in ["SSH_CONNECTION", "SUDO_USER", "USER", "DISPLAY", "WAYLAND_DISPLAY", "PATH"] {
        command.env_remove(name);
    }
    command
}

/// What it says on stderr, as it ends with `code`.
fn says(command: &mut Command, code: i32) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{command:?}: {stderr}");
    stderr
}

fn check(directory: &Path, words: &[&str], code: i32) -> String {
    says(&mut command(directory, words), code)
}

fn recorded(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page").join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    program::write(&directory, &program::BUILD_ID);
    directory
}

/// The page has both calls, and is the same for every number of workers.
#[test]
fn a_page_of_both_calls() {
    let directory = recorded("page");
    let page = |workers: &str| {
        check(&directory, &["report", "-f", "f", "--html", "calls.html", "--check", "-w", workers], 0);
        std::fs::read_to_string(directory.join("calls.html")).unwrap()
    };
    let one = page("1");
    assert!(one.contains("\"name\":\"f\"") && one.contains("\"calls\":2") && one.contains("id=\"calls-0\""));
    assert!(one.starts_with("<!DOCTYPE html>") && one.ends_with("</html>\n"));
    assert_eq!(one, page("4"));
    check(&directory, &["report", "-f", "f", "--html", "no/such/dir/calls.html"], 3);
}

/// Data of counters is in the page only where they were asked for; what else is there does not change.
#[test]
fn counters_are_in_the_page_on_request() {
    let directory = recorded("counters");
    let data = |words: &[&str]| {
        check(&directory, &[&["report", "-f", "f", "--html", "calls.html"], words].concat(), 0);
        let page = std::fs::read_to_string(directory.join("calls.html")).unwrap();
        let elements =
            page.lines().filter(|line| line.starts_with("<script type=\"") && line.contains(" id=\""));
        elements.map(str::to_owned).collect::<Vec<_>>()
    };
    let (without, with) = (data(&[]), data(&["--counters"]));
    assert_eq!((without.len(), with.len()), (4, 5));
    assert!(!without[0].contains("\"counters\"") && !without[0].contains("\"ledger\""), "{}", without[0]);
    assert_eq!(without[1..], with[1..4]);
    assert!(with[4].contains("id=\"counters-0\""), "{}", with[4]);
    let added = r#","counters":{"cycles":true,"kernel":false,"frequency":true,"user":true,"is_filtered":false},"ledger":{"#;
    assert!(with[0].contains(added), "{}", with[0]);
    assert_eq!(data(&["--counters", "-w", "1"]), data(&["--counters", "-w", "4"]));
}

/// One pass over the recording is for both.
#[test]
fn a_page_changes_nothing_of_a_flame_graph() {
    let directory = recorded("flame-graph");
    let flame_graph = || std::fs::read_to_string(directory.join("flamegraph-latency.svg")).unwrap();
    check(&directory, &["report", "-f", "f", "-F", "latency"], 0);
    let alone = flame_graph();
    check(&directory, &["report", "-f", "f", "-F", "latency", "--html", "both.html"], 0);
    assert_eq!(flame_graph(), alone);
    check(&directory, &["report", "-f", "f", "--html", "page.html"], 0);
    let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(page("both.html"), page("page.html"));
}

#[test]
fn open_says_what_to_do_where_there_is_no_browser() {
    let directory = recorded("no-browser");
    let words = ["report", "-f", "f", "--html", "calls.html", "--open"];
    let page = directory.join("calls.html").display().to_string();
    assert_eq!(
        check(&directory, &words, 0),
        format!("func_latency: note: --open: there is no display here; open file://{page} yourself\n")
    );
    let mut over_ssh = command(&directory, &words);
    over_ssh.env("SSH_CONNECTION", "192.0.2.7 50000 192.0.2.1 22").env("USER", "ann");
    assert_eq!(
        says(&mut over_ssh, 0),
        format!(
            "func_latency: note: --open: there is no browser over ssh; on your machine: scp ann@192.0.2.1:{page} . \
             and open it there, it is one file\n"
        )
    );
    let without_page = check(&directory, &["report", "-f", "f", "--open"], 2);
    assert!(without_page.contains("--html <FILE>"), "{without_page}");
}

#[test]
fn open_gives_the_page_to_the_desktop() {
    let directory = recorded("desktop");
    let opener = directory.join("xdg-open");
    std::fs::write(&opener, "#!/bin/sh\nprintf %s \"$1\" > opened.part && /bin/mv opened.part opened\n")
        .unwrap();
    std::fs::set_permissions(&opener, Permissions::from_mode(0o755)).unwrap();
    let mut command = command(&directory, &["report", "-f", "f", "--html", "my calls.html", "--open"]);
    assert_eq!(says(command.env("PATH", &directory).env("DISPLAY", ":0"), 0), "");
    let (opened, started) = (directory.join("opened"), Instant::now());
    while !opened.exists() {
        assert!(started.elapsed() < Duration::from_secs(10), "nothing was opened");
        std::thread::sleep(Duration::from_millis(10));
    }
    let page = format!("file://{}/my%20calls.html", directory.display());
    assert_eq!(std::fs::read_to_string(opened).unwrap(), page);
}
