//! What is exported adds up to the report's totals, in the eyes of who reads it: `go tool pprof`, Perfetto's published schema,
//! the rules of the Firefox Profiler's format, and `inferno`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use analyzer::Total;
use decoder::DecodeOptions;
use serde_json::Value;
use truth_tests::{Opened, fixture, pipeline};

/// Plain, recursive, with time off the CPU on two CPUs, with losses.
const CASES: [(&str, &str); 5] = [
    ("sq1", "sqlite3VdbeExec"),
    ("calls", "fact_rec"),
    ("calls-cpu2", "round_cc"),
    ("demo-cpu2-ovf", "round_fn"),
    ("demo-filter2", "mid"),
];

/// A recording, one of its functions, and what the report says of its outermost calls.
struct Case {
    name: &'static str,
    data: PathBuf,
    symbol: &'static str,
    outermost: Total,
    rows: usize,
    directory: tempfile::TempDir,
}

impl Case {
    /// The file that `export` writes.
    fn export(&self, format: &str, more: &[&str]) -> PathBuf {
        let path = self.directory.path().join(format!("export.{format}"));
        let output = command()
            .arg("export")
            .arg("-i")
            .arg(&self.data)
            .args(["-f", self.symbol, "--format", format])
            .args(more)
            .arg("-o")
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        path
    }
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_func_latency_under_test"))
}

fn cases() -> Vec<Case> {
    let case = |(name, symbol)| {
        let data = fixture(name)?.data;
        let file = pipeline::open(&data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let function = opened.function(symbol).unwrap();
        let report = opened.analyse(&[function], &DecodeOptions::default()).functions.remove(0);
        assert!(report.outermost.count > 0, "{name}");
        let directory = tempfile::tempdir().unwrap();
        Some(Case { name, data, symbol, outermost: report.outermost, rows: report.rows.len(), directory })
    };
    CASES.into_iter().filter_map(case).collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn folded_sum(path: &Path) -> u64 {
    text(path).lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn folded_stacks_and_flame_graphs() {
    for case in cases() {
        let Total { sum_ns, .. } = case.outermost;
        assert_eq!(folded_sum(&case.export("folded", &[])), sum_ns, "{}", case.name);
        let on_cpu_ns = folded_sum(&case.export("folded", &["--weight", "cpu"]));
        assert_eq!(on_cpu_ns, case.outermost.on_cpu_ns(), "{}", case.name);
        let svg = text(&case.export("flamegraph", &[]));
        let all = svg.split("<title>all (").nth(1).and_then(|all| all.split(' ').next()).unwrap();
        assert_eq!(all.replace(',', ""), sum_ns.to_string(), "{}", case.name);
    }
}

#[test]
fn all_of_a_recording() {
    let Some(fixture) = fixture("sq1") else { return };
    let directory = tempfile::tempdir().unwrap();
    let folded = directory.path().join("folded");
    let export = |more: &[&str]| {
        let command = command()
            .args(["export", "--format", "folded", "-i"])
            .arg(&fixture.data)
            .args(more)
            .arg("-o")
            .arg(&folded)
            .output();
        assert!(command.unwrap().status.success());
        text(&folded)
    };
    // `main` is there with all its time, whether it is asked for or found below what called it.
    let of = |stacks: &str, inside: &str| -> u64 {
        let lines = stacks.lines().filter(|line| line.split([';', ' ']).any(|frame| frame == inside));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let (whole, main) = (export(&[]), export(&["-f", "main"]));
    assert!(of(&main, "main") > 0);
    assert_eq!(of(&whole, "main"), of(&main, "main"));
    let svg = directory.path().join("flamegraph-cpu.svg");
    let report = command()
        .args(["report", "-F", "cpu", "-i"])
        .arg(&fixture.data)
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(report.status.success() && report.stdout.is_empty());
    assert!(text(&svg).contains("<title>main ("));
}

fn has_go() -> bool {
    let version = Command::new("go").arg("version").stdout(Stdio::null()).status();
    let is_here = version.is_ok_and(|status| status.success());
    if !is_here {
        println!("skipped: go is not installed");
    }
    is_here
}

#[test]
fn pprof_reads_its_profile() {
    if !has_go() {
        return;
    }
    for case in cases() {
        let profile = case.export("pprof", &[]);
        for (index, expect) in [("latency", case.outermost.sum_ns), ("cpu", case.outermost.on_cpu_ns())] {
            let output = Command::new("go")
                .args([
                    "tool",
                    "pprof",
                    "-top",
                    "-unit=ns",
                    "-nodecount=5000",
                    "-nodefraction=0",
                    &format!("-sample_index={index}"),
                ])
                .arg(&profile)
                .output()
                .unwrap();
            let top = String::from_utf8(output.stdout).unwrap();
            let total =
                top.split("Total samples = ").nth(1).and_then(|rest| rest.split("ns").next()).unwrap_or("0");
            assert_eq!(total, expect.to_string(), "{}: {index}\n{top}", case.name);
            let of_root = top.lines().find(|line| line.ends_with(&format!(" {}", case.symbol))).unwrap();
            assert!(of_root.contains(&format!(" {expect}ns ")), "{}: {of_root}", case.name);
        }
    }
}

/// `-list`: what a function took itself is at its first line, and what a callee took at the line that calls it.
#[test]
fn pprof_lists_source_lines() {
    if !has_go() {
        return;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/programs");
    for case in cases().into_iter().filter(|case| case.symbol == "round_cc") {
        let output = Command::new("go")
            .args(["tool", "pprof", "-list=^round_cc$", "-unit=ns", "-sample_index=latency", "-source_path"])
            .args([&programs, &case.export("pprof", &[])])
            .output()
            .unwrap();
        let list = String::from_utf8(output.stdout).unwrap();
        // `flat cum number:text`, with a dot for nothing.
        let ns = |word: &str| word.strip_suffix("ns").and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        let line = |line: &str| {
            let (times, text) = line.split_once(':')?;
            let [flat, cum, number] = times.split_whitespace().collect::<Vec<_>>()[..] else { return None };
            number.parse::<u64>().ok().map(|_| (ns(flat), ns(cum), text.trim().to_owned()))
        };
        let lines: Vec<(u64, u64, String)> = list.lines().filter_map(line).collect();
        assert_eq!(lines.iter().map(|line| line.1).sum::<u64>(), case.outermost.sum_ns, "{list}");
        let of = |text: &str| lines.iter().filter(|line| line.2.contains(text)).collect::<Vec<_>>();
        let [(0, calls_ns, _)] = of("= simple_fn(i) + fact_rec(")[..] else { panic!("{list}") };
        assert!(*calls_ns > 0, "{list}");
        let own: Vec<_> = lines.iter().filter(|line| line.0 > 0).collect();
        let [(own_ns, all_ns, first)] = own[..] else { panic!("{list}") };
        assert!(own_ns == all_ns && (first.starts_with('{') || first.contains(" round_cc(")), "{list}");
    }
}

/// The fields that messages have in Perfetto's published schema, as far as they are used: number, wire type, message inside.
type Schema = &'static [(u64, u64, Option<&'static Fields>)];
struct Fields(Schema);

const VARINT: u64 = 0;
const BYTES: u64 = 2;
static EVENT_NAME: Fields = Fields(&[(1, VARINT, None), (2, BYTES, None)]);
static INTERNED: Fields = Fields(&[(2, BYTES, Some(&EVENT_NAME))]);
static TRACK_EVENT: Fields = Fields(&[(9, VARINT, None), (10, VARINT, None), (11, VARINT, None)]);
static THREAD: Fields = Fields(&[(1, VARINT, None), (2, VARINT, None), (5, BYTES, None)]);
static TRACK: Fields =
    Fields(&[(1, VARINT, None), (2, BYTES, None), (4, BYTES, Some(&THREAD)), (5, VARINT, None)]);
static PACKET: Fields = Fields(&[
    (8, VARINT, None),
    (10, VARINT, None),
    (11, BYTES, Some(&TRACK_EVENT)),
    (12, BYTES, Some(&INTERNED)),
    (13, VARINT, None),
    (60, BYTES, Some(&TRACK)),
]);

/// The fields of a message; panics at whatever the schema does not have.
fn fields(mut bytes: &[u8], schema: &Fields) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
            shift += 7;
            assert!(shift < 64, "a number that does not end");
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, wire) = (key >> 3, key & 7);
        let known = schema.0.iter().find(|field| field.0 == number && field.1 == wire);
        assert!(known.is_some(), "field {number} of type {wire} is not in the schema");
        let value = varint(&mut bytes);
        let mut content = Vec::new();
        if wire == BYTES {
            let (inside, rest) = bytes.split_at(value as usize);
            (content, bytes) = (inside.to_vec(), rest);
            known.and_then(|field| field.2).map(|schema| fields(inside, schema));
        }
        found.push((number, value, content));
    }
    found
}

#[test]
fn perfettos_schema_has_every_field_and_slices_nest() {
    static TRACE: Fields = Fields(&[(1, BYTES, Some(&PACKET))]);
    for case in cases() {
        let trace = std::fs::read(case.export("perfetto", &["--li", "0,"])).unwrap();
        let mut open: std::collections::BTreeMap<u64, Vec<u64>> = std::collections::BTreeMap::new();
        let (mut last, mut total) = (open.clone(), 0);
        let mut calls = 0;
        for (_, _, packet) in fields(&trace, &TRACE) {
            let packet = fields(&packet, &PACKET);
            let number = |fields: &[(u64, u64, Vec<u8>)], n| {
                fields.iter().find(|field| field.0 == n).map(|field| field.1)
            };
            let Some((_, _, event)) = packet.iter().find(|field| field.0 == 11) else { continue };
            let event = fields(event, &TRACK_EVENT);
            let (time, track) = (number(&packet, 8).unwrap(), number(&event, 11).unwrap());
            let before = last.entry(track).or_default();
            assert!(before.last().is_none_or(|before| *before <= time), "{}: time runs backwards", case.name);
            *before = vec![time];
            let stack = open.entry(track).or_default();
            match number(&event, 9) {
                Some(1) => stack.push(time),
                Some(2) => {
                    let start = stack.pop().unwrap();
                    if stack.is_empty() && track >> 32 == 0 {
                        total += time - start;
                        calls += 1;
                    }
                }
                kind => panic!("{kind:?} is no slice"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "{}: a slice does not end", case.name);
        // Those that were not seen whole are there, too.
        assert!(calls >= case.outermost.count && total >= case.outermost.sum_ns, "{}", case.name);
        let is_whole = calls == case.outermost.count;
        assert!(!is_whole || total == case.outermost.sum_ns, "{}", case.name);
        if case.name == "sq1" {
            assert!(is_whole);
        }
    }
}

/// The same by the schema itself, where it is installed.
#[test]
fn perfettos_own_schema_reads_its_trace() {
    let python = |args: &[&std::ffi::OsStr]| Command::new("python3").args(args).output();
    let probe = python(&["-c".as_ref(), "import perfetto.protos.perfetto.trace.perfetto_trace_pb2".as_ref()]);
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 has no package perfetto");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/perfetto_schema.py");
    for case in cases() {
        let trace = case.export("perfetto", &[]);
        let output = python(&[script.as_ref(), trace.as_ref()]).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert!(numbers.len() == 2 && numbers[0] > 2 * case.outermost.count, "{}: {text}", case.name);
        assert_eq!(numbers[1], 0, "{}: fields that are not in the schema", case.name);
    }
}

/// What the profiler's own checks demand: tables are as long as they say, and indices are inside of them.
fn check_table(thread: &Value, name: &str, indices: &[(&str, u64)]) -> u64 {
    let table = thread[name].as_object().unwrap();
    let length = table["length"].as_u64().unwrap();
    for (column, values) in table {
        if let Some(values) = values.as_array() {
            assert_eq!(values.len() as u64, length, "{name}.{column}");
        }
    }
    for (column, end) in indices {
        let indices = table[*column].as_array().unwrap();
        assert!(indices.iter().filter_map(Value::as_u64).all(|index| index < *end), "{name}.{column}");
    }
    length
}

#[test]
fn the_firefox_profilers_rules_hold() {
    for case in cases() {
        let profile: Value = serde_json::from_str(&text(&case.export("firefox", &[]))).unwrap();
        assert_eq!(profile["meta"]["preprocessedProfileVersion"], 55);
        let mut total_ms = 0.0;
        for thread in profile["threads"].as_array().unwrap() {
            let strings = thread["stringArray"].as_array().unwrap().len() as u64;
            let functions = check_table(thread, "funcTable", &[("name", strings)]);
            let frames = check_table(thread, "frameTable", &[("func", functions), ("category", 1)]);
            let stacks = check_table(thread, "stackTable", &[("frame", frames)]);
            let prefixes = thread["stackTable"]["prefix"].as_array().unwrap();
            let is_before =
                |(at, prefix): (usize, &Value)| prefix.as_u64().is_none_or(|prefix| prefix < at as u64);
            assert!(
                prefixes.iter().enumerate().all(is_before),
                "{}: a stack comes before its caller's",
                case.name
            );
            check_table(thread, "samples", &[("stack", stacks)]);
            check_table(thread, "markers", &[]);
            let column = |name: &str| {
                thread["samples"][name]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|v| v.as_f64().unwrap())
                    .collect::<Vec<_>>()
            };
            assert!(column("time").is_sorted(), "{}", case.name);
            total_ms += column("weight").iter().sum::<f64>();
        }
        assert_eq!((total_ms * 1e6).round() as u64, case.outermost.sum_ns, "{}", case.name);
    }
}

#[test]
fn rows_are_those_of_the_report() {
    for case in cases() {
        for (format, headers) in [("csv", 1), ("jsonl", 0)] {
            assert_eq!(text(&case.export(format, &[])).lines().count(), case.rows + headers, "{}", case.name);
        }
    }
}

/// By rows, and by an analysis that finds them: the same tree.
#[test]
fn a_call_is_shown_from_its_row() {
    for case in cases() {
        let rows = case.export("jsonl", &[]);
        let middle = text(&rows).lines().nth(case.rows / 2).unwrap().to_owned();
        let row: Value = serde_json::from_str(&middle).unwrap();
        let show = |more: &[&std::ffi::OsStr]| {
            let output = command()
                .args(["show", row["id"].as_str().unwrap(), "-f", case.symbol, "--format", "json", "-i"])
                .arg(&case.data)
                .args(more)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        let shown = show(&["--rows".as_ref(), rows.as_ref()]);
        assert_eq!(shown, show(&[]), "{}", case.name);
        for key in ["start_ns", "latency_ns", "off_cpu_ns", "status", "function"] {
            assert_eq!(shown[key], row[key], "{}: {key}", case.name);
        }
        let own: u64 =
            shown["nodes"].as_array().unwrap().iter().map(|node| node["self_ns"].as_u64().unwrap()).sum();
        assert_eq!(Some(own), row["latency_ns"].as_u64(), "{}", case.name);
    }
}
