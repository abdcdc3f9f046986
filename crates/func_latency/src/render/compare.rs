//! Two sets of runs side by side, figure by figure.

use std::io::{self, Write};

use analyzer::ledger::LeftOut;
use analyzer::samples::{
    Figure, FigureChange, FigureOfSet, FigureVerdict, LEVEL, Missing, RunsComparison, SamplesOf,
};
use serde::Serialize;

use super::ledger::text::left_out;
use super::runs::{FunctionRuns, Run, RunEntry, below_errors, error_of, mean_and_deviation};
use super::table::{Align, Table};
use super::units::{counted, grouped, mean_duration, signed_percent};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency.compare/1";

/// What makes a comparison fail: B takes longer by more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailAbove {
    /// The figure that is looked at.
    pub figure: Figure,
    /// By more than so much.
    pub percent: f64,
}

impl FailAbove {
    /// Whether it fails.
    #[must_use]
    pub fn fails(&self, comparison: &RunsComparison) -> bool {
        comparison.figure(self.figure).is_some_and(|change| change.is_slower_by(self.percent))
    }

    /// Why it could not have failed, whatever the samples are.
    #[must_use]
    pub fn untold(&self, comparison: &RunsComparison) -> Option<String> {
        let change = comparison.figure(self.figure)?;
        change.change.err().map(|missing| missing_text(missing, comparison.samples))
    }
}

/// One of the two sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The command, the file or the directory.
    pub name: String,
    /// Its runs.
    pub runs: FunctionRuns,
}

/// B against A.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    /// A: the side that B is compared with.
    pub base: &'a Side,
    /// B.
    pub these: &'a Side,
    /// Their figures.
    pub comparison: &'a RunsComparison,
    /// What makes it fail.
    pub fail_above: Option<FailAbove>,
}

/// Writes the comparison into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write_text(out: &mut dyn Write, compared: &Compared<'_>, width: usize) -> io::Result<()> {
    let Compared { base, these, comparison, fail_above } = compared;
    let function = &base.runs.function;
    writeln!(out, "[{function}]: B, {}, against A, {}\n", these.name, base.name)?;
    for (letter, side) in [("A", base), ("B", these)] {
        writeln!(out, "  {letter}: {}", runs(&side.runs.runs))?;
    }
    write_figures(out, comparison, [&base.runs.runs, &these.runs.runs], width)?;
    fail_above.map_or(Ok(()), |fail_above| write_fail_above(out, fail_above, comparison))
}

/// `10 runs of 1,498 to 1,500 calls (not compared: 3 cut)`.
fn runs(runs: &[Run]) -> String {
    let calls = || runs.iter().map(|run| run.calls.latencies_ns.len() as u64);
    let (least, most) = (calls().min().unwrap_or_default(), calls().max().unwrap_or_default());
    let number = counted(runs.len() as u64, "run");
    let of = if least == most { String::new() } else { format!("{} to ", grouped(least)) };
    let mut all = LeftOut::default();
    runs.iter().for_each(|run| all.add(run.calls.left_out));
    let without = left_out(&all).map_or_else(String::new, |what| format!(" (not compared: {what})"));
    format!("{number} of {of}{}{without}", counted(most, "call"))
}

/// Writes the change of each figure: of A's and of B's runs.
///
/// # Errors
/// What `out` says.
pub(super) fn write_figures(
    out: &mut dyn Write,
    comparison: &RunsComparison,
    sides: [&[Run]; 2],
    width: usize,
) -> io::Result<()> {
    let samples = match comparison.samples {
        SamplesOf::Runs => "Figures of the runs, mean +- standard deviation; intervals from the runs",
        SamplesOf::Blocks => "Figures of all calls; intervals from blocks of calls that follow one another",
    };
    writeln!(out, "\n{samples}, all together of {:.0} %", 100.0 * (1.0 - LEVEL))?;
    let right = |title| (title, Align::Right);
    let mut table = Table::new(&[
        ("", Align::Left),
        right("A"),
        right("B"),
        right("change"),
        right("interval"),
        ("", Align::Left),
    ]);
    for change in &comparison.figures {
        let of_set = |set: Option<FigureOfSet>| {
            let Some(FigureOfSet { value_ns, deviation_ns, .. }) = set else { return "-".to_owned() };
            match comparison.samples {
                SamplesOf::Runs => mean_and_deviation(value_ns, deviation_ns),
                SamplesOf::Blocks => mean_duration(value_ns),
            }
        };
        let mut cells = vec![change.figure.name().to_owned(), of_set(change.base), of_set(change.these)];
        cells.extend(interval(change, comparison.samples));
        table.row(cells);
    }
    table.write(out, width)?;
    for (letter, runs) in [("A", sides[0]), ("B", sides[1])] {
        if let Some(line) = below_errors(runs) {
            writeln!(out, "  {letter}: {line}")?;
        }
    }
    comparison.figures.iter().try_for_each(|change| write_errors(out, change, sides))
}

/// Change, interval and verdict.
fn interval(change: &FigureChange, samples: SamplesOf) -> [String; 3] {
    let verdict = match change.verdict() {
        FigureVerdict::Slower => "B is slower",
        FigureVerdict::Faster => "B is faster",
        FigureVerdict::MayBeChance => "may be chance",
        FigureVerdict::TooFew | FigureVerdict::NoRatio => "",
    };
    match change.change {
        Ok(of) => [
            signed_percent(of.factor),
            format!("{} to {}", signed_percent(of.low), signed_percent(of.high)),
            verdict.to_owned(),
        ],
        Err(missing) => ["-".to_owned(), "-".to_owned(), missing_text(missing, samples)],
    }
}

fn missing_text(missing: Missing, samples: SamplesOf) -> String {
    match (missing, samples) {
        (Missing::Ratio, _) => "is 0 ns in both: less than its error".to_owned(),
        (Missing::Runs(runs), _) => format!("needs {} of each", counted(runs as u64, "run")),
        (Missing::Calls(calls), SamplesOf::Runs) => {
            format!("needs {} in each run", counted(calls as u64, "call"))
        }
        (Missing::Calls(calls), SamplesOf::Blocks) => {
            format!("needs {} of each", counted(calls as u64, "call"))
        }
    }
}

/// Says of a figure that differs that errors of the times could be all of it.
fn write_errors(out: &mut dyn Write, change: &FigureChange, [base, these]: [&[Run]; 2]) -> io::Result<()> {
    let (Some(a), Some(b)) = (change.base, change.these) else { return Ok(()) };
    let errors = [error_of(base, change.figure), error_of(these, change.figure)];
    let [error_a, error_b] = errors;
    let differs = matches!(change.verdict(), FigureVerdict::Slower | FigureVerdict::Faster);
    if !differs || (a.value_ns - b.value_ns).abs() > error_a + error_b {
        return Ok(());
    }
    writeln!(
        out,
        "  {}: the times may be off by {} in A and by {} in B; it is a difference of the programs if they are off \
         alike in both",
        change.figure.name(),
        mean_duration(error_a),
        mean_duration(error_b)
    )
}

/// Writes whether the comparison fails.
///
/// # Errors
/// What `out` says.
pub(super) fn write_fail_above(
    out: &mut dyn Write,
    fail_above: FailAbove,
    comparison: &RunsComparison,
) -> io::Result<()> {
    let (figure, percent) = (fail_above.figure.name(), fail_above.percent);
    let verdict = if fail_above.fails(comparison) {
        "B is slower by more"
    } else if fail_above.untold(comparison).is_some() {
        "whether B is slower by more cannot be told"
    } else {
        "B is not known to be slower by more"
    };
    writeln!(out, "\n--fail-above {percent}%, of {figure}: {verdict}")
}

/// The figures of a comparison as JSON.
#[derive(Serialize)]
pub(super) struct FigureEntry {
    figure: &'static str,
    /// Null, here and below: there are too few calls.
    a: Option<SetEntry>,
    b: Option<SetEntry>,
    /// Null, here and below: there are too few runs or calls to tell.
    change_percent: Option<f64>,
    low_percent: Option<f64>,
    high_percent: Option<f64>,
    verdict: &'static str,
    /// Null: there is enough, or no number would be.
    needed: Option<Needed>,
}

#[derive(Serialize)]
struct SetEntry {
    value_ns: f64,
    /// Null: there are fewer than two samples.
    deviation_ns: Option<f64>,
    samples: usize,
    /// The most by which the errors of the times may move the value.
    error_ns: f64,
}

#[derive(Serialize)]
struct Needed {
    count: usize,
    of: &'static str,
}

/// What was asked of a comparison, as JSON.
#[derive(Serialize)]
pub(super) struct FailEntry {
    figure: &'static str,
    percent: f64,
    fails: bool,
}

impl FailEntry {
    pub(super) fn of(fail_above: FailAbove, comparison: &RunsComparison) -> Self {
        let FailAbove { figure, percent } = fail_above;
        Self { figure: figure.name(), percent, fails: fail_above.fails(comparison) }
    }
}

/// What a sample is, in JSON.
pub(super) const fn samples_name(samples: SamplesOf) -> &'static str {
    match samples {
        SamplesOf::Runs => "runs",
        SamplesOf::Blocks => "blocks",
    }
}

/// The figures of a comparison of A's and B's runs.
pub(super) fn figure_entries(comparison: &RunsComparison, [base, these]: [&[Run]; 2]) -> Vec<FigureEntry> {
    let entry = |change: &FigureChange| {
        let set = |set: Option<FigureOfSet>, runs: &[Run]| {
            set.map(|FigureOfSet { value_ns, deviation_ns, samples }| SetEntry {
                value_ns,
                deviation_ns,
                samples,
                error_ns: error_of(runs, change.figure),
            })
        };
        let of = change.change.ok();
        // A factor that is no number (against 0 ns) is null in JSON.
        let percent = |factor: f64| (factor - 1.0) * 100.0;
        FigureEntry {
            figure: change.figure.name(),
            a: set(change.base, base),
            b: set(change.these, these),
            change_percent: of.map(|of| percent(of.factor)),
            low_percent: of.map(|of| percent(of.low)),
            high_percent: of.map(|of| percent(of.high)),
            verdict: match change.verdict() {
                FigureVerdict::Slower => "slower",
                FigureVerdict::Faster => "faster",
                FigureVerdict::MayBeChance => "may_be_chance",
                FigureVerdict::TooFew => "too_few",
                FigureVerdict::NoRatio => "no_ratio",
            },
            needed: change.change.err().and_then(|missing| match missing {
                Missing::Runs(count) => Some(Needed { count, of: "runs" }),
                Missing::Calls(count) => Some(Needed { count, of: "calls" }),
                Missing::Ratio => None,
            }),
        }
    };
    comparison.figures.iter().map(entry).collect()
}

#[derive(Serialize)]
struct CompareDocument<'a> {
    schema: &'static str,
    function: &'a str,
    a: SideEntry<'a>,
    b: SideEntry<'a>,
    /// What a sample is: a run, or a block of calls.
    samples: &'static str,
    /// How often any of the figures is said to differ where nothing does.
    level: f64,
    figures: Vec<FigureEntry>,
    /// Null: nothing was asked.
    fail_above: Option<FailEntry>,
}

#[derive(Serialize)]
struct SideEntry<'a> {
    name: &'a str,
    runs: Vec<RunEntry<'a>>,
}

impl<'a> From<&'a Side> for SideEntry<'a> {
    fn from(side: &'a Side) -> Self {
        Self { name: &side.name, runs: side.runs.runs.iter().map(RunEntry::from).collect() }
    }
}

/// Writes the comparison as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, compared: &Compared<'_>) -> io::Result<()> {
    let Compared { base, these, comparison, fail_above } = *compared;
    let document = CompareDocument {
        schema: SCHEMA,
        function: &base.runs.function,
        a: base.into(),
        b: these.into(),
        samples: samples_name(comparison.samples),
        level: LEVEL,
        figures: figure_entries(comparison, [&base.runs.runs, &these.runs.runs]),
        fail_above: fail_above.map(|fail_above| FailEntry::of(fail_above, comparison)),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
