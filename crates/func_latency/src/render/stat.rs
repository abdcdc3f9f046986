//! The figures of a function over repeated runs.

use std::io::{self, Write};

use analyzer::Stats;
use analyzer::samples::{self, Figure, RunsSummary, Trend};
use serde::Serialize;

use super::runs::{FunctionRuns, Run, RunEntry, below_errors, mean_and_deviation};
use super::table::{Align, Table};
use super::units::{counted, grouped, mean_duration, percent};

/// Name and version of the contract.
pub const SCHEMA: &str = "func_latency.stat/1";

/// Figures that are looked at for outliers and trends: of more, one would warn by chance too often.
const WATCHED: [&str; 2] = ["mean", "p50"];

/// What was measured, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Repeated<'a> {
    /// The command, the processes or the files.
    pub measured: &'a str,
    /// The runs of each function.
    pub functions: &'a [FunctionRuns],
}

/// A figure over the runs.
#[derive(Serialize)]
struct FigureOverRuns {
    figure: &'static str,
    /// `ns`; null: it is a number.
    unit: Option<&'static str>,
    /// Null, here and below: a run has too few calls, or it is not known.
    mean: Option<f64>,
    deviation: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    /// Runs, from 1, that are far from the others.
    outliers: Vec<usize>,
    /// Null: it was not looked for.
    trend: Option<TrendEntry>,
}

#[derive(Serialize)]
struct TrendEntry {
    tau: f64,
    p_value: f64,
    is_no_chance: bool,
}

impl FigureOverRuns {
    fn of(figure: &'static str, unit: Option<&'static str>, samples: Option<&[f64]>) -> Self {
        let summary = samples.and_then(RunsSummary::of);
        let watched = samples.filter(|_| WATCHED.contains(&figure)).unwrap_or_default();
        let trend = Trend::of(watched).map(|trend| TrendEntry {
            tau: trend.tau,
            p_value: trend.p_value,
            is_no_chance: trend.is_no_chance(WATCHED.len()),
        });
        Self {
            figure,
            unit,
            mean: summary.map(|summary| summary.mean),
            deviation: summary.and_then(|summary| summary.deviation),
            min: summary.map(|summary| summary.min),
            max: summary.map(|summary| summary.max),
            outliers: samples::outliers(watched).into_iter().map(|index| index + 1).collect(),
            trend,
        }
    }

    /// Name, mean with deviation, deviation as a share, range.
    fn cells(&self) -> Option<Vec<String>> {
        let (mean, min, max) = (self.mean?, self.min?, self.max?);
        let (value, range) = match self.unit {
            Some(_) => (mean_and_deviation(mean, self.deviation), [min, max].map(mean_duration)),
            None => (numbers(mean, self.deviation), [min, max].map(|number| grouped(number.round() as u64))),
        };
        let share = |deviation: f64| format!("{} %", percent(100.0 * deviation / mean));
        let share = self.deviation.filter(|_| mean > 0.0).map_or_else(String::new, share);
        Some(vec![self.figure.to_owned(), value, share, range.join(" to ")])
    }
}

/// `1,500 +- 2.1`.
fn numbers(mean: f64, deviation: Option<f64>) -> String {
    let deviation = deviation.map_or_else(String::new, |deviation| format!(" +- {deviation:.1}"));
    format!("{}{deviation}", grouped(mean.round() as u64))
}

/// The figures of a function, in the order in which they are shown.
fn figures(runs: &[Run]) -> Vec<FigureOverRuns> {
    let stats: Vec<Stats> = runs.iter().map(Run::stats).collect();
    let all = |of: &dyn Fn(&Stats) -> Option<f64>| stats.iter().map(of).collect::<Option<Vec<f64>>>();
    let ns = |name, samples: Option<Vec<f64>>| FigureOverRuns::of(name, Some("ns"), samples.as_deref());
    let calls = all(&|stats| Some(stats.count as f64));
    let mut figures = vec![FigureOverRuns::of("calls", None, calls.as_deref())];
    figures.push(ns("min", all(&|stats| stats.spread.map(|spread| spread.min_ns as f64))));
    figures.extend(Figure::ALL.map(|figure| {
        let of = |stats: &Stats| {
            let spread = stats.spread.filter(|_| stats.count >= figure.least_calls() as u64)?;
            Some(figure.of(&spread))
        };
        ns(figure.name(), all(&of))
    }));
    figures.push(ns("max", all(&|stats| stats.spread.map(|spread| spread.max_ns as f64))));
    figures.push(ns("total", all(&|stats| Some(stats.sum_ns as f64))));
    let off_cpu: Option<Vec<f64>> = runs.iter().map(|run| run.off_cpu_sum_ns.map(|ns| ns as f64)).collect();
    figures.push(ns("off-CPU total", off_cpu));
    figures
}

/// Writes the figures of each function into lines of about `width` columns.
///
/// # Errors
/// What `out` says.
pub fn write_text(out: &mut dyn Write, repeated: &Repeated<'_>, width: usize) -> io::Result<()> {
    for (number, FunctionRuns { function, runs }) in repeated.functions.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let count = counted(runs.len() as u64, "run");
        writeln!(out, "[{function}]: {count} of {}\n", repeated.measured)?;
        let mut table = Table::new(&[
            ("", Align::Left),
            ("mean +- deviation", Align::Right),
            ("", Align::Right),
            ("range over the runs", Align::Left),
        ]);
        let figures = figures(runs);
        figures.iter().filter_map(FigureOverRuns::cells).for_each(|cells| table.row(cells));
        table.write(out, width)?;
        below_errors(runs).map_or(Ok(()), |line| writeln!(out, "  {line}"))?;
        let not_compared: u64 = runs.iter().map(|run| run.calls.left_out.total()).sum();
        if not_compared > 0 {
            let calls = counted(not_compared, "call");
            writeln!(out, "  in no figure, as they were not seen from entry to end: {calls} of all runs")?;
        }
        figures.iter().flat_map(warnings).try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

/// What is the matter with a figure.
fn warnings(figure: &FigureOverRuns) -> Vec<String> {
    let name = figure.figure;
    let mut lines = Vec::new();
    match figure.outliers.as_slice() {
        [] => (),
        [1] => lines.push(format!(
            "warning: {name}: the first run is far from the others, as where caches are cold: one more --warmup leaves it out"
        )),
        outliers => {
            let numbers: Vec<String> = outliers.iter().map(usize::to_string).collect();
            lines.push(format!(
                "warning: {name}: far from the others: run {}; something else ran on the machine, or the program does \
                 not always do the same",
                numbers.join(", ")
            ));
        }
    }
    if let Some(TrendEntry { tau, p_value, is_no_chance: true }) = figure.trend {
        let rises = if tau > 0.0 { "rises" } else { "falls" };
        let p = if p_value < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {p_value:.4}") };
        lines.push(format!(
            "warning: {name} {rises} over the runs (Kendall's tau {tau:+.2}, {p}): the mean depends on \
             how many runs there are"
        ));
    }
    lines
}

#[derive(Serialize)]
struct StatDocument<'a> {
    schema: &'static str,
    measured: &'a str,
    functions: Vec<FunctionEntry<'a>>,
}

#[derive(Serialize)]
struct FunctionEntry<'a> {
    name: &'a str,
    figures: Vec<FigureOverRuns>,
    runs: Vec<RunEntry<'a>>,
}

impl<'a> From<&'a FunctionRuns> for FunctionEntry<'a> {
    fn from(FunctionRuns { function, runs }: &'a FunctionRuns) -> Self {
        let (figures, runs) = (figures(runs), runs.iter().map(RunEntry::from).collect());
        Self { name: function, figures, runs }
    }
}

/// Writes the figures as one JSON document and a newline.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut dyn Write, repeated: &Repeated<'_>) -> io::Result<()> {
    let functions = repeated.functions.iter().map(FunctionEntry::from).collect();
    let document = StatDocument { schema: SCHEMA, measured: repeated.measured, functions };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
