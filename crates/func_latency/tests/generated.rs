//! Help, completions and man pages: made from the command line's definition.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod golden;
mod program;

use std::path::Path;
use std::process::Command;

use golden::check_golden;
use program::check;

fn here(words: &[&str]) -> String {
    check(Path::new("."), words, 0).0
}

/// The lines of a help that are not indented, without those of the whole.
fn headings(help: &str) -> Vec<&str> {
    help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect()
}

/// `record --help` had the options of reports, none of which it took notice of.
#[test]
fn help_of_recordings_has_what_recordings_need() {
    let help = here(&["record", "--help"]);
    check_golden("record-help.txt", help.as_bytes());
    assert_eq!(headings(&help), ["Arguments:", "Options:", "What to look at:", "Recording:"]);
    let (_, error) = check(Path::new("."), &["record", "-p", "1", "--html", "calls.html"], 2);
    let first = error.lines().next().unwrap();
    assert_eq!(
        first,
        "error: --html is for reports: give it to `func_latency report`, or leave `record` out"
    );
}

#[test]
fn help_of_reports_comes_in_groups() {
    let help = here(&["report", "--help"]);
    let groups = ["What to look at:", "Decoding:", "Which calls:", "Report:", "Files to write:", "Checks:"];
    assert_eq!(headings(&help), [&["Arguments:", "Options:"][..], &groups].concat());
    let all = here(&["--help"]);
    let more = [
        "Recording:",
        "Taken, so that command lines of PT_PERF run:",
        "Probes (where there is no Intel PT):",
    ];
    assert_eq!(headings(&all), [&["Commands:", "Arguments:", "Options:"][..], &groups, &more].concat());
}

#[test]
fn help_of_exports_says_how_large_timelines_get() {
    let help = here(&["export", "--help"]);
    check_golden("export-help.txt", help.as_bytes());
    let timelines = help.split_once("\nTimelines:\n").unwrap().1;
    assert!(["--top <N>", "--min <NS>", "--all"].iter().all(|option| timelines.contains(option)));
}

/// What bash completes.
fn completed(words: &[&str]) -> Vec<String> {
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(func_latency \"$@\"); COMP_CWORD=$#; \
                  _func_latency func_latency \"${@: -1}\" \"${@: -2:1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    let output = bash.args(["-c", script, env!("CARGO_BIN_EXE_func_latency")]).args(words).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(completed(&["re"]), ["report", "record"]);
    assert_eq!(completed(&["top", "--b"]), ["--by"]);
    assert_eq!(completed(&["top", "--by", ""]), ["time", "self", "calls"]);
    assert_eq!(completed(&["completions", ""]), ["-h", "--help", "bash", "zsh", "fish"]);
    assert_eq!(completed(&["record", "--htm"]), [] as [&str; 0]);
}

#[test]
fn completions_are_of_three_shells() {
    assert_eq!(here(&["completions", "zsh"]).lines().next(), Some("#compdef func_latency"));
    let fish = here(&["completions", "fish"]);
    let of_top = "complete -c func_latency -n \"__fish_func_latency_using_subcommand top\" -l by ";
    assert!(fish.lines().any(|line| line.starts_with(of_top)), "{fish}");
    let (_, error) = check(Path::new("."), &["completions", "tcsh"], 2);
    assert!(error.contains("[possible values: bash, zsh, fish]"), "{error}");
}

#[test]
fn each_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    let (_, said) = check(directory.path(), &["man", "share/man1"], 0);
    assert_eq!(said, "func_latency: note: 21 man pages in share/man1\n");
    let pages = directory.path().join("share/man1");
    let mut names: Vec<String> = std::fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let commands = [
        "annotate",
        "bundle",
        "compare",
        "completions",
        "diff",
        "doctor",
        "dump",
        "explain",
        "export",
        "graph",
        "man",
        "merge",
        "modes",
        "plan",
        "record",
        "report",
        "show",
        "stat",
        "top",
        "watch",
    ];
    let mut expect: Vec<String> = commands.map(|command| format!("func_latency-{command}.1")).to_vec();
    expect.push("func_latency.1".to_owned());
    assert_eq!(names, expect);
    check_golden("func_latency-man.1", &std::fs::read(pages.join("func_latency-man.1")).unwrap());
    let record = std::fs::read_to_string(pages.join("func_latency-record.1")).unwrap();
    assert!(record.contains(".SH RECORDING\n") && !record.contains("html"), "{record}");
    std::fs::write(directory.path().join("file"), "").unwrap();
    let (_, error) = check(directory.path(), &["man", "file/man1"], 3);
    assert_eq!(error, "func_latency: error: cannot write file/man1: Not a directory (os error 20)\n");
}
