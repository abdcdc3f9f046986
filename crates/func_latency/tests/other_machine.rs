//! Recordings of other machines: files that are not here, traces without a recording.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::path::{Path, PathBuf};

use program::{Made, check};

/// A recording of a program that is in the directory `files` now.
fn moved(test: &str, made: Made) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(directory.join("files")).unwrap();
    program::write_made(&directory, "perf.data", made);
    std::fs::rename(directory.join("program"), directory.join("files/program")).unwrap();
    directory
}

/// "no process of the recording has mapped 'files/program'", although it was its program.
#[test]
fn the_binary_of_a_missing_object_is_used_for_it() {
    let directory = moved("binary_of_missing", Made::WHOLE);
    let (text, stderr) = check(&directory, &["report", "-f", "f", "-b", "files/program"], 0);
    assert!(text.contains("counted: 2 complete"), "{text}");
    assert!(
        stderr.contains("/program is not here: files/program is used in its place; it has the build id"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!text.contains("is used in its place"), "{text}");
    // Of another build it is not the one.
    let made = std::fs::read(directory.join("files/program")).unwrap();
    let id = made.windows(4).rposition(|bytes| bytes == program::BUILD_ID).unwrap();
    let mut other = made.clone();
    other[id] ^= 1;
    std::fs::write(directory.join("files/program"), other).unwrap();
    let (_, stderr) = check(&directory, &["report", "-f", "f", "-b", "files/program"], 2);
    assert!(
        stderr.contains("files/program has build id aacdef01, but the recording's is abcdef01"),
        "{stderr}"
    );
}

/// It stood on stderr and in the report.
#[test]
fn a_warning_that_the_report_has_is_not_on_stderr() {
    let directory = moved("warned_once", Made::WHOLE);
    let missing = "/program is missing";
    let address = "0x555500001020";
    for format in ["text", "json"] {
        let words = ["report", "-f", address, "--format", format];
        let (report, stderr) = check(&directory, &words, 1);
        assert_eq!(
            (report.matches(missing).count(), stderr.matches(missing).count()),
            (1, 0),
            "{report}\n{stderr}"
        );
    }
    // Where there is no report it is said all the same, once.
    for words in [&["report", "-f", "f"][..], &["explain", "-f", "f"]] {
        let (stdout, stderr) = check(&directory, words, 2);
        assert_eq!((stdout.as_str(), stderr.matches(missing).count()), ("", 1), "{stderr}");
    }
}

/// Each library of the process was warned of, and none but the function was traced.
#[test]
fn libraries_outside_of_the_ip_filter_are_not_warned_of() {
    let directory =
        moved("outside_filter", Made { filter: "filter 0x1000/0x40@/other/program", ..Made::WHOLE });
    let (_, stderr) = check(&directory, &["dump", "--sideband"], 0);
    assert_eq!(stderr, "");
    let (_, stderr) = check(&directory, &["explain", "-f", "f"], 2);
    assert!(!stderr.contains("is missing"), "{stderr}");
    let of_it = directory.join("program");
    let filter = format!("filter 0x1000/0x40@{}", of_it.display());
    program::write_made(&directory, "perf.data", Made { filter: filter.leak(), ..Made::WHOLE });
    std::fs::remove_file(of_it).unwrap();
    let (_, stderr) = check(&directory, &["explain", "-f", "f"], 2);
    assert!(stderr.contains("is missing"), "{stderr}");
}

/// Each call of a library that is not here cut all that was open: no call of `f` was complete.
#[test]
fn calls_of_a_missing_library_cut_nothing() {
    let directory = moved("calls_missing", Made { calls_missing: true, ..Made::WHOLE });
    let words = ["report", "-f", "f", "-b", "files/program", "--check"];
    let (text, stderr) = check(&directory, &words, 0);
    assert!(text.contains("counted: 2 complete, 0 unwound; not counted: 0 open at start"), "{text}");
    assert!(text.contains("[library.so]") && text.contains("of the time was lost"), "{text}");
    assert!(text.contains("/nowhere/library.so is missing"), "{text}\n{stderr}");
    let note = "unknown for 2 calls in which code is missing: what ran there is not known";
    assert!(!text.contains(note), "{text}");
    let (text, _) = check(&directory, &[&words[..], &["--counters"]].concat(), 0);
    assert!(text.contains(note), "{text}");
}

/// "not a perf.data file".
#[test]
fn raw_trace_is_recognised_and_what_it_lacks_is_said() {
    let directory = moved("raw_trace", Made::WHOLE);
    let raw = [[0x02, 0x82].repeat(8), vec![0x02, 0x23]].concat();
    std::fs::write(directory.join("trace.pt"), raw).unwrap();
    for words in [&["report", "trace.pt", "-f", "f"][..], &["dump", "--packets", "trace.pt"]] {
        let (_, stderr) = check(&directory, words, 4);
        assert!(stderr.contains("trace.pt is raw Intel PT"), "{stderr}");
        assert!(
            stderr.contains("which code was mapped where") && stderr.contains("func_latency record"),
            "{stderr}"
        );
    }
}
