//! Report and dump of a small recording, from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod program;

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_func_latency"));
    command.args(words).current_dir(directory);
    command
}

/// Runs it on a recording in a directory of its own; stdout and stderr.
fn check(directory: &Path, words: &[&str], code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = command(directory, words).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{words:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

fn recorded(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    program::write(&directory, &program::BUILD_ID);
    directory
}

/// Root is told nothing of files that not every user may read, as those of this build may be.
fn is_private(stderr: &str) -> bool {
    let is_private = stderr.contains("no more is said of files that not every user may read");
    if is_private {
        println!("skipped: not every user may read the directory of this build");
    }
    is_private
}

#[test]
fn two_calls_from_two_sites() {
    let directory = recorded("two_calls");
    let (json, stderr) = check(&directory, &["report", "-f", "f", "--format", "json", "--check"], 0);
    assert_eq!(stderr, "");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "func_latency/3");
    let f = &json["functions"][0];
    assert_eq!((&f["name"], &f["calls"]["complete"]), (&"f".into(), &2.into()));
    let sites: Vec<_> =
        f["callers"].as_array().unwrap().iter().map(|c| c["site"].as_str().unwrap()).collect();
    assert_eq!(sites.len(), 2);
    assert!(sites.contains(&"program+0x1000") && sites.contains(&"program+0x1005"), "{sites:?}");
    assert_eq!(json["loss"]["coverage"], 1.0);
    assert_eq!(json["loss"]["by_cause"].as_array().unwrap().len(), 0);
}

#[test]
fn every_output_is_the_same_for_all_workers() {
    let directory = recorded("workers");
    for words in [
        &["report", "-f", "f"][..],
        &["report", "-f", "f", "--format=json"],
        &["report", "-f", "f", "-c"],
        &["annotate", "-f", "f", "--format=json"],
        &["dump", "--branches"],
    ] {
        let with = |workers: &'static str| check(&directory, &[words, &["-w", workers]].concat(), 0).0;
        assert_eq!(with("1"), with("4"), "{words:?}");
    }
}

#[test]
fn rows_have_the_columns_in_their_order() {
    let directory = recorded("rows");
    check(&directory, &["report", "perf.data", "-f", "f", "--rows", "calls.csv"], 0);
    let rows = std::fs::read_to_string(directory.join("calls.csv")).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!(lines.len(), 3, "{rows}");
    assert_eq!(
        lines[0],
        "id,tid,cpu,start_ns,latency_ns,error_ns,off_cpu_ns,status,caller,site,function,aux_buffer,aux_offset,cut_by,\
         undecided,ended_by_jump,pid,thread,waited_for,measured_ns,measured_off_cpu_ns,began,end_ns,\
         depth,process,object,build_id,host,recording,start_realtime_ns"
    );
    assert!(lines[1].starts_with("77-0,77,3,") && lines[1].contains(",complete,outer,program+0x1000,f,0,0x"));
    assert!(lines[1].contains(",,false,false,77,program,,,,,1000141,0,program,"), "{rows}");
    let (_, stderr) =
        check(&directory, &["report", "perf.data", "-f", "f", "--rows", "no/such/dir/calls.csv"], 3);
    assert!(stderr.contains("cannot write no/such/dir/calls.csv: No such file"), "{stderr}");
}

#[test]
fn branches_in_order() {
    let directory = recorded("branches");
    let (branches, _) = check(&directory, &["dump", "--branches"], 0);
    let kinds: Vec<String> =
        branches.lines().map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        kinds,
        [
            "start -> 0x555500001000 outer+0x0",
            "call 0x555500001000 outer+0x0 -> 0x555500001020 f+0x0",
            "return 0x555500001020 f+0x0 -> 0x555500001005 outer+0x5",
            "call 0x555500001005 outer+0x5 -> 0x555500001020 f+0x0",
            "return 0x555500001020 f+0x0 -> 0x55550000100a outer+0xa",
            "end syscall 0x55550000100a outer+0xa",
        ]
    );
}

#[test]
fn packets_and_sideband() {
    let directory = recorded("dump");
    let (packets, _) = check(&directory, &["dump", "--packets"], 0);
    assert_eq!(packets.lines().next(), Some("0 0x00000000 PSB"));
    assert_eq!(packets.lines().count(), 12);
    let (sideband, _) = check(&directory, &["dump", "--sideband", "-T", "77", "--ti", "999980,0,0"], 0);
    assert_eq!(sideband.lines().count(), 2, "{sideband}");
    assert!(sideband.contains("COMM exec 77/77 program"), "{sideband}");
}

#[test]
fn a_function_that_is_not_there_or_never_called() {
    let directory = recorded("unknown");
    let (stdout, stderr) = check(&directory, &["report", "-f", "outre"], 2);
    assert_eq!(stdout, "");
    assert!(stderr.contains("no function is called 'outre'") && stderr.contains("outer  ("), "{stderr}");
    let (stdout, stderr) = check(&directory, &["report", "-f", "never"], 1);
    assert!(stdout.contains("no call of any kind was seen"), "{stdout}");
    assert!(stderr.contains("no call of never") && stderr.contains("1 thread with"), "{stderr}");
    let (_, stderr) = check(&directory, &["report", "-f", "f", "-T", "5-6"], 2);
    assert!(stderr.contains("has 77"), "{stderr}");
    for address in ["0x0", "program+0x9999999"] {
        let (_, stderr) = check(&directory, &["report", "-f", address], 2);
        assert_eq!(stderr, format!("func_latency: error: no function covers the address '{address}'\n"));
    }
}

/// `-f '*'` printed a section for each of thousands of functions that nothing had called.
#[test]
fn a_pattern_reports_only_what_was_called() {
    let directory = recorded("pattern");
    let (stdout, stderr) = check(&directory, &["report", "-f", "*"], 0);
    assert!(stdout.contains("Latency of [f]") && !stdout.contains("never"), "{stdout}");
    assert!(stderr.contains("1 of the 3 functions were not called"), "{stderr}");
    // A function that is named is told of.
    let (stdout, _) = check(&directory, &["report", "-f", "f", "-f", "never"], 0);
    assert!(stdout.contains("Latency of [never]"), "{stdout}");
    let (stdout, _) = check(&directory, &["report", "-f", "nev*"], 1);
    assert!(stdout.contains("no call of any kind was seen"), "{stdout}");
}

/// `-T 77,999` said nothing about 999.
#[test]
fn a_thread_that_is_not_there_is_named() {
    let directory = recorded("thread");
    let (_, stderr) = check(&directory, &["report", "-f", "f", "-T", "77,999"], 0);
    assert!(stderr.contains("-T 999: no such thread in the recording, which has 77"), "{stderr}");
    // Dumps were empty.
    for what in ["--packets", "--branches", "--sideband"] {
        let (stdout, stderr) = check(&directory, &["dump", what, "-T", "5-6,999"], 2);
        assert_eq!(stdout, "", "{what}");
        assert!(stderr.contains("-T: no such thread in the recording, which has 77\n"), "{what}: {stderr}");
        let (stdout, stderr) = check(&directory, &["dump", what, "-T", "77,999"], 0);
        assert!(!stdout.is_empty() && stderr.contains("-T 999: no such thread in"), "{what}: {stderr}");
    }
}

/// `explain` ended as if it had been typed wrongly.
#[test]
fn a_call_that_is_not_there_is_the_same_to_all() {
    let directory = recorded("no-such-call");
    for command in ["show", "explain"] {
        let (stdout, stderr) = check(&directory, &[command, "77-9", "-f", "f"], 1);
        assert_eq!(stdout, "", "{command}");
        assert!(stderr.ends_with("error: there is no call 77-9; `report --rows` lists them\n"), "{stderr}");
    }
}

/// Files that have no rows had no such call, and what chooses calls was not looked at.
#[test]
fn rows_that_say_where_a_call_is_are_ours_and_choose_it_alone() {
    let directory = recorded("rows-of-show");
    check(&directory, &["report", "-f", "f", "--rows", "calls.csv"], 0);
    let words = ["show", "77-1", "-f", "f", "--rows"];
    let (text, _) = check(&directory, &[&words[..], &["calls.csv"]].concat(), 0);
    assert!(text.starts_with("call 77-1 of [f]"), "{text}");
    for more in [["-a", "outer"], ["--li", "1,"], ["--ti", "0,0,9"], ["-T", "77"], ["-p", "77"]] {
        let (stdout, stderr) = check(&directory, &[&words[..], &["calls.csv"], &more].concat(), 2);
        assert_eq!(stdout, "");
        assert!(stderr.contains("cannot be used with"), "{stderr}");
    }
    for (name, text, says) in [
        ("wrong.csv", "x\n", "wrong.csv: line 1: no column id, which report --rows writes"),
        ("wrong.jsonl", "[]\n", "wrong.jsonl: line 1: no row as report --rows writes it"),
    ] {
        std::fs::write(directory.join(name), text).unwrap();
        let (_, stderr) = check(&directory, &[&words[..], &[name]].concat(), 4);
        assert!(stderr.ends_with(&format!("error: {says}\n")), "{stderr}");
    }
}

/// A good file was overwritten with an empty one, and nothing was said.
#[test]
fn of_no_call_nothing_is_exported() {
    let directory = recorded("export-nothing");
    for format in ["folded", "flamegraph", "pprof", "firefox", "perfetto", "csv", "jsonl"] {
        let export = |function, code| {
            check(&directory, &["export", "-f", function, "--format", format, "-o", "calls"], code)
        };
        assert_eq!(export("f", 0), (String::new(), String::new()), "{format}");
        let good = std::fs::read(directory.join("calls")).unwrap();
        let (_, stderr) = export("never", 1);
        assert!(stderr.contains("error: no call of never (") && stderr.contains("1 thread with"), "{stderr}");
        assert!(std::fs::read(directory.join("calls")).unwrap() == good, "{format}");
        // What a pattern matched and nothing called is not missed.
        assert!(!export("*", 0).1.contains("no call of never"), "{format}");
        // `outer` was not seen to end: where only whole calls are shown otherwise, that is said.
        let shows_all_calls = ["perfetto", "csv", "jsonl"].contains(&format);
        let says = "note: no call of outer was seen from entry to end: this is the observed part of calls that were open\n";
        let (_, stderr) = export("outer", 0);
        assert!(
            if shows_all_calls { stderr.is_empty() } else { stderr.ends_with(says) },
            "{format}: {stderr}"
        );
    }
}

/// It was ignored.
#[test]
fn of_a_name_that_is_not_ambiguous_there_is_no_second() {
    let directory = recorded("no-second");
    let (_, stderr) = check(&directory, &["report", "-f", "f", "-I", "#2"], 2);
    assert!(stderr.contains("-I '#2': no name that is given is ambiguous, so there is no #2"), "{stderr}");
    check(&directory, &["report", "-f", "f", "-I", "#1"], 0);
}

#[test]
fn a_wrong_build_id_names_both() {
    let directory = recorded("build-id");
    program::write(&directory, &[0x99, 0x88, 0x77, 0x66]);
    let (_, stderr) = check(&directory, &["report", "-f", "f"], 2);
    if is_private(&stderr) {
        return;
    }
    assert!(stderr.contains("abcdef01") && stderr.contains("99887766"), "{stderr}");
    let (branches, _) = check(&directory, &["dump", "--branches"], 0);
    assert!(branches.contains("gap missing code") && branches.contains(" bytes at 0x"), "{branches}");
}

/// It only said how much was lost.
#[test]
fn too_much_loss_fails_and_says_why_and_what_helps() {
    let directory = recorded("max-loss");
    check(&directory, &["report", "-f", "f", "--max-loss", "0"], 0);
    program::write_truncated(&directory);
    check(&directory, &["report", "-f", "f", "--max-loss", "100"], 0);
    let (stdout, stderr) = check(&directory, &["report", "-f", "f", "--max-loss", "10"], 1);
    assert!(stdout.contains("truncated"), "{stdout}");
    let says = "--max-loss allows 10 %. Most of it by truncated (";
    assert!(stderr.contains(says) && stderr.contains("perf record -m"), "{stderr}");
    assert!(stderr.contains("% of the time was lost ("), "{stderr}");
}

/// `perf record --threads` and `--kcore` write directories.
#[test]
fn a_bundle_of_a_directory_is_a_directory() {
    let directory = recorded("bundle-directory");
    let of = |name: &str| directory.join(name);
    std::fs::create_dir_all(of("recording")).unwrap();
    std::fs::rename(of("perf.data"), of("recording/data")).unwrap();
    std::fs::write(of("recording/data.0"), "").unwrap();
    symlink("/etc/passwd", of("recording/notes")).unwrap();
    let (whole, _) = check(&directory, &["report", "-f", "f", "recording"], 0);
    check(&directory, &["bundle", "recording", "-o", "there"], 0);
    assert_eq!(listing(&of("there/perf.data")), [("data".into(), false)], "only what was read");
    std::fs::remove_file(of("program")).unwrap();
    let (there, _) =
        check(&directory, &["report", "-f", "f", "there/perf.data", "--symfs", "there/objects"], 0);
    let body = |text: &str| text.split_once('\n').map(|(_, body)| body.to_owned());
    assert_eq!(body(&there), body(&whole));
}

/// It passed: what a cut file lacks was in no gap.
#[test]
fn a_cut_file_is_not_one_without_loss() {
    let directory = recorded("cut-file");
    let path = directory.join("perf.data");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() * 9 / 10]).unwrap();
    check(&directory, &["report", "-f", "f", "--max-loss", "100"], 0);
    let (_, stderr) = check(&directory, &["report", "-f", "f", "--max-loss", "0"], 1);
    assert!(stderr.contains("--max-loss allows 0 %"), "{stderr}");
}

/// Where everything is lost there is no call either, and that was all that was said.
#[test]
fn no_call_and_too_much_loss_are_both_said() {
    let directory = recorded("no-call-and-loss");
    program::write_truncated(&directory);
    let (_, stderr) = check(&directory, &["report", "-f", "never", "--max-loss", "10"], 1);
    assert!(stderr.contains("no call of never"), "{stderr}");
    assert!(stderr.contains("--max-loss allows 10 %. Most of it by truncated ("), "{stderr}");
    let (_, stderr) = check(&directory, &["report", "-f", "never", "--max-loss", "100"], 1);
    assert!(stderr.contains("no call of never") && !stderr.contains("--max-loss"), "{stderr}");
}

#[test]
fn a_damaged_recording_still_reports() {
    let directory = recorded("damaged");
    let path = directory.join("perf.data");
    let mut bytes = std::fs::read(&path).unwrap();
    // Behind the trace: 16 bytes of a record that is longer.
    let file = perfdata::File::open(&path).unwrap();
    let piece = file.recording().unwrap().buffers[0].pieces[0];
    let end = usize::try_from(piece.file_offset).unwrap() + piece.bytes.len();
    bytes.truncate(end);
    bytes.extend([3, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    drop(file);
    std::fs::write(&path, bytes).unwrap();
    let (stdout, stderr) = check(&directory, &["report", "-f", "f"], 0);
    assert_eq!(stderr, "", "it is in the report");
    assert!(stdout.contains("counted: 2 complete") && stdout.contains("damaged at file offset"), "{stdout}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let directory = recorded("pipe");
    for words in [&["dump", "--packets"][..], &["dump", "--branches"], &["report", "-f", "f"]] {
        let mut child =
            command(&directory, words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let directory = recorded("full");
    for words in [&["dump", "--packets"][..], &["report", "-f", "f"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(&directory, words).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{words:?} {stderr}");
        assert!(stderr.contains("No space left"), "{words:?} {stderr}");
    }
}

/// The recording was gone, and the exit code 0.
#[test]
fn what_is_read_is_not_written_over() {
    let directory = recorded("written-over");
    let of = |name: &str| directory.join(name);
    symlink("perf.data", of("link.csv")).unwrap();
    symlink("perf.data", of("flamegraph-latency.svg")).unwrap();
    std::fs::hard_link(of("perf.data"), of("hard.jsonl")).unwrap();
    std::fs::create_dir(of("recording")).unwrap();
    std::fs::copy(of("perf.data"), of("recording/data")).unwrap();
    let listed = listing(&directory);
    let read = |name: &str| std::fs::read(of(name)).unwrap();
    let before = ["perf.data", "recording/data", "program"].map(read);
    let refused = |words: &[&str], says: &str| {
        let (stdout, stderr) = check(&directory, words, 2);
        assert_eq!((stdout.as_str(), stderr), ("", format!("func_latency: error: {says}\n")), "{words:?}");
        assert_eq!(["perf.data", "recording/data", "program"].map(read), before, "{words:?}");
        assert_eq!(listing(&directory), listed, "{words:?}");
    };
    let over =
        |output: &str, input: &str| format!("{output}: would be written over {input}: name another file");
    for output in [["--html", "perf.data"], ["--rows", "link.csv"], ["--rows", "hard.jsonl"]] {
        refused(&[&["report", "-f", "f"], &output[..]].concat(), &over(&output.join(" "), "perf.data"));
        let history = ["-f", "f", "--history=2", "-d", "1", "-t", "-s"];
        refused(&[&history, &output[..]].concat(), &over(&output.join(" "), "perf.data"));
    }
    refused(&["report", "-F", "latency"], &over("-F flamegraph-latency.svg", "perf.data"));
    for format in ["folded", "flamegraph", "pprof", "firefox", "perfetto", "csv", "jsonl"] {
        let words =
            ["export", "-f", "f", "-i", "./perf.data", "--format", format, "-o", "recording/../hard.jsonl"];
        refused(&words, &over("-o recording/../hard.jsonl", "./perf.data"));
    }
    let of_directory = ["report", "-f", "f", "recording", "--html", "recording/data"];
    refused(&of_directory, &over("--html recording/data", "recording/data"));
    let of_kernel = ["report", "-f", "f", "--vmlinux", "program", "--html", "program"];
    refused(&of_kernel, &over("--html program", "program"));
}

/// The second was written over the first.
#[test]
fn two_outputs_are_two_files() {
    let directory = recorded("one-output");
    let of = |name: &str| directory.join(name);
    symlink("same.csv", of("link")).unwrap();
    let refused = |page: &str| {
        let (stdout, stderr) =
            check(&directory, &["report", "-f", "f", "--rows", "same.csv", "--html", page], 2);
        let says = format!("--html {page}: is the file of --rows same.csv, too: name another one");
        assert_eq!((stdout.as_str(), stderr), ("", format!("func_latency: error: {says}\n")));
    };
    // First, where they are yet to come.
    ["same.csv", "./same.csv", "link"].into_iter().for_each(refused);
    assert!(!of("same.csv").exists());
    std::fs::write(of("same.csv"), "rows").unwrap();
    ["same.csv", "./same.csv", "link"].into_iter().for_each(refused);
    let stdout = std::fs::OpenOptions::new().append(true).open(of("same.csv")).unwrap();
    let words = ["report", "-f", "f", "--rows", "same.csv"];
    let output = command(&directory, &words).stdout(stdout).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("--rows same.csv: is the file of stdout, too: name another one"), "{stderr}");
    assert_eq!(std::fs::read_to_string(of("same.csv")).unwrap(), "rows");
}

#[test]
fn devices_and_pipes_take_several_outputs() {
    let directory = recorded("devices");
    let of = |name: &str| directory.join(name);
    for (link, device) in
        [("null.csv", "/dev/null"), ("stdout.csv", "/dev/stdout"), ("full.csv", "/dev/full")]
    {
        symlink(device, of(link)).unwrap();
    }
    let (report, _) = check(&directory, &["report", "-f", "f"], 0);
    let nowhere = ["report", "-f", "f", "--rows", "null.csv", "--html", "/dev/null"];
    assert_eq!(check(&directory, &nowhere, 0).0, report);
    let all = ["report", "-f", "f", "--rows", "stdout.csv", "--html", "/dev/stdout"];
    let (whole, _) = check(&directory, &all, 0);
    let (rows, page) = whole.split_once("<!DOCTYPE html>").unwrap();
    assert!(rows.starts_with("id,") && rows.lines().count() == 3, "{rows}");
    assert!(page.ends_with(&format!("</html>\n{report}")));
    // The same where stdout is a file, and its old content stays.
    std::fs::write(of("all.txt"), "before\n").unwrap();
    let stdout = std::fs::OpenOptions::new().append(true).open(of("all.txt")).unwrap();
    assert!(command(&directory, &all).stdout(stdout).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(of("all.txt")).unwrap(), format!("before\n{whole}"));
    let (_, stderr) = check(&directory, &["report", "-f", "f", "--rows", "full.csv"], 3);
    assert!(stderr.contains("cannot write full.csv: No space left"), "{stderr}");
    let (_, stderr) = check(&directory, &["export", "-f", "f", "--format", "perfetto", "-o", "/dev/full"], 3);
    assert!(stderr.contains("cannot write /dev/full: No space left"), "{stderr}");
}

/// What was there was gone, and a part of the new one in its place.
#[test]
fn a_file_that_cannot_be_written_whole_leaves_the_old_one() {
    let directory = recorded("cut-output");
    let of = |name: &str| directory.join(name);
    std::fs::write(of("old"), "old").unwrap();
    std::fs::set_permissions(of("old"), Permissions::from_mode(0o640)).unwrap();
    symlink("old", of("link.csv")).unwrap();
    let listed = listing(&directory);
    let limited = |line: &str| {
        let line = format!("ulimit -f 0; exec \"$0\" {line} -f f");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_func_latency")]).current_dir(&directory);
        let output = shell.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{line}: {stderr}");
        assert!(stderr.contains(": File too large"), "{line}: {stderr}");
        assert_eq!(std::fs::read_to_string(of("old")).unwrap(), "old", "{line}");
        assert_eq!(listing(&directory), listed, "{line}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (report, _) = check(&directory, &["report", "-f", "f"], 0);
    assert_eq!(limited("report --html old"), report, "it needs no page");
    for line in ["report --rows link.csv", "report --html new.html", "report -F latency"] {
        limited(line);
    }
    for format in ["folded", "flamegraph", "pprof", "firefox", "perfetto", "csv", "jsonl"] {
        limited(&format!("export --format {format} -o old"));
    }
    // What is whole takes the place of what the link leads to.
    check(&directory, &["report", "-f", "f", "--rows", "link.csv"], 0);
    assert!(std::fs::read_to_string(of("old")).unwrap().starts_with("id,"));
    assert_eq!(std::fs::metadata(of("old")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(listing(&directory), listed);
}

/// The names in a directory, and whether they are links.
fn listing(directory: &Path) -> Vec<(OsString, bool)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut listed: Vec<_> =
        entries.map(|entry| (entry.file_name(), entry.file_type().unwrap().is_symlink())).collect();
    listed.sort();
    listed
}

/// A program that was built anew was decoded as if it had run.
#[test]
fn without_build_ids_a_program_that_was_replaced_is_another_one() {
    let directory = recorded("inode");
    program::write_with_inode(&directory);
    let (here, stderr) = check(&directory, &["report", "-f", "f", "--format", "json"], 0);
    assert_eq!(stderr, "");
    // The old one stays, or its inode would be free for the new one.
    std::fs::rename(directory.join("program"), directory.join("old")).unwrap();
    std::fs::copy(directory.join("old"), directory.join("program")).unwrap();
    let output = command(&directory, &["report", "-f", "f"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        return println!("skipped: the inodes of this file system say nothing");
    }
    if is_private(&stderr) {
        return;
    }
    assert!(stderr.contains("/program is another file than the one that ran"), "{stderr}");
    let taken = check(&directory, &["report", "-f", "f", "--format", "json", "--symfs", "/"], 0);
    assert_eq!(taken, (here, String::new()), "who says so may use it");
}

#[test]
fn a_bundle_gives_the_same_report_without_the_program() {
    let directory = recorded("bundle");
    let words = |more: &'static [&'static str]| [&["report", "-f", "f", "--format", "json"], more].concat();
    let (here, _) = check(&directory, &words(&[]), 0);
    let (_, stderr) = check(&directory, &["bundle", "perf.data", "-o", "there"], 0);
    assert!(
        stderr.contains("1 file and the recording") && stderr.contains("report -i there ..."),
        "{stderr}"
    );
    std::fs::remove_file(directory.join("program")).unwrap();
    std::fs::remove_file(directory.join("perf.data")).unwrap();
    let (there, stderr) =
        check(&directory, &words(&["-i", "there/perf.data", "--symfs", "there/objects"]), 0);
    std::fs::rename(directory.join("there/objects/.build-id"), directory.join("there/.build-id")).unwrap();
    let (older, _) = check(&directory, &words(&["-i", "there/perf.data", "--symfs", "there"]), 0);
    assert_eq!(older, there, "as bundles were laid out before");
    assert_eq!((here, stderr.as_str()), (there, ""));
    // Without it the report says what is missing, and what to do.
    let (_, stderr) = check(&directory, &words(&["-i", "there/perf.data"]), 2);
    assert!(stderr.contains("/program is missing") && stderr.contains("--symfs DIR"), "{stderr}");
    let (_, stderr) = check(&directory, &["bundle", "-i", "there/perf.data", "-o", "there"], 2);
    assert!(stderr.contains("not an empty directory"), "{stderr}");
}

/// The timeline is drawn as users of PT_PERF draw it, from what was recorded before; into a file it is never
/// coloured.
#[test]
fn a_timeline_of_both_calls() {
    let directory = recorded("timeline");
    let words = ["-b", "program", "-f", "f", "-d", "1", "-s", "-t", "-l", "--tu=1", "--history=2"];
    let (text, _) = check(&directory, &words, 0);
    let (_, timeline) = text.split_once("Timeline of [f] (program)").unwrap();
    let axis = "└┬";
    let expected = "\n\nThread 77: 2 calls, the longest ";
    assert!(
        timeline.contains(expected) && timeline.contains(axis) && !timeline.contains('\x1b'),
        "{timeline}"
    );
    assert!(timeline.contains("77-0") && timeline.contains("Calls from p99.9"), "{timeline}");
    let (with_json, says) = check(&directory, &["report", "-f", "f", "-l", "--format", "json"], 2);
    assert!(with_json.is_empty() && says.contains("--format json"), "{says}");
}

/// On a terminal the timeline is as wide as that, and in colours unless the user does not want them.
#[test]
fn a_timeline_on_a_terminal() {
    let directory = recorded("terminal");
    let shown = |no_color: &str, options: &str| {
        let program = env!("CARGO_BIN_EXE_func_latency");
        let line = format!("stty cols 100 rows 40 && '{program}' report -f f -l {options}");
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", no_color).current_dir(&directory);
        script.stdin(Stdio::null()).output().map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let Ok(coloured) = shown("", "") else {
        println!("skipped: no `script`, which has a terminal to write to");
        return;
    };
    assert!(coloured.contains("\x1b[1;31m"), "{coloured}");
    let axis = coloured.lines().find(|line| line.contains('└')).unwrap();
    assert_eq!(axis.trim_end().chars().count(), 100, "{coloured}");
    for (no_color, options) in [("1", ""), ("", "--no-color")] {
        let plain = shown(no_color, options).unwrap();
        assert!(plain.contains('└') && !plain.contains('\x1b'), "{plain}");
    }
}

/// It was said that the difference did not exceed the spread, where it never could have been said that it
/// did.
#[test]
fn a_difference_of_too_few_calls_is_not_judged() {
    let directory = recorded("diff");
    std::fs::copy(directory.join("perf.data"), directory.join("other.data")).unwrap();
    let words = ["diff", "perf.data", "other.data", "-f", "f"];
    let (text, _) = check(&directory, &words, 0);
    assert!(
        text.contains(
            "The difference of the means, < 930 ns, may be chance or not: there are too few calls to tell:"
        ),
        "{text}"
    );
    assert!(text.contains("that takes 7 calls of each at least"), "{text}");
    let figures = "  A      2  < 580 ns  < 560 ns    -    -  < 610 ns\n";
    assert!(text.contains(figures), "no figure has digits that are not known: {text}");
    let (json, _) = check(&directory, &[&words[..], &["--format", "json"]].concat(), 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["exceeds_spread"], &json["calls_needed"]), (&serde_json::Value::Null, &7.into()));
    let errors = ["error_sum", "p50_error", "max_error"].map(|key| json["these"][key].as_u64().unwrap());
    assert_eq!(errors, [1075, 525, 550]);
    assert_eq!(json["difference_error_ns"], 925);
    assert!(
        json["smallest_p_value"].as_f64().unwrap() > 0.3,
        "of two and two, a third of all ways: {json:#}"
    );
}

/// The two calls of f are two lines of outer's code, with one instruction each; f is a return.
#[test]
fn instructions_have_their_executions_and_what_they_call() {
    let directory = recorded("annotate");
    let (json, _) = check(&directory, &["annotate", "perf.data", "-f", "f", "--format", "json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (group, instructions) = (&json["groups"][0], json["instructions"].as_array().unwrap());
    // After f there are 15 bytes of padding.
    assert_eq!((&group["calls"], instructions.len()), (&2.into(), 16));
    assert_eq!(
        (&instructions[0]["site"], &instructions[0]["text"]),
        (&"program+0x1020".into(), &"ret".into())
    );
    let of = &instructions[0]["of"][0];
    assert_eq!((&of["executions"], &of["self_ns"]), (&2.into(), &group["latency_sum_ns"]));
    let (text, _) = check(&directory, &["annotate", "-i", "perf.data", "-f", "f"], 0);
    let row = text.lines().find(|line| line.contains("program+0x1020")).unwrap();
    let words: Vec<&str> = row.split_whitespace().take(3).collect();
    assert_eq!(words, ["program+0x1020", "ret", "2"], "{text}");
    assert!(text.contains("  (15 instructions not executed)"), "{text}");
    let (_, stderr) = check(&directory, &["annotate", "-f", "never"], 1);
    assert!(stderr.contains("no call was seen from its entry to its end"), "{stderr}");
}

/// `-c` was taken, and did nothing.
#[test]
fn code_blocks_are_the_own_time_from_call_to_call() {
    let directory = recorded("code-blocks");
    for words in [&["report", "-c", "-f", "f"][..], &["-c", "--history=2", "-f", "f"]] {
        let (text, stderr) = check(&directory, words, 0);
        assert!(text.contains("Code blocks of [f]: its own time, from call to call"), "{text}");
        assert!(text.contains("  entry .. return "), "{text}");
        assert_eq!(stderr, "");
    }
    let (json, _) = check(&directory, &["report", "-c", "-f", "f", "--format", "json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let f = &json["functions"][0];
    let block = &f["code_blocks"][0];
    assert_eq!((&block["name"], &block["kind"]), (&"entry .. return".into(), &"code_block".into()));
    assert_eq!((&block["site"], &block["to"]), (&"program+0x1020".into(), &"program+0x1020".into()));
    let own = f["children"].as_array().unwrap().iter().find(|child| child["kind"] == "self").unwrap();
    assert_eq!((&block["count"], &block["sum"]), (&2.into(), &own["sum"]));
    let (json, _) = check(&directory, &["report", "-f", "f", "--format", "json"], 0);
    assert!(!json.contains("code_blocks"), "{json}");
}

/// Both had listed what a region executed as code outside of the function, or not known.
#[test]
fn annotate_lists_regions_and_code_blocks_are_of_functions() {
    let directory = recorded("code-of-regions");
    let [of_region, of_function] = [["--region", "a=f..f"], ["-f", "f"]].map(|of| {
        let words = [&["annotate", "--format", "json"], &of[..]].concat();
        let mut json: serde_json::Value = serde_json::from_str(&check(&directory, &words, 0).0).unwrap();
        json["function"].take();
        json
    });
    assert_eq!(of_region, of_function, "the region lasts as long as the call");
    let (_, stderr) = check(&directory, &["report", "-c", "--region", "a=f..f"], 2);
    assert!(stderr.contains("-c lists the code blocks of functions, not of regions"), "{stderr}");
    let (text, stderr) = check(&directory, &["report", "-c", "--region", "a=f..f", "-f", "f"], 0);
    assert!(text.contains("Code blocks of [f]") && !text.contains("Code blocks of [a]"), "{text}");
    assert!(stderr.contains("note: -c lists code blocks of functions only, not of regions"), "{stderr}");
}

/// They had wanted a function.
#[test]
fn regions_alone_have_counters() {
    let directory = recorded("counters-of-regions");
    let of = |words: &[&str]| {
        let words = [&["report", "--counters", "--format", "json"], words].concat();
        let json: serde_json::Value = serde_json::from_str(&check(&directory, &words, 0).0).unwrap();
        json["functions"][0]["counters"].clone()
    };
    let of_function = of(&["-f", "f"]);
    assert!(of_function.is_object(), "{of_function}");
    assert_eq!(of(&["--region", "a=f..f"]), of_function);
}

/// That no call was seen was all that it said.
#[test]
fn a_place_inside_of_an_instruction_is_warned_of() {
    let directory = recorded("inside-of-instruction");
    let warning = "'outer+1' is inside of an instruction, and no thread comes to it";
    let (_, stderr) = check(&directory, &["report", "--region", "a=outer+1..outer+5"], 1);
    assert!(stderr.contains(warning) && !stderr.contains("'outer+5'"), "{stderr}");
}

/// `stat` had wanted a function, too.
#[test]
fn recordings_are_runs_of_a_region() {
    let directory = recorded("stat-of-regions");
    std::fs::copy(directory.join("perf.data"), directory.join("other.data")).unwrap();
    let (text, _) = check(&directory, &["stat", "perf.data", "other.data", "--region", "a=f..f"], 0);
    assert!(text.contains("[a]"), "{text}");
}

/// It counted as two runs.
#[test]
fn a_recording_that_is_given_twice_is_no_second_run() {
    let directory = recorded("stat-twice");
    let (_, stderr) = check(&directory, &["stat", "perf.data", "./perf.data", "-f", "f"], 2);
    assert!(stderr.contains("./perf.data is given twice, and a run counts once"), "{stderr}");
}

/// All had said `func_latency/1`, which none was.
#[test]
fn help_names_the_schema_that_is_written() {
    let directory = recorded("schemas");
    std::fs::copy(directory.join("perf.data"), directory.join("other.data")).unwrap();
    for (words, schema) in [
        (&["report"][..], "func_latency/3"),
        (&["show", "77-1"], "func_latency_call/2"),
        (&["explain"], "func_latency_explain/1"),
        (&["modes"], "func_latency_modes/1"),
        (&["annotate"], "func_latency.annotate/1"),
        (&["diff", "perf.data", "other.data"], "func_latency_diff/1"),
        (&["stat", "perf.data", "other.data"], "func_latency.stat/1"),
    ] {
        let (json, _) = check(&directory, &[words, &["-f", "f", "--format", "json"]].concat(), 0);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["schema"], schema, "{words:?}");
        let (help, _) = check(&directory, &[words[0], "--help"], 0);
        let named: Vec<&str> =
            help.split_whitespace().filter(|word| word.starts_with("func_latency")).collect();
        let named: Vec<&str> = named.into_iter().filter(|word| word.contains('/')).collect();
        assert_eq!(named, [schema], "{words:?}: {help}");
    }
}

/// It did not say which recording it was of.
#[test]
fn what_a_difference_lacks_is_said_of_its_recording() {
    let directory = recorded("diff-lacks");
    std::fs::copy(directory.join("perf.data"), directory.join("other.data")).unwrap();
    let (_, stderr) = check(&directory, &["diff", "perf.data", "other.data", "-f", "never"], 1);
    assert!(stderr.contains("seen from entry to end in perf.data and in other.data:"), "{stderr}");
    program::write(&directory, &[0x99, 0x88, 0x77, 0x66]);
    let (_, stderr) = check(&directory, &["diff", "other.data", "perf.data", "-f", "f"], 2);
    assert!(stderr.contains("error: perf.data: no function is called 'f'"), "{stderr}");
    let (_, stderr) = check(&directory, &["diff", "other.data", "no.data", "-f", "f"], 4);
    assert!(stderr.contains("error: cannot open no.data: "), "{stderr}");
}
