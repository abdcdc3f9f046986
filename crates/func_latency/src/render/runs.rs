//! Runs of a program: what `stat`, `compare` and `diff` show of each.

use analyzer::ledger::Compared;
use analyzer::samples::Figure;
use analyzer::{Quantiles, Stats};
use serde::Serialize;

use super::ledger::json::NotCompared;
use super::units::mean_duration;

/// A run's calls of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The file that it was read from, or its number.
    pub name: String,
    /// The calls that count.
    pub calls: Compared,
    /// Their time off the CPU.  `None`: it is not known.
    pub off_cpu_sum_ns: Option<u64>,
}

/// The runs of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionRuns {
    /// The function.
    pub function: String,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

impl Run {
    /// Figures of its calls.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.calls.latencies_ns.iter().copied().collect())
    }

    /// The most by which the errors of the times may move a figure, in ns; 0 of no call.
    #[must_use]
    pub fn error_of(&self, figure: Figure) -> f64 {
        let error = &self.calls.error;
        let value_ns = self.stats().spread.map_or(0.0, |spread| figure.of(&spread));
        let of = |bound: fn(&Quantiles) -> Option<u64>| error.of(value_ns as u64, bound) as f64;
        match figure {
            Figure::Mean => error.sum_ns as f64 / self.calls.latencies_ns.len().max(1) as f64,
            Figure::P50 => of(|bound| bound.p50_ns),
            Figure::P90 => of(|bound| bound.p90_ns),
            Figure::P99 => of(|bound| bound.p99_ns),
            Figure::P999 => of(|bound| bound.p999_ns),
        }
    }
}

impl FunctionRuns {
    /// The latencies of each run.
    #[must_use]
    pub fn latencies(&self) -> Vec<&[u64]> {
        self.runs.iter().map(|run| run.calls.latencies_ns.as_slice()).collect()
    }
}

/// The most by which errors of the times may move a figure: the mean of the runs.
pub(super) fn error_of(runs: &[Run], figure: Figure) -> f64 {
    runs.iter().map(|run| run.error_of(figure)).sum::<f64>() / runs.len().max(1) as f64
}

/// Names the figures that are no more than the errors of the times, as a mean of the runs: `p50, p90: no more
/// than the errors of the times: true values are below 870 ns, 1.20 us`.
pub(super) fn below_errors(runs: &[Run]) -> Option<String> {
    let stats: Vec<Stats> = runs.iter().map(Run::stats).collect();
    let is_known = |figure: &Figure| stats.iter().all(|stats| stats.count >= figure.least_calls() as u64);
    let (mut names, mut limits) = (Vec::new(), Vec::new());
    for figure in Figure::ALL.into_iter().filter(is_known) {
        let values = stats.iter().filter_map(|stats| Some(figure.of(&stats.spread?)));
        let value = values.sum::<f64>() / runs.len().max(1) as f64;
        let error = error_of(runs, figure);
        if error > 0.0 && value <= error {
            names.push(figure.name());
            limits.push(mean_duration((value + error).ceil() + 1.0));
        }
    }
    let (names, limits) = (names.join(", "), limits.join(", "));
    (!names.is_empty())
        .then(|| format!("{names}: no more than the errors of the times: what is known is < {limits}"))
}

/// A mean and its standard deviation, for people: `133 ns +- 2.1 ns`.
#[must_use]
pub fn mean_and_deviation(mean_ns: f64, deviation_ns: Option<f64>) -> String {
    match deviation_ns {
        Some(deviation_ns) => format!("{} +- {}", mean_duration(mean_ns), mean_duration(deviation_ns)),
        None => mean_duration(mean_ns),
    }
}

/// A run as JSON.
#[derive(Serialize)]
pub(super) struct RunEntry<'a> {
    name: &'a str,
    calls: u64,
    sum_ns: u64,
    min_ns: Option<u64>,
    mean_ns: Option<f64>,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
    /// Null: it is not known.
    off_cpu_sum_ns: Option<u64>,
    not_compared: NotCompared,
}

impl<'a> From<&'a Run> for RunEntry<'a> {
    fn from(run: &'a Run) -> Self {
        let Stats { count, sum_ns, spread, .. } = run.stats();
        Self {
            name: &run.name,
            calls: count,
            sum_ns,
            min_ns: spread.map(|spread| spread.min_ns),
            mean_ns: spread.map(|spread| spread.mean_ns),
            p50_ns: spread.map(|spread| spread.p50_ns),
            p90_ns: spread.map(|spread| spread.p90_ns),
            p99_ns: spread.map(|spread| spread.p99_ns),
            p999_ns: spread.map(|spread| spread.p999_ns),
            max_ns: spread.map(|spread| spread.max_ns),
            off_cpu_sum_ns: run.off_cpu_sum_ns,
            not_compared: run.calls.left_out.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_its_deviation() {
        assert_eq!(mean_and_deviation(133.26, Some(2.1)), "133 ns +- 2.10 ns");
        assert_eq!(mean_and_deviation(1_234_000.0, Some(12_000.0)), "1.23 ms +- 12.0 us");
        assert_eq!(mean_and_deviation(133.0, None), "133 ns");
    }
}
