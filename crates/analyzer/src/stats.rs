//! Exact figures over a set of durations.

/// Figures over a set of durations in ns: exact, not estimated.
///
/// Percentiles are by nearest rank: `p99` is the smallest value that at least 99 % of the values do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// How many durations.
    pub count: u64,
    /// Their sum; 0 if there are none.
    pub sum_ns: u64,
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
    /// The figures of `sorted`, which is in ascending order.
    #[must_use]
    pub fn of_sorted(sorted: &[u64]) -> Self {
        let count = sorted.len() as u64;
        let sum: u128 = sorted.iter().map(|&ns| u128::from(ns)).sum();
        let sum_ns = u64::try_from(sum).unwrap_or(u64::MAX);
        let (Some(&min_ns), Some(&max_ns)) = (sorted.first(), sorted.last()) else {
            return Self { count, sum_ns, spread: None };
        };
        let mean_ns = sum as f64 / count as f64;
        let squares: f64 = sorted.iter().map(|&ns| (ns as f64 - mean_ns).powi(2)).sum();
        let rank = |per_mille| sorted.get(nearest_rank(per_mille, sorted.len())).copied().unwrap_or(max_ns);
        let spread = Spread {
            min_ns,
            mean_ns,
            stddev_ns: (squares / count as f64).sqrt(),
            p50_ns: rank(500),
            p90_ns: rank(900),
            p99_ns: rank(990),
            p999_ns: rank(999),
            max_ns,
        };
        Self { count, sum_ns, spread: Some(spread) }
    }
}

/// 0 if there are none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Index of a percentile among `len` sorted values.
pub(crate) fn nearest_rank(per_mille: usize, len: usize) -> usize {
    (per_mille * len).div_ceil(1000).saturating_sub(1)
}

/// Extremes and percentiles of a set of which some members may be known only to be longer than all others.
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
    /// Of `values`, which it reorders, and of `longer` members that are longer than all of them.
    #[must_use]
    pub fn of(values: &mut [u64], longer: usize) -> Self {
        let len = values.len() + longer;
        let min_ns = values.iter().min().copied();
        let max_ns = values.iter().max().copied().filter(|_| longer == 0);
        let mut rank = |per_mille| {
            let index = nearest_rank(per_mille, len);
            (index < values.len()).then(|| *values.select_nth_unstable(index).1)
        };
        Self { min_ns, p50_ns: rank(500), p90_ns: rank(900), p99_ns: rank(990), p999_ns: rank(999), max_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_set_has_a_count_and_nothing_else() {
        assert_eq!(Stats::of_sorted(&[]), Stats { count: 0, sum_ns: 0, spread: None });
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<u64> = (1..=1000).collect();
        let s = Stats::of_sorted(&values);
        let spread = s.spread.unwrap();
        assert_eq!((s.count, s.sum_ns), (1000, 500_500));
        assert_eq!((spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns), (500, 900, 990, 999));
        let three = Stats::of_sorted(&[10, 20, 90]).spread.unwrap();
        assert_eq!((three.p50_ns, three.p90_ns, three.p999_ns), (20, 90, 90));
    }

    #[test]
    fn the_deviation_is_that_of_the_population() {
        let spread = Stats::of_sorted(&[2, 4, 4, 4, 5, 5, 7, 9]).spread.unwrap();
        assert_eq!((spread.mean_ns, spread.stddev_ns), (5.0, 2.0));
    }

    #[test]
    fn quantiles_are_those_of_the_figures() {
        let mut values: Vec<u64> = (1..=1000).rev().collect();
        let spread = Stats::of_sorted(&(1..=1000).collect::<Vec<_>>()).spread.unwrap();
        let q = Quantiles::of(&mut values, 0);
        assert_eq!((q.min_ns, q.max_ns), (Some(spread.min_ns), Some(spread.max_ns)));
        let of_spread = [spread.p50_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns].map(Some);
        assert_eq!([q.p50_ns, q.p90_ns, q.p99_ns, q.p999_ns], of_spread);
        assert_eq!(Quantiles::of(&mut [], 0), Quantiles::default());
    }

    #[test]
    fn what_is_longer_than_all_others_has_no_figure() {
        // Of ten, the median is the fifth, p90 the ninth: one of those whose length is not known.
        let q = Quantiles::of(&mut [50, 10, 40, 20, 30, 80, 60, 70], 2);
        assert_eq!((q.min_ns, q.p50_ns, q.p90_ns, q.max_ns), (Some(10), Some(50), None, None));
        assert_eq!(Quantiles::of(&mut [], 3), Quantiles::default());
    }
}
