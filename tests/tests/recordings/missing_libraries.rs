//! Recordings of which only the program's own file is at hand: each call that is complete is as it is with
//! all files, and with addresses of returns in the trace most calls are.

use std::collections::BTreeMap;

use analyzer::{CallRow, Caller, Report, Status};
use decoder::DecodeOptions;
use image::Image;
use model::{FunctionId, FunctionKind, FunctionLookup as _, Tid};
use truth_tests::{Opened, fixture, pipeline};

use crate::other_machine::{with_symfs, write_files};

/// Calls that are looked at for the one that began at the same time: many begin within the error of a time.
const NEAR_ROWS: usize = 1 << 10;

/// How calls without the libraries compare with those with them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Complete on both sides, and the same.
    alike: usize,
    /// Of these, they have executed what they have with the libraries; and it is not known what they have.
    counted: usize,
    unknown: usize,
    /// They may have ended at another time, as is said of them.
    undecided: usize,
    /// They have left for a library by a jump, and end there, as is said of them.
    by_jump: usize,
    /// Complete with the libraries only.
    lost: usize,
    /// Complete without them, and otherwise with them.
    wrong: Vec<String>,
}

/// The functions of the program, by their symbols: the same in both images.
fn functions(opened: &Opened<'_>, names: &[String]) -> Vec<FunctionId> {
    names.iter().map(|name| opened.function(name).unwrap()).collect()
}

/// Symbols of the object of `main` that stand for one function each.
fn names(opened: &Opened<'_>) -> Vec<String> {
    let image: &Image = &opened.image;
    let program = image.object(opened.function("main").unwrap());
    let is_own = |id: &FunctionId| image.object(*id) == program && image.kind(*id) == FunctionKind::Symbol;
    let own = image.functions().filter(is_own);
    own.map(|id| image.function_name(id)).filter(|name| opened.function(name).is_ok()).collect()
}

fn by_thread(report: &Report, function: usize) -> BTreeMap<Tid, Vec<&CallRow>> {
    let mut threads: BTreeMap<Tid, Vec<&CallRow>> = BTreeMap::new();
    for row in &report.functions[function].rows {
        threads.entry(row.id.tid).or_default().push(row);
    }
    threads.values_mut().for_each(|rows| rows.sort_by_key(|row| row.start_ns));
    threads
}

fn is_near(one: u64, other: u64, errors: u64) -> bool {
    one.abs_diff(other) <= errors
}

/// The caller as far as it is known without the libraries.
fn callers_agree(whole: &CallRow, left: &CallRow) -> bool {
    match (whole.from.caller, left.from.caller) {
        (_, Caller::Unknown) => true,
        // The jump of a library is out of sight: it stands for the call that led there.
        (Caller::Function { tail: true, .. }, Caller::Function { tail: false, .. }) => true,
        (one, other) => one == other && whole.from.site == left.from.site,
    }
}

/// The call of `whole` that is `left`.
fn is_same(whole: &CallRow, left: &CallRow) -> bool {
    let errors = whole.error_ns + left.error_ns;
    whole.end.status == Status::Complete
        && is_near(whole.start_ns.0, left.start_ns.0, errors)
        && is_near(whole.latency_ns, left.latency_ns, errors)
        && callers_agree(whole, left)
}

impl Seen {
    fn add(&mut self, name: &str, whole: &[&CallRow], left: &[&CallRow]) {
        let complete =
            |rows: &[&CallRow]| rows.iter().filter(|row| row.end.status == Status::Complete).count();
        let lost = complete(whole).saturating_sub(complete(left));
        self.lost += lost;
        for row in left.iter().filter(|row| row.end.status == Status::Complete) {
            let latest = row.start_ns.0 + 2 * row.error_ns;
            let end = whole.partition_point(|other| other.start_ns.0 <= latest + other.error_ns);
            let near = whole[..end].iter().rev().take(NEAR_ROWS);
            match () {
                () if row.end.by_jump => self.by_jump += 1,
                () if near.clone().any(|other| is_same(other, row)) => {
                    self.alike += 1;
                    self.count(name, near.clone().filter(|other| is_same(other, row)), row);
                }
                () if row.end.undecided || near.clone().any(|other| other.end.undecided) => {
                    self.undecided += 1
                }
                () => self.wrong.push(format!("{name}: {row:?}")),
            }
        }
    }
}

impl Seen {
    /// A call that is one of `same`: its counters are those of one, or not known.
    fn count<'r>(&mut self, name: &str, mut same: impl Iterator<Item = &'r &'r CallRow>, row: &CallRow) {
        let Some(counted) = row.counted().filter(|counted| counted.is_known()) else {
            self.unknown += 1;
            return;
        };
        self.counted += 1;
        let is_it =
            |other: &&CallRow| other.counted().is_some_and(|other| other.executed == counted.executed);
        if !same.any(is_it) {
            self.wrong.push(format!("{name}: counters of {row:?}"));
        }
    }
}

/// `None`: there is no such recording.
fn compare(name: &str) -> Option<Seen> {
    let fixture = fixture(name)?;
    let file = pipeline::open(&fixture.data).unwrap();
    let here = Opened::new(&file).unwrap();
    let program = here.image.object(here.function("main").unwrap());
    let root = tempfile::tempdir().unwrap();
    write_files(&here.image.bundle().files, root.path(), |file| Some(file.object) == program);
    let there = with_symfs(&here, root.path());
    let names = names(&here);
    let [whole, left] = [&here, &there]
        .map(|opened| opened.analyse_counters(&functions(opened, &names), &DecodeOptions::default()));
    let mut seen = Seen::default();
    for (number, name) in names.iter().enumerate() {
        let (whole, left) = (by_thread(&whole, number), by_thread(&left, number));
        for (tid, left) in &left {
            seen.add(name, whole.get(tid).map_or(&[], |rows| rows), left);
        }
    }
    let Seen { alike, counted, unknown, undecided, by_jump, lost, wrong } = &seen;
    println!(
        "{name}: {alike} alike ({counted} counted, {unknown} unknown), {undecided} undecided, {by_jump} by a jump, {lost} lost"
    );
    assert!(wrong.is_empty(), "{name}: {} wrong, {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    Some(seen)
}

/// Where returns have addresses, what is lost ends in a library that it has jumped to.
#[test]
fn calls_of_missing_libraries_cut_nothing() {
    for name in ["demo-noretcomp", "calls-noretcomp", "case-recursion-noretcomp"] {
        let Some(Seen { alike, counted, unknown, undecided, lost, .. }) = compare(name) else { return };
        assert!(counted > unknown && unknown > 0, "{name}: what missing code executed is not known");
        assert!(lost * 1_000 <= alike && undecided == 0, "{name}");
    }
}

/// Signals and exceptions, returns with bits and with addresses, TIPs that waited: nothing is wrong.
#[test]
fn nothing_is_made_up_without_libraries() {
    let names = [
        "demo-defer-noret",
        "calls-defer-noret",
        "calls",
        "case-signals-noretcomp",
        "case-unwind-noretcomp",
        "case-unwind",
    ];
    for name in names {
        if compare(name).is_none() {
            return;
        }
    }
}
