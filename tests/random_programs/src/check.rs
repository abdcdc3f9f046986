//! What must hold for a recording of a random program.

use std::fmt::Write as _;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use analyzer::Report;
use decoder::DecodeOptions;
use model::{EventSink, FunctionLookup, Ns, Pid, SpaceId, Tid, TraceEvent};
use tracegen::truth::File;
use tracegen::truth::calls::Oracle;
use tracegen::truth::verify::EventVerifier;
use truth_tests::agreement::{FilteredCode, Side, compare};
use truth_tests::rows::{Compare, differences};
use truth_tests::{Opened, pipeline};

use crate::mode::Mode;
use crate::run::Run;

const WORKERS: [usize; 3] = [2, 3, 8];

/// Why a recording could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be made.
    #[error(transparent)]
    Encode(#[from] tracegen::Error),
    /// The truth cannot be read.
    #[error(transparent)]
    Truth(#[from] tracegen::truth::Error),
    /// The recording cannot be read.
    #[error(transparent)]
    Open(#[from] pipeline::Error),
    /// The oracle.
    #[error(transparent)]
    Oracle(#[from] tracegen::truth::calls::Error),
    /// The log has what the simulation cannot explain.
    #[error("not explained: {0}")]
    Oddities(String),
}

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Rows of the oracle.
    pub rows: u64,
    /// Rows of which the report says that their end is a guess: they are not compared.
    pub undecided: u64,
    /// Rows of the oracle of which it says so: they are not compared either.
    pub unsure: u64,
    /// Rows of recordings with an IP filter, of programs with handlers out of sight that throw, or interrupt
    /// anything, or with jumps from out of sight into the middle of its functions: no report says which calls
    /// those have left, whether a function is entered that was interrupted at its first instruction, or goes
    /// on, or whether one that is open was returned to. They are not compared.
    pub hidden: u64,
    /// Calls that are complete with and without IP filter.
    pub seen_twice: u64,
    /// Differences, described.
    pub wrong: String,
}

impl Checked {
    /// Nothing could be compared.
    #[must_use]
    pub fn failed(error: &Error) -> Self {
        Self { wrong: format!("{error}\n"), ..Self::default() }
    }
}

impl AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.undecided += other.undecided;
        self.unsure += other.unsure;
        self.hidden += other.hidden;
        self.seen_twice += other.seen_twice;
    }
}

/// Records a run, and checks everything.
///
/// # Errors
/// See [`Error`].
pub fn recording(
    run: &Run,
    mode: &Mode,
    dir: &Path,
    name: &str,
    symbols: &[String],
    workers: bool,
) -> Result<Checked, Error> {
    let (data, truth) = record(run, mode, dir, name)?;
    let truth = File::load(&truth)?;
    let file = pipeline::open(&data)?;
    let opened = Opened::new(&file)?;
    let mut checked = Checked { wrong: transfers(&opened, &truth), ..Checked::default() };
    if workers {
        checked.wrong += &same_for_workers(&opened, symbols)?;
    }
    let report = analyse(&opened, symbols, 1)?;
    checked.undecided = report.limits.undecided_calls;
    let is_decided = report.limits.undecided_landings == 0;
    let mut oracle = Oracle::new(&truth, &data)?;
    let compare = if mode.is_lossy() { Compare::Entered } else { Compare::All };
    let targets = mode.options().filter;
    let is_left_unseen = !targets.is_empty() && run.signals && (run.throws || run.timer);
    let is_hidden = is_left_unseen || run.entered_in_the_middle.iter().any(|symbol| targets.contains(symbol));
    if is_hidden {
        checked.hidden += report.functions.iter().map(|function| function.rows.len() as u64).sum::<u64>();
        return Ok(checked);
    }
    let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
    let truth = oracle.calls_of_each(&names)?;
    for (number, ((symbol, function), calls)) in symbols.iter().zip(&report.functions).zip(truth).enumerate()
    {
        checked.rows += calls.rows.len() as u64;
        checked.unsure += calls.rows.iter().filter(|row| row.unsure).count() as u64;
        checked.wrong += &differences(&opened, function, &calls, compare);
        let counted = run.entries.get(number).copied();
        let rows = calls.rows.len() as u64;
        if let Some(counted) = counted.filter(|&counted| is_decided && mode.sees_all() && counted != rows) {
            let _ =
                writeln!(checked.wrong, "{symbol}: the program counted {counted} calls, the oracle {rows}");
        }
    }
    // Where hidden code jumps into the middle of a function that is open, that call seems to go on, and of
    // calls that are unwound out of sight it is not known which.
    let is_plain = run.entered_in_the_middle.is_empty() && !run.throws && !run.signals;
    if mode.has_twin_without_filter() && is_plain {
        let filtered = (&opened, &report);
        with_and_without_filter(run, mode, dir, name, filtered, symbols, &mut checked)?;
    }
    Ok(checked)
}

/// The recording and its truth.
fn record(run: &Run, mode: &Mode, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf), Error> {
    let [data, truth] = ["data", "truth"].map(|end| dir.join(format!("{name}.{end}")));
    let summary = tracegen::encode(&run.log, &data, &truth, &mode.options())?;
    if !summary.oddities.is_empty() {
        return Err(Error::Oddities(format!("{:?}", summary.oddities)));
    }
    Ok((data, truth))
}

fn analyse(opened: &Opened<'_>, symbols: &[String], workers: usize) -> Result<Report, Error> {
    let ids = symbols.iter().map(|symbol| opened.function(symbol)).collect::<Result<Vec<_>, _>>()?;
    Ok(opened.analyse(&ids, &DecodeOptions { workers, segment_bytes: 2_000, ..DecodeOptions::default() }))
}

/// Every transfer, its time, and every gap.
fn transfers(opened: &Opened<'_>, truth: &File) -> String {
    let mut text = String::new();
    let small = DecodeOptions { workers: 2, segment_bytes: 4_000, ..DecodeOptions::default() };
    let all = DecodeOptions { workers: 1, all_branches: true, ..DecodeOptions::default() };
    for (what, options, image) in [("transfers", small, Some(&opened.image)), ("all branches", all, None)] {
        let functions = image.map(|image| image as &dyn FunctionLookup);
        let recorded_until = opened.recording.time_span.map_or(Ns::MAX, |(_, last)| last);
        let mut verifier = EventVerifier::new(truth, functions, opened.kernel).recorded_until(recorded_until);
        opened.decode(&options, &mut verifier);
        let verdict = verifier.finish();
        if !(verdict.agrees() && verdict.times_agree() && verdict.in_holes() == 0) {
            let _ = writeln!(text, "{what}:\n{verdict}");
        }
    }
    text
}

#[derive(Default, PartialEq)]
struct All(Vec<(Pid, Tid, SpaceId, TraceEvent)>);

impl EventSink for All {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        self.0.extend(events.iter().map(|event| (pid, tid, space, *event)));
    }
}

/// Checks that events and report are the same for every number of workers.
fn same_for_workers(opened: &Opened<'_>, symbols: &[String]) -> Result<String, Error> {
    let result = |workers| {
        let mut all = All::default();
        let options = DecodeOptions { workers, segment_bytes: 2_000, ..DecodeOptions::default() };
        let stats = opened.decode(&options, &mut all);
        let report = analyse(opened, symbols, workers)?;
        Ok::<_, Error>((all, stats, format!("{report:?}")))
    };
    let one = result(1)?;
    let mut text = String::new();
    for workers in WORKERS {
        if result(workers)? != one {
            let _ = writeln!(text, "another result with {workers} workers");
        }
    }
    Ok(text)
}

/// What both see of the functions in the filter.
fn with_and_without_filter(
    run: &Run,
    mode: &Mode,
    dir: &Path,
    name: &str,
    (filtered, filtered_report): (&Opened<'_>, &Report),
    symbols: &[String],
    checked: &mut Checked,
) -> Result<(), Error> {
    let (data, _) = record(run, &mode.without_filter(), dir, &format!("{name}-whole"))?;
    let file = pipeline::open(&data)?;
    let opened = Opened::new(&file)?;
    let report = analyse(&opened, symbols, 1)?;
    if report.limits.undecided_landings > 0 {
        return Ok(());
    }
    let targets = mode.options().filter;
    let code = FilteredCode::new(&opened, &targets)?;
    let functions = symbols.iter().zip(report.functions.iter().zip(&filtered_report.functions));
    for (symbol, (function, of_filtered)) in functions.filter(|(symbol, _)| targets.contains(symbol)) {
        let whole = Side { opened: &opened, function };
        let agreement = compare(symbol, whole, Side { opened: filtered, function: of_filtered }, &code);
        checked.seen_twice += agreement.alike();
        checked.wrong += &agreement.wrong;
    }
    Ok(())
}
