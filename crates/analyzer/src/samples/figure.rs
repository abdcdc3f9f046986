//! The figures of a run that are held against those of other runs.

use crate::durations::SortedDurations;
use crate::stats::{Spread, Stats};

/// A figure of a run's latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Arithmetic mean.
    Mean,
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
}

impl Figure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Mean, Self::P50, Self::P90, Self::P99, Self::P999];

    /// Its name in texts, JSON and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    /// With fewer calls a percentile is the longest call.
    #[must_use]
    pub const fn least_calls(self) -> usize {
        match self {
            Self::Mean | Self::P50 => 1,
            Self::P90 => 10,
            Self::P99 => 100,
            Self::P999 => 1000,
        }
    }

    /// Its value, in ns.
    #[must_use]
    pub fn of(self, spread: &Spread) -> f64 {
        match self {
            Self::Mean => spread.mean_ns,
            Self::P50 => spread.p50_ns as f64,
            Self::P90 => spread.p90_ns as f64,
            Self::P99 => spread.p99_ns as f64,
            Self::P999 => spread.p999_ns as f64,
        }
    }

    /// Its value of latencies; `None`: there are too few.
    #[must_use]
    pub fn of_latencies(self, latencies_ns: &[u64]) -> Option<f64> {
        if latencies_ns.len() < self.least_calls() {
            return None;
        }
        let sorted: SortedDurations = latencies_ns.iter().copied().collect();
        Stats::of(&sorted).spread.map(|spread| self.of(&spread))
    }
}
