//! Every record that perf lists is the one that we list: type, size, time, place in the file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use truth_tests::{fixtures_of, skip};

/// Offset, size, name of the type, time (0: none).
type Record = (u64, usize, String, u64);

/// perf counts from after the header of what it reads from a pipe.
const PIPE_HEADER_BYTES: u64 = 16;

fn ours(path: &Path) -> Vec<Record> {
    let mut records = vec![];
    let file = perfdata::File::open(path).unwrap();
    let damage = file.list(&mut |listed| {
        let record = &listed.record;
        let time = record.time.map_or(0, |ns| ns.0);
        records.push((record.file_offset, listed.size, listed.type_name().into_owned(), time));
    });
    assert_eq!(damage.unwrap(), None, "{}", path.display());
    // perf does not list what holds the others.
    records.retain(|(.., name, _)| !name.starts_with("COMPRESSED"));
    records.sort();
    records
}

/// `[cpu] time 0xOFFSET [0xSIZE]: PERF_RECORD_TYPE...`
fn parse(line: &str) -> Option<Record> {
    let (head, tail) = line.split_once(": PERF_RECORD_")?;
    let mut words = head.split(' ').rev();
    let hex =
        |word: &str| u64::from_str_radix(word.trim_matches(['[', ']']).trim_start_matches("0x"), 16).ok();
    let (size, offset) = (hex(words.next()?)?, hex(words.next()?)?);
    // -1: none.
    let time = words.next()?.parse::<i64>().ok()?.max(0) as u64;
    let name = tail.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).next()?;
    Some((offset, size as usize, name.to_owned(), time))
}

/// The pipe layout is read from a pipe: perf takes a file of it for damaged.
fn perfs(path: &Path, is_pipe: bool) -> Vec<Record> {
    let mut perf = Command::new("perf");
    perf.args(["script", "-D", "-i"]).stderr(Stdio::null());
    let output = if is_pipe {
        // A real one: of a file on its standard input perf leaves out records.
        let mut cat = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().unwrap();
        let output = perf.arg("-").stdin(cat.stdout.take().unwrap()).output().unwrap();
        cat.wait().unwrap();
        output
    } else {
        perf.arg(path).output().unwrap()
    };
    let mut records: Vec<Record> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect();
    records.sort();
    records
}

#[track_caller]
fn check(path: &Path, is_pipe: bool) {
    let (mut ours, perfs) = (ours(path), perfs(path, is_pipe));
    if is_pipe {
        ours.iter_mut().for_each(|(offset, ..)| *offset -= PIPE_HEADER_BYTES);
    }
    let differs = ours.iter().zip(&perfs).find(|(a, b)| a != b);
    assert_eq!(differs, None, "{}: ours and perf's", path.display());
    assert_eq!(ours.len(), perfs.len(), "{}", path.display());
    println!("{}: {} records", path.display(), ours.len());
}

fn has_perf() -> bool {
    let has = Command::new("perf").arg("version").stdout(Stdio::null()).status().is_ok();
    if !has {
        skip("no perf here; install linux-perf");
    }
    has
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings")
}

#[test]
fn real_recordings() {
    if has_perf() {
        check(&recordings().join("intel_pt-4.14.data"), false);
        check(&recordings().join("intel_pt-4.14.piped.data"), true);
    }
}

#[test]
fn generated_recordings() {
    if has_perf() {
        let some = ["demo", "demo-cpu2", "demo-cpu2-switch2", "demo-window"];
        let chosen = fixtures_of("demo").into_iter().filter(|f| some.contains(&f.name.as_str()));
        chosen.for_each(|f| check(&f.data, false));
    }
}

/// What perf makes here, without a trace: compressed, in a directory, with tracepoints.
#[test]
fn recordings_of_this_machine() {
    if !has_perf() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&str, &[&str]); 4] = [
        ("plain", &["-e", "cpu-clock:u", "--switch-events"]),
        ("compressed", &["-z", "-e", "cpu-clock:u", "-F", "5000"]),
        ("threads", &["--threads", "-a", "-e", "cpu-clock"]),
        ("tracepoints", &["-a", "-e", "sched:sched_switch"]),
    ];
    for (name, arguments) in cases {
        let path = dir.path().join(name);
        let mut perf = Command::new("perf");
        perf.args(["record", "-o"]).arg(&path).args(arguments).args(["sleep", "0.1"]);
        let output = perf.output().unwrap();
        if output.status.success() {
            check(&path, false);
        } else {
            // Not everybody may: kernel.perf_event_paranoid.
            println!("skipped: perf cannot record {name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
