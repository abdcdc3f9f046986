//! `top` of a program of five instructions, as a user types it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use program::{BUILD_ID, check, write};

const LIST: &str = "perf.data: 520 ns of 1 thread, 2 functions called

  function  object   calls      total      %       self      %
  outer     program      1   < 770 ns  < 100   < 770 ns  < 100
  f         program      2  < 1.20 us  < 100  < 1.20 us  < 100

total: the function and what it called; %: of the threads' time, on the CPU or not
choose one: func_latency report -i perf.data -f 'FUNC'
";

/// It asked for a function, and had no list of them.
#[test]
fn a_report_without_a_function_lists_those_that_there_are() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &BUILD_ID);
    for words in [&["top"][..], &["list", "perf.data"], &["top", "-i", "perf.data"], &["report"]] {
        assert_eq!(check(directory.path(), words, 0), (LIST.to_owned(), String::new()), "{words:?}");
    }
    let one = ["report", "--top", "1"];
    let (text, _) = check(directory.path(), &one, 0);
    assert!(
        text.contains("\n  ... 1 more function; --all prints them\n"), // not "< 100 % of the time"
        "{text}"
    );
    let (json, _) = check(directory.path(), &["report", "--format", "json"], 0);
    assert!(json.starts_with("{\n  \"schema\": \"func_latency_top/1\",\n"), "{json}");
}

#[test]
fn what_needs_a_function_says_how_to_find_one() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &BUILD_ID);
    let which = "which function? Name it with -f FUNC; `func_latency top` lists those that a recording has";
    for words in [&["report", "-l"][..], &["report", "--rows", "a.csv"], &["modes"], &["show", "77-1"]] {
        let (text, error) = check(directory.path(), words, 2);
        assert_eq!((text.as_str(), error.contains(which)), ("", true), "{words:?}: {error}");
    }
}

#[test]
fn errors_name_the_place_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["top"], 4, "perf.data"),
        (&["top", "-i", "other.data"], 4, "other.data"),
        (&["top", "-d", "1", "-i", "other.data"], 2, "cannot be used with"),
        (&["top", "-i", "other.data", "--by", "name"], 2, "[possible values: time, self, calls]"),
    ];
    for (words, code, says) in cases {
        let (_, error) = check(directory.path(), words, code);
        assert!(error.contains(says), "{words:?}: {error}");
    }
    write(directory.path(), &BUILD_ID);
    for (words, says) in [
        (&["-T", "5"][..], "-T: no such thread in the recording, which has 77"),
        (&["-p", "5"], "-p: no such process in the recording, which has 77"),
        (&["-p", "77", "-T", "5"], "-p and -T: no such thread in the recording, which has 77"),
    ] {
        let (_, error) = check(directory.path(), &[&["top", "-i", "perf.data"], words].concat(), 2);
        assert_eq!(error, format!("func_latency: error: {says}\n"));
    }
}
