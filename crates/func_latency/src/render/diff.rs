//! What makes the difference between two recordings.

use std::io::{self, Write};

use analyzer::ledger::{Compared, Difference as LedgerDifference, Shift, Verdict};
use analyzer::samples::RunsComparison;
use analyzer::{Quantiles, Spread, Stats};
use model::NoOffCpu;
use serde::Serialize;

use super::compare::{self, FailAbove, FailEntry, FigureEntry};
use super::ledger::json::{CauseJson, NotCompared, RowJson};
use super::ledger::split;
use super::ledger::text::{self, Titles};
use super::ledger::{self, LedgerView};
use super::runs::Run;
use super::table::{Align, Table};
use super::text::figures::{Figure, P90, P99};
use super::units::{counted, duration_within, grouped};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency_diff/1";

/// A recording's calls of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The recording's file, as it was named.
    pub input: String,
    /// The calls that are compared.
    pub calls: Compared,
    /// Why its off-CPU time is not known. If one of two recordings does not know it, it is inside of the time
    /// of the code that went off the CPU in both.
    pub no_off_cpu: Option<NoOffCpu>,
}

impl Recorded {
    fn stats(&self) -> Stats {
        Stats::of(&self.calls.latencies_ns.iter().copied().collect())
    }

    /// Each of [`FIGURES`] and how far off it may be; `None`: there is no call.
    fn figures(&self) -> [Option<(u64, u64)>; FIGURES.len()] {
        let spread = self.stats().spread;
        FIGURES.map(|(figure, bound)| {
            let ns = figure(spread.as_ref()?);
            Some((ns, self.calls.error.of(ns, bound)))
        })
    }
}

/// The difference between two recordings: B, these, against A, the base.
#[derive(Clone, Copy)]
pub struct Difference<'a> {
    /// The function.
    pub function: &'a str,
    /// B.
    pub these: &'a Recorded,
    /// A.
    pub base: &'a Recorded,
    /// What makes the difference.
    pub ledger: &'a LedgerView,
    /// Whether it is chance.
    pub shift: Shift,
    /// The difference of each figure.
    pub comparison: &'a RunsComparison,
    /// What makes the comparison fail.
    pub fail_above: Option<FailAbove>,
}

impl Difference<'_> {
    /// Each recording as a run: A, B.
    fn runs(&self) -> [Run; 2] {
        [self.base, self.these].map(|recorded| Run {
            name: recorded.input.clone(),
            calls: recorded.calls.clone(),
            off_cpu_sum_ns: None,
        })
    }

    /// What chance has to do with it. A difference that is less than its error may be none: then it exceeds
    /// nothing, however unlikely the same blocks are by chance.
    fn verdict(&self) -> Verdict {
        let LedgerDifference { ns, error_ns } = self.ledger.comparison.difference;
        let is_less = ns.unsigned_abs() <= error_ns;
        match self.shift.verdict() {
            Verdict::Exceeds if is_less => Verdict::DoesNotExceed,
            verdict => verdict,
        }
    }
}

/// What is shown of latencies, and the same of their bounds.
type FigureOf = (fn(&Spread) -> u64, fn(&Quantiles) -> Option<u64>);
const FIGURES: [FigureOf; 4] = [
    (|spread| spread.p50_ns, |bound| bound.p50_ns),
    (|spread| spread.p90_ns, |bound| bound.p90_ns),
    (|spread| spread.p99_ns, |bound| bound.p99_ns),
    (|spread| spread.max_ns, |bound| bound.max_ns),
];

/// Writes the difference into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write_text(out: &mut dyn Write, difference: &Difference<'_>, width: usize) -> io::Result<()> {
    let width = width.clamp(80, 200);
    let Difference { function, these, base, ledger, .. } = difference;
    writeln!(out, "[{function}]: B, {}, against A, {}\n", these.input, base.input)?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("calls", Align::Right),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p90", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
    ]);
    for (name, recorded) in [("A", base), ("B", these)] {
        let Stats { count, sum_ns, .. } = recorded.stats();
        let mean = ledger::mean_within(sum_ns, recorded.calls.error.sum_ns, count);
        let figures = recorded.figures().map(Option::unwrap_or_default);
        let [p50, p90, p99, max] = figures.map(|(ns, error_ns)| duration_within(ns, error_ns));
        let of_enough = |text: String, figure: &Figure| {
            if count < figure.least_calls { "-".to_owned() } else { text }
        };
        let figures = [p50, of_enough(p90, &P90), of_enough(p99, &P99), max];
        table.row([vec![name.to_owned(), grouped(count), mean], figures.to_vec()].concat());
    }
    table.write(out, width)?;
    for (name, recorded) in [("A", base), ("B", these)] {
        if let Some(left_out) = text::left_out(&recorded.calls.left_out) {
            writeln!(out, "  not compared in {name}: {left_out}")?;
        }
    }
    for (name, recorded) in [("A", base), ("B", these)] {
        if let Some(why) = recorded.no_off_cpu {
            writeln!(
                out,
                "  off-CPU time of {name} is not known ({why}): in both it is inside of the code that went off the CPU"
            )?;
        }
    }
    let [a, b] = difference.runs();
    compare::write_figures(out, difference.comparison, [&[a], &[b]], width)?;
    write_shift(out, difference)?;
    let cause = text::cause(ledger).filter(|_| difference.verdict() == Verdict::Exceeds);
    if let Some((what, of)) = cause {
        writeln!(out, "Most of it: {what}\n  {of}")?;
        if let Some(nature) = ledger.cause.as_ref().and_then(|cause| cause.nature) {
            writeln!(out, "  {}", split::sentence(&nature, false))?;
        }
    }
    text::write(out, ledger, Titles { these: "B: times", base: "A: times" }, width)?;
    let asked = difference.fail_above;
    asked.map_or(Ok(()), |asked| compare::write_fail_above(out, asked, difference.comparison))
}

/// Whether the difference is chance.
fn write_shift(out: &mut dyn Write, difference: &Difference<'_>) -> io::Result<()> {
    let Difference { ledger, shift, .. } = difference;
    let more = ledger::difference(ledger.comparison.difference);
    let verdict = difference.verdict();
    let than = match verdict {
        Verdict::DoesNotExceed if shift.verdict() == Verdict::Exceeds => {
            "is within the errors of the times, so that it may be none"
        }
        Verdict::Exceeds => "exceeds the spread within each recording",
        Verdict::DoesNotExceed => "does not exceed the spread within each recording",
        Verdict::TooFewCalls { .. } => "may be chance or not: there are too few calls to tell",
    };
    writeln!(out, "\nThe difference of the means, {more} ns, {than}:")?;
    let (of_these, of_base) = shift.blocks;
    write!(
        out,
        "  {} of B and {of_base} of A, shared out at random, differ as much with p = {:.4}",
        counted(of_these as u64, "block"),
        shift.p_value
    )?;
    let Verdict::TooFewCalls { needed } = verdict else {
        return writeln!(out, " (below 0.001 is no chance)");
    };
    let smallest = shift.smallest_p_value;
    writeln!(
        out,
        ", and never with less than {smallest:.4}\n  (below 0.001 is no chance; that takes {needed} calls of each at least)"
    )
}

#[derive(Serialize)]
struct DiffDocument<'a> {
    schema: &'static str,
    function: &'a str,
    these: DiffGroup<'a>,
    base: DiffGroup<'a>,
    difference_ns: i64,
    difference_error_ns: u64,
    /// The difference is larger than its error and than the spread within each recording explains. Null:
    /// there are too few calls to tell.
    exceeds_spread: Option<bool>,
    /// How likely blocks of calls that are shared out at random differ as much.
    p_value: f64,
    /// The smallest p-value that this number of blocks can give.
    smallest_p_value: f64,
    /// The calls of each with which it could be told, at least.  Null: there are enough.
    calls_needed: Option<usize>,
    /// The difference of each figure, with intervals from blocks.
    figures: Vec<FigureEntry>,
    /// Null: nothing was asked.
    fail_above: Option<FailEntry>,
    rows: Vec<RowJson<'a>>,
    /// Null: there is no difference.
    cause: Option<CauseJson<'a>>,
}

#[derive(Serialize)]
struct DiffGroup<'a> {
    input: &'a str,
    calls: u64,
    sum_ns: u64,
    /// The most by which the sum may differ from the true one.
    error_sum: u64,
    mean_ns: Option<f64>,
    p50_ns: Option<u64>,
    p50_error: Option<u64>,
    p90_ns: Option<u64>,
    p90_error: Option<u64>,
    p99_ns: Option<u64>,
    p99_error: Option<u64>,
    max_ns: Option<u64>,
    max_error: Option<u64>,
    not_compared: NotCompared,
    /// Why off-CPU time is not known; then it is inside of the other rows, on both sides.  Null: it is known.
    no_off_cpu: Option<&'static str>,
    /// Blocks of calls that follow one another.
    blocks: usize,
}

/// Writes the difference as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, difference: &Difference<'_>) -> io::Result<()> {
    let Difference { function, these, base, ledger, shift, comparison, fail_above } = *difference;
    let [a, b] = difference.runs();
    let (exceeds_spread, calls_needed) = match difference.verdict() {
        Verdict::Exceeds => (Some(true), None),
        Verdict::DoesNotExceed => (Some(false), None),
        Verdict::TooFewCalls { needed } => (None, Some(needed)),
    };
    let document = DiffDocument {
        schema: SCHEMA,
        function,
        these: group(these, shift.blocks.0),
        base: group(base, shift.blocks.1),
        difference_ns: ledger.comparison.difference.ns,
        difference_error_ns: ledger.comparison.difference.error_ns,
        exceeds_spread,
        p_value: shift.p_value,
        smallest_p_value: shift.smallest_p_value,
        calls_needed,
        figures: compare::figure_entries(comparison, [&[a], &[b]]),
        fail_above: fail_above.map(|fail_above| FailEntry::of(fail_above, comparison)),
        rows: ledger::json::rows(ledger),
        cause: ledger::json::cause(ledger),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn group(recorded: &Recorded, blocks: usize) -> DiffGroup<'_> {
    let stats = recorded.stats();
    let [p50, p90, p99, max] = recorded.figures();
    DiffGroup {
        input: &recorded.input,
        calls: stats.count,
        sum_ns: stats.sum_ns,
        error_sum: recorded.calls.error.sum_ns,
        mean_ns: stats.spread.map(|spread| spread.mean_ns),
        p50_ns: p50.map(|(p50_ns, _)| p50_ns),
        p50_error: p50.map(|(_, p50_error)| p50_error),
        p90_ns: p90.map(|(p90_ns, _)| p90_ns),
        p90_error: p90.map(|(_, p90_error)| p90_error),
        p99_ns: p99.map(|(p99_ns, _)| p99_ns),
        p99_error: p99.map(|(_, p99_error)| p99_error),
        max_ns: max.map(|(max_ns, _)| max_ns),
        max_error: max.map(|(_, max_error)| max_error),
        not_compared: recorded.calls.left_out.into(),
        no_off_cpu: recorded.no_off_cpu.map(NoOffCpu::reason),
        blocks,
    }
}
