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
        let Stats { count, sum_ns, spread } = run.stats();
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
