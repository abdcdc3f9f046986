//! Damaged recordings: no panic, no hang, and an error or a counted loss for what can be noticed.

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use analyzer::Report;
use decoder::DecodeOptions;
use image::{Image, ImageOptions, Query};
use model::{FunctionId, Schedule, SidebandRecord};
use tracegen::truth::verify::KernelText;
use truth_tests::{Opened, fixture, is_full_run};

/// Far above what one small recording takes, far below a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of a damaged recording.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// It was refused.
    Refused,
    /// It was read up to somewhere, and says where that is.
    Damaged {
        /// Something of it is in a gap.
        lost: bool,
    },
    /// It was read whole, and something is lost.
    Lost(Vec<u64>),
    /// It was read whole and nothing is lost.
    Whole(Vec<u64>),
}

/// The figures that a reader would notice.
fn figures(report: &Report) -> Vec<u64> {
    let function = report.functions.first();
    let stats = function.map(|f| (f.figures.latency.count, f.figures.latency.sum_ns));
    let lost = report.loss.threads.iter().map(|t| t.lost_ns).sum();
    vec![stats.map_or(0, |s| s.0), stats.map_or(0, |s| s.1), lost, report.loss.overflows]
}

thread_local! {
    /// The image of the last recording: most damage leaves the mappings as they are, and reading symbols
    /// takes longest.
    static LAST_IMAGE: RefCell<Option<(Vec<SidebandRecord>, Image)>> = const { RefCell::new(None) };
}

/// Does what the command does with a file of these bytes.
fn report(bytes: &[u8], symbol: &str) -> Outcome {
    let (outcome, used) = report_with(bytes, symbol, &|sideband| {
        let last = LAST_IMAGE.take().filter(|(of, _)| of == sideband);
        last.map_or_else(|| Image::load(sideband, &ImageOptions::default()), |(_, image)| image)
    });
    LAST_IMAGE.set(used);
    outcome
}

/// Loads the image of a recording with this sideband.
type Load<'a> = dyn Fn(&[SidebandRecord]) -> Image + 'a;

/// What became of it, and its image.
fn report_with(
    bytes: &[u8],
    symbol: &str,
    load: &Load<'_>,
) -> (Outcome, Option<(Vec<SidebandRecord>, Image)>) {
    let start = Instant::now();
    let Ok(recording) = perfdata::parse(bytes, Path::new("damaged")) else {
        return (Outcome::Refused, None);
    };
    let is_damaged = recording.damage.is_some();
    let schedule = Schedule::new(&recording.sideband);
    let image = load(&recording.sideband);
    let query = Query { text: symbol.to_owned(), ..Query::default() };
    let function = image.find(&query).ok().and_then(|found| found.first().map(|f| f.id));
    let opened = Opened { recording, schedule, image, kernel: KernelText::Missing };
    let report = opened.analyse(&[function.unwrap_or(FunctionId::UNKNOWN)], &DecodeOptions::default());
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
    let has_loss = report.loss.threads.iter().any(|t| t.lost_ns > 0) || !report.loss.by_cause.is_empty();
    let outcome = match (is_damaged, has_loss) {
        (true, lost) => Outcome::Damaged { lost },
        (false, true) => Outcome::Lost(figures(&report)),
        (false, false) => Outcome::Whole(figures(&report)),
    };
    (outcome, Some((opened.recording.sideband, opened.image)))
}

/// A small generator of numbers, the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 16) * bound as u128) >> 48) as usize
    }
}

/// How often a kind of damage is done.
fn rounds() -> usize {
    if is_full_run() { 10_000 } else { 300 }
}

#[test]
fn a_truncated_file_gives_what_is_whole_and_says_where_it_ends() {
    let Some(fixture) = fixture("demo-cpu2-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    let cuts = rounds();
    let (mut refused, mut without_loss) = (0, 0);
    for number in 0..cuts {
        let cut = bytes.len() * number / cuts;
        match report(&bytes[..cut], "round_fn") {
            Outcome::Refused => refused += 1,
            Outcome::Damaged { lost } => without_loss += usize::from(!lost),
            silent => panic!("cut at {cut} of {}: {silent:?}", bytes.len()),
        }
    }
    // Only a cut before the first trace record leaves nothing to report.
    assert!(refused < cuts / 20, "{refused} of {cuts} cuts were refused");
    // Only one between what the kernel has recorded leaves out nothing that it tells of.
    assert!(without_loss < cuts / 20, "{without_loss} of {cuts} cuts lost nothing");
}

/// The ranges of a recording: what stands before and after the records, the records, the trace.
#[derive(Default)]
struct Parts {
    header: Vec<Range<usize>>,
    records: Vec<Range<usize>>,
    trace: Vec<Range<usize>>,
}

impl Parts {
    fn of(bytes: &[u8]) -> Self {
        let recording = perfdata::parse(bytes, Path::new("whole")).unwrap();
        let pieces = recording.buffers.iter().flat_map(|buffer| &buffer.pieces);
        let mut trace: Vec<_> =
            pieces.map(|p| p.file_offset as usize..p.file_offset as usize + p.bytes.len()).collect();
        trace.sort_by_key(|range| range.start);
        // `struct perf_file_header`: the data section's offset and size.
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let (data, data_end) = (word(40), word(40) + word(48));
        let starts = std::iter::once(data).chain(trace.iter().map(|range| range.end));
        let ends = trace.iter().map(|range| range.start).chain([data_end]);
        let records = starts.zip(ends).map(|(start, end)| start..end).collect();
        Self { header: vec![0..data, data_end..bytes.len()], records, trace }
    }
}

/// What became of flipped bits.
#[derive(Debug, Default)]
struct Flips {
    noticed: usize,
    harmless: usize,
    silent: usize,
}

/// Flips bits in `parts` of a recording, one at a time.
fn flip(bytes: &[u8], parts: &[Range<usize>], seed: u64) -> Flips {
    let whole = report(bytes, "simple_fn");
    let places: Vec<usize> = parts.iter().cloned().flatten().collect();
    let (mut numbers, mut flips) = (Numbers(seed), Flips::default());
    let mut damaged = bytes.to_vec();
    for _ in 0..rounds() {
        let (at, bit) = (places[numbers.below(places.len())], 1 << numbers.below(8));
        damaged[at] ^= bit;
        match report(&damaged, "simple_fn") {
            outcome if outcome == whole => flips.harmless += 1,
            Outcome::Whole(_) => flips.silent += 1,
            _ => flips.noticed += 1,
        }
        damaged[at] ^= bit;
    }
    flips
}

#[test]
fn a_flipped_bit_of_the_trace_is_an_error_a_loss_or_harmless() {
    let Some(fixture) = fixture("calls-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    let flips = flip(&bytes, &Parts::of(&bytes).trace, 1);
    println!("trace: {flips:?}");
    // A trace has no checksums: a changed count of cycles, or a bit of a branch that leads to valid code,
    // cannot be told from the truth.
    assert!(flips.noticed > flips.silent, "{flips:?}");
}

#[test]
fn a_flipped_bit_of_a_record_is_survived() {
    let Some(fixture) = fixture("calls-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    println!("records: {:?}", flip(&bytes, &Parts::of(&bytes).records, 2));
}

#[test]
fn a_flipped_bit_of_the_header_is_survived() {
    let Some(fixture) = fixture("calls-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    println!("header: {:?}", flip(&bytes, &Parts::of(&bytes).header, 3));
}

#[test]
fn a_flipped_bit_of_the_program_is_survived() {
    let Some(fixture) = fixture("calls-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    let recording = perfdata::parse(&bytes, &fixture.data).unwrap();
    // All objects as they are, but for the program, in a directory of its own.
    let root = tempfile::tempdir().unwrap();
    let image = Image::load(&recording.sideband, &ImageOptions::default());
    let mut program = None;
    for path in image.objects().filter_map(|id| image.object_path(id)) {
        let copy = root.path().join(path.strip_prefix("/").unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        if path.ends_with("calls") {
            program = Some((std::fs::read(path).unwrap(), copy));
        } else {
            std::os::unix::fs::symlink(path, copy).unwrap();
        }
    }
    let (mut program, copy) = program.unwrap();
    let options = ImageOptions { symfs: Some(root.path().to_owned()), ..ImageOptions::default() };
    let (mut numbers, mut refused) = (Numbers(4), 0);
    for _ in 0..rounds() {
        let (at, bit) = (numbers.below(program.len()), 1 << numbers.below(8));
        program[at] ^= bit;
        let _ = std::fs::remove_file(&copy); // it is mapped: never written over
        std::fs::write(&copy, &program).unwrap();
        let (outcome, _) = report_with(&bytes, "simple_fn", &|sideband| Image::load(sideband, &options));
        refused += usize::from(outcome == Outcome::Refused);
        program[at] ^= bit;
    }
    assert_eq!(refused, 0, "the recording is whole");
}

#[test]
fn bytes_of_another_kind_are_refused() {
    for bytes in [&b""[..], b"PERFILE2", b"\x7fELF\x02\x01\x01", &[0; 4096], b"PERFILE2\x68\0\0\0\0\0\0\0"] {
        assert_eq!(report(bytes, "main"), Outcome::Refused, "{bytes:02x?}");
    }
}
