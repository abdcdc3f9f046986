//! Parts of one recording add up: their merge prints what a report of the whole prints, byte by byte, for any
//! number of parts, in any order and bracketing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use analyzer::{Analysis, Request, Surroundings};
use decoder::{
    Context, DecodeOptions, OwnDecoder, Segment, SegmentDecoder, SegmentKey, SegmentOutput, Share,
    StoredOutputs, StoredParts, StoredSegment, decode_share, join_stored,
};
use model::EventSink as _;
use serde_json::Value;
use truth_tests::dice::Dice;
use truth_tests::{Fixture, Opened, fixture, fixtures_of, is_full_run, pipeline};

/// Of each run of a full run, and of the recordings below: the function that is asked about.
const FUNCTIONS: [(&str, &str); 14] = [
    ("demo", "round_fn"),
    ("calls", "round_cc"),
    ("sq1", "sqlite3VdbeExec"),
    ("causes", "waits_for_lock"),
    ("regions", "main"),
    ("cc1", "*"),
    ("xz", "*"),
    ("case-recursion", "deep"),
    ("case-signals", "main"),
    ("case-unwind", "main"),
    ("case-tails", "main"),
    ("case-fibers", "main"),
    ("case-processes", "main"),
    ("case-plugins", "main"),
];

/// With losses, filters, signals, exceptions, deep recursion, buffers of CPUs, and calls as long as the
/// recording; each with so many parts.
const RECORDINGS: [(&str, &str, u32); 9] = [
    ("demo-cpu2-ovf", "round_fn", 7),
    ("demo-cpu2-trunc", "leaf", 2),
    ("demo-filter2", "mid", 3),
    ("calls-cpu8", "fact_rec", 12),
    ("sq1", "sqlite3VdbeExec", 5),
    ("case-recursion-ovf", "deep", 2),
    ("case-signals", "main", 1),
    ("case-unwind", "main", 6),
    ("causes-cpu1", "waits_for_lock", 64),
];

fn run(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_func_latency_under_test")).args(words).args(paths).output().unwrap()
}

/// What a command says that has a result: on stdout and stderr, and its exit code.
fn said(words: &[&str], paths: &[&Path]) -> (String, String, Option<i32>) {
    let output = run(words, paths);
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?} {paths:?}: {err}");
    (out, err, output.status.code())
}

fn refused(words: &[&str], paths: &[&Path], code: i32) -> String {
    let output = run(words, paths);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?} {paths:?}: {errors}");
    errors
}

/// The files of all parts of a recording.
fn parts(data: &Path, words: &[&str], of: u32, directory: &Path) -> Vec<PathBuf> {
    let part = |number| {
        let file = directory.join(format!("part-{number}-of-{of}"));
        let number = format!("{number}/{of}");
        let words = [&["report", "-w", "1", "--part", &number], words].concat();
        let (out, _, _) = said(&words, &["--part-out".as_ref(), &file, data]);
        assert_eq!(out, "");
        file
    };
    (1..=of).map(part).collect()
}

/// Lays files together, some at a time, until at most `left` are left; in the order of the dice.
fn laid_together(dice: &mut Dice, mut files: Vec<PathBuf>, left: usize, directory: &Path) -> Vec<PathBuf> {
    for number in 0.. {
        if files.len() <= left {
            break;
        }
        let count = (2 + dice.below(6)).min(files.len());
        let chosen: Vec<PathBuf> = (0..count).map(|_| files.remove(dice.below(files.len()))).collect();
        let to = directory.join(format!("laid-{number}"));
        let paths: Vec<&Path> = chosen.iter().map(PathBuf::as_path).collect();
        said(&["merge"], &[&["--part-out".as_ref(), to.as_path()], &paths[..]].concat());
        files.push(to);
    }
    for at in (1..files.len()).rev() {
        files.swap(at, dice.below(at + 1));
    }
    files
}

/// The merge of the parts is the report, in text and JSON, with the same messages and exit code.
fn check(dice: &mut Dice, data: &Path, words: &[&str], of: u32) {
    let directory = tempfile::tempdir().unwrap();
    let files = parts(data, words, of, directory.path());
    let left = 1 + dice.below(3);
    let files = laid_together(dice, files, left, directory.path());
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    for form in [&[][..], &["--format", "json"]] {
        let whole = said(&[&["report"], words, form].concat(), &[data]);
        let merged = said(&[&["merge"], form].concat(), &paths);
        assert!(merged == whole, "{} {words:?} in {of} parts:\n{merged:?}\n{whole:?}", data.display());
    }
}

#[test]
fn the_merge_of_all_parts_is_the_report() {
    let mut dice = Dice::new(1);
    for (name, function, of) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        check(&mut dice, &fixture.data, &["-f", function], of);
    }
    // Calls that are chosen, of kernel code, and with the sites and lines of all.
    let Some(demo) = fixture("demo-kernel-cpu2") else { return };
    check(&mut dice, &demo.data, &["-f", "round_fn", "-f", "leaf", "--li", "0,50000"], 4);
    check(&mut dice, &demo.data, &["-f", "leaf", "-a", "round_fn", "--srcline"], 3);
    if let Some(kcore) = demo.kernel_dir() {
        check(&mut dice, &demo.data, &["-f", "round_fn", "--kcore", kcore.to_str().unwrap()], 3);
    }
}

/// All recordings of the lab with 1, 2, 7, 64 and any number of parts.
#[test]
fn all_recordings_in_any_number_of_parts() {
    if !is_full_run() {
        println!("skipped: for the full run (FUNC_LATENCY_FULL=1)");
        return;
    }
    let mut dice = Dice::new(2);
    for (log, function) in FUNCTIONS {
        for Fixture { data, .. } in fixtures_of(log) {
            let any = 3 + dice.below(200) as u32;
            for of in [1, 2, 7, 64, any] {
                check(&mut dice, &data, &["-f", function], of);
            }
        }
    }
}

/// Laid together in any order and bracketing, parts are the same bytes.
#[test]
fn neither_order_nor_brackets_matter() {
    let Some(fixture) = fixture("demo-cpu2-ovf") else { return };
    let directory = tempfile::tempdir().unwrap();
    let files = parts(&fixture.data, &["-f", "round_fn"], 9, directory.path());
    let mut dice = Dice::new(3);
    let mut all = |files: &[PathBuf]| {
        let left = laid_together(&mut dice, files.to_vec(), 1, directory.path());
        std::fs::read(&left[0]).unwrap()
    };
    let expect = all(&files);
    for round in 0..4 {
        assert!(all(&files) == expect, "round {round}");
    }
    let summaries = ["whole", "merged"].map(|name| directory.path().join(name));
    let laid = directory.path().join("all");
    std::fs::write(&laid, expect).unwrap();
    let summary = |words: &[&str], to: &Path, of: &Path| said(words, &["--summary".as_ref(), to, of]).0;
    let whole = summary(&["report", "-f", "round_fn"], &summaries[0], &fixture.data);
    assert_eq!(summary(&["merge"], &summaries[1], &laid), whole);
    let [whole, merged] = summaries.map(|path| std::fs::read(path).unwrap());
    assert!(whole == merged, "the summary of the parts is that of the recording");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (Some(demo), Some(other)) = (fixture("demo-cpu2-ovf"), fixture("demo-cpu2")) else { return };
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        directory
    };
    let two = parts(&demo.data, &["-f", "round_fn"], 2, &of("two"));
    let three = parts(&demo.data, &["-f", "round_fn"], 3, &of("three"));
    let others = parts(&other.data, &["-f", "round_fn"], 2, &of("other"));
    let leaves = parts(&demo.data, &["-f", "leaf"], 2, &of("leaf"));
    let merge = |paths: &[&Path]| refused(&["merge"], paths, 2);
    let twice = merge(&[&two[0], &two[1], &two[0]]);
    assert!(twice.contains("part 1 of 2 is there twice: name it once"), "{twice}");
    assert!(merge(&[&two[0], &three[1]]).contains("make all with the same N"));
    assert!(merge(&[&two[0], &others[1]]).contains("and the other parts are of r"));
    assert!(merge(&[&two[0], &leaves[1]]).contains("with the same -f"));
    let summary = directory.path().join("summary");
    said(&["report", "-f", "round_fn"], &["--summary".as_ref(), &summary, &demo.data]);
    assert!(merge(&[&two[0], &summary]).contains("merge the parts of a recording alone"));
    let elsewhere = merge(&["-i".as_ref(), &other.data, &two[0], &two[1]]);
    assert!(elsewhere.contains("name theirs with -i FILE"), "{elsewhere}");
    let part_out = ["--part-out".as_ref(), summary.as_path()];
    assert!(merge(&[&part_out[..], &[&summary]].concat()).contains("--part-out"));
    for wrong in [&["--part", "3/2"][..], &["--part", "1/2", "--check"], &["--part", "1/2", "--counters"]] {
        refused(
            &[&["report", "-f", "round_fn"], wrong].concat(),
            &[&part_out[..], &[&demo.data]].concat(),
            2,
        );
    }
}

/// Parts that are missing are named, and what ran in them is lost: nothing is counted twice or made up.
#[test]
fn what_is_missing_is_a_loss_by_name() {
    for (name, function) in [("demo-cpu2", "round_fn"), ("sq1", "sqlite3VdbeExec")] {
        let Some(fixture) = fixture(name) else { return };
        let directory = tempfile::tempdir().unwrap();
        let files = parts(&fixture.data, &["-f", function], 6, directory.path());
        let report = |paths: &[&Path]| -> Value {
            serde_json::from_str(&said(&["merge", "--format", "json"], paths).0).unwrap()
        };
        let all: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let whole = report(&all);
        for there in [&[0, 1, 2, 3, 4][..], &[1, 2, 3, 4, 5], &[0, 3, 5], &[2]] {
            let paths: Vec<&Path> = there.iter().map(|number| all[*number]).collect();
            let part = report(&paths);
            let named = part["loss"]["problems"].as_array().unwrap().last().unwrap().as_str().unwrap();
            assert!(named.starts_with("missing: part") && named.contains(" of 6"), "{named}");
            let lost = part["loss"]["by_cause"].as_array().unwrap().iter();
            let lost = lost.filter(|cause| cause["cause"] == "not decoded");
            let lost: Vec<u64> = lost.map(|cause| cause["lost_ns"].as_u64().unwrap()).collect();
            assert!(lost.len() == 1 && lost[0] > 0, "{name} {there:?}: {lost:?}");
            let count = |report: &Value| report["functions"][0]["latency_ns"]["count"].as_u64().unwrap();
            assert!(count(&part) < count(&whole), "{name} {there:?}");
            assert_eq!(part["trace"]["span_ns"], whole["trace"]["span_ns"]);
            let coverage = |report: &Value| report["loss"]["coverage"].as_f64().unwrap();
            assert!(coverage(&part) < coverage(&whole), "{name} {there:?}");
        }
        if name == "sq1" {
            // Its only thread: what some parts have not is what the others have.
            let halves = [report(&[all[0], all[3], all[5]]), report(&[all[1], all[2], all[4]])];
            let lost: u64 = halves.iter().map(|half| half["loss"]["lost_ns"].as_u64().unwrap()).sum();
            let window = whole["loss"]["threads"][0]["window_ns"].as_u64().unwrap();
            assert!(lost.abs_diff(window) < 1000, "{lost} ns of {window}");
        }
    }
}

/// What was decoded is read from the parts alone: of the recording the merge needs all but the trace.
#[test]
fn a_merge_reads_no_trace() {
    let Some(fixture) = fixture("sq1") else { return };
    let directory = tempfile::tempdir().unwrap();
    let words = ["-f", "sqlite3VdbeExec"];
    let files = parts(&fixture.data, &words, 3, directory.path());
    let mut bytes = std::fs::read(&fixture.data).unwrap();
    let file = pipeline::open(&fixture.data).unwrap();
    let mut blanked = 0;
    for buffer in &file.recording().unwrap().buffers {
        for piece in &buffer.pieces {
            let at = usize::try_from(piece.file_offset).unwrap();
            // The ends of the trace name the recording.
            let middle = at + 4096..(at + piece.bytes.len()).saturating_sub(4096);
            blanked += middle.len();
            bytes.get_mut(middle).into_iter().for_each(|middle| middle.fill(0));
        }
    }
    assert!(blanked > bytes.len() / 2);
    let blank = directory.path().join("sq1.data");
    std::fs::write(&blank, bytes).unwrap();
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let merged =
        said(&["merge", "--format", "json"], &[&["-i".as_ref(), blank.as_path()], &paths[..]].concat());
    assert_eq!(merged, said(&["report", "--format", "json", words[0], words[1]], &[&fixture.data]));
}

/// Outputs in memory, by where their segments are.
#[derive(Default)]
struct Stored {
    outputs: BTreeMap<SegmentKey, Vec<u8>>,
    mismatches: AtomicU64,
}

impl StoredOutputs for Stored {
    fn output(&self, segment: &StoredSegment) -> SegmentOutput {
        SegmentOutput::from_bytes(&self.outputs[&segment.key()]).unwrap()
    }

    fn mismatch(&self, _: &StoredSegment) {
        self.mismatches.fetch_add(1, Relaxed);
    }
}

/// Counts the bytes of trace that it decodes.
struct Counting(OwnDecoder, Arc<AtomicU64>);

impl SegmentDecoder for Counting {
    fn decode(&self, context: &Context<'_>, segment: &Segment<'_>) -> SegmentOutput {
        let bytes: usize = segment.pieces.iter().map(|piece| piece.bytes.len()).sum();
        self.1.fetch_add(bytes as u64, Relaxed);
        self.0.decode(context, segment)
    }
}

/// The merge decodes nothing of most recordings: digests do in the place of events. Where they do not, the
/// report is the same.
#[test]
fn digests_do_in_the_place_of_events() {
    for (name, function, _) in RECORDINGS {
        let Some(fixture) = fixture(name) else { continue };
        let file = pipeline::open(&fixture.data).unwrap();
        let opened = Opened::new(&file).unwrap();
        let around = Surroundings::of(&opened.recording, &opened.schedule, &opened.image);
        let request = Request { functions: vec![opened.function(function).unwrap()], ..Request::default() };
        let mut whole = Analysis::new(&request, around);
        opened.decode(&DecodeOptions::default(), &mut whole);
        let whole = whole.finish();
        let asks_about = Analysis::new(&request, around).asks_about();
        let context = Context::new(&opened.recording, &opened.schedule, &opened.image, false);
        let context = Context { asks_about: asks_about.as_ref(), ..context };
        let (mut stored, mut segments) = (Stored::default(), Vec::new());
        for number in 1..=2 {
            let digester = Analysis::new(&request, around).digester().unwrap().for_store();
            let mut take = |segment: StoredSegment, output: Result<Vec<u8>, _>| {
                stored.outputs.insert(segment.key(), output.unwrap());
                segments.push(segment);
                ControlFlow::Continue(())
            };
            let decoder = Box::<OwnDecoder>::default();
            let options = DecodeOptions::default();
            let share = Share { number, of: 2 };
            decode_share(decoder, &context, &options, share, &|_| (), Some(&digester), &mut take);
        }
        segments.sort_by_key(StoredSegment::key);
        for workers in [1, 2] {
            let decoded = Arc::<AtomicU64>::default();
            let decoder = Box::new(Counting(OwnDecoder::default(), Arc::clone(&decoded)));
            let mut merged = Analysis::new(&request, around);
            let digester = merged.digester().unwrap();
            let parts = StoredParts { segments: &segments, outputs: &stored };
            let options = DecodeOptions { workers, ..DecodeOptions::default() };
            join_stored(decoder, &context, &options, parts, &|_| (), Some(&digester), &mut merged);
            let merged = merged.finish();
            assert!(merged == whole, "{name}");
            let decoded = decoded.load(Relaxed);
            assert_eq!(stored.mismatches.load(Relaxed), 0, "{name}");
            println!("{name}: {decoded} bytes of trace decoded again");
            assert!(name != "sq1" || decoded == 0, "{name}: {decoded} bytes");
        }
    }
}

/// A damaged part says so, unless the damage is in events that are not read.
#[test]
fn a_damaged_part_says_so() {
    let Some(fixture) = fixture("demo-filter2") else { return };
    let directory = tempfile::tempdir().unwrap();
    let files = parts(&fixture.data, &["-f", "mid"], 2, directory.path());
    let (whole, hurt) = (std::fs::read(&files[0]).unwrap(), directory.path().join("hurt"));
    let merge = |bytes: &[u8]| {
        std::fs::write(&hurt, bytes).unwrap();
        refused(&["merge"], &[&hurt, &files[1]], 4)
    };
    let expected = said(&["merge"], &[&files[0], &files[1]]);
    let mut dice = Dice::new(4);
    let (mut unread, mut noticed) = (0, 0);
    for _ in 0..24 {
        let mut bytes = whole.clone();
        let at = 8 + dice.below(bytes.len() - 8);
        bytes[at] ^= 1 << dice.below(8);
        std::fs::write(&hurt, &bytes).unwrap();
        if run(&["merge"], &[&hurt, &files[1]]).status.success() {
            assert_eq!(said(&["merge"], &[&hurt, &files[1]]), expected, "byte {at}");
            unread += 1;
            continue;
        }
        let error = merge(&bytes);
        assert!(error.contains("hurt") && error.contains("make the part again"), "byte {at}: {error}");
        noticed += 1;
    }
    assert!(noticed > 0, "{unread} were in events that are not read");
    for (name, why) in [("none", "cannot read"), ("empty", "is no whole file of parts")] {
        let other = directory.path().join(name);
        if name == "empty" {
            std::fs::write(&other, "").unwrap();
        }
        let error = refused(&["merge"], &[&files[0], &other], 4);
        assert!(error.contains(why) && error.contains(name), "{error}");
    }
    for len in [8, 9, 36, whole.len() / 2, whole.len() - 1] {
        let error = merge(&whole[..len]);
        assert!(error.contains("is no whole file of parts"), "{len} bytes: {error}");
    }
}

/// Of a bundle's directory parts are made and merged as a report is, also where it was moved.
#[test]
fn parts_of_a_bundle() {
    let Some(fixture) = fixture("demo-filter2") else { return };
    let directory = tempfile::tempdir().unwrap();
    let [bundle, moved] = ["bundle", "moved"].map(|name| directory.path().join(name));
    said(&["bundle"], &[&fixture.data, "-o".as_ref(), &bundle]);
    let files = parts(&bundle, &["-f", "mid"], 3, directory.path());
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let report = |bundle: &Path| said(&["report", "--format", "json", "-f", "mid"], &[bundle]);
    assert_eq!(said(&["merge", "--format", "json"], &paths), report(&bundle));
    std::fs::rename(&bundle, &moved).unwrap();
    let merged =
        said(&["merge", "--format", "json"], &[&["-i".as_ref(), moved.as_path()], &paths[..]].concat());
    assert_eq!(merged, report(&moved));
    said(&["plan"], &[&moved]);
}
