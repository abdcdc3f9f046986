//! Figures over a set of durations.

use crate::durations::SortedDurations;

/// Figures over a set of durations in ns: exact, not estimated, unless they are [`Stats::rounded`].
///
/// Percentiles are by nearest rank: `p99` is the smallest value that at least 99 % of the values do not
/// exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// How many durations.
    pub count: u64,
    /// Their sum; 0 if there are none.
    pub sum_ns: u64,
    /// Percentiles are rounded down and the deviation is of such durations, by less than 1/1024: more than
    /// 2^20 of them are different. All else is exact.
    pub rounded: bool,
    /// What an empty set does not have.
    pub spread: Option<Spread>,
}

/// The figures that only a set with members has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Smallest.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Standard deviation of the population.
    pub stddev_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
}

impl Stats {
    /// The figures of these.
    #[must_use]
    pub fn of(durations: &SortedDurations) -> Self {
        let (count, sum, rounded) = (durations.count(), durations.sum(), durations.is_rounded());
        let sum_ns = u64::try_from(sum).unwrap_or(u64::MAX);
        let Some((min_ns, max_ns)) = durations.ends() else {
            return Self { count, sum_ns, rounded, spread: None };
        };
        let mean_ns = sum as f64 / count as f64;
        // By duration, not by call: a summary of many hosts counts more calls than there is time to visit.
        let square = |(ns, times): (u64, u64)| times as f64 * (ns as f64 - mean_ns).powi(2);
        let squares: f64 = durations.iter().map(square).sum();
        let ranks = PER_MILLE.map(|per_mille| nearest_rank(per_mille, count));
        let [p50_ns, p90_ns, p99_ns, p999_ns] = durations.of_ranks(ranks).map(|ns| ns.unwrap_or(max_ns));
        let stddev_ns = (squares / count as f64).sqrt();
        let spread = Spread { min_ns, mean_ns, stddev_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns };
        Self { count, sum_ns, rounded, spread: Some(spread) }
    }
}

/// The percentiles that are given.
const PER_MILLE: [u64; 4] = [500, 900, 990, 999];

/// 0 if there are none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Index of a percentile among `len` sorted values.
pub(crate) fn nearest_rank(per_mille: u64, len: u64) -> u64 {
    (per_mille * len).div_ceil(1000).saturating_sub(1)
}

/// Extremes and percentiles of a set; some members may be known only to be longer than all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Smallest.  `None`, here and below: it is one of those of unknown length, or the set is empty.
    pub min_ns: Option<u64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 90th percentile.
    pub p90_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// Largest.
    pub max_ns: Option<u64>,
}

impl Quantiles {
    /// Of these, and of `longer` members that are longer than all of them.
    #[must_use]
    pub fn of(durations: &SortedDurations, longer: u64) -> Self {
        let len = durations.count() + longer;
        let (min_ns, max_ns) = durations.ends().unzip();
        let max_ns = max_ns.filter(|_| longer == 0);
        let ranks = PER_MILLE.map(|per_mille| nearest_rank(per_mille, len));
        let [p50_ns, p90_ns, p99_ns, p999_ns] = durations.of_ranks(ranks);
        Self { min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns }
    }

    /// The same, and from p99 on less by this, as where it is the rare values that count.
    #[must_use]
    pub(crate) fn with_tail_below(self, rare_ns: u64) -> Self {
        let [p99_ns, p999_ns, max_ns] =
            [self.p99_ns, self.p999_ns, self.max_ns].map(|ns| ns.map(|ns| ns.saturating_sub(rare_ns)));
        Self { p99_ns, p999_ns, max_ns, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(durations: impl IntoIterator<Item = u64>) -> Stats {
        Stats::of(&durations.into_iter().collect())
    }

    fn quantiles(durations: impl IntoIterator<Item = u64>, longer: u64) -> Quantiles {
        Quantiles::of(&durations.into_iter().collect(), longer)
    }

    #[test]
    fn an_empty_set_has_a_count_and_nothing_else() {
        assert_eq!(stats([]), Stats::default());
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let s = stats(1..=1000);
        let spread = s.spread.unwrap();
        assert_eq!((s.count, s.sum_ns), (1000, 500_500));
        assert_eq!((spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns), (500, 900, 990, 999));
        let three = stats([10, 20, 90]).spread.unwrap();
        assert_eq!((three.p50_ns, three.p90_ns, three.p999_ns), (20, 90, 90));
    }

    #[test]
    fn the_deviation_is_that_of_the_population() {
        let spread = stats([2, 4, 4, 4, 5, 5, 7, 9]).spread.unwrap();
        assert_eq!((spread.mean_ns, spread.stddev_ns), (5.0, 2.0));
    }

    #[test]
    fn quantiles_are_those_of_the_figures() {
        let spread = stats(1..=1000).spread.unwrap();
        let q = quantiles((1..=1000).rev(), 0);
        assert_eq!((q.min_ns, q.max_ns), (Some(spread.min_ns), Some(spread.max_ns)));
        let of_spread = [spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns].map(Some);
        assert_eq!([q.p50_ns, q.p90_ns, q.p99_ns, q.p999_ns], of_spread);
        assert_eq!(quantiles([], 0), Quantiles::default());
    }

    #[test]
    fn what_is_longer_than_all_others_has_no_figure() {
        // Of ten, the median is the fifth, p90 the ninth: one of those of unknown length.
        let q = quantiles([50, 10, 40, 20, 30, 80, 60, 70], 2);
        assert_eq!((q.min_ns, q.p50_ns, q.p90_ns, q.max_ns), (Some(10), Some(50), None, None));
        assert_eq!(quantiles([], 3), Quantiles::default());
    }
}
