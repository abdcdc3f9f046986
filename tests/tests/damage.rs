//! Damaged recordings: no panic, no hang, and an error or a counted loss for what can be noticed.

use std::path::Path;
use std::time::{Duration, Instant};

use analyzer::Report;
use decoder::DecodeOptions;
use image::{Image, ImageOptions, Query};
use model::{FunctionId, Schedule};
use truth_tests::{Opened, fixture, is_full_run};

/// Far above what one small recording takes, far below a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// What became of a damaged recording.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// It was refused.
    Refused,
    /// It was read up to somewhere, and says where that is.
    Damaged,
    /// It was read whole, and something is lost.
    Lost(Vec<u64>),
    /// It was read whole and nothing is lost.
    Whole(Vec<u64>),
}

/// The figures that a reader would notice.
fn figures(report: &Report) -> Vec<u64> {
    let function = report.functions.first();
    let stats = function.map(|f| (f.latency.count, f.latency.sum_ns));
    let lost = report.loss.threads.iter().map(|t| t.lost_ns).sum();
    vec![stats.map_or(0, |s| s.0), stats.map_or(0, |s| s.1), lost, report.loss.overflows]
}

/// Does what the command does with a file of these bytes.
fn report(bytes: &[u8], symbol: &str) -> Outcome {
    let start = Instant::now();
    let Ok(recording) = perfdata::parse(bytes, Path::new("damaged")) else { return Outcome::Refused };
    let is_damaged = recording.damage.is_some();
    let schedule = Schedule::new(&recording.sideband);
    let image = Image::load(&recording.sideband, &ImageOptions::default());
    let query = Query { text: symbol.to_owned(), ..Query::default() };
    let function = image.find(&query).ok().and_then(|found| found.first().map(|f| f.id));
    let opened = Opened { recording, schedule, image };
    let report = opened.analyse(&[function.unwrap_or(FunctionId::UNKNOWN)], &DecodeOptions::default());
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
    let has_loss = report.loss.threads.iter().any(|t| t.lost_ns > 0) || !report.loss.by_cause.is_empty();
    match (is_damaged, has_loss) {
        (true, _) => Outcome::Damaged,
        (false, true) => Outcome::Lost(figures(&report)),
        (false, false) => Outcome::Whole(figures(&report)),
    }
}

/// A small generator of numbers, the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 16) * bound as u128) >> 48) as usize
    }
}

#[test]
fn a_truncated_file_gives_what_is_whole_and_says_where_it_ends() {
    let Some(fixture) = fixture("demo-cpu2-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    let cuts = 300;
    let mut refused = 0;
    for number in 0..cuts {
        let cut = bytes.len() * number / cuts;
        match report(&bytes[..cut], "round_fn") {
            Outcome::Refused => refused += 1,
            Outcome::Damaged => (),
            silent => panic!("cut at {cut} of {}: {silent:?}", bytes.len()),
        }
    }
    // Only a cut before the first trace record leaves nothing to report.
    assert!(refused < cuts / 20, "{refused} of {cuts} cuts were refused");
}

#[test]
fn a_flipped_bit_is_an_error_a_loss_or_harmless() {
    let Some(fixture) = fixture("calls-window") else { return };
    let bytes = std::fs::read(&fixture.data).unwrap();
    let whole = report(&bytes, "simple_fn");
    let flips = if is_full_run() { 10_000 } else { 1_000 };
    let mut numbers = Numbers(1);
    let (mut noticed, mut harmless, mut silent) = (0, 0, 0);
    for _ in 0..flips {
        let mut damaged = bytes.clone();
        let (at, bit) = (numbers.below(bytes.len()), numbers.below(8));
        damaged[at] ^= 1 << bit;
        match report(&damaged, "simple_fn") {
            outcome if outcome == whole => harmless += 1,
            Outcome::Whole(_) => silent += 1,
            _ => noticed += 1,
        }
    }
    println!(
        "{flips} flipped bits: {noticed} noticed, {harmless} harmless, {silent} changed figures unnoticed"
    );
    // A trace has no checksums: a changed count of cycles, or a bit of a branch that leads to valid code, cannot be
    // told from the truth.
    assert!(noticed > silent, "{noticed} noticed, {silent} unnoticed");
}

#[test]
fn bytes_of_another_kind_are_refused() {
    for bytes in [&b""[..], b"PERFILE2", b"\x7fELF\x02\x01\x01", &[0; 4096], b"PERFILE2\x68\0\0\0\0\0\0\0"] {
        assert_eq!(report(bytes, "main"), Outcome::Refused, "{bytes:02x?}");
    }
}
